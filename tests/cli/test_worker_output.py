"""What Python workers print, log and raise, in the record and on the terminal."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.cli.test_server import Server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

import shopfloor.testing as shopfloor_testing
from shopfloor.limits import TRACEBACK_CHARS, WORKER_OUTPUT_CHARS

TALKS = '''
import asyncio, logging, sys, threading
from shopfloor import worker

log = logging.getLogger("tidy")

def count(n):
    print("in a thread")
    print("to stderr", file=sys.stderr)
    log.warning("counted %d", n)
    return n

async def later():
    print("in a coroutine")

@worker(slug="talks")
async def talks(run) -> str:
    """Prints and logs."""
    print("at the start")
    await run.step("Count", count, 3)
    await run.step("Later", later)
    await asyncio.to_thread(print, "in a thread of its own")
    print("without a line break", end="")
    return "done"
'''
FLOODS = '''
from shopfloor import worker

@worker(slug="floods")
async def floods(run, LINES: int) -> str:
    """Prints very much."""
    for n in range(LINES):
        print(f"line {n:06}", "x" * 20)
    return "done"
'''
FAILS = '''
import asyncio
from shopfloor import worker

def divide(x):
    print("about to divide")
    return 1 / x

def recurse(n):
    print("\\ud800 no text")
    raise ValueError("y" * 100_000)

async def fail(reason):
    raise ValueError(reason)

@worker(slug="fails")
async def fails(run, HOW: str) -> str:
    """Fails in several ways."""
    if HOW == "step":
        await run.step("Divide", divide, 0)
    if HOW == "long":
        await run.step("Long", recurse, 0)
    if HOW == "command":
        await run.command("exit 2", name="Build")
    if HOW == "group":
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail("no first book"))
            tasks.create_task(fail("no second book"))
    if HOW == "unraised":
        raise ExceptionGroup("two fields", [ValueError("no title"), ValueError("no author")])
    print("raising now")
    raise KeyError("nothing there")
'''
MEETS = '''
import asyncio, os, threading
from pathlib import Path
from shopfloor import worker

def meet(name, folder):
    """Print while the function of the other run is being executed too."""
    Path(folder, name).touch()
    while len(os.listdir(folder)) < 2:
        threading.Event().wait(0.01)
    for n in range(100):
        print(f"{name} {n}")

@worker(slug="meets")
async def meets(run, NAME: str, FOLDER: str) -> str:
    """Prints at the same time as another run."""
    await run.step("Meet", meet, NAME, FOLDER)
    print(f"{NAME} ends")
    return NAME
'''
DEBUGS = '''
from shopfloor import worker

@worker(slug="debugs")
async def debugs(run) -> str:
    """Stops in the debugger."""
    secret = 40 + 2
    breakpoint()
    return "done"
'''
HANDLERS = """
def look_up(arguments):
    print("looking up", arguments["title"])
    if arguments["title"] == "bad":
        raise LookupError("no such book")
    return ["a book"]
"""
BOOKS = """
description: Calls a tool whose handler is a Python function.
tools:
  look_up:
    description: Looks up books.
    handler: handlers.py:look_up
    parameters: {type: object, properties: {title: {type: string}}}
input: {TITLE: {type: string}}
steps:
  Find:
    block: tool-call
    tool: look_up
    input: {title: "{{TITLE}}"}
"""


@pytest.fixture
def workers(tmp_path: Path) -> str:
    folder = tmp_path / "own workers"
    for slug, text in (("talks", TALKS), ("floods", FLOODS), ("fails", FAILS), ("debugs", DEBUGS), ("meets", MEETS)):
        (folder / slug).mkdir(parents=True)
        (folder / slug / "worker.py").write_text(text)
    (folder / "books").mkdir()
    (folder / "books" / "worker.yaml").write_text(BOOKS)
    (folder / "books" / "handlers.py").write_text(HANDLERS)
    return str(folder)


@pytest.fixture
def events(transcripts: Callable[[], list[Path]]) -> Callable[[], list[dict[str, Any]]]:
    """Read the events of the only run."""

    def read() -> list[dict[str, Any]]:
        [path] = transcripts()
        return [json.loads(line) for line in path.read_text().splitlines()]

    return read


def _outputs(events: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Return the path, the stream and the text of the output. Blocks that follow each other are joined."""
    found: list[tuple[str, str, str]] = []
    for event in events:
        for block in event["payload"]["blocks"] if event["type"] == "message.assistant" else ():
            path, stream, text = event["path"], block["stream"], block["text"]
            if found and found[-1][:2] == (path, stream):
                found[-1] = (path, stream, found[-1][2] + text)
            else:
                found.append((path, stream, text))
    return found


