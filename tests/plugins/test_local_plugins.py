"""Plugins as a host runs them: found, started, called, restarted, stopped."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.local import LocalHost, LocalProcesses
from shopfloor.adapters.plugins import MANIFEST_NAME, CallLimits, LocalPlugins, open_plugins, scan_plugins
from shopfloor.errors import PluginFailed, PluginNotFound, PluginUnavailable
from shopfloor.ports.plugins import PluginInfo
from shopfloor.record import Storage

SERVER = """
import http.server, json, os, sys, time

HOW = sys.argv[2] if len(sys.argv) > 2 else ""

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = request["method"]
        result = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}},
            "tools/list": {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": str(request["params"])}], "isError": HOW == "fails"},
            "worker/dispatch": {"jobId": "job-1"},
            "worker/list": {"jobs": [{"jobId": "job-1", "status": "running"}]},
        }.get(method)
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        if method == "worker/status":
            body = {
                "error": json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "unknown job"}}).encode(),
                "garbage": b"<html>",
                "shape": json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"status": 7}}).encode(),
                "flood": b" " * 1000,
                "id": json.dumps({"jsonrpc": "2.0", "id": 999, "result": {}}).encode(),
                "silent": b"",
            }[HOW]
        if method == "worker/cancel":
            os._exit(3)
        if method == "worker/status" and HOW == "silent":
            time.sleep(600)
        self.send_response(200)
        self.end_headers()
        for _ in range(100_000 if HOW == "flood" and method == "worker/status" else 1):
            self.wfile.write(body)

    def log_message(self, *_):
        pass

if HOW == "dies":
    sys.exit("it cannot start")
if HOW == "hangs":
    time.sleep(600)
with open("ports", "a") as file:
    print(sys.argv[1], os.environ.get("SHOPFLOOR_RUN"), os.environ.get("EXTRA"), file=file)
if HOW == "taken" and len(open("ports").readlines()) < 3:
    sys.exit(2)
print("listening", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def write_plugin(folder: Path, name: str, how: str = "", capabilities: tuple[str, ...] = ("worker",)) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "server.py").write_text(SERVER)
    command = {"command": "${PYTHON}", "args": ["server.py", "${PORT}", how], "env": {"EXTRA": "port ${PORT}"}}
    manifest = {
        "name": name,
        "displayName": name.title(),
        "description": "A plugin of the tests.",
        "version": "1.0.0",
        "transport": "http",
        "mcp": command,
        "capabilities": list(capabilities),
    }
    (path / MANIFEST_NAME).write_text(json.dumps(manifest))
    return path


@asynccontextmanager
async def opened(tmp_path: Path, **limits: Any) -> AsyncIterator[LocalPlugins]:
    host = LocalHost(Storage(tmp_path / "storage"))
    try:
        folders = [tmp_path / "plugins"]
        leases = tmp_path / "storage" / "plugins"
        async with open_plugins(
            LocalProcesses(host), lambda: folders, lambda _: True, leases, limits=CallLimits(**limits)
        ) as plugins:
            yield plugins
    finally:
        host.close()


def info(plugins: LocalPlugins, name: str) -> PluginInfo:
    return next(each for each in plugins.all() if each.name == name)


async def wait_for_status(plugins: LocalPlugins, name: str, status: str) -> PluginInfo:
    with anyio.fail_after(TIMEOUT_SECONDS):
        while (found := info(plugins, name)).status != status:
            await anyio.sleep(0.02)
    return found


pytestmark = pytest.mark.anyio


@pytest.mark.req("REQ-WD-35", "REQ-WD-36")
async def test_a_plugin_is_started_on_first_use_in_its_own_folder_and_stopped_at_the_end(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "plugins", "adder")
    async with opened(tmp_path) as plugins:
        assert info(plugins, "adder").status == "stopped"
        worker = await plugins.worker("adder")
        assert await worker.dispatch("A job", "Do it.", {}) == "job-1"
        assert [job.job_id for job in await worker.list()] == ["job-1"]
        ready = info(plugins, "adder")
        assert (ready.status, ready.display_name, [tool.name for tool in ready.tools]) == ("ready", "Adder", ["add"])
    (line,) = (folder / "ports").read_text().splitlines()
    port, run, extra, extra_port = line.split()
    assert 50_000 <= int(port) < 51_000
    assert (run, extra, extra_port) == ("None", "port", port)
    assert processes_in(folder) == []


