"""The Python SDK and a server of the installed command, over HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from tests.architecture.test_docs import ROOT, blocks
from tests.cli.conftest import SHOPFLOOR
from tests.cli.test_server import Server
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor import Shopfloor
from shopfloor.client import Client, ClientToolRequest, Question, WorkerResult
from shopfloor.errors import ConflictError, InvalidParameter, NotFoundError, RunNotFound

PAGE = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")
PROGRAMS = [block for block in blocks(PAGE, "python") if "asyncio.run(" in block.text]
LINK = "http://127.0.0.1:7420/login?token=THE-TOKEN"

WORKERS = {
    "asks": """
        tools: {look-up: {description: Looks up., parameters: {word: {type: string}}}}
        input: {WORD: {type: string}}
        steps: {Look: {block: tool-call, tool: look-up, input: {word: "{{WORD}}"}, output: FOUND}}
        output: FOUND
    """,
    "has-asked": """
        input: {WORD: {type: string}}
        steps: {Call: {block: run-worker, worker: asks, input: {WORD: "{{WORD}}"}, output: FOUND}}
        output: FOUND
    """,
    "has-all-asked": """
        steps:
          All:
            block: parallel
            branches:
              Sun: {Call: {block: run-worker, worker: has-asked, input: {WORD: sun}, output: SUN}}
              Moon: {Call: {block: run-worker, worker: asks, input: {WORD: moon}, output: MOON}}
        output: {sun: "{{SUN}}", moon: "{{MOON}}"}
    """,
    "writes-late": """
        input: {FILE: {type: string}}
        steps: {Write: {block: command, command: 'sleep 3; touch "$FILE"', env: {FILE: "{{FILE}}"}}}
    """,
    "keyless": """
        steps:
          Begin: {block: start-thread, model: openai/gpt-test}
          Ask: {block: add-message, text: Hello}
          Answer: {block: next-message, output: SAID}
        output: SAID
    """,
    "takes-a-while": """
        steps:
          First: {block: command, command: "sleep 2"}
          Then: {block: terminal, output: done}
    """,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdk")
    for slug, yaml in WORKERS.items():
        (folder / "workers" / slug).mkdir(parents=True)
        (folder / "workers" / slug / "worker.yaml").write_text(textwrap.dedent(yaml))
    [colours] = [block.text for block in blocks(PAGE, "python") if "@worker" in block.text]
    (folder / "colours.py").write_text(colours)
    return folder


def settings(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "SHOPFLOOR_STORAGE": str(folder / "storage"), "SHOPFLOOR_SCRIPT_DELAY_MS": "1", **more}


def started(folder: Path, **more: str) -> Server:
    # A proxy has another port than the server.
    words = [
        "up",
        "--port",
        "0",
        "--allow-host",
        "127.0.0.1",
        "--workers",
        str(folder / "workers"),
        "--workers",
        str(folder / "colours.py"),
    ]
    env = settings(folder, **more)
    process = subprocess.Popen([SHOPFLOOR, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return Server(process, env)


def ended(server: Server) -> None:
    server.http.close()
    server.process.kill()
    server.process.communicate()


@pytest.fixture(scope="module")
def up(folder: Path) -> Iterator[Server]:
    server = started(folder)
    yield server
    ended(server)


def wait_for_status(server: Server, run_id: str, expected: str) -> dict[str, Any]:
    until = time.monotonic() + TIMEOUT_SECONDS
    while (detail := server.get("/api/agents/workers/detail", worker_id=run_id))["status"] != expected:
        assert time.monotonic() < until, detail
        time.sleep(0.05)
    return detail


def run(ask: Callable[[Client], Any], link: str) -> Any:
    async def main() -> Any:
        with anyio.fail_after(TIMEOUT_SECONDS):
            async with Client(link) as client:
                return await ask(client)

    return anyio.run(main)


def look_up(args: dict[str, Any]) -> str:
    return args["word"].upper()


@pytest.mark.req("SDK-34", "SDK-40")
def test_handlers_are_called_for_the_sub_runs_of_a_worker(up: Server) -> None:
    async def ask(client: Client) -> None:
        output = await client.workers.generate("has-all-asked", tools={"look-up": look_up})
        assert output == {"sun": "SUN", "moon": "MOON"}

    run(ask, up.login)


@pytest.mark.req("SDK-34")
def test_a_call_without_a_handler_is_answered_while_streaming(up: Server) -> None:
    async def ask(client: Client) -> None:
        outputs: list[Any] = []
        async for event in client.workers.execute("has-asked", {"WORD": "star"}):
            if isinstance(event, ClientToolRequest):
                assert [call.args for call in event.tool_calls] == [{"word": "star"}]
                for call in event.tool_calls:
                    await client.workers.execute_call(event.execution_id, call, {"look-up": look_up})
            elif isinstance(event, WorkerResult):
                outputs.append(event.output)
        assert outputs == ["STAR"]

    run(ask, up.login)


@pytest.mark.req("SDK-34")
def test_the_command_line_answers_calls_of_sub_runs(up: Server, folder: Path) -> None:
    tool = "look-up=jq .word | tr a-z A-Z"
    done = subprocess.run(
        [SHOPFLOOR, "run", "has-all-asked", "--tool", tool],
        env=settings(folder, SHOPFLOOR_URL=up.login),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"sun": "SUN", "moon": "MOON"}
    assert len(re.findall(r"^sub-run [0-9a-f]{8} calls look-up ", done.stderr, re.MULTILINE)) == 2


@pytest.mark.req("SDK-37")
@pytest.mark.parametrize("event_type", ["question", "finish"])
def test_a_question_is_answered_where_the_stream_pauses(up: Server, event_type: str) -> None:
    async def ask(client: Client) -> None:
        types: list[str] = []
        questions: list[Question] = []
        async for event in client.workers.execute("paints"):
            types.append(event.type)
            questions += [event] if isinstance(event, Question) else []
            if event.type == event_type and questions:
                question = questions.pop()
                await client.workers.answer(question.execution_id, question.call_id, "red")
            if isinstance(event, WorkerResult):
                assert event.output == "painted it red"
        assert types[-2:] == ["worker-result", "finish"]

    run(ask, up.login)


@pytest.mark.req("SDK-35")
def test_a_client_that_disconnects_after_a_second_cancels_the_run_before_it_writes(up: Server, tmp_path: Path) -> None:
    file = tmp_path / "written"
    body = {"type": "start", "input": {"FILE": str(file)}}
    with up.http.stream("POST", "/api/agents/writes-late/execute", json=body) as answer:
        lines = answer.iter_lines()
        [run_id] = re.findall(r'"executionId":"([^"]+)"', next(line for line in lines if "executionId" in line))
        time.sleep(1)
    detail = wait_for_status(up, run_id, "cancelled")
    assert detail["error"]["message"] == "its client disconnected"
    time.sleep(2.5)
    assert not file.exists()


@pytest.mark.req("SDK-35")
def test_a_connection_that_breaks_does_not_end_the_run(up: Server) -> None:
    """The SDK reconnects before the grace period for a disconnected client is over."""
    with Proxy(up.url) as proxy:

        async def ask(client: Client) -> list[str]:
            types: list[str] = []
            async for event in client.workers.execute("takes-a-while"):
                types.append(event.type)
                if event.type == "block-start" and "block-end" not in types:
                    proxy.cut()
            return types

        types = run(ask, up.login.replace(up.url, proxy.url))
    assert proxy.cuts == 1
    assert types == ["start", "worker-start", *["block-start", "block-end"] * 2, "worker-result", "finish"]


class Proxy:
    """A proxy that forwards connections to a server, until they are cut."""

    def __init__(self, url: str) -> None:
        self._to = (httpx.URL(url).host, httpx.URL(url).port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self.cuts = 0

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._cut()

    def cut(self) -> None:
        self.cuts += 1
        self._cut()

    def _cut(self) -> None:
        while self._open:
            one = self._open.pop()
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(self._to)
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    @staticmethod
    def _pass_on(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_RDWR)


@pytest.mark.req("SDK-36")
def test_the_timeout_of_a_client_tool_includes_the_time_the_server_is_down(folder: Path, tmp_path: Path) -> None:
    more = {"SHOPFLOOR_STORAGE": str(tmp_path / "storage"), "SHOPFLOOR_CLIENT_WAIT": "3"}
    first = started(folder, **more)
    try:
        body = {"type": "start", "input": {"WORD": "star"}}
        body_text = first.http.post("/api/agents/has-asked/execute", json=body).text
        [run_id] = set(re.findall(r'"executionId":"([^"]+)"', body_text))
        assert '"tool-request"' in body_text
    finally:
        ended(first)
    second = started(folder, **{**more, "SHOPFLOOR_CLIENT_WAIT": "1000"})
    try:
        detail = wait_for_status(second, run_id, "cancelled")
    finally:
        ended(second)
    assert detail["error"]["message"].startswith("the client did not answer 'look-up' by ")


def test_an_invalid_number_of_seconds_is_refused_at_the_start(folder: Path) -> None:
    env = settings(folder, SHOPFLOOR_EXECUTE_GRACE="soon", SHOPFLOOR_STORAGE=str(folder / "other"))
    done = subprocess.run([SHOPFLOOR, "up", "--port", "0"], env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            "error[usage]: SHOPFLOOR_EXECUTE_GRACE must be a number of seconds, got 'soon'",
            "hint: unset it, or set e.g. 0.5",
        ],
    )


# The page.


@pytest.mark.req("SDK-40")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda block: f"line-{block.line}")
def test_the_programs_of_the_sdk_page_run(up: Server, folder: Path, program: Any) -> None:
    assert LINK in PAGE
    done = subprocess.run(
        [sys.executable, "-c", program.text.replace(LINK, up.login)],
        cwd=folder,
        env=settings(folder, SHOPFLOOR_URL=up.login),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.req("SDK-40")
@pytest.mark.parametrize("place", ["{url}/login?token={token}", "{url}/", "{url}/login?token=wrong"])
def test_a_url_may_be_a_login_link(up: Server, place: str) -> None:
    token = up.login.split("token=")[1]
    url = place.format(url=up.url, token=token)

    async def ask(client: Client) -> None:
        async with client:
            await client.api.get("/api/workers")

    anyio.run(ask, Client(url, token))
    anyio.run(ask, Shopfloor(url, token))
    if place.endswith("{token}"):
        anyio.run(ask, Client(url))
        anyio.run(ask, Shopfloor(url))


# client.runs


@pytest.mark.req("SF-52")
def test_runs_are_listed_awaited_answered_and_cancelled(up: Server) -> None:
    async def ask(client: Client) -> None:
        run_id = await client.workers.dispatch("hello", {"NAME": "Ada"}, owner="sdk-runs")
        done = await client.runs.wait(run_id, timeout_seconds=TIMEOUT_SECONDS)
        assert (done.status, done.worker, done.owner, done.is_ended) == ("done", "hello", "sdk-runs", True)
        assert "Ada" in (done.result or "")
        page = await client.runs.list(owner="sdk-runs", sort="duration", since=datetime.now(UTC) - timedelta(hours=1))
        assert ([run.id for run in page.runs], page.total, page.next) == ([run_id], 1, None)
        assert [run.model for run in page.runs] == ["script/hello"]
        assert [event.type async for event in client.runs.events(run_id)][-1] == "finish"

        paints = await client.workers.dispatch("paints", owner="sdk-runs")
        while not (waiting := await client.runs.get(paints)).awaits:
            await anyio.sleep(0.05)
        assert waiting.asks == ["Which colour? (1. red / 2. green)"]
        (call,) = waiting.awaits
        await client.runs.answer(call.run_id, call.call_id, "green")
        assert "painted it green" in ((await client.runs.wait(paints)).result or "")

        sleeps = await client.workers.dispatch("takes-a-while", owner="sdk-runs")
        with pytest.raises(TimeoutError):
            await client.runs.wait(sleeps, timeout_seconds=0.05)
        await client.runs.cancel(sleeps, reason="enough")
        assert (await client.runs.wait(sleeps)).status == "cancelled"

        first = await client.runs.list(owner="sdk-runs", sort="oldest", limit=2)
        rest = await client.runs.list(owner="sdk-runs", sort="oldest", limit=2, cursor=first.next)
        assert [run.id for run in (*first.runs, *rest.runs)] == [run_id, paints, sleeps]
        with pytest.raises(RunNotFound):
            await client.runs.get("no-such-run")

    run(ask, up.login)


@pytest.mark.req("SF-50", "SF-52")
def test_statistics_are_typed(up: Server) -> None:
    async def ask(client: Client) -> None:
        run_id = await client.workers.dispatch("hello", {"NAME": "Ada"}, owner="sdk-stats")
        await client.runs.wait(run_id, timeout_seconds=TIMEOUT_SECONDS)
        stats = await client.runs.stats(owner="sdk-stats", tz="+05:45")
        assert (stats.totals.runs, stats.totals.cost_usd, stats.tiles.ended_today) == (1, None, 1)
        assert stats.totals.unpriced_tokens == stats.totals.tokens > 0
        assert stats.days[-1].by.provider == {"script": None}
        assert [slow.run_id for slow in stats.slowest] == [run_id]
        with pytest.raises(InvalidParameter, match="Mars"):
            await client.runs.stats(tz="Mars/Base")

    run(ask, up.login)


@pytest.mark.req("SF-67", "SF-68")
def test_what_waits_is_listed_and_a_failure_is_dismissed(up: Server) -> None:
    async def ask(client: Client) -> None:
        run_id = await client.workers.dispatch("keyless")
        assert (await client.runs.wait(run_id)).status == "failed"
        item = next(item for item in await client.runs.waiting() if item.run_id == run_id)
        assert (item.kind, item.call_id, item.error_code) == ("failure", None, "authentication_error")
        assert (item.text, item.actions) == ("there is no key for openai", ["rerun", "dismiss"])
        await client.runs.dismiss(run_id)
        assert run_id not in [item.run_id for item in await client.runs.waiting()]
        done = await client.workers.dispatch("takes-a-while")
        with pytest.raises(ConflictError):
            await client.runs.dismiss(done)
        await client.runs.cancel(done)

    run(ask, up.login)


@pytest.mark.req("SF-52", "SF-53")
def test_a_run_is_repeated_once_per_key_and_names_the_earlier_and_later_runs(up: Server) -> None:
    async def ask(client: Client) -> None:
        run_id = await client.workers.dispatch("hello", {"NAME": "Ada"})
        done = await client.runs.wait(run_id)
        again = await client.runs.rerun(run_id, {"NAME": "Bea"}, idempotency_key="again-1")
        assert await client.runs.rerun(run_id, {"NAME": "Bea"}, idempotency_key="again-1") == again
        fork = await client.runs.fork(run_id, 1, idempotency_key="fork-1")
        assert await client.runs.fork(run_id, 1, idempotency_key="fork-1") == fork
        with pytest.raises(ConflictError):
            await client.runs.reply(run_id, "go on", idempotency_key="reply-1")
        repeated = await client.runs.wait(again)
        assert repeated.based_on is not None
        assert (repeated.based_on.run_id, repeated.based_on.kind, repeated.queue_reason) == (run_id, "rerun", None)
        later = (await client.runs.get(run_id)).continued_by
        assert [(run.run_id, run.kind) for run in later] == [(fork, "fork"), (again, "rerun")]
        assert "Ada" in await client.runs.export(run_id)
        assert (await client.runs.export(run_id, "html")).startswith("<!doctype html>")
        assert done.based_on is None

    run(ask, up.login)


@pytest.mark.req("SF-52")
def test_hooks_are_added_tested_and_removed_and_rules_of_approvals_listed(up: Server) -> None:
    async def ask(client: Client) -> None:
        added = await client.hooks.add("http://127.0.0.1:9/nobody", kinds=["outcome"])
        assert added.secret.startswith("whsec_")
        (hook,) = await client.hooks.list()
        assert (hook.id, hook.kinds, hook.origin) == (added.id, ["outcome"], "api")
        tested = await client.hooks.test(added.id)
        assert (tested.delivered, tested.problem is None) == (False, False)
        await client.hooks.remove(added.id)
        assert await client.hooks.list() == []
        assert await client.approvals.list() == []
        with pytest.raises(NotFoundError):
            await client.approvals.revoke("ffff")

    run(ask, up.login)
