"""Providers on a started server: checks, what runs observe, and `shopfloor providers disable` and `enable`.

Programs with the agents' names stand in for the agents: they print recordings, and a file says which.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from tests.cli.conftest import SHOPFLOOR
from tests.login import token_of
from tests.model_server.fixtures import model_server, model_server_thread
from tests.model_server.script import Failure, Text, Turn
from tests.model_server.server import ModelServer
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.adapters.providers import discover_providers
from shopfloor.record import Storage

__all__ = ["model_server", "model_server_thread"]

FIXTURES = Path(__file__).parents[1] / "providers" / "fixtures" / "claude-code"
RESET_IN_FIXTURE = "1794741504"
AGENT = """#!/bin/sh
case "$1" in --version) echo '2.1.325 (Claude Code)'; exit 0 ;; esac
cat > /dev/null
while [ -e "$PROGRAMS/wait" ]; do sleep 0.05; done
name=$(cat "$PROGRAMS/recording")
sed "s/1794741504/$(cat "$PROGRAMS/reset")/g" "$RECORDINGS/$name.jsonl"
case "$name" in text) exit 0 ;; *) exit 1 ;; esac
"""
ASKS = """
steps:
  Start: {block: start-thread, model: openai/gpt-5.5}
  Say: {block: add-message, text: hello}
  Answer: {block: next-message, output: SAID}
output: SAID
"""
CODEX = """#!/bin/sh
case "$1" in
  --version) echo 'codex-cli 0.166.0' ;;
  login) cat "$PROGRAMS/login"; grep -q '^Logged in' "$PROGRAMS/login" ;;
