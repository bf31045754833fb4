"""Access to a server, and its audit log: `login`, `tokens`, `audit`."""

from __future__ import annotations

import json
import re
import stat
from contextlib import suppress
from pathlib import Path

import anyio
import anyio.to_thread
import httpx
import pytest
from tests.cli.terminal import Terminal
from tests.cli.test_server import server
from tests.timeouts import TIMEOUT_SECONDS, wait_until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from shopfloor.adapters.local import LocalAudit

__all__ = ["server"]
WORKER = """
tools: {measure: {description: Measures., parameters: {what: {type: string}}}}
steps: {Measure: {block: tool-call, tool: measure, input: {what: fence}}}
"""


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    folder = tmp_path / "access-workers"
    (folder / "measurer").mkdir(parents=True)
    (folder / "measurer" / "worker.yaml").write_text(WORKER)
    return folder


@pytest.mark.req("SF-19", "SF-20", "SF-22")
def test_tokens_are_created_listed_revoked_and_audited(server, shopfloor, workers, env):
    up = server("--workers", str(workers))
    audit = Path(env["SHOPFLOOR_STORAGE"]) / "audit.jsonl"

    # A line break would look like another token in the list.
    assert shopfloor("tokens", "new", "a\ntoken  b").returncode == 2
    made = shopfloor("tokens", "new", "ci", "--role", "operator")
    token = made.stdout.strip()
    assert re.fullmatch(r"[\w-]{43}", token)
    link = shopfloor("login").stdout.strip()
    assert link.startswith(f"{up.url}/login?code=")
    with (
        httpx.Client(base_url=up.url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_SECONDS) as ci,
        httpx.Client(base_url=up.url, timeout=TIMEOUT_SECONDS) as browser,
    ):
        assert browser.get(link).status_code == 303
        browser.headers["Origin"] = up.url
        run_id = ci.post("/api/runs", json={"worker": "measurer"}).json()["run_id"]
        detail = {"worker_id": run_id, "transcript": False}
        awaits = wait_for(lambda: browser.get("/api/agents/workers/detail", params=detail).json().get("awaits"))
        answer = {"call_id": awaits[0]["call_id"], "answer": "two metres"}
        assert browser.post(f"/api/runs/{run_id}/answer", json=answer).status_code == 200
        wait_until(lambda: up.get("/api/agents/workers/detail", **detail)["status"] == "done", "the end of the run")
        assert ci.get(f"/api/runs/{run_id}/log.jsonl").status_code == 200
        assert browser.post(f"/api/runs/{run_id}/pin", json={"pinned": True}).status_code == 200
        other = ci.post("/api/runs", json={"worker": "measurer"}).json()["run_id"]
        assert shopfloor("cancel", other).returncode == 0
        assert shopfloor("delete", run_id).returncode == 0

        listed = shopfloor("tokens", "list").stdout
        assert [line.split()[0] for line in listed.splitlines()] == ["token", "token", "session"]
        session = json.loads(shopfloor("tokens", "list", "--json").stdout)[-1]
        assert shopfloor("tokens", "revoke", "ci", session["id"]).returncode == 0
        refused = shopfloor("tokens", "revoke", "owner").stderr
        assert (
            f"hint: stop the server and delete {audit.with_name('tokens.json')}; the next server creates a new token"
            in refused
        )
        assert ci.get("/api/health").status_code == 401
        assert browser.get("/api/health").status_code == 401
    assert shopfloor("prune", "--older-than", "0s", "--yes", "--force").stdout == "1 run deleted\n"

    entries = [json.loads(line) for line in audit.read_text().splitlines()]
    mine = f"session {session['id']} of owner"
    actions = [(one["action"], one.get("run_id"), re.sub(r"process \d+", "process", one["by"])) for one in entries]
    process = re.sub(r"process \d+", "process", actions[0][2])
    assert actions == [
        ("token.made", None, process),
        ("session.begun", None, mine),
        ("run.dispatched", run_id, "token ci"),
        ("run.answered", run_id, mine),
        ("run.exported", run_id, "token ci"),
        ("run.pinned", run_id, mine),
        ("run.dispatched", other, "token ci"),
        ("run.cancelled", other, "token owner"),
        ("run.deleted", run_id, "token owner"),
        ("token.revoked", None, process),
        ("session.ended", None, process),
        ("access.refused", None, "nobody"),
        ("access.refused", None, "nobody"),
        ("run.deleted", other, process),
    ]
    assert {one.get("address") for one in entries if one["by"].startswith(("token", "session"))} == {"127.0.0.1"}
    assert stat.S_IMODE(audit.stat().st_mode) == 0o600
    assert token not in audit.read_text()

    shown = shopfloor("audit", "--run", run_id[:8]).stdout.splitlines()
    assert [line.split()[1] for line in shown] == [action for action, run, _ in actions if run == run_id]
    assert [json.loads(line) for line in shopfloor("audit", "--json").stdout.splitlines()] == entries


