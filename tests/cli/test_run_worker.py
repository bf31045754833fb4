"""`shopfloor run WORKER`: a worker, live, without a server and beside one."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.conftest import SHOPFLOOR, Cli
from tests.cli.terminal import Terminal
from tests.cli.test_run import events_of, only_path
from tests.cli.test_server import Server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

ASKS = '''
from shopfloor import worker


@worker(slug="asks")
async def asks(run) -> str:
    """Asks a question."""
    await run.log_question("is this noted?")
    return "it is " + await run.ask("Which colour?", options=["red", "green"])
'''
STUBBORN = """
description: A command that will not end.
steps:
  Wait:
    block: command
    command: trap '' TERM INT; echo ready; while :; do sleep 0.05; done
"""
FAILS = """
description: A command that fails.
steps:
  Fail:
    block: command
    command: echo oops >&2; exit 3
"""

PRINTS = """
description: Prints a secret in two pieces, and beside it what is no text.
steps:
  Print:
    block: command
    command: "printf 'it is correct-''ho'; sleep 0.3; printf 'rse-battery\\\\377'"
    output: SAID
  Hand on:
    block: run-worker
    worker: hello
    input: {NAME: "{{SAID}}"}
"""
DELEGATES = """
description: Has another worker do it.
steps:
  Ask another:
    block: run-worker
    worker: research-assistant
    input: {TOPIC: tea}
    output: REPORT
