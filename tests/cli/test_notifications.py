"""Notifications outside of the page: webhooks, commands and the desktop, with the installed command."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

import anyio
import httpx
import pytest
from tests.cli.terminal import Terminal
from tests.cli.test_server import server
from tests.contract.test_hooks import receiver
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.limits import HOOKS_MAX
from shopfloor.log import new_run_id, now
from shopfloor.ports import Hook
from shopfloor.record import Storage
from shopfloor.wiring.storage import local_backend

__all__ = ["server"]


@pytest.mark.req("SF-59", "SF-60")
def test_a_webhook_gets_a_signed_outcome_although_it_and_the_server_were_down(server, start, shopfloor, env):
    with receiver(503, None) as failing:
        added = shopfloor("hooks", "add", failing.url)
        secret = added.stdout.strip()
        assert secret.startswith("whsec_")
        up = server(HOOK_BACKOFF_SECONDS=1.0)
        # The receiver fails, then hangs; the run is not delayed by either.
        assert shopfloor("run", "-q", "--command", "echo one").stdout == "one\n"
        wait_until(lambda: len(failing.got) == 1, "the first try")
        hook = json.loads(shopfloor("hooks", "list", "--json").stdout)["hooks"][0]
        assert secret.removeprefix("whsec_") not in json.dumps(hook) + shopfloor("hooks", "list").stdout
        assert hook["id"] in added.stderr
        up.process.kill()
        up.process.communicate()

        server(HOOK_BACKOFF_SECONDS=1.0)
        assert shopfloor("run", "-q", "--command", "echo two").stdout == "two\n"
        wait_until(lambda: len(failing.got) >= 2, "the second try, which hangs")
        failing.closed.set()
        wait_until(lambda: len({headers["webhook-id"] for headers, _ in failing.got}) == 2, "both outcomes")
        for headers, body in failing.got:
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            key = base64.b64decode(secret.removeprefix("whsec_"))
            digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
            assert headers["webhook-signature"] == f"v1,{digest}"
        titles = {json.loads(body)["data"]["title"] for _, body in failing.got}
        assert titles == {"echo one", "echo two"}
        assert shopfloor("hooks", "test", hook["id"]).stdout == "delivered\n"
        assert json.loads(failing.got[-1][1])["data"]["test"] is True
        assert shopfloor("hooks", "remove", hook["id"]).returncode == 0
        assert shopfloor("hooks", "remove", hook["id"]).returncode != 0
        assert json.loads(shopfloor("hooks", "list", "--json").stdout) == {"hooks": []}


@pytest.mark.req("SF-60")
def test_only_an_admin_may_use_hooks_and_only_with_http_addresses(server, shopfloor):
    up = server()
    for role in ("viewer", "operator"):
        token = shopfloor("tokens", "new", role, "--role", role).stdout.strip()
        with httpx.Client(
            base_url=up.url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_SECONDS
        ) as http:
            answers = [
                http.get("/api/hooks"),
                http.post("/api/hooks", json={"url": "https://example.com/"}),
                http.delete("/api/hooks/x"),
                http.post("/api/hooks/x/test"),
            ]
            assert [answer.status_code for answer in answers] == [403] * 4
    for url in (
        "file:///etc/passwd",
        "ftp://example.com/",
        "javascript:alert(1)",
        "https://",
        "http://a:b@example.com/",
    ):
        refused = shopfloor("hooks", "add", url)
        assert (refused.returncode != 0, "Traceback" in refused.stderr) == (True, False), url
    assert json.loads(shopfloor("hooks", "list", "--json").stdout) == {"hooks": []}


@pytest.mark.req("SF-59")
def test_the_hooks_of_runs_do_not_count_as_added_hooks(server, shopfloor, env):
    server()

    async def add_hooks() -> None:
        async with local_backend(Storage(Path(env["SHOPFLOOR_STORAGE"]))) as backend:
            for number in range(HOOKS_MAX):
                run_id = new_run_id()
                await backend.hooks.add(
                    Hook(id=f"run-{number}", origin="run", created_at=now(), command="true", run_id=run_id)
                )

    anyio.run(add_hooks)
    added = shopfloor("hooks", "add", "https://example.com/")
    assert added.returncode == 0, added.stderr


@pytest.mark.req("SF-59", "SF-61")
def test_the_commands_of_the_settings_file_and_of_on_outcome_are_executed(server, shopfloor, env, tmp_path: Path):
    storage = Path(env["SHOPFLOOR_STORAGE"])
    storage.mkdir(mode=0o700)
    outcomes, questions = tmp_path / "outcomes", tmp_path / "questions"
    (storage / "settings.yaml").write_text(
        f'notify:\n  - command: echo "$SHOPFLOOR_EVENT $SHOPFLOOR_STATUS $SHOPFLOOR_TITLE" >> {outcomes}\n    on: [outcome]\n'
        f'  - command: echo "$SHOPFLOOR_EVENT $SHOPFLOOR_RUN_ID" >> {questions}\n    on: [question]\n'
    )
    asks = tmp_path / "workers" / "asks"
    asks.mkdir(parents=True)
    (asks / "worker.yaml").write_text(
        "steps:\n  Ask: {block: tool-call, tool: ask, input: {question: 'Go on?'}, output: ANSWER}\n"
    )
    up = server("--workers", str(asks.parent))
    after = tmp_path / "after"
    # The title is text, not program text.
    line = "echo '$(touch hacked)'; exit 4"
    ran = shopfloor("run", "-q", "--command", line, "--on-outcome", f"cat > {after}; exit 1", cwd=tmp_path)
    assert ran.returncode == 4
    assert "--on-outcome: the command ended with exit code 1" in ran.stderr
    assert json.loads(after.read_text())["data"]["status"] == "failed"
    wait_until(
        lambda: outcomes.exists() and outcomes.read_text() == f"outcome failed {line}\n", "the command of the settings"
    )
    assert not (tmp_path / "hacked").exists()

    # An environment variable has at most 128 KiB; the command hears of a failure with a longer message, too.
    fails = tmp_path / "fails.py"
    fails.write_text(
        "from shopfloor import worker\n\n\n@worker\nasync def fails(run) -> None:\n    raise ValueError('x' * 200_000)\n"
    )
    words = ("fails", "--workers", str(fails), "--on-outcome", f'echo "$SHOPFLOOR_TEXT" > {after}')
    assert "--on-outcome" not in shopfloor("run", "-q", *words, cwd=tmp_path).stderr
    assert after.read_text().startswith("ValueError: xxx")

    dispatched = tmp_path / "dispatched"
    command = f'echo "$SHOPFLOOR_STATUS $PWD" > {dispatched}'
    run_id = shopfloor(
        "dispatch", "-q", "hello", "-i", "NAME=Ada", "--on-outcome", command, cwd=tmp_path
    ).stdout.strip()
    wait_until(lambda: dispatched.exists() and dispatched.read_text() == f"completed {tmp_path}\n", "its command")
    wait_until(lambda: run_id not in json.dumps(up.get("/api/hooks")), "the hook of the run to be gone")

    run_id = shopfloor("dispatch", "-q", "asks").stdout.strip()
    wait_until(
        lambda: questions.exists() and questions.read_text() == f"question {run_id}\n", "the question of the run"
    )
    assert shopfloor("cancel", run_id).returncode == 0

    (storage / "settings.yaml").write_text("notify: [{command: true, when: now}]\n")
    up.process.terminate()
    up.process.communicate()
    refused = shopfloor("up", "--port", "0")
    assert refused.returncode == 2
    assert "settings.yaml" in refused.stderr


@pytest.fixture
def desktop(env, tmp_path: Path) -> tuple[dict[str, str], Path]:
    """An environment with a `notify-send`, and the file to which it writes its arguments."""
    shown = tmp_path / "shown"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "notify-send").write_text(f'#!/bin/sh\n(printf "%s|" "$@"; echo) >> {shown}\n')
    (tmp_path / "bin" / "notify-send").chmod(0o755)
    return {**env, "PATH": f"{tmp_path / 'bin'}:{env['PATH']}", "SHOPFLOOR_NOTIFY_SECONDS": "2"}, shown


@pytest.mark.req("SF-61")
def test_a_long_run_on_a_terminal_is_announced_on_the_desktop(desktop):
    env, shown = desktop
    for words in (["echo short"], ["sleep 2.2", "--no-notify"], ["sleep 2.1"]):
        terminal = Terminal("run", "--command", *words, env=env)
        assert terminal.end() == 0
        terminal.close()
    assert shown.read_text() == "-a|Shopfloor|--|Shopfloor: command completed|sleep 2.1|\n"


@pytest.mark.req("SF-61")
def test_a_long_run_beside_a_server_on_a_terminal_is_announced_once(desktop, shopfloor):
    env, shown = desktop
    up = Terminal("up", "--port", "0", env=env)
    up.wait_for("Shopfloor is up")
    run = Terminal("run", "--command", "sleep 2.1", env=env)
    assert run.end() == 0
    run.close()
    wait_until(shown.exists, "the notification")
    assert shopfloor("down").returncode == 0
    assert up.end() == 0
    up.close()
    assert len(shown.read_text().splitlines()) == 1
    # The hook ends with the server: the next one does not show what happened meanwhile, and `run` notifies again.
    assert "desktop" not in shopfloor("hooks", "list", "--json").stdout
    run = Terminal("run", "--command", "sleep 2.1", env=env)
    assert run.end() == 0
    run.close()
    assert len(shown.read_text().splitlines()) == 2


@pytest.mark.req("SF-61")
def test_on_outcome_is_kept_for_a_run_that_waits_and_can_be_given_when_it_continues(server, shopfloor, tmp_path: Path):
    asks = tmp_path / "workers" / "asks"
    asks.mkdir(parents=True)
    (asks / "worker.yaml").write_text("steps:\n  Ask: {block: tool-call, tool: ask, input: {question: 'Go on?'}}\n")
    workers, after = ("--workers", str(asks.parent)), tmp_path / "after"

    def on_outcome(name: str) -> tuple[str, str]:
        return "--on-outcome", f'echo "{name} $SHOPFLOOR_STATUS $SHOPFLOOR_RUN_ID" >> {after}'

    def newest() -> str:
        return json.loads(shopfloor("list", "--json").stdout)["workers"][0]["id"]

    def new_line(count: int) -> str:
        wait_until(lambda: after.exists() and after.read_text().count("\n") == count, f"{count} outcomes")
        return after.read_text().splitlines()[-1]

    ran = shopfloor("run", "-q", "asks", *workers, *on_outcome("run"))
    assert (ran.returncode, after.exists()) == (75, False)
    assert "the server (`shopfloor up`) executes --on-outcome when the run has ended" in ran.stderr
    first = newest()
    assert shopfloor("answer", first, "yes").returncode == 0
    server(*workers)
    assert new_line(1) == f"run completed {first}"

    # The options of the commands that start or continue a run.
    again = shopfloor("rerun", "-q", first, *workers, *on_outcome("rerun"))
    assert (again.returncode, "executes --on-outcome" in again.stderr) == (75, True)
    second = newest()
    assert shopfloor("answer", second, "yes").returncode == 0
    assert new_line(2) == f"rerun completed {second}"
    detached = shopfloor("fork", "-q", "--detach", second, "--at", "1", *on_outcome("fork")).stdout.strip()
    assert shopfloor("cancel", detached).returncode == 0
    assert new_line(3) == f"fork cancelled {detached}"


@pytest.mark.req("SF-61")
def test_resume_executes_on_outcome_itself(shopfloor, tmp_path: Path):
    asks = tmp_path / "workers" / "asks"
    asks.mkdir(parents=True)
    (asks / "worker.yaml").write_text("steps:\n  Ask: {block: tool-call, tool: ask, input: {question: 'Go on?'}}\n")
    workers, after = ("--workers", str(asks.parent)), tmp_path / "after"
    assert shopfloor("run", "-q", "asks", *workers).returncode == 75
    assert shopfloor("answer", "last", "yes").returncode == 0
    resumed = shopfloor("resume", "-q", "last", *workers, "--on-outcome", f'echo "$SHOPFLOOR_STATUS" > {after}')
    assert (resumed.returncode, after.read_text()) == (0, "completed\n")


@pytest.mark.req("SF-61")
def test_a_server_on_a_terminal_announces_long_runs_and_questions_on_the_desktop(desktop, shopfloor, tmp_path: Path):
    env, shown = desktop
    for name, step in {
        "asks": "{block: tool-call, tool: ask, input: {question: 'Go on?'}}",
        "sleeps": "{block: command, command: sleep 2.1}",
    }.items():
        (tmp_path / "workers" / name).mkdir(parents=True)
        (tmp_path / "workers" / name / "worker.yaml").write_text(f"steps:\n  Do: {step}\n")
    words = ("up", "--port", "0", "--workers", str(tmp_path / "workers"))
    quiet = Terminal(*words, "--no-notify", env=env)
    quiet.wait_for("Shopfloor is up")
    assert shopfloor("dispatch", "-q", "--wait", "sleeps").returncode == 0
    assert shopfloor("down").returncode == 0
    quiet.close()

    terminal = Terminal(*words, env=env)
    terminal.wait_for("Shopfloor is up")
    assert shopfloor("dispatch", "-q", "--wait", "hello", "-i", "NAME=Ada").returncode == 0
    assert shopfloor("dispatch", "-q", "--wait", "sleeps").returncode == 0
    assert shopfloor("dispatch", "-q", "asks").returncode == 0
    wait_until(lambda: shown.exists() and len(shown.read_text().splitlines()) == 2, "both notifications")
    assert [line.split("|")[3] for line in shown.read_text().splitlines()] == [
        "Shopfloor: sleeps completed",
        "Shopfloor: asks waiting",
    ]
    assert shopfloor("down").returncode == 0
    terminal.close()


@pytest.mark.req("SF-59", "SF-60")
def test_an_address_that_no_client_accepts_does_not_stop_the_server(server, shopfloor):
    up = server()
    # IDNA refuses this name when it is used, not when it is parsed.
    assert shopfloor("hooks", "add", "http://xn--a/?key=secret-part").returncode == 0
    added = shopfloor("audit").stdout
    assert ("hook.added" in added, "secret-part" in added) == (True, False)
    assert shopfloor("run", "-q", "--command", "echo one").stdout == "one\n"
    wait_until(lambda: up.get("/api/hooks")["hooks"][0]["last_error"], "the first try")
    (hook,) = up.get("/api/hooks")["hooks"]
    assert (hook["pending"], hook["delivered"], "not allowed" in hook["last_error"]) == (1, 0, True)
    tested = shopfloor("hooks", "test", hook["id"])
    assert (tested.returncode, tested.stderr) == (1, "")
    assert tested.stdout.startswith("not delivered: ")