esac
"""
TIME = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}
SCHEMAS: dict[str, dict[str, Any]] = {
    "provider.available": {
        "type": "object",
        "required": ["providerId", "name", "previousStatus", "accessMode"],
        "additionalProperties": False,
        "properties": {
            "providerId": {"type": "string"},
            "name": {"type": "string"},
            "previousStatus": {"enum": ["unavailable", "rate_limited", "disabled"]},
            "accessMode": {"enum": ["subscription", "api", "local"]},
        },
    },
    "provider.unavailable": {
        "type": "object",
        "required": ["providerId", "name", "reason"],
        "additionalProperties": False,
        "properties": {
            "providerId": {"type": "string"},
            "name": {"type": "string"},
            "reason": {"enum": ["rate_limited", "error", "maintenance", "disabled"]},
            "error": {"type": "string"},
            "estimatedRecovery": TIME,
            "fallbackProvider": {"type": "string"},
        },
    },
}
"""The payloads by their document, in which `accessMode` is always known."""


class Fleet:
    """A folder of programs, a server that finds them, and the command line."""

    def __init__(self, folder: Path, models: ModelServer) -> None:
        self.programs, self.folder = folder / "bin", folder
        self.programs.mkdir()
        for name, text in (("claude", AGENT), ("codex", CODEX)):
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)
        self.home = folder / "home"
        (self.home / ".codex").mkdir(parents=True)
        (self.home / ".codex" / "auth.json").write_text("{}")
        self.say("login", "Logged in using ChatGPT\n")
        self.say("recording", "text")
        self.say("reset", RESET_IN_FIXTURE)
        self.env = {
            **{
                name: value
                for name, value in os.environ.items()
                if not name.startswith(("CODEX", "ANTHROPIC", "CLAUDE"))
            },
            "PATH": f"{self.programs}:/usr/bin:/bin",
            "HOME": str(self.home),
            "NO_COLOR": "1",
            "PROGRAMS": str(self.programs),
            "RECORDINGS": str(FIXTURES),
            "CLAUDE_CODE_OAUTH_TOKEN": "token",
            "OPENAI_BASE_URL": f"{models.url}/v1",
            "OPENAI_API_KEY": "sk-scripted",
            "SHOPFLOOR_STORAGE": str(folder / "storage"),
            # Only what a test asks for is checked, apart from the first check.
            "SHOPFLOOR_PROVIDER_CHECK": "3600",
        }
        self.storage = Storage(folder / "storage")
        self.process: subprocess.Popen[bytes] | None = None
        self.http = httpx.Client()

    def say(self, name: str, text: str) -> None:
        (self.programs / name).write_text(text)

    def up(self) -> None:
        self.process = subprocess.Popen(
            [SHOPFLOOR, "up", "--port", "0"], env=self.env, cwd=self.folder, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("Shopfloor is up: "), line
        headers = {"Authorization": f"Bearer {token_of(self.storage)}"}
        url = line.split()[3].partition("/login")[0]
        self.http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False)

    def end(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.communicate(timeout=TIMEOUT_SECONDS)
        self.http.close()

    def __call__(self, *words: str, succeeds: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [SHOPFLOOR, *words],
            env=self.env,
            cwd=self.folder,
            text=True,
            capture_output=True,
            timeout=2 * TIMEOUT_SECONDS,
        )
        assert (done.returncode == 0) == succeeds, done.stdout + done.stderr
        return done

    def provider(self, name: str) -> dict[str, Any]:
        found = self.http.get("/api/providers").raise_for_status().json()["providers"]
        return next(item for item in found if item["name"] == name)

    def cursor(self) -> str:
        return self.http.get("/api/events").raise_for_status().json()["cursor"]

    def events(self, after: str, count: int) -> list[dict[str, Any]]:
        """Return the provider events after a cursor, once there are this many, each checked with its schema."""
        found: list[dict[str, Any]] = []

        def are_there() -> bool:
            page = self.http.get("/api/events", params={"stream": "provider", "after": after}).raise_for_status()
            found[:] = page.json()["events"]
            return len(found) >= count

        wait_until(are_there, f"{count} provider events")
        for event in found:
            assert event.keys() == {"id", "type", "payload", "timestamp"}
            jsonschema.validate(event["payload"], SCHEMAS[event["type"]])
        return [{"type": event["type"], **event["payload"]} for event in found]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, model_server_thread: ModelServer) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), model_server_thread)
    fleet.up()
    yield fleet
    fleet.end()


@pytest.fixture
def fleet(running: Fleet) -> Iterator[Fleet]:
    """The server, after its first check, with every provider enabled and the programs as at first."""
    wait_until(lambda: running.provider("codex")["checked_at"], "the first check")
    yield running
    (running.programs / "wait").unlink(missing_ok=True)
    running.say("recording", "text")
    running.say("login", "Logged in using ChatGPT\n")
    for name in ("claude-code", "codex", "openai"):
        running.http.post(f"/api/providers/{name}/enable").raise_for_status()


@pytest.mark.req("FE-38", "FE-39")
def test_a_disabled_provider_is_refused_for_new_runs_and_sessions_that_run_continue(fleet: Fleet) -> None:
    after = fleet.cursor()
    fleet.say("wait", "")
    run_id = fleet("dispatch", "claude-code", "prompt=hello").stdout.split()[-1]
    running = {"stream": "agent", "after": after}
    wait_until(lambda: fleet.http.get("/api/events", params=running).json()["events"], "the session to start")
    said = fleet("providers", "disable", "claude-code", "--reason", "the key leaked").stdout
    assert "`shopfloor providers enable claude-code` enables it" in said
    (event,) = fleet.events(after, 1)
    assert event == {
        "type": "provider.unavailable",
        "providerId": "claude-code",
        "name": "Claude Code",
        "reason": "disabled",
        "error": "the key leaked",
    }
    for command in (["dispatch", "claude-code", "prompt=hello"], ["run", "--provider", "claude-code", "hello"]):
        refused = fleet(*command, succeeds=False)
        assert refused.returncode == 5
        assert "error[provider_disabled]: claude-code is disabled by owner since 20" in refused.stderr
        assert "the key leaked" in refused.stderr
        assert "`shopfloor providers enable claude-code` enables it" in refused.stderr
    assert "claude-code" not in fleet.http.get("/api/providers").json()["usable"]
    for command in ("providers", "doctor"):
        assert "disabled by owner since 20" in fleet(command).stdout
    (fleet.programs / "wait").unlink()
    assert fleet("result", "--wait", run_id).returncode == 0
    fleet("providers", "enable", "claude-code")
    assert fleet.events(after, 2)[1] == {
        "type": "provider.available",
        "providerId": "claude-code",
        "name": "Claude Code",
        "previousStatus": "disabled",
        "accessMode": "subscription",
    }
    fleet("run", "--provider", "claude-code", "hello")
    audited = fleet("audit").stdout
    assert "provider.disabled  token owner" in audited
    assert "claude-code (the key leaked)" in audited
    assert "provider.enabled  token owner" in audited


def test_maintenance_is_a_reason_of_its_own_and_doing_it_twice_is_one_event(fleet: Fleet) -> None:
    after = fleet.cursor()
    fleet("providers", "disable", "codex", "--maintenance")
    fleet.http.post("/api/providers/codex/disable", json={"maintenance": True}).raise_for_status()
    assert [event["reason"] for event in fleet.events(after, 1)] == ["maintenance"]
    found = fleet.provider("codex")
    assert (found["status"], found["reason"], found["disabled_by"]) == ("disabled", "maintenance", "owner")
    assert "disabled for maintenance by owner" in fleet("providers").stdout
    fleet("providers", "disable", "codex", "--maintenance", "--reason", "new\n  key")
    assert ": new key\n" in fleet("providers", "list").stdout


@pytest.mark.req("FE-38", "FE-39")
def test_a_rate_limit_that_a_run_meets_makes_its_provider_unavailable_until_a_run_succeeds(fleet: Fleet) -> None:
    after = fleet.cursor()
    reset = int(time.time()) + 100_000
    fleet.say("reset", str(reset))
    fleet.say("recording", "limit_rejected")
    fleet("run", "--provider", "claude-code", "hello", succeeds=False)
    recovery = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(reset))
    (event,) = fleet.events(after, 1)
    assert (event["reason"], event["estimatedRecovery"]) == ("rate_limited", recovery)
    found = fleet.provider("claude-code")
    assert (found["status"], found["reason"], found["estimated_recovery"]) == (
        "rate_limited",
        "rate_limited",
        recovery,
    )
    (limit,) = found["limits"]
    assert {**limit, "met_at": None} == {
        "kind": None,
        "name": "five_hour",
        "current": 1.0,
        "max": 1.0,
        "reset_at": recovery,
        "status": "rejected",
        "met_at": None,
    }
    listed = fleet("providers").stdout
    assert f"rate-limited until {recovery}" in listed
    assert "limit five_hour: 100% used, rejected at " in listed
    # A step waits by its own rule: a limited provider is not refused.
    fleet.say("recording", "text")
    fleet("run", "--provider", "claude-code", "hello")
    available = fleet.events(after, 2)[1]
    assert (available["type"], available["previousStatus"]) == ("provider.available", "rate_limited")


def test_a_rate_limit_ends_by_itself_when_it_resets(fleet: Fleet) -> None:
    after = fleet.cursor()
    fleet.say("reset", str(int(time.time()) + 100_000))
    fleet.say("recording", "limit_rejected")
    fleet("run", "--provider", "claude-code", "hello", succeeds=False)
    fleet.events(after, 1)
    fleet.say("reset", str(int(time.time()) + 2))
    # The step waits until the limit resets, and then continues in a new process.
    running = subprocess.Popen(
        [SHOPFLOOR, "run", "--provider", "claude-code", "hello"],
        env=fleet.env,
        cwd=fleet.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        available = fleet.events(after, 2)[1]
        assert (available["type"], available["previousStatus"]) == ("provider.available", "rate_limited")
    finally:
        running.kill()
        running.wait()


def test_a_rejected_key_of_a_model_api_makes_it_unavailable_until_a_call_succeeds(
    fleet: Fleet, model_server: ModelServer
) -> None:
    after = fleet.cursor()
    model_server.say(Turn(fail=Failure(status=401, type="authentication_error", message="invalid key")))
    fleet("run", "--provider", "openai", "hello", succeeds=False)
    (event,) = fleet.events(after, 1)
    assert (event["type"], event["providerId"], event["reason"]) == ("provider.unavailable", "openai", "error")
    assert "invalid key" in event["error"]
    assert fleet.provider("openai")["status"] == "unavailable"
    model_server.say(Turn(say=[Text(text="hello")]))
    fleet("run", "--provider", "openai", "hello")
    available = fleet.events(after, 2)[1]
    assert (available["previousStatus"], available["accessMode"]) == ("unavailable", "api")


def test_a_rejected_key_in_a_worker_makes_its_model_api_unavailable_until_a_call_succeeds(
    fleet: Fleet, model_server: ModelServer
) -> None:
    worker = fleet.folder / "workers" / "asks" / "worker.yaml"
    worker.parent.mkdir(parents=True)
    worker.write_text(ASKS)
    after = fleet.cursor()
    model_server.say(Turn(fail=Failure(status=401, type="authentication_error", message="invalid key")))
    fleet("run", "asks", succeeds=False)
    (event,) = fleet.events(after, 1)
    assert (event["type"], event["providerId"], event["reason"]) == ("provider.unavailable", "openai", "error")
    model_server.say(Turn(say=[Text(text="hello")]))
    fleet("run", "asks")
    assert fleet.events(after, 2)[1]["previousStatus"] == "unavailable"


def test_a_check_asks_a_program_whether_it_is_logged_in(fleet: Fleet) -> None:
    after = fleet.cursor()
    fleet.say("login", "Not logged in\n")
    checked = fleet("providers", "check").stdout
    assert "codex login status` says that it is not logged in" in checked
    (event,) = fleet.events(after, 1)
    assert (event["providerId"], event["reason"]) == ("codex", "error")
    fleet.say("login", "Logged in using ChatGPT\n")
    fleet.http.post("/api/providers/check").raise_for_status()
    available = fleet.events(after, 2)[1]
    assert (available["providerId"], available["previousStatus"]) == ("codex", "unavailable")
    # Nothing is said of agents that were never there.
    assert len(fleet.events(after, 2)) == 2
    assert fleet.provider("gemini")["status"] == "unavailable"


def test_only_who_may_act_changes_providers(fleet: Fleet) -> None:
    words = fleet("tokens", "new", f"viewer-{time.time_ns()}", "--role", "viewer").stdout.split()
    viewer = {"Authorization": f"Bearer {max(words, key=len)}"}
    assert fleet.http.get("/api/providers", headers=viewer).status_code == 200
    for path in ("codex/disable", "codex/enable", "check"):
        refused = fleet.http.post(f"/api/providers/{path}", headers=viewer, json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    unknown = fleet.http.post("/api/providers/nobody/disable", json={})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "provider_not_found")
    invalid = fleet.http.post("/api/providers/codex/disable", json={"until": "tomorrow"})
    assert invalid.status_code == 400
    assert fleet.provider("codex")["status"] == "available"


def test_a_status_is_kept_and_not_announced_again_when_servers_are_killed_and_started(
    tmp_path: Path, model_server_thread: ModelServer
) -> None:
    fleet = Fleet(tmp_path, model_server_thread)
    # Without a server the command stores it, and says what is true.
    fleet("providers", "disable", "codex", "--reason", "moved")
    try:
        fleet.up()
        fleet.end(signal.SIGKILL)
        fleet.say("login", "Not logged in\n")
        fleet.up()
        wait_until(lambda: fleet.provider("codex")["checked_at"], "the first check")
        assert fleet.provider("codex")["error"] == "moved"
        fleet("providers", "check")
        assert [event["reason"] for event in fleet.events("0", 1)] == ["disabled"]
        fleet("providers", "enable", "codex")
        assert [event["reason"] for event in fleet.events("0", 2)] == ["disabled", "error"]
    finally:
        fleet.end()


# Programs and APIs that do not answer


def test_a_program_that_hangs_is_killed_with_its_processes_and_delays_no_one(tmp_path: Path) -> None:
    for name in ("claude", "codex"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho $$ > {tmp_path}/{name}.pid\nsleep 1000\n")
        (tmp_path / name).chmod(0o755)
    started = time.monotonic()
    found = discover_providers(
        {"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path, asks_providers=True, timeout_seconds=0.5
    )
    assert time.monotonic() - started < TIMEOUT_SECONDS
    problems = {info.name: info.problem for info in found if info.name in {"claude-code", "codex"}}
    assert [problem is not None and "did not answer in 0.5 s" in problem for problem in problems.values()] == [
        True,
        True,
    ]
    for name in ("claude", "codex"):
        group = int((tmp_path / f"{name}.pid").read_text())
        wait_until(lambda group=group: not is_group_alive(group), "the end of the processes")


def test_a_program_that_hangs_does_not_outlive_the_server(tmp_path: Path, model_server_thread: ModelServer) -> None:
    fleet = Fleet(tmp_path, model_server_thread)
    pid = fleet.programs / "pid"
    fleet.say("codex", f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}\nsleep 1000\n")
    fleet.up()
    wait_until(pid.exists, "the check of the program")
    fleet.end()
    wait_until(lambda: not is_group_alive(int(pid.read_text())), "the end of the program")


def is_group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Callable[[int], str]]:
    """Start an API that answers every request with a status; return its address."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    servers: list[ThreadingHTTPServer] = []

    def start(status: int) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_right = self.path == "/v1/models" and self.headers["x-api-key"] == "secret"
                self.send_response(status if is_right else 418)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the library
                pass

        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def ask_anthropic(tmp_path: Path, url: str, *, asks: bool = True) -> tuple[bool | None, str | None, bool]:
    env = {"PATH": str(tmp_path), "ANTHROPIC_API_KEY": "secret", "ANTHROPIC_BASE_URL": url}
    found = {info.name: info for info in discover_providers(env, tmp_path, asks_providers=asks)}["anthropic"]
    assert "secret" not in json.dumps([found.problem, found.login])
    return found.answers, found.problem, found.usable


def test_an_api_with_a_key_is_asked_for_its_models(tmp_path: Path, api: Callable[[int], str]) -> None:
    assert ask_anthropic(tmp_path, api(200)) == (True, None, True)
    answers, problem, usable = ask_anthropic(tmp_path, api(401))
    assert (answers, usable) == (False, False)
    assert problem is not None
    assert "rejected the key (HTTP status 401)" in problem
    assert ask_anthropic(tmp_path, api(503))[::2] == (False, False)
    # An address without a list of models may answer nevertheless.
    assert ask_anthropic(tmp_path, api(404)) == (None, None, True)
    unreachable = "http://127.0.0.1:1"
    assert ask_anthropic(tmp_path, unreachable)[::2] == (False, False)
    assert ask_anthropic(tmp_path, unreachable, asks=False) == (None, None, True)
