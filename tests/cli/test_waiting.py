"""`shopfloor waiting` and `GET /api/waiting`: what waits for a person, and how to answer it."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest
from tests.cli.test_server import server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

__all__ = ["server"]
WORKERS = '''
import asyncio

from shopfloor import Run, worker


@worker
async def asks(run: Run) -> str:
    """Asks two questions at once."""
    return " ".join(await asyncio.gather(run.ask("Which colour?", options=["red", "green"]), run.ask("How many?\\x1b[2J")))


@worker
async def parent(run: Run) -> str:
    """Calls a worker that asks."""
    return await run.worker("asks")
'''


@pytest.mark.req("SF-58")
def test_waiting_lists_each_question_with_the_command_that_answers_it(server, shopfloor, tmp_path: Path):
    (tmp_path / "asks.py").write_text(WORKERS)
    assert shopfloor("waiting").stdout == "nothing waits for you\n"
    up = server("--workers", str(tmp_path / "asks.py"))
    root = shopfloor("dispatch", "-q", "parent").stdout.strip()
    wait_until(lambda: up.get("/api/waiting")["total"] == 2, "both questions to wait")

    found = json.loads(shopfloor("waiting", "--json").stdout)
    by_text = {item["text"]: item for item in found["items"]}
    colour = by_text["Which colour?"]
    assert (colour["root_run_id"], colour["worker"], colour["kind"]) == (root, "asks", "question")
    assert (colour["options"], colour["until"]) == (["red", "green"], None)
    assert colour["run_id"] != root
    assert by_text["How many?\x1b[2J"]["options"] is None

    printed = shopfloor("waiting").stdout
    assert "\x1b" not in printed
    assert "2. green" in printed
    commands = [line.strip() for line in printed.splitlines() if "shopfloor answer" in line]
    assert len(commands) == 2
    for command in commands:
        words = shlex.split(command.replace("TEXT", "seven"))
        assert words[0] == "shopfloor"
        assert shopfloor(*words[1:]).returncode == 0
    wait_until(lambda: shopfloor("result", root).stdout.strip() == "red seven", "the result")
    assert up.get("/api/waiting") == {"items": [], "total": 0}


@pytest.mark.req("SF-58")
def test_waiting_works_without_a_server_and_needs_the_role_viewer(server, shopfloor, tmp_path: Path):
    (tmp_path / "asks.py").write_text(WORKERS)
    ran = shopfloor("run", "-q", "asks", "--workers", str(tmp_path / "asks.py"), stdin=subprocess.DEVNULL)
    assert ran.returncode == 75, ran.stderr
    assert json.loads(shopfloor("waiting", "--json").stdout)["total"] == 2
    up = server()
    token = shopfloor("tokens", "new", "colleague").stdout.strip()
    with httpx.Client(base_url=up.url, timeout=TIMEOUT_SECONDS) as nobody:
        assert nobody.get("/api/waiting").status_code == 401
        allowed = nobody.get("/api/waiting", headers={"Authorization": f"Bearer {token}"})
        assert allowed.json()["total"] == 2