@pytest.mark.req("SF-65")
def test_what_a_worker_prints_and_logs_is_in_its_record_in_order_and_on_stderr(
    shopfloor: Cli, workers: str, events: Callable[[], list[dict[str, Any]]]
):
    ran = shopfloor("run", "talks", "--workers", workers)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
    shown = ["at the start", "in a thread", "to stderr", "WARNING tidy: counted 3", "in a coroutine", "in a thread of"]
    positions = [ran.stderr.index(text) for text in [*shown, "without a line break"]]
    assert positions == sorted(positions)
    assert ran.stderr.count("counted 3") == 1
    recorded = events()
    assert _outputs(recorded) == [
        ("", "stdout", "at the start\n"),
        ("count", "stdout", "in a thread\n"),
        ("count", "stderr", "to stderr\nWARNING tidy: counted 3\n"),
        ("later", "stdout", "in a coroutine\n"),
        ("", "stdout", "in a thread of its own\nwithout a line break"),
    ]
    # The output of a step is before its end.
    kinds = [event["type"] for event in recorded]
    assert kinds[:5] == ["run.started", "message.assistant", "step.started", "message.assistant", "step.completed"]
    assert kinds[-1] == "run.completed"
    assert shopfloor("verify", "last").returncode == 0
    assert "┃ WARNING tidy: counted 3" in shopfloor("show", "last").stdout.replace("\x1b", "")


ODD = '''
import asyncio, logging, os, sys
from shopfloor import worker

class Broken:
    def __repr__(self):
        raise ValueError("no text")

@worker(slug="odd")
async def odd(run) -> str:
    """Writes in ways that a program of its own would get away with."""
    secret = os.environ["API_SECRET"]
    sys.stdout.write(secret[:6])
    # Longer than output waits to be joined.
    await asyncio.sleep(0.5)
    print(secret[6:])
    logging.getLogger("tidy").warning("%s", Broken())
    with sys.stdout as file:
        file.write("before the end\\n")
    print("after it")
    return "done"
'''


@pytest.mark.req("SF-65")
def test_a_secret_in_two_writes_is_masked_and_odd_use_of_the_streams_fails_nothing(
    shopfloor: Cli, tmp_path: Path, env: dict[str, str], events: Callable[[], list[dict[str, Any]]]
):
    (tmp_path / "odd.py").write_text(ODD)
    words = ("--workers", str(tmp_path / "odd.py"), "--mask-env", "API_SECRET")
    ran = shopfloor("run", "odd", *words, env={**env, "API_SECRET": "supersecret123"})
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
    printed = "".join(text for _, stream, text in _outputs(events()) if stream == "stdout")
    assert printed == "[masked]\nbefore the end\nafter it\n"
    assert "WARNING tidy: (a message that cannot be shown)" in ran.stderr


LONG_SECRET = '''
import logging, os
from shopfloor import worker

@worker(slug="long")
async def long(run) -> str:
    """Prints what is only short enough without its secret, and logs as Shopfloor does."""
    own = logging.getLogger("shopfloor.tests")
    own.addHandler(logging.StreamHandler())
    own.warning("not of the worker")
    print("x" * %d + os.environ["API_SECRET"])
    return "done"
'''


