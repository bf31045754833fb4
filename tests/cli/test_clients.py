"""The client of a run, as the commands record it and show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.test_run import events_of, only_path

pytestmark = pytest.mark.req("SF-46")
IN_CLAUDE_CODE = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "5f3a"}


@pytest.fixture(autouse=True)
def _outside_of_any_agent(env: dict[str, str]) -> None:
    for name in ("CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CODEX_THREAD_ID"):
        env.pop(name, None)


@pytest.mark.parametrize("words", [("--command", "echo hi"), ("hello", "-i", "NAME=Ada")], ids=["command", "worker"])
def test_a_run_from_an_agent_names_its_session(shopfloor: Cli, env: dict[str, str], transcripts, words) -> None:
    assert shopfloor("run", *words, env=env | IN_CLAUDE_CODE).returncode == 0
    first, *_ = events_of(only_path(transcripts()))
    assert first["payload"]["client"] == {"name": "claude-code", "session_id": "5f3a"}
    assert "  client  claude-code · session 5f3a\n" in shopfloor("show", "last").stdout
    assert "  client    claude-code · session 5f3a\n" in shopfloor("status", "last").stdout
    assert json.loads(shopfloor("status", "last", "--json").stdout)["client"]["session_id"] == "5f3a"


def test_a_dispatched_run_names_its_client_before_it_starts(shopfloor: Cli, env: dict[str, str]) -> None:
    assert shopfloor("dispatch", "hello", "-i", "NAME=Ada", env=env | {"CODEX_THREAD_ID": "t1"}).returncode == 0
    assert "  client    codex · session t1\n" in shopfloor("status", "last").stdout
    Path(env["SHOPFLOOR_STORAGE"], "shopfloor.db").unlink()
    assert shopfloor("rebuild").returncode == 0
    assert "  client    codex · session t1\n" in shopfloor("status", "last").stdout


@pytest.mark.parametrize(
    "variables", [{}, {"CLAUDECODE": "1"}, {**IN_CLAUDE_CODE, "CODEX_THREAD_ID": "t1"}], ids=["none", "no id", "two"]
)
def test_a_session_that_is_not_known_is_not_recorded(shopfloor: Cli, env, transcripts, variables) -> None:
    assert shopfloor("run", "--command", "echo hi", env=env | variables).returncode == 0
    first, *_ = events_of(only_path(transcripts()))
    assert "client" not in first["payload"]
    assert "client" not in shopfloor("show", "last").stdout


def test_control_characters_in_the_name_of_a_client_do_not_reach_the_terminal(shopfloor: Cli, env) -> None:
    hostile = {"CLAUDE_CODE_SESSION_ID": "a\x1b[2Jb"}
    assert shopfloor("run", "--command", "echo hi", env=env | hostile).returncode == 0
    for command in ("show", "status"):
        shown = shopfloor(command, "last").stdout
        assert "session a␛[2Jb" in shown
        assert "\x1b" not in shown
