"""Approvals at the command line: `run --approve`, `answer` and `approvals`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.terminal import Terminal

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
    unknown = shopfloor("approvals", "revoke", "abc")
    assert (unknown.returncode, "no rule of approvals begins with 'abc'" in unknown.stderr) == (4, True)
