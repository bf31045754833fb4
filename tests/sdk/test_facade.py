"""`from shopfloor import Shopfloor` in a separate program, as a user would write it."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.model_server.script import Failure, Turn
from tests.model_server.server import ModelServer

WORKERS = {
    "asks-a-model": """
        steps:
          Start: {block: start-thread, model: anthropic/claude-sonnet-4-6}
          Say: {block: add-message, text: hello}
          Answer: {block: next-message, output: SAID, retry: {limit: 0}}
        output: SAID
    """,
    "breaks-a-tool": """
        tools: {look-up: {description: Looks up., parameters: {word: {type: string}}}}
        steps: {Look: {block: tool-call, tool: look-up, input: {word: moon}, output: FOUND}}
        output: FOUND
    """,
    "breaks-a-step": "steps: {Do: {block: command, command: 'exit 7'}}",
    "sleeps": "steps: {Sleep: {block: command, command: 'sleep 60'}}",
}
PROGRAM = """
import asyncio, json, sys
from shopfloor import Shopfloor

async def main():
    async with Shopfloor(workers=sys.argv[1:]) as client:
{body}

asyncio.run(main())
"""


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    for slug, yaml in WORKERS.items():
        (tmp_path / "workers" / slug).mkdir(parents=True)
        (tmp_path / "workers" / slug / "worker.yaml").write_text(textwrap.dedent(yaml))
    return tmp_path / "workers"


def program(env: dict[str, str], workers: Path, body: str) -> list[Any]:
    """Run a program with this body and return the JSON of each line that it prints."""
    source = PROGRAM.format(body=textwrap.indent(textwrap.dedent(body), " " * 8))
    done = subprocess.run(
        [sys.executable, "-c", source, str(workers)],
        env={**env, "SHOPFLOOR_SCRIPT_DELAY_MS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


RESEARCH = """
async def search(args):
    return [f"all about {args['query']}"]

events = client.workers.execute("research-assistant", {"TOPIC": "AI safety"}, tools={"web-search": search})
async for event in events:
    print(json.dumps([type(event).__name__, getattr(event, "delta", None)]))
"""


@pytest.mark.req("SDK-2", "SDK-3", "SDK-6")
def test_a_worker_runs_in_the_program_that_executes_it(env: dict[str, str], workers: Path) -> None:
    lines = program(env, workers, RESEARCH)
    names = [name for name, _ in lines]
    assert names[:2] == ["Start", "WorkerStart"]
    assert names[-2:] == ["WorkerResult", "Finish"]
    assert names.count("ToolRequest") == 1
    assert "all about AI safety" in "".join(delta for name, delta in lines if name == "TextDelta")


@pytest.mark.req("SDK-1")
def test_a_running_server_is_found_and_used(env: dict[str, str], workers: Path, start, shopfloor) -> None:
    server = start("up", "--port", "0", "--workers", str(workers), env={**env, "SHOPFLOOR_SCRIPT_DELAY_MS": "1"})
    assert b"Shopfloor is up" in server.stdout.readline()
    lines = program(env, workers, RESEARCH)
    assert [name for name, _ in lines][-1] == "Finish"
    [row] = json.loads(shopfloor("list", "--json").stdout)["workers"]
    assert row["status"] == "done"


def test_a_server_that_has_the_lock_but_does_not_listen_is_a_distinct_error(
    env: dict[str, str], tmp_path: Path
) -> None:
    source = """
    from shopfloor import Shopfloor
    from shopfloor.errors import ServerRunning
    from shopfloor.record import Storage
    from shopfloor.wiring import hold_server_lock

    # The other server holds the lock and does not listen yet.
    with hold_server_lock(Storage.default()):
        try:
            Shopfloor()
        except ServerRunning as error:
            print(error.code)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("server_running\n", 0), done.stderr


@pytest.mark.req("SDK-27", "SDK-29", "SDK-30", "SDK-31", "SDK-32", "SDK-33")
def test_each_kind_of_error_is_raised_as_its_own_exception(
    env: dict[str, str], workers: Path, model_server: ModelServer
) -> None:
    model_server.say(Turn(fail=Failure(status=500), times=0))
    body = """
    def broken(args):
        raise ValueError("no such luck")

    async def errors(slug, given=None, **options):
        events = [event async for event in client.workers.execute(slug, given or {}, **options)]
        print(json.dumps([[e.error_type, e.retryable] for e in events if type(e).__name__ == "ErrorEvent"]))

    await errors("hello", {"NMAE": "Ada"})
    await errors("nobody")
    await errors("asks-a-model")
    await errors("breaks-a-tool", tools={"look-up": broken})
    await errors("breaks-a-step")
    """
    lines = program({**env, **model_server.env}, workers, body)
    assert lines == [
        [["validation_error", False]],
        [["not_found_error", False]],
        [["provider_error", True]],
        [["tool_error", False]],
        [["execution_error", False]],
    ]


@pytest.mark.req("SDK-25", "SDK-26")
def test_a_program_that_stops_reading_cancels_the_run(env: dict[str, str], workers: Path) -> None:
    body = """
    try:
        async with asyncio.timeout(2):
            async for event in client.workers.execute("sleeps"):
                if type(event).__name__ == "Start":
                    run_id = event.execution_id
    except TimeoutError:
        pass
    async for event in client.workers.stream(run_id):
        last = event
    print(json.dumps(last.reason))
    """
    assert program(env, workers, body) == ["cancelled"]