def processes_in(folder: Path) -> list[int]:
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink() == folder:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


async def test_a_tool_and_its_own_error_are_told_apart_from_errors_of_the_protocol(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "good")
    write_plugin(tmp_path / "plugins", "bad", "fails")
    async with opened(tmp_path) as plugins:
        good = await (await plugins.tool_server("good")).call_tool("add", {"a": 1})
        assert (good.is_error, good.content[0]["text"]) == (False, "{'name': 'add', 'arguments': {'a': 1}}")
        assert (await (await plugins.tool_server("bad")).call_tool("add", {})).is_error


@pytest.mark.req("REQ-WD-36", "REQ-WD-45")
async def test_a_plugin_without_the_capability_never_gets_worker_methods(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "plugins", "tools-only", capabilities=())
    async with opened(tmp_path) as plugins:
        with pytest.raises(PluginFailed, match="tools-only accepts no jobs"):
            await plugins.worker("tools-only")
        with pytest.raises(PluginNotFound, match="there is no plugin 'nope'") as missing:
            await plugins.worker("nope")
        assert missing.value.hint == "the plugins are: tools-only"
    assert not (folder / "ports").exists()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("error", "worker/status: unknown job"),
        ("garbage", "not a JSON-RPC response"),
        ("shape", "Expected `str`"),
        ("flood", "the answer is larger than"),
        ("id", "a response to another request"),
    ],
)
async def test_a_bad_answer_is_a_clear_error(tmp_path: Path, how: str, message: str) -> None:
    write_plugin(tmp_path / "plugins", "odd", how)
    async with opened(tmp_path, answer_bytes=1_000_000) as plugins:
        worker = await plugins.worker("odd")
        with pytest.raises(PluginFailed, match=message) as failure:
            await worker.status("x")
        assert failure.value.rpc_code == (-32602 if how == "error" else None)
        # One bad answer is not the end of the plugin.
        assert await worker.dispatch("A job", "Do it.", {}) == "job-1"


async def test_a_plugin_that_does_not_answer_is_given_up_after_the_limit(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "silent", "silent")
    async with opened(tmp_path, call_seconds=2.5) as plugins:
        worker = await plugins.worker("silent")
        with pytest.raises(PluginUnavailable, match=r"no answer within 2\.5 s"):
            await worker.status("x")


async def test_a_crash_is_an_error_and_a_restart(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "plugins", "crashing")
    async with opened(tmp_path) as plugins:
        worker = await plugins.worker("crashing")
        with pytest.raises(PluginUnavailable):
            await worker.cancel("x")
        failed = await wait_for_status(plugins, "crashing", "error")
        assert failed.error == "ended with exit code 3: listening"
        with pytest.raises(PluginUnavailable, match="crashing is not running: ended with exit code 3"):
            await worker.dispatch("A job", "Do it.", {})
        await wait_for_status(plugins, "crashing", "ready")
        assert await worker.dispatch("A job", "Do it.", {}) == "job-1"
        (pid,) = processes_in(folder)
        os.kill(pid, signal.SIGKILL)
        assert (await wait_for_status(plugins, "crashing", "error")).error == "killed by SIGKILL: listening"


async def test_a_taken_port_is_followed_by_another(tmp_path: Path) -> None:
    folder = write_plugin(tmp_path / "plugins", "unlucky", "taken")
    async with opened(tmp_path) as plugins:
        assert await (await plugins.worker("unlucky")).dispatch("A job", "Do it.", {}) == "job-1"
    ports = [line.split()[0] for line in (folder / "ports").read_text().splitlines()]
    assert len(set(ports)) == 3


@pytest.mark.parametrize(
    ("how", "error"),
    [("dies", "ended with exit code 1: it cannot start"), ("hangs", "the initialize handshake failed")],
)
async def test_a_plugin_that_cannot_start_says_why(tmp_path: Path, how: str, error: str) -> None:
    folder = write_plugin(tmp_path / "plugins", "broken", how)
    write_plugin(tmp_path / "plugins", "fine")
    async with opened(tmp_path, ready_seconds=2.0) as plugins:
        plugins.start_all()
        failed = await wait_for_status(plugins, "broken", "error")
        assert error in (failed.error or "")
        assert await (await plugins.worker("fine")).dispatch("A job", "Do it.", {}) == "job-1"
    assert processes_in(folder) == []


