"""Client tools of sub-runs, requested in the stream of the run above them."""

from __future__ import annotations

import msgspec
import pytest
from tests.sample_events import RUN_ID
from tests.stream_states import state_after
from tests.unit.views.test_stream import STARTED, STEP, call, log, result

from shopfloor.log import CallCompleted, CallStarted, Event
from shopfloor.views import (
    RequestedCall,
    StreamState,
    SubRunCalls,
    ToolRequest,
    WaitState,
    finish,
    join_call_id,
    split_call_id,
    stream_step,
    wait_state_step,
)

CHILD = RUN_ID[:-1] + ("1" if RUN_ID[-1] != "1" else "2")
CALLED = CallStarted(name="Call", kind="call_workflow", try_=1)
RETURNED = CallCompleted(name="Call", kind="call_workflow", try_=1)


def sub_run_calls(*calls: str) -> SubRunCalls:
    return SubRunCalls([RequestedCall(tool_call_id=one, tool_name="search", args={}) for one in calls])


def requested(state: StreamState, calls: SubRunCalls) -> tuple[StreamState, list[str]]:
    state, stream_events = stream_step(state, calls)
    if not stream_events:
        return state, []
    request, last = stream_events
    assert isinstance(request, ToolRequest)
    assert last == finish("tool-calls")
    return state, [one.tool_call_id for one in request.tool_calls]


@pytest.mark.req("SDK-34")
def test_each_open_call_of_a_sub_run_is_requested_once() -> None:
    state = state_after(log(STARTED, STEP))
    state, first = requested(state, sub_run_calls("a", "b"))
    state, again = requested(state, sub_run_calls("a", "b"))
    state, more = requested(state, sub_run_calls("b", "c"))
    state, none = requested(state, sub_run_calls())
    state, anew = requested(state, sub_run_calls("b"))
    assert (first, again, more, none, anew) == (["a", "b"], [], ["c"], [], ["b"])


@pytest.mark.req("SDK-34")
def test_calls_of_the_run_itself_come_first_unless_they_were_requested() -> None:
    requested_calls = state_after(log(STARTED, STEP, call("own", kind="client_tool")))
    assert requested(requested_calls, sub_run_calls("a"))[1] == ["a"]
    # A call whose message announces further calls has not been requested yet.
    early = state_after(log(STARTED, STEP, call("own", kind="client_tool", more=1)))
    state, calls = requested(early, sub_run_calls("a"))
    assert calls == ["own", "a"]
    answered, _ = stream_step(state, log(result("own"), first=4)[0])
    assert (answered.requested_calls, answered.requested_sub_run_calls) == ((), ("a",))


def test_nothing_is_requested_of_a_run_that_has_ended() -> None:
    assert requested(StreamState(ended=True), sub_run_calls("a"))[1] == []


def test_a_run_knows_the_sub_runs_that_it_waits_for() -> None:
    def event(payload: CallStarted | CallCompleted, path: str) -> Event:
        [one] = log((payload, {"path": path}))
        return msgspec.structs.replace(one, child_run_id=CHILD)

    state = wait_state_step(WaitState(), event(CALLED, "a"))
    agent = wait_state_step(WaitState(), event(CallStarted(name="Sub", kind="agent", try_=1), "a"))
    assert (state.runs, agent.runs) == ({"a": CHILD}, {})
    assert wait_state_step(state, event(RETURNED, "a")) == WaitState()


@pytest.mark.parametrize("call_id", ["call_1", "a:b", "", ":", f"{CHILD}:x"])
def test_the_id_of_a_sub_run_call_names_its_run(call_id: str) -> None:
    known = (CHILD, call_id) if call_id else (None, f"{CHILD}:")
    assert split_call_id(join_call_id(CHILD, call_id)) == known


@pytest.mark.parametrize("text", ["call_1", "a:b", "", ":", CHILD, f"{CHILD.upper()}x:c"])
def test_other_ids_name_no_run(text: str) -> None:
    assert split_call_id(text) == (None, text)
