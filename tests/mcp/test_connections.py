"""How sessions begin and end: roles, lost servers and clients, no server at first, and no SDK."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp.shared.exceptions import MCPError
from tests.cli.conftest import SHOPFLOOR
from tests.mcp.installation import Installation, Kind, call
from tests.timeouts import TIMEOUT_SECONDS, wait_until

pytestmark = pytest.mark.anyio

kinds = pytest.mark.parametrize("kind", ["stdio", "http"])
modes = pytest.mark.parametrize("mode", ["auto", "legacy"])
READ = ["worker_list", "run_search"]


@modes
async def test_a_viewer_may_read_and_not_act(running: Installation, mode: str) -> None:
    async with running.client("http", mode) as client:
        run_id = (await call(client, "worker_run", {"worker": "greet", "task": "Ada"})).facts["run_id"]
    async with running.client("http", mode, token=running.token("viewer")) as client:
        assert not [tool for tool in READ if (await call(client, tool)).is_error]
        assert (await call(client, "worker_status", {"run_id": run_id})).facts["status"] == "completed"
        assert (await call(client, "worker_result", {"run_id": run_id})).text == "Hello, Ada!"
        (result,) = (await client.read_resource(f"shopfloor://runs/{run_id}/result")).contents
        assert getattr(result, "text", None) == "Hello, Ada!"
        for tool, arguments in {
            "worker_dispatch": {"worker": "greet", "task": "Eve"},
            "worker_run": {"worker": "greet", "task": "Eve"},
            "worker_cancel": {"run_id": run_id},
            "worker_delete": {"run_id": run_id},
        }.items():
            refused = await call(client, tool, arguments)
            assert (refused.is_error, refused.facts["code"]) == (True, "forbidden"), tool
            assert "operator" in refused.facts["hint"]


async def test_an_operator_may_act_and_the_audit_log_names_the_token(running: Installation) -> None:
    async with running.client("http", token=running.token("operator")) as client:
        run_id = (await call(client, "worker_dispatch", {"worker": "greet", "task": "Ada"})).facts["run_id"]
    entries = [json.loads(line) for line in running.storage.audit.read_text().splitlines()]
    (entry,) = [entry for entry in entries if entry.get("run_id") == run_id]
    assert (entry["action"], entry["role"], entry["address"]) == ("run.dispatched", "operator", "127.0.0.1")
    assert "operator-" in entry["by"]
    assert entry["client"].startswith("python-httpx")


def test_a_request_without_a_valid_token_is_refused(running: Installation) -> None:
    assert running.address is not None
    url = f"{running.address.url}/mcp"
    missing = httpx.post(url, json={})
    assert (missing.status_code, missing.json()["error"]["code"]) == (401, "unauthorized")
    wrong = httpx.post(url, json={}, headers={"Authorization": "Bearer wrong"})
    assert (wrong.status_code, wrong.json()["error"]["message"]) == (401, "this token is not known here")
    foreign = {"Authorization": f"Bearer {running.address.token}", "Origin": "http://evil.example"}
    assert httpx.post(url, json={}, headers=foreign).status_code == 403


def test_a_session_belongs_to_the_token_that_opened_it(running: Installation) -> None:
    assert running.address is not None
    url, own = f"{running.address.url}/mcp", {"Authorization": f"Bearer {running.address.token}"}
    accepted = {"Accept": "application/json, text/event-stream"}
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    }
    opened = httpx.post(url, json=hello, headers=own | accepted)
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert httpx.post(url, json=listing, headers=own | accepted | session).status_code == 200
    other = {"Authorization": f"Bearer {running.token('viewer')}"}
    assert httpx.post(url, json=listing, headers=other | accepted | session).status_code == 404


@kinds
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_that_is_restarted_between_calls_is_found_again(
    installation: Installation, kind: Kind, number: signal.Signals
) -> None:
    installation.up()
    async with installation.client(kind) as client:
        before = await call(client, "worker_run", {"worker": "greet", "task": "Ada"})
        if kind == "http":
            assert installation.address is not None
            installation.env["SHOPFLOOR_PORT"] = installation.address.url.rpartition(":")[2]
        installation.down(number)
        installation.up()
        after = await call(client, "worker_run", {"worker": "greet", "task": "Bo"})
        assert (before.text, after.text) == ("Hello, Ada!", "Hello, Bo!")
        assert (await call(client, "worker_result", {"run_id": before.facts["run_id"]})).text == "Hello, Ada!"


async def test_an_old_session_over_http_ends_with_the_server_and_a_new_one_has_the_result(
    installation: Installation,
) -> None:
    address = installation.up()
    installation.env["SHOPFLOOR_PORT"] = address.url.rpartition(":")[2]
    async with installation.client("http", "legacy") as client:
        run_id = (await call(client, "worker_run", {"worker": "greet", "task": "Ada"})).facts["run_id"]
        installation.down()
        installation.up()
        with pytest.raises(MCPError):
            await call(client, "worker_result", {"run_id": run_id})
    async with installation.client("http", "legacy") as client:
        assert (await call(client, "worker_result", {"run_id": run_id})).text == "Hello, Ada!"


async def test_a_server_that_stops_during_a_call_over_stdio_is_replaced(installation: Installation) -> None:
    installation.up()
    async with installation.client("stdio") as client, anyio.create_task_group() as tasks:

        async def restart() -> None:
            wait_until(lambda: any(installation.storage.run_ids()), "the run")
            installation.down(signal.SIGKILL)

        tasks.start_soon(anyio.to_thread.run_sync, lambda: anyio.run(restart))
        ran = await call(client, "worker_run", {"worker": "sleeps", "input": {"SECONDS": "1"}})
        # The command was interrupted and must not be repeated; the new server says so.
        assert ran.facts.get("status") in ("completed", "failed"), ran.facts
        assert installation.address is not None


async def test_without_a_server_one_is_started_that_outlives_the_agent(installation: Installation) -> None:
    async with installation.client("stdio") as client:
        sent = await call(client, "worker_dispatch", {"worker": "sleeps", "input": {"SECONDS": "0.5"}})
        started = installation.address
        assert started is not None
    async with installation.client("stdio") as client:
        (run,) = (await call(client, "worker_wait", {"run_ids": [sent.facts["run_id"]]})).facts["runs"]
        while run["status"] != "completed":
            (run,) = (await call(client, "worker_wait", {"run_ids": [sent.facts["run_id"]]})).facts["runs"]
        assert (await call(client, "worker_result", {"run_id": sent.facts["run_id"]})).text == "slept"
    assert installation.address == started


async def test_agents_that_start_at_once_share_one_server(installation: Installation) -> None:
    urls: set[str] = set()

    async def run() -> None:
        async with installation.client("stdio") as client:
            urls.add((await call(client, "worker_dispatch", {"worker": "greet", "task": "Ada"})).facts["url"])

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(run)
    assert len({url.partition("/agents")[0] for url in urls}) == 1
    assert len(urls) == 4


async def test_a_server_that_cannot_start_is_reported_by_the_tools(installation: Installation) -> None:
    installation.env["SHOPFLOOR_SLOTS"] = "none"
    async with installation.client("stdio") as client:
        failed = await call(client, "worker_list")
        assert (failed.is_error, failed.facts["code"]) == (True, "server_unreachable")
        assert "SHOPFLOOR_SLOTS" in failed.facts["error"]
    del installation.env["SHOPFLOOR_SLOTS"]


async def test_a_taken_port_is_no_obstacle(installation: Installation, running: Installation) -> None:
    assert running.address is not None
    installation.env["SHOPFLOOR_PORT"] = running.address.url.rpartition(":")[2]
    async with installation.client("stdio") as client:
        assert (await call(client, "worker_run", {"worker": "greet", "task": "Ada"})).text == "Hello, Ada!"


HELLO = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)


def start_stdio(installation: Installation) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [SHOPFLOOR, "mcp"],
        env=installation.env,
        cwd=installation.project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(HELLO)
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "shopfloor"
    return process


def test_the_end_of_input_ends_the_process_and_only_the_protocol_was_printed(running: Installation) -> None:
    process = start_stdio(running)
    out, err = process.communicate(b"this is not JSON\n", timeout=TIMEOUT_SECONDS)
    assert (process.returncode, err) == (0, b"")
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_process_at_once(running: Installation, number: signal.Signals) -> None:
    process = start_stdio(running)
    process.send_signal(number)
    assert process.wait(TIMEOUT_SECONDS) == 128 + number
    assert process.communicate()[1] == b""


def test_a_call_that_is_open_at_the_end_of_input_leaves_its_run_alone(running: Installation) -> None:
    process = start_stdio(running)
    arguments = {"worker": "sleeps", "input": {"SECONDS": "1"}, "description": "left alone"}
    request = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "tools/call",
        "params": {"name": "worker_run", "arguments": arguments},
    }
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()

    def find() -> list[dict[str, object]]:
        listed = running.shopfloor("list", "--json", "--search", '"left alone"')
        return json.loads(listed.stdout)["workers"]

    wait_until(find, "the run")
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0
    wait_until(lambda: [run["status"] for run in find()] == ["done"], "the end of the run")


@modes
async def test_a_cut_connection_leaves_the_run_alone(running: Installation, mode: str) -> None:
    name, runs = f"cut{mode}", list[dict[str, Any]]()

    async def call_until_cut() -> None:
        async with running.client("http", mode) as client:
            await call(client, "worker_run", {"worker": "sleeps", "input": {"SECONDS": "3"}, "description": name})

    async with running.client("http", mode) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(call_until_cut)
        with anyio.fail_after(TIMEOUT_SECONDS):
            while not runs:
                runs = (await call(client, "run_search", {"query": name})).facts["runs"]
        tasks.cancel_scope.cancel()
    async with running.client("http", mode) as client:
        (run,) = runs
        with anyio.fail_after(TIMEOUT_SECONDS):
            while run["status"] != "completed":
                (run,) = (await call(client, "worker_wait", {"run_ids": [run["run_id"]]})).facts["runs"]
        assert (await call(client, "worker_result", {"run_id": run["run_id"]})).text == "slept"


@modes
async def test_open_streams_do_not_delay_the_end_of_the_server(installation: Installation, mode: str) -> None:
    installation.up()
    process = installation.process
    assert process is not None

    async def stop_during_a_call() -> None:
        async with installation.client("http", mode) as client:
            await call(client, "worker_list")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.to_thread.run_sync, installation.down)
                await call(client, "worker_run", {"worker": "sleeps", "input": {}}, read_timeout_seconds=20)

    with pytest.raises(BaseException):  # noqa: B017, PT011 - which error the client raises is not ours
        await stop_during_a_call()
    assert process.wait(TIMEOUT_SECONDS) == 0
    assert b"Traceback" not in (installation.folder / "server.err").read_bytes()


@pytest.fixture
def without_sdk(installation: Installation, tmp_path: Path) -> Installation:
    """An installation whose Python does not find the SDK."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('mcp', 'mcp_types'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    installation.env["PYTHONPATH"] = os.pathsep.join([str(hidden), *filter(None, [os.environ.get("PYTHONPATH")])])
    return installation


def test_without_the_sdk_the_command_and_the_server_say_what_to_install(without_sdk: Installation) -> None:
    done = without_sdk.shopfloor("mcp")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error[extra_not_installed]: MCP is not available here\nhint: install Shopfloor with its extra `mcp`\n"
    )
    address = without_sdk.up()
    answer = httpx.post(f"{address.url}/mcp", json={}, headers={"Authorization": f"Bearer {address.token}"})
    assert (answer.status_code, answer.json()["error"]["hint"]) == (501, "install Shopfloor with its extra `mcp`")


def test_a_server_without_mcp_clients_does_not_load_the_sdk(installation: Installation) -> None:
    script = "import sys, shopfloor.wiring.server, shopfloor.wiring.mcp; print([n for n in sys.modules if n.startswith(('mcp', 'pydantic'))])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=installation.env)
    assert (done.stdout, done.stderr) == ("[]\n", "")