# Manifests


@pytest.mark.req("REQ-WD-37", "REQ-WD-38")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"name": "Bad Name"}, "name must be lower-case letters, digits and '-', got 'Bad Name'"),
        ({"transport": "stdio"}, "Invalid enum value 'stdio'"),
        ({"mcp": {"command": ""}}, "mcp.command is empty"),
        ({"mcp": None}, "Expected `object`"),
        ({"capabilities": "worker"}, "Expected `array`"),
    ],
)
def test_a_bad_manifest_is_an_entry_with_its_reason_and_stops_no_other(
    tmp_path: Path, change: dict[str, object], error: str
) -> None:
    path = write_plugin(tmp_path, "bad") / MANIFEST_NAME
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    write_plugin(tmp_path, "good")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / MANIFEST_NAME).write_text("{")
    found = {each.name: (each.status, manifest is not None) for each, manifest in scan_plugins([tmp_path], _always)}
    assert found == {"bad": ("error", False), "good": ("stopped", True), "torn": ("error", False)}
    reasons = {each.name: each.error for each, _ in scan_plugins([tmp_path], _always)}
    assert error in (reasons["bad"] or "")


def test_folders_are_searched_one_level_or_two_for_collections(tmp_path: Path) -> None:
    write_plugin(tmp_path, "first")
    write_plugin(tmp_path / "collection", "second")
    write_plugin(tmp_path / "collection" / "deeper", "third")
    write_plugin(tmp_path / "other", "first")
    found = [(each.name, each.status) for each, _ in scan_plugins([tmp_path, tmp_path / "missing"], _always)]
    assert sorted(found) == [("first", "error"), ("first", "stopped"), ("second", "stopped")]


def test_a_folder_that_others_can_write_and_one_that_is_not_allowed_are_refused(tmp_path: Path) -> None:
    shared = write_plugin(tmp_path, "shared")
    shared.chmod(0o777)
    write_plugin(tmp_path, "new")
    found = {each.name: each for each, _ in scan_plugins([tmp_path], lambda path: path.name != "new")}
    assert found["shared"].status == "error"
    assert f"{shared} can be written by other users" in (found["shared"].error or "")
    assert found["new"].status == "not_allowed"
    assert f"shopfloor plugins allow {tmp_path / 'new'}" in (found["new"].error or "")


async def test_a_plugin_that_is_not_allowed_hides_none_of_the_same_name(tmp_path: Path) -> None:
    write_plugin(tmp_path / "cloned", "adder")
    own = write_plugin(tmp_path / "plugins", "adder")
    folders = [tmp_path / "cloned", tmp_path / "plugins"]
    with LocalHost(Storage(tmp_path / "storage")) as host:
        processes, leases = LocalProcesses(host), tmp_path / "storage" / "plugins"
        async with open_plugins(processes, lambda: folders, lambda path: path == own, leases) as plugins:
            assert await (await plugins.worker("adder")).dispatch("A job", "Do it.", {}) == "job-1"
            states = {each.folder: each.status for each in plugins.all()}
    assert states == {str(tmp_path / "cloned" / "adder"): "not_allowed", str(own): "ready"}


async def test_a_folder_of_locks_that_cannot_be_written_is_an_error_and_no_hang(tmp_path: Path) -> None:
    write_plugin(tmp_path / "plugins", "adder")
    leases = tmp_path / "storage" / "plugins"
    leases.parent.mkdir(mode=0o700)
    leases.write_text("a file where the folder should be")
    with LocalHost(Storage(tmp_path / "storage")) as host:
        async with open_plugins(LocalProcesses(host), lambda: [tmp_path / "plugins"], _always, leases) as plugins:
            with pytest.raises(PluginUnavailable, match="adder is not running"):
                await (await plugins.worker("adder")).dispatch("A job", "Do it.", {})
            leases.unlink()
            await wait_for_status(plugins, "adder", "ready")


def _always(_: Path) -> bool:
    return True


def test_the_interpreter_is_ours() -> None:
    from shopfloor.adapters.plugins.manifest import Command

    command = Command(command="${PYTHON}", args=("-m", "plugin", "--port=${PORT}"))
    assert command.argv(50_001, sys.executable) == [sys.executable, "-m", "plugin", "--port=50001"]