output: REPORT
"""


@pytest.fixture(autouse=True)
def _fast(env: dict[str, str]) -> None:
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "0"


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    """A folder with workers of our own."""
    folder = tmp_path / "own workers"
    for slug, file, text in (
        ("asks", "worker.py", ASKS),
        ("stubborn", "worker.yaml", STUBBORN),
        ("fails", "worker.yaml", FAILS),
        ("prints", "worker.yaml", PRINTS),
        ("delegates", "worker.yaml", DELEGATES),
    ):
        (folder / slug).mkdir(parents=True)
        (folder / slug / file).write_text(text)
    return folder


@pytest.fixture
def terminal(env: dict[str, str]) -> Iterator:
    opened: list[Terminal] = []

    def open_terminal(*words: str, **options) -> Terminal:
        opened.append(Terminal(*words, env=env, **options))
        return opened[-1]

    yield open_terminal
    for one in opened:
        one.close()


@pytest.fixture
def server(start, env) -> Iterator:
    servers: list[Server] = []

    def up(*words: str) -> Server:
        servers.append(Server(start("up", "--port", "0", *words), env))
        return servers[-1]

    yield up
    for one in servers:
        one.http.close()


# Streams


def test_the_text_of_a_worker_goes_to_stdout_and_everything_else_to_stderr(shopfloor, transcripts):
    done = shopfloor("run", "hello", "-i", "NAME=Ada")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hello, Ada! ")
    assert done.stdout.endswith("\n")
    lines = done.stderr.splitlines()
    assert [line.split(" · ")[0] for line in lines[:3]] == ["✓ Begin a thread", "✓ Ask for a greeting", "✓ Greet"]
    run_id = only_path(transcripts()).stem
    assert lines[3].startswith("shopfloor: completed in ")
    assert lines[3].endswith(f" · shopfloor show {run_id[:8]}")
    assert "\x1b" not in done.stderr
    outcome = events_of(only_path(transcripts()))[-1]["payload"]
    assert (outcome["status"], outcome["result"] + "\n") == ("completed", done.stdout)


def test_quiet_prints_only_the_output_of_the_worker(shopfloor):
    done = shopfloor("run", "-q", "hello", "-i", "NAME=Ada")
    assert (done.stdout[:10], done.stderr, done.returncode) == ("Hello, Ada", "", 0)


def test_json_prints_every_event_of_the_stream_on_a_line(shopfloor, transcripts):
    done = shopfloor("run", "hello", "-i", "NAME=Ada", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["start", "worker-start"]
    assert kinds[-2:] == ["worker-result", "finish"]
    assert {"block-start", "text-start", "text-delta", "text-end", "block-end", "usage"} <= set(kinds)
    assert {event["workerId"] for event in events if "workerId" in event} == {only_path(transcripts()).stem}
    assert done.stderr.startswith("shopfloor: completed in ")


def test_an_output_that_was_not_streamed_is_printed_at_the_end(shopfloor, tmp_path):
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    done = shopfloor("run", "file-report", "-i", "FILE=notes.txt", "-i", "LINES=2", cwd=tmp_path)
    assert json.loads(done.stdout)["beginning"].split() == ["one", "two"]
    assert "one" in done.stderr


def test_a_failed_run_prints_its_error_and_exits_with_its_code(shopfloor, workers):
    done = shopfloor("run", "fails", "--workers", str(workers))
    assert done.returncode == 1
    assert "oops\n" in done.stderr
    error, closing = done.stderr.splitlines()[-2:]
    assert error.startswith("error[execution_error]: ")
    assert error.endswith("exit code 3")
    assert closing.startswith("shopfloor: failed in ")


def test_a_closed_output_cancels_the_run(env, transcripts):
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "50"
    script = f"{SHOPFLOOR} run -q --json hello -i NAME=Ada | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[1:] == ["141"]
    assert events_of(only_path(transcripts()))[-1]["payload"]["error"]["message"] == "the output was closed"


# Inputs


def test_values_are_converted_to_the_types_of_the_inputs(shopfloor, transcripts, tmp_path):
    (tmp_path / "name.txt").write_text("notes.txt")
    shopfloor("run", "file-report", "-i", "FILE=@name.txt", "-i", "LINES=2", cwd=tmp_path)
    assert events_of(only_path(transcripts()))[0]["payload"]["input"] == {"FILE": "notes.txt", "LINES": 2}


def test_input_may_be_one_json_object(shopfloor, transcripts):
    words = ("--owner", "ada", "--channel", "chat:1", "--channel-name", "#general", "--task", "say hello")
    done = shopfloor("run", "-q", "hello", "--input-json", '{"NAME": "Ada"}', *words)
    assert done.returncode == 0, done.stderr
    payload = events_of(only_path(transcripts()))[0]["payload"]
    assert payload["input"] == {"NAME": "Ada"}
    origin = (payload["agent_id"], payload["channel_id"], payload["channel_name"], payload["task"])
    assert origin == ("ada", "chat:1", "#general", "say hello")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["hello"], "validation_error", "`NAME` is missing"),
        (["hello", "-i", "NAME"], "validation_error", "has no value: write -i"),
        (["hello", "-i", "NAME=a", "--input-json", '{"NAME": "b"}'], "validation_error", "set twice"),
        (["hello", "--input-json", "[1]"], "usage", "a JSON object"),
        (["hello", "--input-json", "{"], "usage", "not valid JSON"),
        (["file-report", "-i", "FILE=x", "-i", "LINES=many"], "validation_error", "a whole number"),
        (["hello", "--tool", "web-surf=cat"], "usage", "has no such tool"),
        (["research-assistant", "--tool", "web-search"], "usage", "must be NAME=COMMAND"),
        (["hello", "--command", "true"], "usage", "name a worker or use --command, not both"),
        (["hello", "--grace", "3"], "usage", "--grace can only be used with --command"),
        (["--command", "true", "-i", "NAME=a"], "usage", "-i can only be used with a worker"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_runs(shopfloor, transcripts, words, code, message):
    done = shopfloor("run", *words)
    assert done.stderr.startswith(f"error[{code}]: ")
    assert message in done.stderr
    assert (done.returncode, done.stdout, transcripts()) == (2, "", [])


def test_a_command_passed_as_a_worker_gets_a_hint_about_the_option_command(shopfloor):
    done = shopfloor("run", "echo hi")
    assert done.stderr == (
        "error[not_found_error]: there is no worker `echo hi`\nhint: to run a command: shopfloor run --command 'echo hi'\n"
    )
    assert done.returncode == 4
    assert "did you mean `hello`?" in shopfloor("run", "helo").stderr


# Tools and questions


def test_a_tool_is_executed_by_the_command_that_was_named_for_it(shopfloor, tmp_path):
    search = "web-search=cat > args.json; echo '[\"a page about tea\"]'"
    done = shopfloor("run", "research-assistant", "-i", "TOPIC=tea", "--tool", search, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "args.json").read_text()) == {"query": "tea"}
    assert '→ web-search {"query": "tea"}\n← web-search ["a page about tea"]\n' in done.stderr
    assert "a page about tea" in done.stdout


def test_the_stderr_of_a_tools_command_is_the_error_of_the_call(shopfloor):
    tool = "web-search=echo 'no network' >&2; exit 3"
    done = shopfloor("run", "research-assistant", "-i", "TOPIC=tea", "--tool", tool)
    assert "✗ web-search no network\n" in done.stderr
    assert done.returncode == 0


def test_a_client_tool_called_by_a_sub_run_is_executed(shopfloor, workers, transcripts, tmp_path):
    search = f"web-search=tee -a {shlex.quote(str(tmp_path / 'input.json'))} >/dev/null; echo '{{\"found\": 3}}'"
    done = shopfloor("run", "delegates", "--workers", str(workers), "--tool", search, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "input.json").read_text())["query"]
    parent, child = sorted(map(events_of, transcripts()), key=lambda events: "parent" in events[0]["payload"])
    (result,) = [event["payload"] for event in child if event["type"] == "tool.result"]
    assert (result["name"], result["output"]) == ("web-search", {"found": 3})
    assert f"sub-run {child[0]['run_id'][:8]} calls web-search" in done.stderr
    assert parent[-1]["payload"]["result"] == child[-1]["payload"]["result"]


def test_a_failed_tool_of_a_sub_run_is_an_error_in_the_sub_run(shopfloor, workers, transcripts):
    words = ("--tool", "web-search=echo 'no network' >&2; exit 3")
    done = shopfloor("run", "delegates", "--workers", str(workers), *words)
    assert done.returncode == 0, done.stderr
    events = [event for path in transcripts() for event in events_of(path)]
    assert [event["payload"]["error"] for event in events if event["type"] == "tool.result"] == ["no network"]


def test_a_tool_option_that_no_run_called_is_reported_at_the_end(shopfloor):
    done = shopfloor("run", "hello", "-i", "NAME=Ada", "--tool", "web-search=cat")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        0,
        "shopfloor: the tool web-search (--tool) was never called",
    )


def test_without_a_terminal_a_run_is_left_waiting_with_the_commands_that_answer_it(shopfloor, server):
    done = shopfloor("run", "research-assistant", "-i", "TOPIC=tea", stdin=subprocess.DEVNULL)
    assert done.returncode == 75
    lines = done.stderr.splitlines()
    place = lines.index('waits for web-search {"query": "tea"}')
    command = lines[place + 1].strip()
    # The command has no call id, because only one call is pending.
    assert re.fullmatch(r"shopfloor answer [0-9a-f]{8} 'TEXT'", command)
    assert lines[place + 2].startswith("shopfloor: waiting · ")
    run = command.split()[2]
    assert command in shopfloor("status", run).stdout
    assert shopfloor("result", run).returncode == 75
    up = server()
    answered = shopfloor(*shlex.split(command.replace("TEXT", "tea is a drink"))[1:])
    assert answered.returncode == 0, answered.stderr
    result = shopfloor("result", run, "--wait")
    assert (result.returncode, "tea is a drink" in result.stdout) == (0, True), result.stderr
    wait_until(lambda: [one["status"] for one in up.runs()] == ["done"], "the row")


SLOW_APPROVAL = """
steps:
  Read the plan:
    block: command
    command: sleep 0.2
  Approve it:
    block: tool-call
    tool: ask
    input: {question: "Go?"}
