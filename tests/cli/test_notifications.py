"""Notifications outside of the page: webhooks, commands and the desktop, with the installed command."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

import httpx
import pytest
from tests.cli.terminal import Terminal
from tests.cli.test_server import server
from tests.contract.test_hooks import receiver
from tests.timeouts import TIMEOUT_SECONDS, wait_until

__all__ = ["server"]


@pytest.mark.req("SF-59", "SF-60")
def test_a_webhook_gets_a_signed_outcome_although_it_and_the_server_were_down(server, start, shopfloor, env):
    with receiver(503, None) as failing:
        added = shopfloor("hooks", "add", failing.url)
        secret = added.stdout.strip()
        assert secret.startswith("whsec_")
        up = server()
        # The receiver fails, then hangs; the run is not delayed by either.
        assert shopfloor("run", "-q", "--command", "echo one").stdout == "one\n"
        wait_until(lambda: len(failing.got) == 1, "the first try")
        hook = json.loads(shopfloor("hooks", "list", "--json").stdout)["hooks"][0]
        assert secret.removeprefix("whsec_") not in json.dumps(hook) + shopfloor("hooks", "list").stdout
        assert hook["id"] in added.stderr
        up.process.kill()
        up.process.communicate()

        server()
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


@pytest.mark.req("SF-59", "SF-61")
def test_commands_are_told_by_the_settings_file_and_by_on_outcome(server, shopfloor, env, tmp_path: Path):
    storage = Path(env["SHOPFLOOR_STORAGE"])
    storage.mkdir(mode=0o700)
    told, asked = tmp_path / "told", tmp_path / "asked"
    (storage / "settings.yaml").write_text(
        f'notify:\n  - command: echo "$SHOPFLOOR_EVENT $SHOPFLOOR_STATUS $SHOPFLOOR_TITLE" >> {told}\n    on: [outcome]\n'
        f'  - command: echo "$SHOPFLOOR_EVENT $SHOPFLOOR_RUN_ID" >> {asked}\n    on: [question]\n'
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
    wait_until(lambda: told.exists() and told.read_text() == f"outcome failed {line}\n", "the command of the settings")
    assert not (tmp_path / "hacked").exists()

    dispatched = tmp_path / "dispatched"
    command = f'echo "$SHOPFLOOR_STATUS $PWD" > {dispatched}'
    run_id = shopfloor(
        "dispatch", "-q", "hello", "-i", "NAME=Ada", "--on-outcome", command, cwd=tmp_path
    ).stdout.strip()
    wait_until(lambda: dispatched.exists() and dispatched.read_text() == f"completed {tmp_path}\n", "its command")
    wait_until(lambda: run_id not in json.dumps(up.get("/api/hooks")), "the hook of the run to be gone")

    run_id = shopfloor("dispatch", "-q", "asks").stdout.strip()
    wait_until(lambda: asked.exists() and asked.read_text() == f"question {run_id}\n", "the question of the run")
    assert shopfloor("cancel", run_id).returncode == 0

    (storage / "settings.yaml").write_text("notify: [{command: true, when: now}]\n")
    up.process.terminate()
    up.process.communicate()
    refused = shopfloor("up", "--port", "0")
    assert refused.returncode == 2
    assert "settings.yaml" in refused.stderr


@pytest.mark.req("SF-61")
def test_a_long_run_on_a_terminal_is_announced_on_the_desktop(env, tmp_path: Path):
    shown = tmp_path / "shown"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "notify-send").write_text(f'#!/bin/sh\nprintf "%s|" "$@" >> {shown}\n')
    (tmp_path / "bin" / "notify-send").chmod(0o755)
    env = {**env, "PATH": f"{tmp_path / 'bin'}:{env['PATH']}", "SHOPFLOOR_NOTIFY_SECONDS": "2"}
    for words in (["echo short"], ["sleep 2.2", "--no-notify"], ["sleep 2.1"]):
        terminal = Terminal("run", "--command", *words, env=env)
        assert terminal.end() == 0
        terminal.close()
    assert shown.read_text() == "-a|Shopfloor|--|Shopfloor: command completed|sleep 2.1|"
