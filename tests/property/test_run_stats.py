"""The statistics of a run add up to the spending that its row shows, after every event."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sample_events import GOLDEN

from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    Cost,
    Event,
    Note,
    Payload,
    RunCompleted,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    Usage,
    decode,
    format_timestamp,
)
from shopfloor.views import NANO, SPENDING, RunRow, StatsState, row_fold, stats_fold

QUARTER_MS = 900_000
usages = st.none() | st.builds(Usage, input=st.integers(0, 5_000), output=st.integers(0, 500))
costs = st.none() | st.builds(Cost, usd=st.none() | st.floats(0, 5), source=st.just("test"))
spent = {"usage": usages, "cost": costs}
paths = st.sampled_from(["a", "b", "c.1"])
kinds = st.sampled_from(["agent", "next-message", "plugin", "step"])
names: dict[str, Any] = {"name": st.just("s"), "try_": st.just(1)}
covers = st.sampled_from([None, "own", "own_and_sub_agents"])
messages = st.builds(
    AssistantMessage,
    model=st.sampled_from([None, "opus", "gpt"]),
    note=st.none() | st.just(Note(kind="left")),
    blocks=st.just([]),
    **spent,
)
inside = (
    messages
    | st.builds(StepStarted, kind=kinds, session=st.none() | st.builds(Session, provider=st.just("codex")), **names)
    | st.builds(StepCompleted, kind=kinds, covers=covers, sub_usage=usages, sub_cost=costs, **names, **spent)
    | st.builds(CallCompleted, kind=st.sampled_from(["agent", "worker"]), **names, **spent)
    | st.builds(RunStarted, name=st.just("hello"), kind=st.just("worker"), attempt=st.just(2), host=st.just("h"))
)
outcomes = st.builds(
    RunCompleted, name=st.just("hello"), kind=st.just("worker"), status=st.just("completed"), covers=covers, **spent
)


def events_of(payloads: Sequence[tuple[str, Payload]]) -> list[Event]:
    return [
        Event(
            seq=seq,
            run_id="5f0c6d3c-0d4e-4a52-8e08-1d5e5f3c0b11",
            parent_run_id=None,
            type=payload.event_type,
            path="" if payload.event_type.startswith("run.") else path,
            iteration=0,
            timestamp=format_timestamp(seq * QUARTER_MS),
            payload=payload,
        )
        for seq, (path, payload) in enumerate(payloads, 1)
    ]


def tokens_of(usage: Usage) -> int:
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def check_sums(events: Sequence[Event]) -> None:
    """Compare the statistics with the row after each event. Sub-agents without a log count as spending of the run."""
    row, state, tokens, nano_usd, sub_tokens, sub_nano_usd = RunRow(), StatsState(), 0, 0, 0, 0
    for event in events:
        row = row_fold(row, [event])
        state, changes = stats_fold(state, [event])
        tokens += sum(change.tokens for change in changes if change.metric == SPENDING)
        nano_usd += sum(change.amount for change in changes if change.metric == SPENDING)
        if isinstance(event.payload, StepCompleted):
            sub_tokens += tokens_of(event.payload.sub_usage or Usage())
            sub_cost = event.payload.sub_cost
            sub_nano_usd += round(((sub_cost and sub_cost.usd) or 0) * NANO)
        own = row.spending.own
        assert tokens == tokens_of(own.usage) + sub_tokens, event
        # A sum of floating-point numbers depends on the order in the last digits.
        assert abs(nano_usd - (own.cost_usd or 0) * NANO - sub_nano_usd) < len(events), event


@pytest.mark.req("SF-50")
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(paths, inside), max_size=25), st.none() | outcomes)
def test_the_statistics_of_a_run_add_up_to_its_row(
    inside: list[tuple[str, Payload]], outcome: RunCompleted | None
) -> None:
    started = RunStarted(name="hello", kind="worker", attempt=1, host="h")
    check_sums(events_of([("", started), *inside, *([("", outcome)] if outcome else [])]))


@pytest.mark.req("SF-50")
@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.jsonl")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_statistics_of_recorded_agents_add_up_to_their_rows(path: Path) -> None:
    events = sorted((decode(line) for line in path.read_bytes().splitlines()), key=lambda event: event.run_id)
    for _, log in groupby(events, key=lambda event: event.run_id):
        check_sums(list(log))
