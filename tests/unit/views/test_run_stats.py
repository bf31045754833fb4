"""Which changes the events of a run make to its statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby

import pytest
from msgspec.structs import replace
from tests.contract.view_changes import run, tool_call, tool_result
from tests.sample_events import GOLDEN

from shopfloor.log import (
    AssistantMessage,
    Awaits,
    Cost,
    Event,
    Payload,
    RunError,
    Session,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    Usage,
    decode,
)
from shopfloor.views import FAILURE, QUARTER_SECONDS, SPENDING, TOOL, TOOL_FAILED, StatsState, stats_fold


def tools(events: Sequence[Event], metric: str) -> dict[str, int]:
    _, changes = stats_fold(StatsState(), events)
    return dict(Counter(change.label for change in changes if change.metric == metric))


def wait(name: str, error: str | None) -> list[Payload]:
    """Return a wait of the engine, as the engine records it."""
    call = ToolCall(name=name, call_id=name, input={}, output=None, fidelity="router", awaits=Awaits(kind=name))
    return [call, ToolResult(name=name, call_id=name, input=None, output=None, error=error, fidelity="router")]


@pytest.mark.req("SF-50")
@pytest.mark.parametrize("name", ["approval", "rate_limit", "definition_changed"])
def test_waits_of_the_engine_are_no_tools(name: str) -> None:
    events = run("one", tool_call("c1", {}), *wait(name, error="denied by ada"), tool_result("c1", "ok"))
    assert tools(events, TOOL) == {"Bash": 1}
    assert tools(events, TOOL_FAILED) == {}


@pytest.mark.req("SF-50")
@pytest.mark.parametrize(("error", "exit_code", "failed"), [(None, 0, 0), (None, 3, 1), ("no", None, 1), ("no", 3, 1)])
def test_a_command_with_an_exit_code_other_than_0_has_failed(
    error: str | None, exit_code: int | None, failed: int
) -> None:
    result = ToolResult(
        name="Bash", call_id="c1", input=None, output="", error=error, exit_code=exit_code, fidelity="agent_emitted"
    )
    events = run("one", tool_call("c1", {}), result)
    assert tools(events, TOOL) == {"Bash": 1}
    assert tools(events, TOOL_FAILED) == ({"Bash": failed} if failed else {})


@pytest.mark.req("SF-50")
def test_failures_whose_messages_differ_in_a_time_are_one_group() -> None:
    messages = [
        f"no answer to 'approval' by {time}" for time in ("2026-11-19T04:33:36.218Z", "2026-12-01T23:00:05.07Z")
    ]
    groups: set[str] = set()
    for message in messages:
        events = run("one", status="failed", error=RunError(code="approval_denied", message=message))
        _, changes = stats_fold(StatsState(), events)
        groups |= {change.detail for change in changes if change.metric == FAILURE}
    assert groups == {"no answer to 'approval' by #"}


Line = tuple[str, str, str, int, int, int]
"""The first minute of a quarter of an hour, the model, the provider, billionths of a dollar, tokens, tokens without price."""


def spending_lines(events: Sequence[Event]) -> list[Line]:
    """Return the sums of a log for each quarter of an hour, model and provider."""
    sums: Counter[tuple[int, str, str, str]] = Counter()
    keys: dict[tuple[int, str, str], None] = {}
    for change in stats_fold(StatsState(), events)[1]:
        if change.metric == SPENDING:
            key = (change.quarter, change.label, change.detail)
            keys[key] = None
            for name in ("amount", "tokens", "unpriced"):
                sums[*key, name] += getattr(change, name)
    return [
        (
            datetime.fromtimestamp(key[0] * QUARTER_SECONDS, UTC).strftime("%d %H:%M"),
            *key[1:],
            sums[*key, "amount"],
            sums[*key, "tokens"],
            sums[*key, "unpriced"],
        )
        for key in sorted(keys)
    ]


@pytest.mark.req("SF-50")
@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("claude-code/text", [("15 01:00", "claude-opus-5-5", "claude-code", 6_360_000, 2_145, 0)]),
        # With the sub-agent, whose log has no usage.
        ("claude-code/task", [("15 01:00", "claude-opus-5-5", "claude-code", 25_440_000, 8_580, 0)]),
        ("gemini/task", [("15 01:00", "gemini-2.5-flash", "gemini", 1_432_500, 6_285, 0)]),
        # Neither the model nor the price is known.
        ("codex/text", [("15 10:30", "", "codex", 0, 1_245, 1_245)]),
        ("opencode/task", [("15 01:15", "", "opencode", 1_410_000, 2_490, 0)]),
        ("copilot/text", []),
    ],
)
def test_the_sessions_of_agents_are_booked_when_they_end(name: str, lines: list[Line]) -> None:
    events = [decode(line) for line in (GOLDEN / "providers" / f"{name}.jsonl").read_bytes().splitlines()]
    events.sort(key=lambda event: event.run_id)
    found = [spending_lines(list(log)) for _, log in groupby(events, key=lambda event: event.run_id)]
    assert [line for run_lines in found for line in run_lines] == lines


def message(model: str, tokens: int = 0, usd: float | None = None) -> AssistantMessage:
    usage = Usage(input=tokens) if tokens else None
    return AssistantMessage(
        model=model, usage=usage, cost=None if usd is None else Cost(usd=usd, source="x"), blocks=[]
    )


def over_midnight(*payloads: Payload) -> list[Event]:
    """Return a run of which the last two events are on the second day."""
    events = run("one", *payloads, status=None)
    return [
        replace(event, timestamp=f"2026-11-{15 + (place >= len(events) - 2)}T12:05:00.000Z")
        for place, event in enumerate(events)
    ]


STARTED_SESSION = StepStarted(name="s", kind="agent", try_=1, session=Session(provider="codex"))


@pytest.mark.req("SF-50")
def test_a_total_is_divided_among_the_days_and_models_in_the_proportions_of_the_messages() -> None:
    total = StepCompleted(
        name="s", kind="agent", try_=1, usage=Usage(input=2_000), cost=Cost(usd=8.0, source="x"), covers="own"
    )
    spent = [message("opus", 100, 3.0), message("gpt", 300, 1.0)]
    assert spending_lines(over_midnight(STARTED_SESSION, *spent, total)) == [
        ("15 12:00", "opus", "codex", 6_000_000_000, 500, 0),
        ("16 12:00", "gpt", "codex", 2_000_000_000, 1_500, 0),
    ]


@pytest.mark.req("SF-50")
def test_a_session_without_usage_in_its_messages_counts_for_the_newest_model_when_it_ends() -> None:
    total = StepCompleted(name="s", kind="agent", try_=1, usage=Usage(input=2_000), cost=Cost(usd=8.0, source="x"))
    assert spending_lines(over_midnight(STARTED_SESSION, message("opus"), message("gpt"), total)) == [
        ("16 12:00", "gpt", "codex", 8_000_000_000, 2_000, 0)
    ]
