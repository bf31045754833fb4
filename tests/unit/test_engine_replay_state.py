"""The spending of a run in its log: parts while an agent works, and totals that replace them."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest

from shopfloor.engine.replay_state import ReplayState, StepKey
from shopfloor.log import (
    AssistantMessage,
    Awaits,
    Cost,
    Event,
    Note,
    Payload,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    ToolCall,
    Usage,
    new_run_id,
)

STEP_KEY = StepKey("fix")
STEP_STARTED = StepStarted(name="fix", kind="agent", try_=1, session=Session(provider="claude-code", session_id="s"))


def cost(tokens: int) -> Cost:
    return Cost(usd=tokens / 100, source="agent")


def usage_message(tokens: int) -> AssistantMessage:
    return AssistantMessage(session_id="s", usage=Usage(output=tokens), cost=cost(tokens), blocks=[])


def left(tokens: int) -> AssistantMessage:
    return AssistantMessage(usage=Usage(output=tokens), cost=cost(tokens), note=Note(kind="left"), blocks=[])


def ended(tokens: int | None) -> StepCompleted:
    if tokens is None:
        return StepCompleted(name="fix", kind="agent", try_=1, error="it was cut off")
    return StepCompleted(name="fix", kind="agent", try_=1, usage=Usage(output=tokens), cost=cost(tokens))


def attempt(number: int) -> RunStarted:
    return RunStarted(name="w", kind="worker", attempt=number, host="h")


def journal_of(*payloads: Payload) -> ReplayState:
    replay_state, seqs = ReplayState("r"), count(1)
    for payload in payloads:
        step_key = StepKey("") if isinstance(payload, RunStarted) else STEP_KEY
        replay_state.take(
            Event(
                seq=next(seqs),
                run_id="r",
                parent_run_id=None,
                child_run_id=None,
                type=payload.event_type,
                path=step_key.path,
                iteration=0,
                timestamp="",
                payload=payload,
            )
        )
    return replay_state


@pytest.mark.parametrize(
    ("payloads", "spent"),
    [
        ([usage_message(3), usage_message(4)], 7),
        ([usage_message(3), usage_message(4), ended(9)], 9),
        ([usage_message(3), usage_message(4), ended(None)], 7),
        ([usage_message(3), left(5), usage_message(2)], 7),
        ([usage_message(3), left(5), usage_message(2), ended(4)], 9),
        ([usage_message(3), attempt(2), usage_message(2)], 5),
        ([usage_message(3), attempt(2), usage_message(2), ended(4)], 7),
        ([usage_message(3), attempt(2), attempt(3), ended(None)], 3),
        ([usage_message(3), ended(4), attempt(2)], 4),
    ],
)
def test_a_total_replaces_only_the_usage_of_its_own_session(payloads: list[Payload], spent: int) -> None:
    replay_state = journal_of(attempt(1), STEP_STARTED, *payloads)
    assert replay_state.spending.own.usage == Usage(output=spent)
    assert replay_state.spending.own.cost_usd == pytest.approx(spent / 100)


def test_a_budget_includes_the_spending_of_earlier_sessions_of_the_step() -> None:
    replay_state = journal_of(
        attempt(1), STEP_STARTED, usage_message(3), left(5), usage_message(2), attempt(2), usage_message(1)
    )
    assert replay_state.prior_usage(STEP_KEY).usage == Usage(output=7)
    assert replay_state.prior_usage(STEP_KEY).cost_usd == pytest.approx(0.07)


def test_a_step_that_has_ended_waits_for_no_answer_and_asks_again_when_it_is_tried_again() -> None:
    run_id = new_run_id()
    replay_state = ReplayState(run_id)
    call = ToolCall(name="ask", call_id="c1", input={}, output=None, fidelity="router", awaits=Awaits(kind="question"))
    ended = StepCompleted(name="Answer", kind="next-message", try_=1, error="the disk is nearly full")
    for payload, path in (
        (RunStarted(name="w", kind="worker", attempt=1, host="h"), ""),
        (StepStarted(name="Answer", kind="next-message", try_=1), "answer"),
        (call, "answer"),
        (msgspec.structs.replace(call, call_id="c2", awaits=None), "answer"),
        (ended, "answer"),
    ):
        seq = replay_state.last_seq + 1
        replay_state.take(
            Event(
                seq=seq, run_id=run_id, type=payload.event_type, path=path, iteration=0, timestamp="", payload=payload
            )
        )
    assert [*replay_state.calls] == ["c1", "c2"]
    # A call that was being executed is not requested again: whether it was done is unknown.
    assert replay_state.stale_calls == {"c1"}
