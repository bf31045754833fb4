"""Approvals at the command line: `run --approve`, `answer` and `approvals`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal

from shopfloor.errors import ExecutionCancelled

PUSH = """
input: {WORD: {type: string}}
steps:
  Look: {block: command, command: "echo looked"}
  Push: {block: command, command: "echo {{WORD}} >> pushed", output: SAID}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place" / "workers" / "push").mkdir(parents=True)
    (tmp_path / "place" / "workers" / "push" / "worker.yaml").write_text(PUSH)
    return tmp_path / "place"


RUN = ("run", "push", "-i", "WORD=a", "--approve", "command(*pushed)")


@pytest.mark.req("SF-56")
def test_a_person_at_the_terminal_is_asked_and_the_rest_runs_unasked(env: dict[str, str], place: Path) -> None:
    seen = Terminal(*RUN, env=env, cwd=place)
    try:
        seen.wait_for("(empty: leave it waiting): ")
        assert "approval of command: echo" in seen.shown
        assert "4. deny" in seen.shown
        seen.type("perhaps\n")
        seen.wait_for("not one of the 4 options, try again: ")
        seen.type("1\n")
        assert seen.end() == 0, seen.shown
    finally:
        seen.close()
    assert (place / "pushed").read_text() == "a\n"


BOTH = """
steps:
  Both:
    block: parallel
    branches:
      A:
        One: {block: tool-call, tool: ask, input: {question: "First?"}, output: ONE}
      B:
        Two: {block: tool-call, tool: ask, input: {question: "Second?"}, output: TWO}
output: TWO
"""
TWICE = """
steps:
  One: {block: tool-call, tool: ask, input: {question: "First?"}, output: ONE}
  Two: {block: tool-call, tool: ask, input: {question: "Second?"}, output: TWO}
output: TWO
"""


@pytest.mark.req("SF-58")
def test_a_prompt_ends_when_the_question_is_answered_elsewhere_or_the_run_is_cancelled(
    env: dict[str, str], shopfloor: Cli, place: Path
) -> None:
    (place / "workers" / "twice").mkdir()
    (place / "workers" / "twice" / "worker.yaml").write_text(TWICE)
    seen = Terminal("run", "twice", env=env, cwd=place)
    try:
        seen.wait_for("First?\r\nanswer (empty: leave it waiting): ")
        assert shopfloor("answer", "last", "from elsewhere").returncode == 0
        seen.wait_for("the run no longer waits for this answer")
        seen.wait_for("Second?\r\nanswer (empty: leave it waiting): ")
        seen.type("typed here\n")
        assert seen.end() == 0, seen.shown
    finally:
        seen.close()
    assert "typed here" in seen.shown.splitlines()
    seen = Terminal("run", "twice", env=env, cwd=place)
    try:
        seen.wait_for("First?\r\nanswer (empty: leave it waiting): ")
        assert shopfloor("cancel", "last").returncode == 0
        assert seen.end() == ExecutionCancelled.exit_code, seen.shown
    finally:
        seen.close()


def test_a_prompt_for_two_questions_goes_on_with_the_second_when_the_first_is_answered_elsewhere(
    env: dict[str, str], shopfloor: Cli, place: Path
) -> None:
    (place / "workers" / "both").mkdir()
    (place / "workers" / "both" / "worker.yaml").write_text(BOTH)
    seen = Terminal("run", "both", env=env, cwd=place)
    try:
        seen.wait_for("First?\r\nanswer (empty: leave it waiting): ")
        (first,) = [
            item["call_id"]
            for item in json.loads(shopfloor("waiting", "--json").stdout)["items"]
            if item["text"] == "First?"
        ]
        assert shopfloor("answer", "last", first, "from elsewhere").returncode == 0
        seen.wait_for("the run no longer waits for this answer")
        seen.wait_for("Second?\r\nanswer (empty: leave it waiting): ")
        seen.type("typed here\n")
        assert seen.end() == 0, seen.shown
    finally:
        seen.close()
    assert "typed here" in seen.shown.splitlines()