"""


def test_the_terminal_names_and_times_steps_as_the_log_does(shopfloor, transcripts, tmp_path):
    (tmp_path / "workers" / "approval").mkdir(parents=True)
    (tmp_path / "workers" / "approval" / "worker.yaml").write_text(SLOW_APPROVAL)
    first = shopfloor("run", "approval", cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert shopfloor("answer", "last", "yes").returncode == 0
    second = shopfloor("resume", "last", cwd=tmp_path)
    printed = [line for line in (first.stderr + second.stderr).splitlines() if line.startswith("✓ ")]
    shown = shopfloor("show", "last").stdout.splitlines()
    assert printed == [line.partition("✓ ")[1] + line.partition("✓ ")[2] for line in shown if "  ✓ " in line][:-1]
    assert [line.split(" · ")[0] for line in printed] == ["✓ Read the plan", "✓ Approve it"]
    started, result, ended = (
        next(
            event
            for event in events_of(only_path(transcripts()))
            if event["type"] == kind and "approve" in event["path"]
        )
        for kind in ("step.started", "tool.result", "step.completed")
    )
    waited = datetime.fromisoformat(result["timestamp"]) - datetime.fromisoformat(started["timestamp"])
    # Both processes worked on this step: its duration includes the wait.
    # The timestamps have whole milliseconds, so their difference may be one too many.
    assert ended["payload"]["duration_ms"] >= waited / timedelta(milliseconds=1) - 1
    total = shown[-1].split(" · ")[1]
    assert f"shopfloor: completed in {total} · " in second.stderr
    tree = shopfloor("tree", "last").stdout
    assert "✓ Read the plan [command] · " in tree
    assert f"completed · {total}" in tree
    assert f"completed · {total}" in shopfloor("status", "last").stdout


def test_at_a_terminal_the_user_is_prompted_for_the_result_of_a_tool(terminal, transcripts):
    seen = terminal("run", "research-assistant", "-i", "TOPIC=tea")
    seen.wait_for('tool call web-search {"query": "tea"}')
    seen.wait_for("result as JSON or text (empty: leave it waiting): ")
    seen.type('{"found": ["tea houses"]}\n')
    assert seen.end() == 0, seen.shown
    assert "tea houses" in seen.shown
    assert "\r\x1b[K" in seen.shown
    results = [event["payload"] for event in events_of(only_path(transcripts())) if event["type"] == "tool.result"]
    assert results[0]["output"] == {"found": ["tea houses"]}


def test_at_a_terminal_a_question_is_answered_by_the_number_of_an_option(terminal, workers, tmp_path):
    with (tmp_path / "out.txt").open("wb") as out:
        seen = terminal("run", "asks", "--workers", str(workers), stdout=out.fileno())
        seen.wait_for("Which colour?\r\n  1. red\r\n  2. green\r\n")
        seen.type("2\n")
        assert seen.end() == 0, seen.shown
    assert "? is this noted?" in seen.shown
    assert (tmp_path / "out.txt").read_text() == "it is green\n"


def test_at_a_terminal_an_empty_answer_leaves_the_run_waiting(terminal):
    seen = terminal("run", "research-assistant", "-i", "TOPIC=tea")
    seen.wait_for("(empty: leave it waiting): ")
    seen.type("\n")
    assert seen.end() == 75
    assert "  shopfloor answer " in seen.shown


# Interruption


def test_ctrl_c_cancels_the_run(start, env, transcripts):
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "500"
    process = start("run", "hello", "-i", "NAME=Ada")
    assert process.stdout.read(1) == b"H"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"shopfloor: cancelled in " in errors
    outcome = events_of(only_path(transcripts()))[-1]["payload"]
    assert (outcome["status"], outcome["error"]["message"]) == ("cancelled", "cancelled by SIGINT")


def test_ctrl_c_at_a_question_cancels_the_run(terminal, workers, transcripts):
    seen = terminal("run", "asks", "--workers", str(workers))
    seen.wait_for("(empty: leave it waiting): ")
    os.kill(seen.process.pid, signal.SIGINT)
    assert seen.end() == 130
    assert events_of(only_path(transcripts()))[-1]["payload"]["status"] == "cancelled"


def test_a_second_ctrl_c_exits_at_once(start, workers, shopfloor):
    process = start("run", "stubborn", "--workers", str(workers))
    while b"ready" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    while b"cancelling" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130


# Beside a server


@pytest.mark.req("SF-30")
def test_beside_a_server_the_run_is_executed_by_the_caller_and_the_server_shows_it(
    server, shopfloor, workers, tmp_path, env
):
    up = server()
    env["SECRET_WORD"] = "correct-horse-battery"
    done = shopfloor("run", "repo-report", "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: len(up.runs(status="done")) == 5, "the run and its sub-runs")
    (row,) = [one for one in up.runs() if one["parent_run_id"] is None]
    assert (row["name"], row["channel_id"]) == ("repo-report", "cli")
    for run in up.runs():
        started = up.get(f"/api/runs/{run['id']}/log", limit=1)["events"][0]["payload"]
        assert (started["cwd"], started["executor"], started.get("masked")) == (str(tmp_path), "caller", None)
    assert shopfloor("run", "fails", "--workers", str(workers)).returncode == 1
    masked = shopfloor("run", "prints", "--workers", str(workers), "--mask-env", "SECRET_WORD")
    assert masked.returncode == 0, masked.stderr
    assert "hint: available workers: " in shopfloor("run", "nothing").stderr


def test_a_server_that_the_environment_names_executes_the_run(server, shopfloor, workers, env):
    up = server("--workers", str(workers))
    env["SHOPFLOOR_URL"] = up.login
    assert shopfloor("run", "fails").returncode == 1
    started = up.get(f"/api/runs/{up.runs()[0]['id']}/log", limit=1)["events"][0]["payload"]
    assert "executor" not in started
    named = shopfloor("run", "fails", "--workers", str(workers))
    assert (named.returncode, "--workers cannot be used here" in named.stderr) == (2, True)
    masked = shopfloor("run", "fails", "--mask-keys")
    assert (masked.returncode, "error[unsupported_option]" in masked.stderr) == (2, True)
    assert "hint: unset SHOPFLOOR_URL" in masked.stderr
    assert "a server executes the run, with the workers of its projects" in shopfloor("run", "nothing").stderr


def test_a_detached_run_continues_by_itself(server, shopfloor):
    server()
    done = shopfloor("run", "hello", "-i", "NAME=Ada", "--detach")
    run_id = done.stdout.strip()
    assert shopfloor("result", run_id, "--wait").stdout.startswith("Hello, Ada! ")


# Masking


def test_a_masked_value_is_in_no_log_of_the_run_and_its_sub_runs(shopfloor, env, workers, transcripts):
    env["SECRET_WORD"] = "correct-horse-battery"
    done = shopfloor("run", "prints", "--workers", str(workers), "--mask-env", "SECRET_WORD")
    assert done.returncode == 0, done.stderr
    parent, child = sorted(map(events_of, transcripts()), key=lambda events: "parent" in events[0]["payload"])
    assert child[0]["payload"]["input"] == {"NAME": "it is [masked]\ufffd"}
    printed = [block for event in parent for block in event["payload"].get("blocks", []) if block.get("stream")]
    assert "".join(block["text"] for block in printed) == "it is [masked]\ufffd"
    assert [block.get("raw") for block in printed] == [None] * len(printed)
    assert "correct-horse" not in "".join(path.read_text() for path in transcripts())


def test_masking_is_refused_where_a_server_would_execute_the_run(shopfloor, transcripts):
    done = shopfloor("run", "hello", "-i", "NAME=Ada", "--mask-keys", "--detach")
    assert done.returncode == 2
    assert "error[unsupported_option]" in done.stderr
    assert "hint: " in done.stderr
    assert transcripts() == []


@pytest.mark.req("SDK-48")
def test_a_script_path_is_relative_to_the_folder_of_its_worker(shopfloor, tmp_path):
    folder = tmp_path / "workers" / "scripted"
    (folder / "scripts").mkdir(parents=True)
    (folder / "worker.yaml").write_text(
        "input: {WHO: }\nsteps:\n  Loop:\n    block: for-each\n    each: [1]\n    collect: TEXT\n    output: ALL\n    steps:\n"
        "      Begin: {block: start-thread, model: script/scripts/greet.yaml}\n"
        "      Say: {block: add-message, text: 'Greet {{WHO}}'}\n      Answer: {block: next-message, output: TEXT}\noutput: ALL\n"
    )
    (folder / "scripts" / "greet.yaml").write_text(
        "captures: {WHO: {find: 'Greet (.+)'}}\nturns: [{text: ['Hello', ', {{WHO}}']}]\n"
    )
    done = shopfloor(
        "run", "-q", "scripted", "--workers", str(folder.parent), "-i", "WHO=Ada", cwd=tmp_path / "workers"
    )
    assert "Hello, Ada" in done.stdout, done.stderr


def test_exit_handlers_of_a_worker_are_called(shopfloor: Cli, tmp_path: Path) -> None:
    file, left = tmp_path / "leaves.py", tmp_path / "left"
    file.write_text(
        "import atexit\nfrom pathlib import Path\nfrom shopfloor import worker\n\n"
        f"atexit.register(Path({str(left)!r}).write_text, 'left')\n\n"
        '@worker\nasync def leaves(run):\n    """Returns."""\n    return "done"\n'
    )
    done = shopfloor("run", "-q", "leaves", "--workers", str(file))
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert left.read_text() == "left"
