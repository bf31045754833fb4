"""One process of a storage runs a plugin; a server shares its plugin, and its secret stays out of the record."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from tests.cli.test_run import processes_with
from tests.plugins.plugin_process import PluginProcess, RpcFailure
from tests.plugins.plugin_server import MISBEHAVING, Site, pids_in, write_manifest
from tests.timeouts import TIMEOUT_SECONDS, wait_until
from tools.page import find_node

WORD_COUNT = "word-count"


def run_words(site: Site, plugin: str = WORD_COUNT, task: str = "one two", **values: str) -> list[str]:
    inputs = [word for name, value in {"task": task, **values}.items() for word in ("-i", f"{name}={value}")]
    return ["run", "-q", plugin, "--plugins", str(site.plugins), *inputs]


def test_a_command_beside_a_server_uses_the_process_of_the_server(tmp_path: Path) -> None:
    site = Site(tmp_path)
    folder = site.add_misbehaving()
    with site.up() as server:
        server.wait_for_plugin(MISBEHAVING)
        before = pids_in(folder)
        done = site.run(*run_words(site, MISBEHAVING))
        assert (done.returncode, done.stdout) == (0, "output of plain\n"), done.stderr
        assert pids_in(folder) == before
        assert len((folder / "starts").read_text().splitlines()) == 1
    site.wait_until_gone()
    # Without the server the command starts the plugin, and ends it.
    done = site.run(*run_words(site, MISBEHAVING))
    assert (done.returncode, done.stdout) == (0, "output of plain\n"), done.stderr
    assert len((folder / "starts").read_text().splitlines()) == 2
    site.wait_until_gone()
    assert pids_in(folder) == []


def test_a_command_goes_on_when_the_server_that_runs_its_plugin_is_killed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    folder = site.add_misbehaving()
    words = run_words(site, MISBEHAVING, config='{"behavior": "waits"}')
    with site.up() as server:
        server.wait_for_plugin(MISBEHAVING)
        command = subprocess.Popen(
            site.command(*words), cwd=site.project, env=site.env, stdout=subprocess.PIPE, text=True
        )
        wait_until(lambda: list((folder / "jobs").glob("[!.]*")), "the job")
        server.kill()
    (folder / "go").touch()
    assert command.communicate(timeout=TIMEOUT_SECONDS)[0] == "output of waits\n"
    assert command.returncode == 0
    assert len(list((folder / "jobs").iterdir())) == 1
    site.wait_until_gone()


def test_two_commands_cannot_run_one_plugin_at_the_same_time(tmp_path: Path) -> None:
    site = Site(tmp_path, PLUGIN_RESTART_WAIT_SECONDS=1.0)
    folder = site.add_misbehaving()
    first = subprocess.Popen(
        site.command(*run_words(site, MISBEHAVING, config='{"behavior": "waits"}')),
        cwd=site.project,
        env=site.env,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: list(folder.glob("jobs/[!.]*")), "the job of the first")
    second = site.run(*run_words(site, MISBEHAVING))
    assert second.returncode == 1
    assert "another process runs it, and only a server (`shopfloor up`) shares its plugins" in second.stderr
    assert "Traceback" not in second.stderr
    (folder / "go").touch()
    assert first.communicate(timeout=TIMEOUT_SECONDS)[0] == "output of waits\n"
    again = site.run(*run_words(site, MISBEHAVING))
    assert (again.returncode, again.stdout) == (0, "output of plain\n"), again.stderr
    site.wait_until_gone()


# Secrets


def secret_of(pid: int) -> str:
    variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(each for each in variables if each.startswith(b"SHOPFLOOR_PLUGIN_SECRET=")).partition(b"=")[2].decode()


def files_with(folder: Path, text: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_the_secret_is_in_a_private_file_while_the_server_runs_and_nowhere_else(tmp_path: Path) -> None:
    site = Site(tmp_path)
    folder = site.add_template(WORD_COUNT)
    with site.up() as server:
        server.wait_for_plugin(WORD_COUNT)
        (pid,) = pids_in(folder)
        secret = secret_of(pid)
        assert len(secret) >= 32
        run_id = server.dispatch(WORD_COUNT, "one two three")
        assert server.wait_for(run_id)["result"] == "3 words"
        (shared,) = files_with(site.folder, secret)
        assert stat.S_IMODE(shared.stat().st_mode) == 0o600
        assert shared.is_relative_to(site.storage.root / "plugins")
        for path in ("/api/plugins", f"/api/runs/{run_id}/log", f"/api/agents/workers/detail?worker_id={run_id}"):
            assert secret not in server.http.get(path).text
        assert secret not in " ".join(processes_with(""))
    assert files_with(site.folder, secret) == []


@pytest.mark.parametrize("name", ["researcher", "word-count", "node-example"])
def test_every_template_refuses_requests_without_the_secret(tmp_path: Path, name: str) -> None:
    site = Site(tmp_path)
    folder = site.add_template(name)
    path = f"{find_node().parent}:{site.env['PATH']}"
    plugin = PluginProcess(folder, {**site.env, "PATH": path, "SHOPFLOOR_PLUGIN_SECRET": "a-secret-of-the-tests"})
    plugin.start()
    try:
        methods = ["initialize", "tools/list", "worker/list", "worker/dispatch"]
        params = {"description": "x", "task": "x"}
        bodies = [{"jsonrpc": "2.0", "id": 1, "method": method, "params": params} for method in methods]
        for secret in (None, "", "a-secret-of-the-test", "a-secret-of-the-tests-"):
            assert {plugin.post(body, secret).status_code for body in bodies} == {401}
        assert plugin.call("worker/list") == {"jobs": []}
        with pytest.raises(RpcFailure) as failure:
            plugin.call("worker/status", jobId="nope")
        assert failure.value.code == -32602
        for params in ([], "text", 7):
            answer = plugin.post({"jsonrpc": "2.0", "id": 1, "method": "worker/dispatch", "params": params}).json()
            assert answer["error"]["code"] == -32602, (params, answer)
        odd = {"description": "x", "task": "x", "config": {"run_id": ["a list"]}}
        answer = plugin.post({"jsonrpc": "2.0", "id": 1, "method": "worker/dispatch", "params": odd}).json()
        assert answer["error"]["code"] == -32602
    finally:
        plugin.stop()


# What may be started


def test_a_plugin_of_a_project_starts_only_after_it_is_allowed(tmp_path: Path) -> None:
    site = Site(tmp_path)
    shutil.copytree(site.add_misbehaving("foreign"), site.project / "plugins" / "foreign")
    shutil.rmtree(site.plugins / "foreign")
    shared = site.add_misbehaving("shared")
    shared.chmod(0o775)
    folder = site.project / "plugins" / "foreign"
    folder.parent.chmod(0o755)
    with site.up() as server:
        refused = server.http.post("/api/runs", json={"worker": "foreign", "input": {"task": "x"}})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "plugin_unavailable")
        assert f"shopfloor plugins allow {folder}" in refused.json()["error"]["message"]
        assert server.plugin("foreign")["status"] == "not_allowed"
        assert server.plugin("shared")["status"] == "error"
        assert f"{shared} can be written by other users" in server.plugin("shared")["error"]
        refused = server.http.post("/api/runs", json={"worker": "shared", "input": {"task": "x"}})
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "plugin_unavailable")
        ran = site.run("run", "-q", "foreign", "-i", "task=x")
        assert ran.returncode == 1
        assert "shopfloor plugins allow" in ran.stderr
        assert not (folder / "starts").exists()
        assert not (shared / "starts").exists()
        allowed = site.run("plugins", "allow", str(folder))
        assert allowed.returncode == 0, allowed.stderr
        assert server.wait_for(server.dispatch("foreign"))["status"] == "done"
    assert (folder / "starts").exists()


@pytest.mark.req("REQ-WD-2", "REQ-WD-36", "REQ-WD-37", "REQ-WD-38")
def test_bad_manifests_and_commands_are_entries_with_reasons_and_the_others_work(tmp_path: Path) -> None:
    site = Site(tmp_path)
    bad: dict[str, tuple[bytes, str]] = {
        "torn": (b"{", "Input data was truncated"),
        "nested": (b"[" * 50_000, "guild-member.json"),
        "deep": (b'{"name": "deep", "extra": ' + b"[" * 50_000, "maximum recursion depth"),
        "large": (b" " * 70_000, "is larger than 65,536 bytes"),
        "latin": (b'{"name": "\xe9"}', "guild-member.json"),
        "listed": (b"[]", "Expected `object`, got `array`"),
    }
    for name, (content, _) in bad.items():
        (site.plugins / name).mkdir(mode=0o755)
        (site.plugins / name / "guild-member.json").write_bytes(content)
    (site.plugins / "folder" / "guild-member.json").mkdir(parents=True)
    (site.plugins / "empty").mkdir()
    commands: dict[str, tuple[dict[str, object], str]] = {
        "missing-program": ({"command": "no-such-program-anywhere"}, "no-such-program-anywhere"),
        "null-byte": ({"command": "${PYTHON}", "args": ["a\0b"]}, "null byte"),
        "bad-variable": ({"command": "${PYTHON}", "env": {"A=B\0": "x"}}, "null byte"),
    }
    for name, (mcp, _) in commands.items():
        (site.plugins / name).mkdir(mode=0o755)
        write_manifest(site.plugins / name, name=name, mcp=mcp, capabilities=["worker"])
    site.add_misbehaving("tools-only", capabilities=())
    site.add_misbehaving("future", capabilities=("worker", "unheard-of"))
    with site.up() as server:
        assert server.wait_for_plugin("tools-only")["capabilities"] == []
        assert server.wait_for_plugin("future")["capabilities"] == ["worker", "unheard-of"]
        for name, (_, reason) in {**bad, "folder": (b"", "is not a file")}.items():
            entry = server.plugin(name)
            assert entry["status"] == "error"
            assert reason in entry["error"], name
        for name, (_, reason) in commands.items():
            assert reason in server.wait_for_plugin(name, "error")["error"]
        slugs = [worker["slug"] for worker in server.http.get("/api/workers").json()["workers"]]
        assert "future" in slugs
        assert "tools-only" not in slugs
        refused = server.http.post("/api/runs", json={"worker": "tools-only", "input": {"task": "x"}})
        assert refused.status_code == 404
        assert server.wait_for(server.dispatch("future"))["status"] == "done"
        assert list((site.plugins / "tools-only" / "jobs").iterdir()) == []
        listed = json.loads(site.run("plugins", "list", "--json", "--plugins", str(site.plugins)).stdout)
        assert {each["name"] for each in listed} >= {*bad, *commands, "folder", "tools-only", "future"}
    site.wait_until_gone()


def test_a_manifest_that_is_a_pipe_or_endless_blocks_nobody(tmp_path: Path) -> None:
    site = Site(tmp_path)
    (site.plugins / "pipe").mkdir(mode=0o755)
    os.mkfifo(site.plugins / "pipe" / "guild-member.json")
    (site.plugins / "endless").mkdir(mode=0o755)
    (site.plugins / "endless" / "guild-member.json").symlink_to("/dev/zero")
    listed = site.run("plugins", "list", "--json", "--plugins", str(site.plugins), timeout=TIMEOUT_SECONDS)
    found = {each["name"]: each for each in json.loads(listed.stdout)}
    assert {name: found[name]["status"] for name in ("pipe", "endless")} == {"pipe": "error", "endless": "error"}
    assert "is not a file" in found["pipe"]["error"]