@pytest.mark.req("SF-65")
def test_masked_output_that_is_short_enough_is_complete_and_own_log_records_are_printed_only(
    shopfloor: Cli, tmp_path: Path, env: dict[str, str], events: Callable[[], list[dict[str, Any]]]
):
    (tmp_path / "long.py").write_text(LONG_SECRET % (WORKER_OUTPUT_CHARS - 100))
    words = ("--workers", str(tmp_path / "long.py"), "--mask-env", "API_SECRET")
    ran = shopfloor("run", "-q", "long", *words, env={**env, "API_SECRET": "supersecret" * 20})
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
    text = "".join(text for *_, text in _outputs(events()))
    assert text == "x" * (WORKER_OUTPUT_CHARS - 100) + "[masked]\n"
    assert [event for event in events() if event["payload"].get("note")] == []
    assert "not of the worker" in ran.stderr


@pytest.mark.req("SF-65")
def test_a_worker_that_prints_without_end_does_not_flood_its_log(
    shopfloor: Cli, workers: str, events: Callable[[], list[dict[str, Any]]]
):
    ran = shopfloor("run", "floods", "--workers", workers, "-i", "LINES=100000", "-q")
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr
    recorded = events()
    text = "".join(text for *_, text in _outputs(recorded))
    assert len(text) == WORKER_OUTPUT_CHARS
    assert text.startswith("line 000000 xxx")
    assert len(recorded) < 300
    [note] = [event["payload"]["note"] for event in recorded if event["payload"].get("note")]
    assert note["code"] == "output_dropped"
    dropped = 100_000 * len("line 000000 " + "x" * 20 + "\n") - WORKER_OUTPUT_CHARS
    assert f"the last {dropped:,} (" in note["message"]
    assert "were not recorded" in shopfloor("show", "last").stdout


@pytest.mark.req("SF-65")
def test_an_exception_has_its_traceback_in_the_record_with_the_frames_of_the_worker_alone(
    shopfloor: Cli, workers: str, events: Callable[[], list[dict[str, Any]]]
):
    ran = shopfloor("run", "fails", "--workers", workers, "-i", "HOW=step")
    assert ran.returncode != 0
    assert "step Divide: ZeroDivisionError: division by zero (worker.py:7)" in ran.stderr
    recorded = events()
    [step] = [event["payload"] for event in recorded if event["type"] == "step.completed"]
    assert ("divide", "stdout", "about to divide\n") in _outputs(recorded)
    files = r'File "([^"]*)", line \d+, in (\w+)'
    assert re.findall(files, step["traceback"]) == [(f"{workers}/fails/worker.py", "divide")]
    assert step["traceback"].endswith("ZeroDivisionError: division by zero")
    outcome = recorded[-1]["payload"]["error"]
    assert [name for _, name in re.findall(files, outcome["traceback"])] == ["divide", "fails"]
    folded, full = shopfloor("show", "last").stdout, shopfloor("show", "last", "--full").stdout
    assert "lines folded; --full shows them" in folded
    assert 'await run.step("Divide", divide, 0)' in folded
    assert "lines folded" not in full
    assert full.count("return 1 / x") == 2
    status = shopfloor("status", "last").stdout
    assert "lines folded; --full shows them" in status
    assert 'await run.step("Divide", divide, 0)' in status
    assert "return 1 / x" in shopfloor("status", "last", "--full").stdout


@pytest.mark.req("SF-65")
@pytest.mark.parametrize(
    ("how", "messages"),
    [
        ("group", ["ValueError: no first book", "ValueError: no second book"]),
        ("unraised", ["two fields", "ValueError: no title", "ValueError: no author"]),
    ],
)
def test_a_group_of_exceptions_has_all_of_them_and_its_own_place_in_the_traceback(
    shopfloor: Cli, workers: str, events: Callable[[], list[dict[str, Any]]], how: str, messages: list[str]
):
    assert shopfloor("run", "fails", "--workers", workers, "-i", f"HOW={how}").returncode != 0
    traceback = events()[-1]["payload"]["error"]["traceback"]
    assert 'worker.py", line' in traceback
    assert ", in fails" in traceback
    assert [message for message in messages if message in traceback] == messages
    assert "shopfloor/engine" not in traceback


