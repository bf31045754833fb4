"""`--json` of the commands whose result is their own, with the installed command: one value or object per line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.terminal import Terminal
from tests.cli.test_server import server
from tests.contract.test_hooks import receiver
from tests.timeouts import TIMEOUT_SECONDS, wait_until

__all__ = ["server"]
pytestmark = pytest.mark.req("SF-66")
ASKS = "steps:\n  Ask: {block: tool-call, tool: ask, input: {question: 'Go on?'}, output: ANSWER}\n"
CALLS = "steps:\n  Call: {block: run-worker, worker: hello, input: {NAME: Ada}}\n"
Lines = Callable[..., list[Any]]


@pytest.fixture
def lines(shopfloor) -> Lines:
    """Run a command with `--json`, and return what it prints: every line of stdout is JSON."""

    def run(*words: str, code: int = 0, **options: object) -> list[Any]:
        ran: subprocess.CompletedProcess[str] = shopfloor(*words, "--json", **options)
        assert ran.returncode == code, (ran.stdout, ran.stderr)
        return [json.loads(line) for line in ran.stdout.splitlines()]

    return run


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {"asks": ASKS, "calls": CALLS}.items():
        (tmp_path / "workers" / name).mkdir(parents=True)
        (tmp_path / "workers" / name / "worker.yaml").write_text(text)
    return tmp_path


def keys(value: dict[str, Any]) -> set[str]:
    return set(value)


def test_runs_are_read_checked_pruned_and_deleted_as_json(lines: Lines, shopfloor, project: Path, env):
    assert shopfloor("run", "-q", "calls", cwd=project).returncode == 0
    assert shopfloor("run", "-q", "--command", "exit 3").returncode == 3
    (tree,) = lines("tree", "last", cwd=project)
    assert tree["rows"][0]["run"]["status"] == "failed"
    runs = lines("list")[0]["workers"]
    (called,) = [run["id"] for run in runs if run["name"] == "calls"]
    (tree,) = lines("tree", called)
    assert [row["depth"] for row in tree["rows"]][:2] == [0, 1]
    (call,) = [row for row in tree["rows"] if row["step"] is not None and row["run"] is not None]
    assert (call["step"]["status"], call["run"]["name"], call["run"]["status"]) == ("completed", "hello", "completed")
    assert call["run_id"] == called

    (found,) = lines("verify", called)
    assert (found["state"], found["problems"], Path(found["file"]).stem) == ("complete", [], called)
    transcript = Path(found["file"])
    broken = project / "broken.jsonl"
    broken.write_bytes(transcript.read_bytes().replace(b'"seq":2,', b'"seq":7,', 1))
    states = [(file["state"], bool(file["problems"])) for file in lines("verify", called, str(broken), code=1)]
    assert states == [("complete", False), ("broken", True)]
    assert keys(lines("verify", "--rules")[0]) == {"rules"}
    missing = shopfloor("verify", "--json", "nowhere.jsonl")
    assert (missing.stdout, "error[" in missing.stderr) == ("", True)

    would = lines("prune", "--older-than", "0s", "--dry-run")
    assert {run["run_id"] for run in would} >= {called}
    assert keys(would[0]) == {"run_id", "status", "completed_at", "task"}
    (deleted,) = lines("delete", called)
    assert (deleted["run_id"], len(deleted["deleted"])) == (called, 2)
    again = shopfloor("delete", "--json", called)
    assert (again.stdout, "error[" in again.stderr, again.returncode != 0) == ("", True, True)
    assert lines("prune", "--older-than", "0s", "--yes", "--force") == [{"deleted": 1, "archives_only": False}]
    assert lines("prune", "--older-than", "0s", "--yes", "--archives-only")[0]["archives_only"] is True
    assert shopfloor("run", "-q", "--command", "true").returncode == 0
    (rebuilt,) = lines("rebuild")
    assert (rebuilt["runs"], rebuilt["events"] > 1, rebuilt["kept_database"]) == (1, True, None)
    Path(env["SHOPFLOOR_STORAGE"], "shopfloor.db").write_bytes(b"no database" * 1000)
    (rebuilt,) = lines("rebuild")
    assert (rebuilt["runs"], Path(env["SHOPFLOOR_STORAGE"], rebuilt["kept_database"]).exists()) == (1, True)


def test_files_that_commands_create_and_check_are_named_as_json(lines: Lines, shopfloor, tmp_path: Path, env):
    (made,) = lines("workers", "new", "mine", cwd=tmp_path)
    assert made["worker"] == "mine"
    assert all(Path(file).is_file() for file in made["files"])
    (checked,) = lines("workers", "check", "mine", cwd=tmp_path)
    assert checked == {"workers": 1, "problems": []}
    (tmp_path / "workers" / "mine" / "worker.yaml").write_text("steps: {A: {block: nothing}}\n")
    (checked,) = lines("workers", "check", "mine", cwd=tmp_path, code=1)
    assert keys(checked["problems"][0]) == {"file", "line", "reason"}
    (plugin,) = lines("plugins", "new", "counter", "--template", "word-count", cwd=tmp_path)
    assert (plugin["name"], Path(plugin["folder"]).name) == ("counter", "counter")
    assert lines("plugins", "allow", "plugins/counter", cwd=tmp_path) == [plugin]
    (project,) = lines("projects", "add", str(tmp_path), "--name", "team")
    assert project == {"name": "team", "folder": str(tmp_path.resolve())}
    assert lines("projects") == lines("projects", "list") == [[project]]
    assert lines("projects", "remove", "team") == [project]
    home = {**env, "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path / "codex")}
    (shown,) = lines("mcp", "install", "codex", "--print", env=home)
    assert (shown["written"], (tmp_path / "codex").exists()) == (False, False)
    (installed,) = lines("mcp", "install", "codex", env=home)
    assert installed["written"] is True
    assert {file["change"] for file in installed["files"]} == {"created"}
    assert all(Path(file["path"]).exists() for file in installed["files"])
    assert lines("mcp", "install", "codex", env=home)[0]["files"] == []
    assert lines("mcp", "uninstall", "codex", env=home)[0]["files"] != []


def test_what_the_server_does_is_printed_as_json(lines: Lines, shopfloor, server, project: Path):
    up = server("--workers", str(project / "workers"))
    (link,) = lines("login")
    assert httpx.get(link["link"], timeout=TIMEOUT_SECONDS).status_code == 303
    (doctor,) = lines("doctor")
    assert keys(doctor) == {"ok", "checks", "providers"}
    assert {check["state"] for check in doctor["checks"]} <= {"ok", "note"}
    assert any(up.url in check["message"] for check in doctor["checks"])

    run_id = shopfloor("dispatch", "-q", "asks").stdout.strip()
    wait_until(lambda: lines("answer", run_id, "--list")[0]["pending_calls"], "the question")
    (listed,) = lines("answer", run_id, "--list")
    assert (listed["run_id"], listed["status"]) == (run_id, "waiting")
    (answered,) = lines("answer", run_id, "yes")
    call_id = listed["pending_calls"][0]["call_id"]
    assert (answered["run_id"], answered["call_id"], answered["kind"]) == (run_id, call_id, "question")
    (again,) = lines("rerun", run_id, "--detach")
    assert again["link"].startswith(up.url)
    (cancelled,) = lines("cancel", again["run_id"])
    assert (cancelled["run_id"], cancelled["status"]) == (again["run_id"], "cancelled")

    assert lines("providers", "disable", "codex")[0]["status"] == "disabled"
    assert lines("providers", "enable", "codex")[0]["name"] == "codex"
    (host,) = lines("hosts")[0]["hosts"]
    assert lines("hosts", "drain", host["id"])[0]["id"] == host["id"]
    assert lines("hosts", "undrain", host["id"])[0]["id"] == host["id"]
    assert shopfloor("tokens", "new", "ci").returncode == 0
    assert lines("tokens", "revoke", "ci") == [{"revoked": "token ci"}]
    with receiver(200, 503) as receiving:
        hook = lines("hooks", "add", receiving.url)[0]["id"]
        assert lines("hooks", "test", hook)[0]["delivered"] is True
        assert lines("hooks", "test", hook, code=1)[0]["delivered"] is False
        assert lines("hooks", "remove", hook) == [{"id": hook}]
    assert lines("down") == [{"stopped": True, "url": up.url}]
    assert lines("down") == [{"stopped": False, "url": None}]


def test_json_on_a_terminal_has_its_control_characters_escaped(env, shopfloor):
    shopfloor("run", "-q", "--command", "true # \x9b31m red")
    terminal = Terminal("tree", "last", "--json", env=env)
    assert terminal.end() == 0
    terminal.close()
    assert ("\\u009b31m" in terminal.shown, "\x9b" in terminal.shown) == (True, False)