BUSY = """
steps:
  Both:
    block: parallel
    branches:
      A:
        Push: {block: command, command: "echo pushed > pushed", approve: [command]}
      B:
        Wait: {block: command, command: "until test -e pushed; do sleep 0.1; done; echo seen", output: SEEN}
output: SEEN
"""


@pytest.mark.req("SF-56")
def test_an_approval_is_shown_while_something_else_of_the_run_is_active(
    env: dict[str, str], shopfloor: Cli, place: Path
) -> None:
    (place / "workers" / "busy").mkdir()
    (place / "workers" / "busy" / "worker.yaml").write_text(BUSY)
    seen = Terminal("run", "busy", env=env, cwd=place)
    try:
        seen.wait_for("waits for approval of command: echo pushed > pushed")
        assert shopfloor("answer", "last", "approve").returncode == 0
        assert seen.end() == 0, seen.shown
    finally:
        seen.close()
    assert "seen" in seen.shown.splitlines()


@pytest.mark.req("SF-56")
def test_each_line_of_a_command_is_shown_before_it_is_approved(shopfloor: Cli, place: Path) -> None:
    lines = ["approval of command: echo ok > /dev/null", "rm -rf precious", "always approve holds for command of tidy"]
    (place / "workers" / "tidy").mkdir()
    (place / "workers" / "tidy" / "worker.py").write_text(
        "from shopfloor import worker\n\n"
        "@worker(slug='tidy', approve=['command'])\n"
        "async def tidy(run) -> str:\n"
        "    return (await run.command('echo ok > /dev/null\\nrm -rf precious')).stdout\n"
    )
    ran = shopfloor("run", "tidy", cwd=place)
    assert ran.returncode == 75, ran.stderr
    for shown in (ran.stderr, *(shopfloor(*words).stdout for words in (["waiting"], ["answer", "last", "--list"]))):
        assert "\n".join(lines) in "\n".join(line.strip().removeprefix("waits for ") for line in shown.splitlines())


def test_an_approval_is_given_later_and_for_always_and_revoked(shopfloor: Cli, place: Path) -> None:
    waiting = shopfloor(*RUN, cwd=place)
    assert waiting.returncode == 75, waiting.stderr
    assert "shopfloor answer" in waiting.stderr
    assert "'deny: REASON'" in waiting.stderr
    assert not (place / "pushed").exists()
    assert shopfloor("answer", "last", "always approve").returncode == 0
    assert shopfloor("resume", "-q", "last", cwd=place).returncode == 0
    assert shopfloor(*RUN, "-q", cwd=place).returncode == 0
    assert (place / "pushed").read_text() == "a\na\n"
    listed = shopfloor("approvals").stdout
    assert "command(*pushed) of push, approved in run" in listed
    assert shopfloor("approvals", "revoke", listed.split()[0]).returncode == 0
    assert shopfloor("approvals", "list").stdout.strip() == "no call is approved for always"
    assert shopfloor(*RUN, cwd=place).returncode == 75
    denied = shopfloor("answer", "last", "--error", "not today")
    assert denied.returncode == 0
    failed = shopfloor("resume", "last", cwd=place)
    assert "error[approval_denied]: the command was denied: not today" in failed.stderr


def test_a_wrong_pattern_and_an_unknown_rule_are_refused(shopfloor: Cli, place: Path) -> None:
    wrong = shopfloor("run", "push", "-i", "WORD=a", "--approve", "Bash (", cwd=place)
    assert (wrong.returncode, "--approve: 'Bash (' is not a pattern of calls" in wrong.stderr) == (2, True)
    for rule in ("abc", "zz"):
        unknown = shopfloor("approvals", "revoke", rule)
        assert (unknown.returncode, f"no rule of approvals begins with '{rule}'" in unknown.stderr) == (4, True)