@pytest.mark.req("SF-65")
@pytest.mark.parametrize(
    ("how", "message", "printed"),
    [
        ("command", "step Build: command `exit 2` failed: exit code 2", None),
        ("worker", "KeyError: 'nothing there' (worker.py:32)", "raising now\n"),
        ("long", "step Long: ValueError: yyy", "? no text\n"),
    ],
)
def test_errors_name_the_step_or_command_and_nothing_printed_before_them_is_lost(
    shopfloor: Cli,
    workers: str,
    events: Callable[[], list[dict[str, Any]]],
    how: str,
    message: str,
    printed: str | None,
):
    assert shopfloor("run", "fails", "--workers", workers, "-i", f"HOW={how}").returncode != 0
    recorded = events()
    error = recorded[-1]["payload"]["error"]
    assert error["message"].startswith(message)
    assert "worker.py" in error["traceback"] or how == "long"
    assert len(error["traceback"]) < TRACEBACK_CHARS + 100
    assert [text for *_, text in _outputs(recorded)] == ([printed] if printed else [])


@pytest.mark.req("SF-65")
@pytest.mark.parametrize(("title", "has_failed"), [("tea", False), ("bad", True)])
def test_the_output_and_exceptions_of_a_tool_handler_are_in_the_record(
    shopfloor: Cli, workers: str, events: Callable[[], list[dict[str, Any]]], title: str, has_failed: bool
):
    ran = shopfloor("run", "books", "--workers", workers, "-i", f"TITLE={title}")
    assert (ran.returncode != 0) is has_failed, ran.stderr
    outputs = _outputs(events())
    assert outputs[0] == ("find", "stdout", f"looking up {title}\n")
    assert any("in look_up" in text and stream == "stderr" for _, stream, text in outputs) is has_failed


def test_the_debugger_talks_to_the_terminal_while_a_worker_executes(shopfloor: Cli, workers: str):
    ran = shopfloor("run", "debugs", "--workers", workers, input="p secret\nc\n")
    assert "(Pdb) 42" in ran.stdout
    assert ran.returncode == 0


@pytest.mark.req("SF-65")
def test_runs_of_one_server_that_print_at_the_same_time_have_their_own_output(
    shopfloor: Cli, start: Callable[..., subprocess.Popen[bytes]], env: dict[str, str], workers: str, tmp_path: Path
):
    folder = tmp_path / "meeting"
    folder.mkdir()
    process = start("up", "--port", "0", "--workers", workers)
    server = Server(process, env)
    names = ["ada", "grace"]
    runs = [
        shopfloor("dispatch", "meets", "-i", f"NAME={name}", "-i", f"FOLDER={folder}").stdout.strip() for name in names
    ]
    for name, run_id in zip(names, runs, strict=True):
        wait_until(
            lambda run_id=run_id: server.get("/api/agents/workers/detail", worker_id=run_id)["completed_at"],
            "the outcome",
        )
        path = Path(env["SHOPFLOOR_STORAGE"], "transcripts", f"{run_id}.jsonl")
        assert _outputs([json.loads(line) for line in path.read_text().splitlines()]) == [
            ("meet", "stdout", "".join(f"{name} {n}\n" for n in range(100))),
            ("", "stdout", f"{name} ends\n"),
        ]
    server.http.close()
    process.terminate()
    printed, _ = process.communicate(timeout=TIMEOUT_SECONDS)
    assert b"ada" not in printed


def test_outside_of_a_run_the_streams_of_the_process_are_untouched(
    workers: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    streams, factory = (sys.stdout, sys.stderr), logging.getLogRecordFactory()
    with shopfloor_testing.engine(workers=[workers]) as engine:
        run = engine.run("talks")
        print("of the test")
    assert (sys.stdout, sys.stderr) == streams
    assert logging.getLogRecordFactory() is factory
    assert run.status == "completed"
    assert capsys.readouterr().out == "of the test\n"
    # Handlers that the process has still get the records of a worker.
    assert [record.getMessage() for record in caplog.records] == ["counted 3"]
