"""An agent that is killed, fails or stops early has not succeeded, wherever its output ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tests.providers.streams import CLOCK, Stream, ids, streams

from shopfloor.adapters.providers.usage import price
from shopfloor.engine import transcribe
from shopfloor.ports import AgentExit, Normalizer

Fields = dict[str, Any]

BAD_EXITS = (
    AgentExit(signal="SIGKILL"),
    AgentExit(signal="SIGTERM", cancelled=True),
    AgentExit(code=1),
    AgentExit(code=143, cancelled=True),
)
GOOD_EXITS = (None, AgentExit(code=0))


def claude_succeeded(records: list[Fields]) -> bool:
    """Return whether the last `result` is a success and no message follows it."""
    turns = [one for one in records if one["type"] in ("assistant", "user", "result") or one.get("subtype") == "init"]
    return bool(turns) and turns[-1].get("subtype") == "success" and not turns[-1]["is_error"]


def codex_succeeded(records: list[Fields]) -> bool:
    turns = [one["type"] for one in records if one["type"].startswith("turn.")]
    return turns[-1:] == ["turn.completed"]


def gemini_succeeded(records: list[Fields]) -> bool:
    """Return whether the result is `success`, unless the program reports before it that it stopped early."""
    stopped = any(one["type"] == "error" and one["message"].startswith("Loop detected") for one in records[-2:])
    return bool(records) and records[-1].get("status") == "success" and "stats" in records[-1] and not stopped


def copilot_succeeded(records: list[Fields]) -> bool:
    aborted = [one for one in records if one["type"] in ("abort", "assistant.turn_start")][-1:]
    return bool(records) and records[-1].get("exitCode") == 0 and not (aborted and aborted[0]["type"] == "abort")


def opencode_succeeded(records: list[Fields]) -> bool:
    """Return whether the last step ended without requesting tools: OpenCode has no final record."""
    steps = [one for one in records if one["type"] in ("step_start", "step_finish", "error")]
    return bool(steps) and steps[-1]["type"] == "step_finish" and steps[-1]["part"]["reason"] != "tool-calls"


SUCCEEDED: dict[str, Callable[[list[Fields]], bool]] = {
    "claude-code": claude_succeeded,
    "codex": codex_succeeded,
    "gemini": gemini_succeeded,
    "copilot": copilot_succeeded,
    "opencode": opencode_succeeded,
}
"""By provider: whether the records end with a final record of success."""


def outcome(stream: Stream, fed: Normalizer, rest: bytes, exit_: AgentExit | None) -> Fields:
    """Return the outcome of a stream whose start was already fed."""
    lines = transcribe(stream.provider, deepcopy(fed), (rest,), prices=price, ended=exit_, clock=lambda: CLOCK)
    last = json.loads(list(lines)[-1])
    assert last["type"] == "run.completed"
    return last["payload"]


@pytest.mark.req("TR-60")
@pytest.mark.parametrize("stream", streams(), ids=ids)
def test_an_agent_that_ends_after_any_line_has_succeeded_only_with_its_final_record(stream: Stream) -> None:
    normalizer, records = stream.normalizer(), list[Fields]()
    for line in stream.data.split(b"\n")[:-1]:
        cut = line[: len(line) // 2]
        succeeded = SUCCEEDED[stream.provider](records)
        for exit_ in GOOD_EXITS:
            assert (outcome(stream, normalizer, cut, exit_)["status"] == "completed") is succeeded, (cut, exit_)
        normalizer.feed(line + b"\n")
        records.append(json.loads(line))
        succeeded = SUCCEEDED[stream.provider](records)
        for exit_ in GOOD_EXITS:
            assert (outcome(stream, normalizer, b"", exit_)["status"] == "completed") is succeeded, (line, exit_)
        for exit_ in BAD_EXITS:
            for rest in (b"", cut):
                ended = outcome(stream, normalizer, rest, exit_)
                assert ended["status"] in ("failed", "cancelled"), (line, exit_)
                assert ended["error"]["message"]
                assert "result" not in ended


def test_every_agent_has_streams_that_succeed_and_streams_that_do_not() -> None:
    for provider, succeeded in SUCCEEDED.items():
        records = [[json.loads(line) for line in one.data.split(b"\n")[:-1]] for one in streams(provider)]
        assert {succeeded(lines) for lines in records} == {True, False}