def wait_for(look):
    found: list = []

    def is_there() -> bool:
        found[:] = look() or []
        return bool(found)

    wait_until(is_there, "what was looked for")
    return found


def test_without_a_server_commands_are_audited_too(shopfloor, workers, env):
    shopfloor("dispatch", "measurer", "--workers", str(workers))
    (dispatched,) = LocalAudit(Path(env["SHOPFLOOR_STORAGE"]) / "audit.jsonl").read()
    assert (dispatched["action"], dispatched["by"]) == ("run.dispatched", "token owner")


def test_a_link_needs_a_server(shopfloor):
    done = shopfloor("login")
    assert (done.returncode, done.stdout) == (7, "")
    assert "hint: start one with `shopfloor up`" in done.stderr


def test_a_login_link_is_refused_as_the_address_of_a_server(shopfloor, env):
    done = shopfloor("list", env={**env, "SHOPFLOOR_URL": "http://127.0.0.1:7420/login?code=x"})
    assert done.returncode == 2
    assert "shopfloor tokens new" in done.stderr


@pytest.mark.req("SF-24")
def test_json_on_a_terminal_is_escaped_and_the_same_json(shopfloor, env):
    # CSI as one character, an override of direction, and an isolate: raw for programs, escaped for a terminal.
    hostile = "\x9b31m \u202egnp.exe\u202c \u2066x\u2069 \u200e\u200f\u061c \x7f ü שלום"
    shopfloor("run", "-q", "--command", f"printf '%s' '{hostile}'")
    for words in (
        ("show", "last", "--json"),
        ("list", "--json"),
        ("status", "last", "--json"),
        ("tail", "last", "--json"),
    ):
        piped = shopfloor(*words).stdout
        terminal = Terminal(*words, env=env)
        assert terminal.end() == 0
        shown = terminal.shown.replace("\r\n", "\n")
        terminal.close()
        bad = set("\x9b\u202e\u202c\u2066\u2069\u200e\u200f\u061c\x7f")
        assert bad & set(piped), words
        assert not bad & set(shown), words
        assert [json.loads(line) for line in shown.splitlines()] == [json.loads(line) for line in piped.splitlines()]
        assert "ü שלום" in shown


@pytest.mark.req("SF-20")
def test_revoking_a_token_ends_its_open_streams_and_no_others(server, shopfloor):
    up = server()
    tokens = {name: shopfloor("tokens", "new", name).stdout.strip() for name in ("gone", "kept")}
    socket = up.url.replace("http://", "ws://") + "/trpc"

    def headers(name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {tokens[name]}"}

    opened: list[str] = []
    ended: list[str] = []

    async def follow(name: str, path: str) -> None:
        async with (
            httpx.AsyncClient(base_url=up.url, headers=headers(name), timeout=TIMEOUT_SECONDS) as http,
            http.stream("GET", path) as response,
        ):
            assert response.status_code == 200
            opened.append(path)
            async for _ in response.aiter_bytes():
                pass
        ended.append(f"{name} {path}")

    async def subscribe(name: str) -> None:
        async with connect(socket, additional_headers=headers(name)) as client:
            await client.send('{"id":1,"method":"subscription","params":{"path":"stream.workerEvents"}}')
            assert "started" in str(await client.recv())
            opened.append("trpc")
            with suppress(ConnectionClosed):
                async for _ in client:
                    pass
        ended.append(f"{name} trpc")

    async def revoke() -> None:
        async with anyio.create_task_group() as tasks:
            for name in tokens:
                for path in ("/api/stream", "/api/events/stream"):
                    tasks.start_soon(follow, name, path)
            tasks.start_soon(subscribe, "gone")
            with anyio.fail_after(TIMEOUT_SECONDS):
                while len(opened) < 5:
                    await anyio.sleep(0.05)
                await anyio.to_thread.run_sync(shopfloor, "tokens", "revoke", "gone")
                while len(ended) < 3:
                    await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()

    anyio.run(revoke)
    assert sorted(ended) == ["gone /api/events/stream", "gone /api/stream", "gone trpc"]
