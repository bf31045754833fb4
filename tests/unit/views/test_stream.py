"""The stream of a run: its events and their order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.sample_events import CHILD_ID, RUN_ID, TIMESTAMP
from tests.stream_states import state_after

from shopfloor.limits import STREAM_EARLY_DELTAS
from shopfloor.log import (
    AssistantMessage,
    Awaits,
    CallCompleted,
    CallStarted,
    Cost,
    Delta,
    Event,
    Payload,
    RunCompleted,
    RunError,
    RunStarted,
    StepCompleted,
    StepStarted,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
)
from shopfloor.views import (
    StreamEvent,
    StreamState,
    SubRunCalls,
    UnknownEvent,
    decode_event,
    encode_event,
    resume_stream,
    start_event,
    stream_step,
)

STARTED = RunStarted(name="hello", kind="worker", attempt=1, host="h", definition={"description": "Says hello."})
STEP = StepStarted(name="Say", kind="next-message", try_=1)
STEP_ENDED = StepCompleted(name="Say", kind="next-message", try_=1)


def log(*payloads: Payload | tuple[Payload, dict[str, Any]], first: int = 1) -> list[Event]:
    events: list[Event] = []
    for seq, one in enumerate(payloads, first):
        payload, place = one if isinstance(one, tuple) else (one, {})
        usual = {"path": "" if payload.event_type.startswith("run.") else "say", "iteration": 0}
        events.append(
            Event(
                seq=seq,
                run_id=RUN_ID,
                type=payload.event_type,
                timestamp=TIMESTAMP,
                payload=payload,
                **usual | place,
            )
        )
    return events


def stream_events(
    *ones: Event | Delta | SubRunCalls, state: StreamState | None = None
) -> tuple[StreamState, list[dict[str, Any]]]:
    """Return the state at the end, and the stream events as they are sent."""
    state = state or StreamState()
    events: list[StreamEvent] = []
    for one in ones:
        state, more = stream_step(state, one)
        events += more
    return state, [msgspec.json.decode(encode_event(event)) for event in events]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def text(assistant_message: str) -> TextBlock:
    return TextBlock(fidelity="agent_emitted", text=assistant_message)


def message(*blocks: Any, message_id: str | None = "m", **more: Any) -> AssistantMessage:
    return AssistantMessage(message_id=message_id, blocks=list(blocks), **more)


def delta(piece: str, offset: int = 0, *, after: int = 2, block: int = 0, kind: Any = "text", **more: Any) -> Delta:
    given: dict[str, Any] = {"message_id": "m", "path": "say"} | more
    return Delta(after=after, block=block, kind=kind, offset=offset, text=piece, **given)


def call(call_id: str, name: str = "search", given: Any = None, kind: str | None = None, more: int = 0) -> ToolCall:
    awaits = Awaits(kind=kind, more=more) if kind else None
    return ToolCall(name=name, call_id=call_id, input=given, output=None, fidelity="router", awaits=awaits)


def result(call_id: str, output: Any = "ok", name: str = "search", error: str | None = None) -> ToolResult:
    return ToolResult(name=name, call_id=call_id, input=None, output=output, error=error, fidelity="router")


def use(call_id: str, name: str = "search", given: Any = None) -> ToolUseBlock:
    return ToolUseBlock(fidelity="agent_emitted", tool_name=name, tool_id=call_id, tool_input=given)


# Start and end


@pytest.mark.req("SDK-13", "SDK-14", "SDK-15", "SDK-17", "SDK-18", "SDK-19")
def test_a_run_is_streamed_from_its_start_to_its_finish() -> None:
    ended = RunCompleted(name="hello", kind="worker", status="completed", result={"a": 1})
    _, events = stream_events(*log(STARTED, STEP, message(text("Hello")), STEP_ENDED, ended))
    assert events == [
        {"type": "worker-start", "workerId": RUN_ID, "workerSlug": "hello", "description": "Says hello."},
        {"type": "block-start", "blockId": "say", "blockName": "Say", "blockType": "next-message", "display": "name"},
        {"type": "text-start", "id": "m:0"},
        {"type": "text-delta", "id": "m:0", "delta": "Hello"},
        {"type": "text-end", "id": "m:0"},
        {"type": "block-end", "blockId": "say", "blockName": "Say", "blockType": "next-message"},
        {"type": "worker-result", "workerId": RUN_ID, "output": {"a": 1}},
        {"type": "finish", "finishReason": "stop", "reason": "stop"},
    ]
    assert msgspec.to_builtins(start_event(RUN_ID)) == {"type": "start", "executionId": RUN_ID}


def test_a_later_attempt_starts_without_an_event() -> None:
    again = RunStarted(name="hello", kind="worker", attempt=2, host="h")
    _, events = stream_events(*log(STARTED, again))
    assert types(events) == ["worker-start"]


def test_a_worker_without_a_description_has_none() -> None:
    _, events = stream_events(*log(RunStarted(name="x", kind="worker", attempt=1, host="h", definition=[1])))
    assert events == [{"type": "worker-start", "workerId": RUN_ID, "workerSlug": "x"}]


def test_block_ids_have_iteration_and_try_and_blocks_name_their_sub_run() -> None:
    place = {"path": "each.3.call", "iteration": 3, "child_run_id": CHILD_ID}
    _, events = stream_events(
        *log(
            (CallStarted(name="sub", kind="call_workflow", try_=2), place),
            (CallCompleted(name="sub", kind="call_workflow", try_=2, error="no"), place),
        )
    )
    name = "each.3.call#3~2"
    assert events == [
        {
            "type": "block-start",
            "blockId": name,
            "blockName": "sub",
            "blockType": "call_workflow",
            "display": "name",
            "childId": CHILD_ID,
        },
        {"type": "block-end", "blockId": name, "blockName": "sub", "blockType": "call_workflow", "error": "no"},
    ]


@pytest.mark.req("SDK-16", "SDK-27", "SDK-28")
def test_a_failed_run_streams_the_error_the_result_and_the_finish() -> None:
    error = RunError(code="rate_limit_error", message="slow down", retryable=True, retry_after=2.5, hint="wait")
    _, events = stream_events(*log(STARTED, RunCompleted(name="x", kind="worker", status="failed", error=error)))
    assert events[1:] == [
        {
            "type": "error",
            "message": "slow down",
            "errorType": "rate_limit_error",
            "source": "provider",
            "code": "rate_limit_error",
            "retryable": True,
            "retryAfter": 2.5,
            "hint": "wait",
        },
        {"type": "worker-result", "workerId": RUN_ID, "error": "slow down"},
        {"type": "finish", "finishReason": "error", "reason": "error"},
    ]


def test_a_failed_run_without_an_error_still_has_an_error_event() -> None:
    _, events = stream_events(*log(RunCompleted(name="x", kind="worker", status="failed")))
    assert events[0] == {
        "type": "error",
        "message": "the run has failed",
        "errorType": "execution_error",
        "source": "platform",
        "code": "run_failed",
        "retryable": False,
    }


def test_a_cancelled_run_has_a_result_with_an_error_and_no_error_event() -> None:
    _, events = stream_events(*log(RunCompleted(name="x", kind="worker", status="cancelled")))
    assert events == [
        {"type": "worker-result", "workerId": RUN_ID, "error": "the run was cancelled"},
        {"type": "finish", "finishReason": "other", "reason": "cancelled"},
    ]


def test_nothing_is_streamed_after_the_outcome_or_twice() -> None:
    events = log(STARTED, STEP, RunCompleted(name="x", kind="worker", status="completed"))
    state, first = stream_events(*events)
    assert stream_events(*events, delta("late"), state=state) == (state, [])
    state, _ = stream_events(*events[:2])
    assert stream_events(*events[:2], state=state) == (state, [])
    assert first[-1]["type"] == "finish"


# Texts


def test_deltas_are_streamed_live_and_the_message_completes_them() -> None:
    _, events = stream_events(*log(STARTED, STEP), delta("Hel"), delta("lo", 3), *log(message(text("Hello!")), first=3))
    assert events[2:] == [
        {"type": "text-start", "id": "m:0"},
        {"type": "text-delta", "id": "m:0", "delta": "Hel"},
        {"type": "text-delta", "id": "m:0", "delta": "lo"},
        {"type": "text-delta", "id": "m:0", "delta": "!"},
        {"type": "text-end", "id": "m:0"},
    ]


def test_spending_in_the_middle_of_a_message_does_not_end_its_text() -> None:
    started, step, spent, cut = log(
        STARTED, STEP, message(message_id=None, usage=Usage(output=3)), message(text("Hello"))
    )
    _, events = stream_events(started, step, delta("Hello"), spent, cut)
    assert [one["delta"] for one in events if one["type"] == "text-delta"] == ["Hello"]
    assert types(events).count("text-start") == types(events).count("text-end") == 1


def test_a_delta_after_a_missing_delta_waits_for_the_message() -> None:
    _, events = stream_events(*log(STARTED, STEP), delta("Hel"), delta("!", 5), *log(message(text("Hello!")), first=3))
    assert [event.get("delta") for event in events[3:5]] == ["Hel", "lo!"]


def test_thinking_is_reasoning() -> None:
    thought = ThinkingBlock(fidelity="agent_emitted", thinking="hm, yes")
    _, events = stream_events(*log(STARTED, STEP), delta("hm", kind="thinking"), *log(message(thought), first=3))
    assert events[2:] == [
        {"type": "reasoning-start", "id": "m:0"},
        {"type": "reasoning-delta", "id": "m:0", "delta": "hm"},
        {"type": "reasoning-delta", "id": "m:0", "delta": ", yes"},
        {"type": "reasoning-end", "id": "m:0"},
    ]


def test_a_message_that_differs_from_its_deltas_is_streamed_again_with_another_id() -> None:
    _, events = stream_events(*log(STARTED, STEP), delta("Helga"), *log(message(text("Hello")), first=3))
    assert events[2:] == [
        {"type": "text-start", "id": "m:0"},
        {"type": "text-delta", "id": "m:0", "delta": "Helga"},
        {"type": "text-end", "id": "m:0"},
        {"type": "text-start", "id": "m:0:r2"},
        {"type": "text-delta", "id": "m:0:r2", "delta": "Hello"},
        {"type": "text-end", "id": "m:0:r2"},
    ]


def test_an_open_text_ends_with_its_step_and_before_another_message() -> None:
    failed = StepCompleted(name="Say", kind="next-message", try_=1, error="cut")
    state, events = stream_events(*log(STARTED, STEP), delta("Hel"), *log(failed, first=3))
    assert types(events[3:]) == ["text-delta", "text-end", "block-end"]
    assert stream_events(delta("lo", 3), delta("x", message_id="other"), state=state)[1] == []
    _, events = stream_events(*log(STARTED, STEP), delta("Hel"), *log(message(text("x"), message_id="n"), first=3))
    assert [event.get("id") for event in events[4:]] == ["m:0", "n:0", "n:0", "n:0"]
    _, events = stream_events(*log(STARTED, STEP), delta("Hel"), delta("x", message_id="n"))
    assert [(event["type"], event["id"]) for event in events[4:]] == [
        ("text-end", "m:0"),
        ("text-start", "n:0"),
        ("text-delta", "n:0"),
    ]


def test_an_open_text_ends_with_the_run() -> None:
    ended = RunCompleted(name="x", kind="worker", status="cancelled")
    _, events = stream_events(*log(STARTED, STEP), delta("Hel"), *log(ended, first=3))
    assert types(events[4:]) == ["text-end", "worker-result", "finish"]


def test_the_blocks_of_a_message_in_several_events_are_counted_through() -> None:
    _, events = stream_events(*log(STARTED, STEP, message(text("a")), message(use("c1")), message(text("b"))))
    assert [event["id"] for event in events if event["type"] == "text-start"] == ["m:0", "m:2"]


def test_an_early_delta_is_streamed_when_the_log_has_reached_it() -> None:
    state, events = stream_events(*log(STARTED), delta("Hel", after=2), delta("lo", 3, after=2))
    assert types(events) == ["worker-start"]
    _, events = stream_events(*log(STEP, first=2), state=state)
    assert types(events) == ["block-start", "text-start", "text-delta", "text-delta"]


def test_early_deltas_are_bounded() -> None:
    pieces = [delta("x", n, after=9) for n in range(STREAM_EARLY_DELTAS + 10)]
    state, _ = stream_events(*pieces)
    assert len(state.early_deltas) == STREAM_EARLY_DELTAS


def test_a_late_delta_is_skipped() -> None:
    _, events = stream_events(*log(STARTED, STEP, message(text("Hello"))), delta("Hel"), delta("x", block=1))
    assert types(events[-3:]) == ["text-start", "text-delta", "text-end"]


def test_the_output_of_a_command_is_text_with_a_separate_id() -> None:
    out = TextBlock(fidelity="router", text="one\n", stream="stdout")
    _, events = stream_events(*log(STARTED, STEP, message(out, message_id=None), message(out, message_id=None)))
    assert [event.get("id") for event in events[2:]] == ["seq-3:0"] * 3 + ["seq-4:0"] * 3


def test_usage_and_cost_follow_their_message() -> None:
    usage, cost = Usage(input=1, output=2, cache_read=3, reasoning=4), Cost(usd=0.5, source="prices")
    _, events = stream_events(*log(STARTED, STEP, message(model="opus", usage=usage, cost=cost)))
    value = {
        "model": "opus",
        "inputTokens": 1,
        "outputTokens": 2,
        "cacheReadTokens": 3,
        "reasoningTokens": 4,
        "costUsd": 0.5,
    }
    assert events[-1] == {"type": "resource-update", "name": "usage", "value": value}


# Tools


@pytest.mark.req("SDK-20", "SDK-21")
def test_a_tools_input_and_output_are_streamed_once() -> None:
    requested_call = message(use("c1", given={"q": 1}))
    _, events = stream_events(*log(STARTED, STEP, requested_call, call("c1", given={"q": 1}), result("c1", [1])))
    assert events[2:] == [
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "search"},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"q":1}'},
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "search", "input": {"q": 1}},
        {"type": "tool-output-available", "toolCallId": "c1", "toolName": "search", "output": [1]},
    ]


def test_a_call_without_a_message_and_its_error_are_streamed() -> None:
    _, events = stream_events(*log(STARTED, STEP, call("c1"), result("c1", error="no net")))
    assert types(events[2:]) == ["tool-input-start", "tool-input-delta", "tool-input-available", "tool-output-error"]
    assert events[-1] == {
        "type": "tool-output-error",
        "toolCallId": "c1",
        "toolName": "search",
        "error": "no net",
    }


def test_a_tools_input_is_streamed_while_it_is_written() -> None:
    named: dict[str, Any] = {"tool_id": "c1", "tool_name": "search"}
    _, events = stream_events(
        *log(STARTED, STEP),
        delta('{"q"', kind="tool_input", **named),
        delta(":1}", 4, kind="tool_input", **named),
        *log(message(use("c1", given={"q": 1})), first=3),
    )
    assert events[2:] == [
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "search"},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"q"'},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": ":1}"},
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "search", "input": {"q": 1}},
    ]


# Waiting


def test_a_waiting_run_requests_all_its_calls_and_finishes() -> None:
    calls = [call("c1", given={"q": 1}, kind="client_tool", more=1), call("c2", "fetch", {}, "client_tool")]
    state, events = stream_events(*log(STARTED, STEP, *calls))
    assert events[-2:] == [
        {
            "type": "tool-request",
            "toolCalls": [
                {"toolCallId": "c1", "toolName": "search", "args": {"q": 1}, "blockIndex": 0},
                {"toolCallId": "c2", "toolName": "fetch", "args": {}, "blockIndex": 1},
            ],
        },
        {"type": "finish", "finishReason": "tool-calls", "reason": "tool-calls"},
    ]
    assert types(events).count("finish") == 1
    state, events = stream_events(
        *log(result("c1"), result("c2", name="fetch"), first=5), state=resume_stream(state, ["c1", "c2"])
    )
    assert types(events) == ["tool-output-available"] * 2
    _, events = stream_events(*log(call("c3", kind="client_tool"), first=7), state=state)
    assert types(events[-2:]) == ["tool-request", "finish"]


def test_a_call_without_a_result_is_requested_again() -> None:
    calls = [call("c1", kind="client_tool", more=1), call("c2", "fetch", {}, "client_tool")]
    state = resume_stream(state_after(log(STARTED, STEP, *calls)), ["c1"])
    _, events = stream_events(*log(result("c1"), first=5), state=state)
    assert types(events) == ["tool-output-available", "tool-request", "finish"]
    assert [one["toolCallId"] for one in events[1]["toolCalls"]] == ["c2"]


def test_an_active_branch_delays_the_request() -> None:
    other = {"path": "both.b"}
    state, events = stream_events(
        *log(
            (StepStarted(name="both", kind="parallel", try_=1), {"path": "both"}),
            (STEP, {"path": "both.a"}),
            (STEP, other),
            (call("c1", kind="client_tool"), {"path": "both.a"}),
        )
    )
    assert "finish" not in types(events)
    _, events = stream_events(*log((STEP_ENDED, other), first=5), state=state)
    assert types(events) == ["block-end", "tool-request", "finish"]


def test_announced_branches_delay_the_request_until_they_wait_too() -> None:
    both = StepStarted(name="both", kind="parallel", try_=1, branches=["a", "b"])
    call_of = {name: (call(f"c-{name}", kind="client_tool"), {"path": f"both.{name}.look-up"}) for name in "ab"}
    state, events = stream_events(
        *log((both, {"path": "both"}), (STEP, {"path": "both.a.look-up"}), call_of["a"]),
    )
    assert "finish" not in types(events)
    state, events = stream_events(*log((STEP, {"path": "both.b.look-up"}), first=4), state=state)
    assert "finish" not in types(events)
    _, events = stream_events(*log(call_of["b"], first=5), state=state)
    assert [one["toolCallId"] for one in events[-2]["toolCalls"]] == ["c-a", "c-b"]


def test_branches_of_a_step_that_has_ended_are_not_waited_for() -> None:
    both = StepStarted(name="both", kind="parallel", try_=1, branches=["a", "b"])
    ended = StepCompleted(name="both", kind="parallel", try_=1)
    waiting_state = [(STEP, {"path": "ask"}), (call("c1", kind="client_tool"), {"path": "ask"})]
    _, events = stream_events(*log((both, {"path": "both"}), (ended, {"path": "both"}), *waiting_state))
    assert types(events[-2:]) == ["tool-request", "finish"]


def test_a_question_is_streamed_at_once_and_finishes_when_the_whole_tree_waits() -> None:
    requested_call = {"question": "Which?", "options": ["a", 1]}
    state, events = stream_events(*log(STARTED, STEP, call("q", "ask", requested_call, "question")))
    value = {"executionId": RUN_ID, "callId": "q", "question": "Which?", "options": ["a", "1"], "waits": True}
    assert events[-1] == {"type": "resource-update", "name": "question", "value": value}
    assert stream_events(SubRunCalls([]), state=state)[1] == []
    state, events = stream_events(SubRunCalls([], waits=True), state=state)
    assert events == [{"type": "finish", "finishReason": "other", "reason": "question"}]
    assert stream_events(SubRunCalls([], waits=True), state=state)[1] == []
    _, events = stream_events(*log(result("q", "a", "ask"), first=4), state=state)
    assert types(events) == ["tool-output-available"]


def test_a_question_comes_after_a_client_tool() -> None:
    calls = [call("q", "ask", "why?", "question", 1), call("c1", kind="client_tool")]
    state, events = stream_events(*log(STARTED, STEP, *calls))
    assert types(events[-2:]) == ["tool-request", "finish"]
    assert events[-1]["finishReason"] == "tool-calls"
    state, events = stream_events(*log(result("c1"), first=5), state=resume_stream(state, ["c1"]))
    assert types(events) == ["tool-output-available"]
    _, events = stream_events(SubRunCalls([], waits=True), state=state)
    assert events[-1] == {"type": "finish", "finishReason": "other", "reason": "question"}


def test_a_rate_limit_does_not_end_the_stream() -> None:
    wait = ToolCall(
        name="rate_limit",
        call_id="r1",
        input={"until": "2026-11-15T10:30:00.000Z"},
        output=None,
        fidelity="router",
        awaits=Awaits(kind="rate_limit", until="2026-11-15T10:30:00.000Z"),
    )
    state, events = stream_events(*log(STARTED, STEP, wait))
    value = {"kind": "limit", "message": "waits for a rate limit until 2026-11-15T10:30:00.000Z"}
    assert events[-1] == {"type": "resource-update", "name": "notice", "value": value}
    assert state.waits.is_waiting
    over = ToolResult(name="rate_limit", call_id="r1", input=None, output=None, fidelity="router")
    _, events = stream_events(*log(over, first=4), state=state)
    assert events == []


def test_a_logged_question_does_not_wait() -> None:
    _, events = stream_events(*log(STARTED, STEP, call("q", "log_question", {"question": "Why?"})))
    value = {"executionId": RUN_ID, "callId": "q", "question": "Why?"}
    assert events[-1] == {"type": "resource-update", "name": "question", "value": value}


def test_an_approval_is_a_question_and_finishes_as_one() -> None:
    _, events = stream_events(*log(STARTED, STEP, call("a", kind="approval")), SubRunCalls([], waits=True))
    assert [event["type"] for event in events][-2:] == ["resource-update", "finish"]
    assert events[-1] == {"type": "finish", "finishReason": "other", "reason": "question"}


def test_another_wait_finishes_as_waiting_and_a_sub_run_does_not() -> None:
    _, events = stream_events(*log(STARTED, STEP, call("a", kind="signature")), SubRunCalls([], waits=True))
    assert events[-1] == {"type": "finish", "finishReason": "other", "reason": "waiting"}
    sub = CallStarted(name="sub", kind="call_workflow", try_=1)
    _, events = stream_events(*log(STARTED, (sub, {"child_run_id": CHILD_ID})), SubRunCalls([], waits=True))
    assert "finish" not in types(events)


# Bytes


@pytest.mark.req("SDK-12")
def test_events_of_a_later_version_are_passed_on_unchanged() -> None:
    for raw in (
        b'{"type":"hologram","x":[1]}',
        b'{"type":"text-delta","id":7}',
        b'{"type":"resource-update","name":"hologram","value":1}',
        b'{"type":"resource-update","name":"usage","value":1}',
        b'{"type":"resource-update","name":"notice","value":{}}',
    ):
        event = decode_event(raw)
        assert isinstance(event, UnknownEvent)
        assert encode_event(event) == raw
    with pytest.raises(msgspec.MsgspecError):
        decode_event(b"[1]")
