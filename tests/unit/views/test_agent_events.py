"""The `agent.*` fleet events of a log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.test_views import Run, events_of, runs_with_tools
from tests.sample_events import GOLDEN, GOLDEN_FILES, PARENT_ID, PAYLOADS, RUN_ID

from shopfloor.limits import AGENT_DIFF_CHARS, FLEET_EVENT_FACTS
from shopfloor.log import (
    AssistantMessage,
    Awaits,
    BasedOn,
    Cost,
    Event,
    FailureDecision,
    FileChange,
    Initialization,
    Limit,
    Note,
    Payload,
    Process,
    RunCompleted,
    RunError,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    UnknownPayload,
    Usage,
    UserMessage,
    decode,
    format_timestamp,
)
from shopfloor.views import FLEET_PAYLOADS, FleetEvent, FleetEventState, fleet_event_step
from shopfloor.views.spending import Spending

AGENT_ID = f"{RUN_ID}:build:0:1"
WHO = {"agentId": AGENT_ID, "taskId": RUN_ID}
WHOSE = WHO | {"providerId": "claude-code"}
USAGE = Usage(input=2400, output=90, cache_read=1600, cache_write=200, reasoning=7)
PROCESS = Process(pid=4712, command="claude", args=["-p", "…"], cwd="/srv/demo")

RUN = RunStarted(name="w", kind="worker", attempt=1, host="local-7c1")
SESSION = Session(
    provider="claude-code",
    access_mode="subscription",
    session_id="s",
    process=PROCESS,
    capabilities={"code_generation": True, "web_search": True, "max_turns": False, "models": ["opus"]},
)
STEP = StepStarted(name="build", kind="agent", try_=1, session=SESSION)
SUB_AGENT = RunStarted(name="Explore", kind="agent", attempt=1, host="local-7c1", worker_type="claude-code")


def assistant_message(*blocks: TextBlock | ThinkingBlock, **more: Any) -> AssistantMessage:
    return AssistantMessage(blocks=[*blocks], **more)


def note_message(kind: Any, **more: Any) -> AssistantMessage:
    return AssistantMessage(blocks=[], note=Note(kind=kind, **more))


def thinking_block(text: str) -> ThinkingBlock:
    return ThinkingBlock(fidelity="agent_emitted", thinking=text)


def text(words: str) -> TextBlock:
    return TextBlock(fidelity="agent_emitted", text=words)


def tool_call(call_id: str = "1", fidelity: Any = "agent_emitted") -> ToolCall:
    return ToolCall(name="Bash", call_id=call_id, input={"command": "ls"}, output=None, fidelity=fidelity)


def tool_result(call_id: str = "1", fidelity: Any = "agent_emitted", **more: Any) -> ToolResult:
    given: dict[str, Any] = {"output": "ok"} | more
    return ToolResult(name="Bash", call_id=call_id, input=None, fidelity=fidelity, **given)


def step_completed(**more: Any) -> StepCompleted:
    return StepCompleted(name="build", kind="agent", try_=1, **more)


def step_failed(code: str | None, exit_code: int | None = 1, **more: Any) -> StepCompleted:
    given: dict[str, Any] = {"result": {"exit_code": exit_code} if exit_code is not None else {}} | more
    return step_completed(error="it went wrong", error_code=code, **given)


def run_completed(status: Any = "completed", code: str | None = None, **more: Any) -> RunCompleted:
    error = RunError(code=code, message="it went wrong") if code else None
    return RunCompleted(name="w", kind="worker", status=status, error=error, **more)


def log(*payloads: Payload | tuple[Payload, dict[str, Any]], **envelope: Any) -> list[Event]:
    """Return events a second apart; events of a step have the path `build`, unless given."""
    events: list[Event] = []
    for seq, one in enumerate(payloads, 1):
        payload, index = one if isinstance(one, tuple) else (one, {})
        usual = {"path": "" if payload.event_type.startswith("run.") else "build", "iteration": 0}
        given: dict[str, Any] = usual | envelope | index
        timestamp = format_timestamp(seq * 1000)
        events.append(
            Event(seq=seq, run_id=RUN_ID, type=payload.event_type, timestamp=timestamp, payload=payload, **given)
        )
    return events


def fold(events: list[Event], state: FleetEventState | None = None) -> tuple[FleetEventState, list[FleetEvent]]:
    state, fleet_events = state or FleetEventState(), list[FleetEvent]()
    for event in events:
        state, more = fleet_event_step(state, event)
        fleet_events += more
    return state, fleet_events


def fleet_events_of(*payloads: Payload | tuple[Payload, dict[str, Any]], **envelope: Any) -> list[FleetEvent]:
    return fold(log(*payloads, **envelope))[1]


def in_session(*payloads: Payload | tuple[Payload, dict[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the fleet events of a session after `agent.spawned`."""
    first, *rest = fleet_events_of(RUN, STEP, *payloads)
    assert first.type == "agent.spawned"
    return [(fleet_event.type, fleet_event.payload) for fleet_event in rest]


def types(fleet_events: list[FleetEvent]) -> list[str]:
    return [fleet_event.type for fleet_event in fleet_events]


AGENT_EVENT_TYPES = [event_type for event_type in FLEET_PAYLOADS if event_type.startswith("agent.")]


def golden(name: str) -> list[Event]:
    return [decode(line) for line in (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()]


# Payloads


@pytest.mark.req("FE-9", "FE-10")
def test_a_session_that_starts_is_spawned():
    _, fleet_event = fold(log(RUN, STEP))
    assert fleet_event == [
        FleetEvent(
            run_id=RUN_ID,
            seq=2,
            n=0,
            type="agent.spawned",
            timestamp=format_timestamp(2000),
            provider="claude-code",
            payload={
                **WHOSE,
                "workerId": "local-7c1",
                "accessMode": "subscription",
                "process": {"pid": 4712, "command": "claude", "args": ["-p", "…"], "cwd": "/srv/demo"},
                "capabilities": {"codeGeneration": True, "webSearch": True, "maxTurns": False},
            },
        )
    ]


def test_unknown_facts_are_null_and_unknown_capabilities_are_false():
    [fleet_event] = fleet_events_of(
        RUN, StepStarted(name="build", kind="agent", try_=1, session=Session(provider="codex"))
    )
    assert fleet_event.payload["accessMode"] is None
    assert fleet_event.payload["process"] == {"pid": None, "command": None, "args": [], "cwd": None}
    assert fleet_event.payload["capabilities"] == {"codeGeneration": False, "webSearch": False}


def test_steps_without_an_agent_or_without_a_session_have_no_events():
    command = StepStarted(name="make", kind="command", try_=1, process=PROCESS)
    unserved = StepStarted(name="build", kind="agent", try_=1)
    assert (
        fleet_events_of(
            RUN,
            command,
            assistant_message(thinking_block("hm")),
            tool_call(),
            step_completed(),
            unserved,
            tool_call(),
            step_completed(),
        )
        == []
    )


@pytest.mark.req("FE-11")
def test_an_agent_that_can_take_instructions_is_ready():
    run_started = Initialization(model="opus", context_tokens=1200)
    assert in_session(note_message("ready", ready=run_started)) == [
        ("agent.ready", WHOSE | {"initialization": {"duration": 1000, "contextLoaded": True, "contextTokens": 1200}})
    ]


def test_the_context_is_null_if_the_agent_does_not_report_it():
    [(_, payload)] = in_session(note_message("ready"))
    assert payload["initialization"] == {"duration": 1000, "contextLoaded": False, "contextTokens": None}


def test_an_agent_is_ready_once():
    assert len(in_session(note_message("ready"), note_message("ready"))) == 1


@pytest.mark.req("FE-12")
def test_all_thinking_of_an_event_is_one_fleet_event():
    message = assistant_message(thinking_block("first"), text("aloud"), thinking_block("second"), usage=USAGE)
    assert in_session(message) == [
        ("agent.thinking", WHO | {"thinking": {"content": "first\n\nsecond", "tokensUsed": 7}})
    ]


def test_each_part_of_thinking_is_a_fleet_event():
    fleet_events = in_session(
        assistant_message(thinking_block("a"), message_id="m"),
        assistant_message(thinking_block("b"), message_id="m"),
        assistant_message(text("c")),
    )
    assert [payload["thinking"] for _, payload in fleet_events] == [
        {"content": "a", "tokensUsed": None},
        {"content": "b", "tokensUsed": None},
    ]


@pytest.mark.req("FE-13")
def test_a_tool_is_called():
    tool = {"name": "Bash", "input": {"command": "ls"}, "startedAt": format_timestamp(3000)}
    assert in_session(tool_call()) == [("agent.tool_call", WHO | {"tool": tool})]


@pytest.mark.req("FE-14")
def test_a_tool_returns_its_result():
    fleet_events = in_session(tool_call(), tool_result(duration_ms=68))
    assert fleet_events[1] == (
        "agent.tool_result",
        WHO | {"tool": {"name": "Bash", "duration": 68, "success": True, "output": "ok"}},
    )


@pytest.mark.req("FE-14")
def test_a_tool_that_failed_has_its_error():
    fleet_events = in_session(tool_call(), tool_result(output=None, error="no such file"))
    assert fleet_events[1][1]["tool"] == {"name": "Bash", "duration": 1000, "success": False, "error": "no such file"}


def test_a_failed_command_is_no_success_even_without_a_tool_error():
    [(_, payload)] = in_session(tool_result(exit_code=1, output="oops"))
    assert payload["tool"] == {"name": "Bash", "duration": None, "success": False, "output": "oops"}


def test_a_call_is_timed_by_its_own_result_also_where_two_sessions_use_the_same_ids():
    other = {"path": "other"}
    fleet_events = fleet_events_of(
        RUN, STEP, (STEP, other), tool_call(), (tool_call(), other), tool_result(), (tool_result(), other)
    )
    assert [
        fleet_event.payload["tool"]["duration"]
        for fleet_event in fleet_events
        if fleet_event.type == "agent.tool_result"
    ] == [2000] * 2


def test_tools_of_shopfloor_are_not_the_agents():
    assert in_session(tool_call(fidelity="router"), tool_result(fidelity="router")) == []


@pytest.mark.req("FE-15")
def test_every_file_that_a_tool_changed_is_a_fleet_event():
    files = [
        FileChange(path="/srv/demo/a", action="modify", lines_added=2, lines_removed=0, diff="@@\n+a\n+b"),
        FileChange(path="/srv/demo/b", action="delete"),
    ]
    fleet_events = fleet_events_of(RUN, STEP, tool_result(files=files))[1:]
    assert [(fleet_event.type, fleet_event.seq, fleet_event.n) for fleet_event in fleet_events] == [
        ("agent.tool_result", 3, 0),
        ("agent.file_change", 3, 1),
        ("agent.file_change", 3, 2),
    ]
    assert [fleet_event.payload for fleet_event in fleet_events[1:]] == [
        WHO
        | {
            "file": {
                "path": "/srv/demo/a",
                "action": "modify",
                "linesAdded": 2,
                "linesRemoved": 0,
                "diff": "@@\n+a\n+b",
            }
        },
        WHO | {"file": {"path": "/srv/demo/b", "action": "delete"}},
    ]


@pytest.mark.req("FE-16")
def test_a_long_diff_is_truncated_once():
    def diff_of(diff: str) -> str:
        fleet_events = in_session(tool_result(files=[FileChange(path="a", action="create", diff=diff)]))
        return fleet_events[-1][1]["file"]["diff"]

    assert diff_of("+" * AGENT_DIFF_CHARS) == "+" * AGENT_DIFF_CHARS
    truncated = diff_of("+" * (AGENT_DIFF_CHARS * 3))
    assert truncated == "+" * AGENT_DIFF_CHARS + "\n… (cut)"
    assert diff_of(truncated) == truncated


@pytest.mark.req("FE-17", "FE-18")
def test_a_retried_model_call_is_a_recoverable_error():
    next_attempt = note_message("retry", code="provider_overloaded", message="Overloaded", status=529, try_=2, tries=10)
    assert in_session(next_attempt) == [
        (
            "agent.error",
            WHOSE
            | {
                "error": {
                    "code": "provider_overloaded",
                    "message": "Overloaded",
                    "recoverable": True,
                    "context": {"status": 529, "tries": 10},
                },
                "action": {"type": "retry", "retryCount": 2},
            },
        )
    ]


@pytest.mark.req("FE-17", "FE-18")
def test_a_fatal_error_aborts_the_session():
    error = note_message("error", code="authentication_error", message="bad key")
    assert in_session(error) == []
    (name, payload), (end, _) = in_session(error, step_failed("authentication_error"))
    assert (name, end) == ("agent.error", "agent.completed")
    assert payload == WHOSE | {
        "error": {"code": "authentication_error", "message": "bad key", "recoverable": False},
        "action": {"type": "abort"},
    }


# Conversations with models


def turn(path: str = "ask", session_id: str = "start:0", try_: int = 1, **envelope: Any) -> Any:
    session = Session(provider="anthropic", access_mode="api", session_id=session_id)
    return StepStarted(name="Ask", kind="next-message", try_=try_, session=session), {"path": path} | envelope


def turn_end(path: str = "ask", **more: Any) -> Any:
    return StepCompleted(name="Ask", kind="next-message", try_=1, **more), {"path": path}


def reply(path: str = "ask", **more: Any) -> Any:
    return AssistantMessage(blocks=[text("Yes.")], **more), {"path": path}


def test_a_conversation_of_several_steps_is_one_session_until_the_run_ends():
    two_turns = [turn("a"), reply("a", usage=USAGE), turn_end("a"), turn("b"), reply("b", usage=USAGE), turn_end("b")]
    events = fleet_events_of(RUN, *two_turns, run_completed())
    assert types(events) == ["agent.spawned", "agent.ready", "agent.completed"]
    assert {event.payload["agentId"] for event in events} == {f"{RUN_ID}:start:0"}
    assert events[1].payload["initialization"]["contextTokens"] == 4200
    assert events[-1].payload["metrics"]["tokensInput"] == 8400
    assert events[-1].payload["result"] == {"success": True, "exitCode": None}


def test_a_conversation_of_one_step_ends_with_its_step():
    events = fleet_events_of(RUN, turn(session_id="ask:0"), reply(), turn_end())
    assert types(events) == ["agent.spawned", "agent.ready", "agent.completed"]
    assert events[1].payload["initialization"]["contextTokens"] is None


def test_a_conversation_survives_a_new_attempt_and_counts_what_it_spent_before():
    again = RunStarted(name="w", kind="worker", attempt=2, host="local-9")
    events = fleet_events_of(RUN, turn(), reply(usage=USAGE), again, reply(usage=USAGE), turn_end(), run_completed())
    assert types(events) == ["agent.spawned", "agent.ready", "agent.completed"]
    assert events[-1].payload["metrics"]["tokensInput"] == 8400


def test_a_conversation_that_fails_for_good_ends():
    failed = {"error": "no", "error_code": "provider_error", "retryable": True}
    retried = turn_end(decision=FailureDecision(action="retry", try_=2), **failed)
    events = fleet_events_of(RUN, turn(), retried, turn(try_=2), turn_end(**failed), run_completed("failed", "x"))
    assert types(events) == ["agent.spawned", "agent.error", "agent.error", "agent.completed"]
    assert [event.payload["action"]["type"] for event in events[1:3]] == ["retry", "abort"]
    assert events[-1].payload["result"]["success"] is False


def test_conversations_of_a_loop_end_with_the_loop():
    rounds = [
        one for n in range(2) for one in (turn(f"each.{n}.ask", f"each.{n}.start:{n}"), turn_end(f"each.{n}.ask"))
    ]
    ended = StepCompleted(name="each", kind="for_each", try_=1), {"path": "each"}
    state, events = fold(log(RUN, *rounds, ended))
    assert types(events) == ["agent.spawned", "agent.spawned", "agent.completed", "agent.completed"]
    assert state == FleetEventState(host=RUN.host)


def test_conversations_that_are_too_many_to_remember_end_one_by_one():
    many = FLEET_EVENT_FACTS + 2
    turns = [one for n in range(many) for one in (turn(f"a{n}", f"s{n}:0"), turn_end(f"a{n}"))]
    events = fleet_events_of(RUN, *turns, run_completed())
    assert len([event for event in events if event.type == "agent.completed"]) == many


def test_the_calls_of_a_model_are_its_own_and_waits_are_not():
    call, result = tool_call(fidelity="router"), tool_result(fidelity="router")
    waits = [one for kind in ("approval", "rate_limit") for one in wait(kind)]
    steps = [(one, {"path": "ask"}) for one in (*waits, call, result)]
    events = fleet_events_of(RUN, turn(session_id="ask:0"), *steps, turn_end())
    assert types(events) == [
        "agent.spawned",
        "agent.rate_limited",
        "agent.tool_call",
        "agent.tool_result",
        "agent.completed",
    ]
    assert events[2].payload["tool"]["name"] == "Bash"
    assert events[-1].payload["metrics"]["toolCalls"] == 1


def wait(kind: Any) -> tuple[ToolCall, ToolResult]:
    """Return the call by which the engine waits, and its result."""
    engine_call: dict[str, Any] = {"name": kind, "call_id": f"{kind}-1", "input": None, "fidelity": "router"}
    return ToolCall(**engine_call, output=None, awaits=Awaits(kind=kind)), ToolResult(**engine_call, output="approve")


def test_what_a_fork_copied_has_its_fleet_events_in_the_earlier_run():
    copies = [turn("a"), (tool_call(fidelity="router"), {"path": "a"}), turn_end("a"), turn("b"), reply("b")]
    based_on = BasedOn(run_id=PARENT_ID, kind="fork", seq=9, events=len(copies))
    fork = msgspec.structs.replace(RUN, based_on=based_on)
    # The copying continues in the next attempt.
    again = RunStarted(name="w", kind="worker", attempt=2, host="local-9")
    events = fleet_events_of(fork, *copies[:2], again, *copies[2:], reply("b"), turn_end("b"), run_completed())
    assert types(events) == ["agent.spawned", "agent.completed"]
    assert events[-1].payload["metrics"]["toolCalls"] == 0


# Readiness


@pytest.mark.req("FE-11")
def test_an_agent_whose_context_follows_is_ready_when_the_context_is_known():
    first = note_message("ready", ready=Initialization(model="m", context_follows=True))
    known = note_message("ready", ready=Initialization(context_tokens=2100))
    for next_event, tokens in ((known, 2100), (assistant_message(text("Hi.")), None), (tool_call(), None)):
        events = [event for event in fleet_events_of(RUN, STEP, first, next_event) if event.type == "agent.ready"]
        assert [event.payload["initialization"] for event in events] == [
            {"duration": 1000, "contextLoaded": True, "contextTokens": tokens}
        ]
        assert events[0].timestamp == format_timestamp(3000)
    assert types(fleet_events_of(RUN, STEP, first, step_completed())) == [
        "agent.spawned",
        "agent.ready",
        "agent.completed",
    ]


def test_a_resumed_session_has_its_new_process():
    process = msgspec.structs.replace(PROCESS, pid=4800)
    prompt = UserMessage(blocks=[], session=msgspec.structs.replace(SESSION, process=process))
    *_, spawned = fleet_events_of(RUN, STEP, msgspec.structs.replace(RUN, attempt=2), prompt)
    assert (spawned.type, spawned.payload["agentId"]) == ("agent.spawned", f"{AGENT_ID}:2")
    assert spawned.payload["process"] == {"pid": 4800, "command": "claude", "args": ["-p", "…"], "cwd": "/srv/demo"}


@pytest.mark.req("FE-18")
@pytest.mark.parametrize("reported", [[], [note_message("error", code="provider_error", message="API Error")]])
def test_an_error_says_that_the_step_is_retried(reported: list[AssistantMessage]):
    decision = FailureDecision(action="retry", try_=3, delay_seconds=4)
    (name, payload), _ = in_session(*reported, step_failed("provider_error", decision=decision))
    assert (name, payload["action"]) == ("agent.error", {"type": "retry", "retryCount": 2})


def test_an_error_says_which_provider_takes_over():
    decision = FailureDecision(action="fallback", provider="codex")
    (_, payload), _ = in_session(step_failed("provider_error", decision=decision))
    assert payload["action"] == {"type": "fallback", "fallbackProvider": "codex"}


def test_a_rate_limit_that_ends_a_try_says_how_long_the_engine_waits():
    decision = FailureDecision(action="retry", try_=2, delay_seconds=1.5)
    error = note_message("error", code="rate_limit_error")
    for reported in ([], [error]):
        (name, payload), _ = in_session(*reported, step_failed("rate_limit_error", decision=decision))
        assert (name, payload["action"]) == ("agent.rate_limited", {"type": "wait", "waitSeconds": 1.5})


def test_an_error_without_a_code_is_agent_failed():
    [(_, payload), _] = in_session(note_message("error"), step_failed("agent_error"))
    assert payload["error"] == {"code": "agent_error", "message": "agent_error", "recoverable": False}


def test_warnings_and_denials_are_no_errors():
    assert in_session(note_message("warning", message="hm"), note_message("denied", message="no")) == []


@pytest.mark.req("FE-17")
def test_a_step_that_failed_is_an_error_and_an_end():
    fleet_events = in_session(step_failed("max_turns_exceeded", retryable=True))
    assert [name for name, _ in fleet_events] == ["agent.error", "agent.completed"]
    assert fleet_events[0][1] == WHOSE | {
        "error": {"code": "max_turns_exceeded", "message": "it went wrong", "recoverable": True},
        "action": {"type": "abort"},
    }


def test_a_reported_error_is_not_repeated_at_the_end():
    fleet_events = in_session(
        note_message("error", code="provider_error", message="API Error"), step_failed("provider_error")
    )
    assert [name for name, _ in fleet_events] == ["agent.error", "agent.completed"]


def test_an_error_is_reported_again_if_the_session_had_continued():
    fleet_events = in_session(
        note_message("error", code="provider_error"),
        assistant_message(text("after all")),
        step_failed("provider_error"),
    )
    assert [name for name, _ in fleet_events] == ["agent.error", "agent.error", "agent.completed"]
    assert [payload["action"]["type"] for _, payload in fleet_events[:2]] == ["retry", "abort"]


@pytest.mark.req("FE-19", "FE-20")
def test_a_limit_that_is_reached_is_waited_for():
    reached = Limit(kind="tokens", current=1.0, reset_at=format_timestamp(63_500), window="five_hour")
    assert in_session(note_message("limit", limit=reached)) == [
        (
            "agent.rate_limited",
            WHOSE
            | {
                "accessMode": "subscription",
                "limit": {"type": "tokens", "current": 1.0, "max": 1.0, "resetAt": format_timestamp(63_500)},
                "action": {"type": "wait", "waitSeconds": 61},
            },
        )
    ]


@pytest.mark.req("FE-19")
def test_a_near_limit_is_reported_without_a_wait():
    near = Limit(kind="requests", status="warning", current=80, max=100, reset_at=format_timestamp(60_000))
    [(name, payload)] = in_session(note_message("limit", limit=near))
    assert name == "agent.rate_limited"
    assert payload["limit"] == {"type": "requests", "current": 80, "max": 100, "resetAt": format_timestamp(60_000)}
    assert payload["action"] == {"type": "wait"}


def test_an_allowed_limit_is_not_reported():
    assert in_session(note_message("limit", limit=Limit(status="allowed", current=0.1)), note_message("limit")) == []


@pytest.mark.req("FE-20")
def test_a_rate_limited_call_is_a_limit_and_no_error():
    [(name, payload)] = in_session(note_message("retry", code="rate_limit_error", try_=1, retry_after=1.5))
    assert name == "agent.rate_limited"
    assert payload["limit"] == {"type": None, "current": None, "max": None, "resetAt": None}
    assert payload["action"] == {"type": "wait", "waitSeconds": 1.5}


def test_a_session_that_ends_with_a_rate_limit_is_limited_and_completed_without_success():
    limits = [Limit(status="rejected", reset_at=format_timestamp(60_000)), Limit(status="warning")]
    fleet_events = in_session(step_failed("rate_limit_error", rate_limits=limits))
    assert [name for name, _ in fleet_events] == ["agent.rate_limited", "agent.completed"]
    assert fleet_events[0][1]["limit"]["resetAt"] == format_timestamp(60_000)
    assert fleet_events[0][1]["action"]["waitSeconds"] == 57


@pytest.mark.parametrize(
    "note",
    [
        note_message("limit", limit=Limit()),
        note_message("error", code="rate_limit_error"),
        note_message("error", status=429),
    ],
)
def test_a_reported_limit_is_not_repeated_at_the_end(note: AssistantMessage):
    synthetic = assistant_message(text("API Error: 429"), synthetic=True)
    fleet_events = in_session(note, synthetic, step_failed("rate_limit_error"))
    assert [name for name, _ in fleet_events] == ["agent.rate_limited", "agent.completed"]


RESTS = ToolCall(
    name="rate_limit",
    call_id="r",
    input={},
    output=None,
    fidelity="router",
    awaits=Awaits(kind="rate_limit", until=format_timestamp(60_000)),
)


@pytest.mark.req("FE-20")
def test_a_step_that_waits_for_its_provider_is_limited_until_the_reset():
    go_on = UserMessage(blocks=[text("Go on.")])
    fleet_events = in_session(RESTS, go_on, RESTS, step_completed())
    assert [name for name, _ in fleet_events] == ["agent.rate_limited", "agent.rate_limited", "agent.completed"]
    assert [payload["action"]["waitSeconds"] for _, payload in fleet_events[:2]] == [57, 55]
    assert fleet_events[0][1]["limit"] == {
        "type": None,
        "current": None,
        "max": None,
        "resetAt": format_timestamp(60_000),
    }


def test_a_reported_limit_is_not_repeated_when_the_step_waits_for_it():
    synthetic = UserMessage(blocks=[text("Rate limited.")], synthetic=True)
    fleet_events = in_session(note_message("limit", limit=Limit()), synthetic, RESTS, step_failed("rate_limit_error"))
    assert [name for name, _ in fleet_events] == ["agent.rate_limited", "agent.completed"]


def test_a_wait_of_an_ended_session_is_not_reported():
    assert types(fleet_events_of(RUN, RESTS, STEP, next_attempt(), RESTS)) == ["agent.spawned", "agent.terminated"]


@pytest.mark.parametrize("mode", ["local", None, "magic"])
def test_the_access_mode_of_a_limit_is_one_of_two_or_null(mode: str | None):
    step = msgspec.structs.replace(STEP, session=msgspec.structs.replace(SESSION, access_mode=mode))
    fleet_events = fleet_events_of(RUN, step, note_message("limit", limit=Limit()))
    assert fleet_events[0].payload["accessMode"] == (mode if mode == "local" else None)
    assert fleet_events[1].payload["accessMode"] is None


def test_a_reset_that_is_no_time_is_not_waited_for():
    for odd in ("soon", "2026-11-15", ""):
        [(_, payload)] = in_session(note_message("limit", limit=Limit(reset_at=odd)))
        assert payload["limit"]["resetAt"] == odd
        assert payload["action"] == {"type": "wait"}


@pytest.mark.req("FE-21", "FE-22")
def test_a_session_that_ended_by_itself_has_completed():
    done = step_completed(result={"exit_code": 0}, usage=USAGE, cost=Cost(usd=0.0127, source="agent"), duration_ms=750)
    changed = [FileChange(path="/a", action="create"), FileChange(path="/b", action="create")]
    next_attempt = [FileChange(path="/a", action="modify")]
    fleet_events = in_session(
        tool_call("1"), tool_result("1", files=changed), tool_call("2"), tool_result("2", files=next_attempt), done
    )
    assert fleet_events[-1] == (
        "agent.completed",
        WHOSE
        | {
            "result": {"success": True, "exitCode": 0},
            "metrics": {
                "duration": 750,
                "tokensInput": 4200,
                "tokensOutput": 90,
                "tokensTotal": 4290,
                "toolCalls": 2,
                "filesChanged": 2,
                "cost": 0.0127,
            },
        },
    )


def test_unknown_metrics_are_null_and_not_zero():
    [(_, payload)] = in_session(step_completed(result="done", cost=Cost(usd=None, source="unknown")))
    assert payload["result"] == {"success": True, "exitCode": None}
    assert payload["metrics"] == {
        "duration": 1000,
        "tokensInput": None,
        "tokensOutput": None,
        "tokensTotal": None,
        "toolCalls": 0,
        "filesChanged": 0,
        "cost": None,
    }


@pytest.mark.req("FE-23", "FE-24")
def test_a_session_that_was_cancelled_is_terminated():
    cancelled = step_failed(
        "cancelled", None, result={"signal": "SIGTERM"}, usage=USAGE, cost=Cost(usd=0.5, source="agent")
    )
    assert in_session(cancelled) == [
        (
            "agent.terminated",
            WHOSE
            | {
                "reason": "user_cancel",
                "signal": "SIGTERM",
                "metrics": {"duration": 1000, "tokensUsed": 4290, "cost": 0.5},
            },
        )
    ]


# Ends of sessions

BY_ITSELF = [
    pytest.param(step_failed("agent_error"), id="it failed"),
    pytest.param(step_failed("provider_timeout"), id="its provider was too slow for it"),
    pytest.param(step_failed(None), id="it failed without a reason"),
]
FROM_OUTSIDE = [
    pytest.param(step_failed("cancelled"), "user_cancel", id="cancelled, and it left with an exit code"),
    pytest.param(step_failed("host_stopped", None), "system", id="its host was stopped"),
    pytest.param(step_failed("outcome_unknown", None), "system", id="a crash"),
    pytest.param(step_failed("provider_timeout", None), "timeout", id="too slow for us"),
    pytest.param(
        step_failed("provider_timeout", None, result={"signal": "SIGKILL"}), "timeout", id="and killed for it"
    ),
    pytest.param(step_failed("step_timeout"), "timeout", id="too slow, and it left with an exit code"),
    pytest.param(
        step_failed("agent_error", None, result={"signal": "SIGKILL"}), "system", id="it was killed from outside"
    ),
    pytest.param(step_failed(None, None), "system", id="the step was closed after its host was lost"),
]
FOR_AN_ERROR = [
    pytest.param(step_failed("budget_exceeded"), id="its budget"),
    pytest.param(step_failed("agent_error", None, result={"signal": "SIGSEGV"}), id="it broke"),
    pytest.param(step_failed("execution_error", None, result=None), id="it was left in the middle"),
]


@pytest.mark.parametrize("step", BY_ITSELF)
def test_a_session_that_failed_by_itself_has_completed_without_success(step: StepCompleted):
    fleet_events = in_session(step)
    assert [name for name, _ in fleet_events] == ["agent.error", "agent.completed"]
    assert fleet_events[-1][1]["result"] == {"success": False, "exitCode": 1}


@pytest.mark.req("FE-23")
@pytest.mark.parametrize(("step", "reason"), FROM_OUTSIDE)
def test_a_session_that_was_ended_from_outside_is_terminated_with_a_reason(step: StepCompleted, reason: str):
    [(name, payload)] = in_session(step)
    assert (name, payload["reason"]) == ("agent.terminated", reason)


@pytest.mark.req("FE-23")
@pytest.mark.parametrize("step", FOR_AN_ERROR)
def test_a_session_that_was_ended_for_an_error_reports_the_error(step: StepCompleted):
    fleet_events = in_session(step)
    assert [name for name, _ in fleet_events] == ["agent.error", "agent.terminated"]
    assert fleet_events[0][1]["error"]["code"] == step.error_code
    assert fleet_events[1][1]["reason"] == "error"


def test_a_session_without_a_process_that_failed_ended_by_itself():
    step = msgspec.structs.replace(STEP, session=Session(provider="codex"))
    fleet_events = fleet_events_of(RUN, step, step_failed("agent_error", None))
    assert types(fleet_events) == ["agent.spawned", "agent.error", "agent.completed"]
    assert fleet_events[-1].payload["result"] == {"success": False, "exitCode": None}


def test_a_session_that_had_done_its_work_when_it_was_stopped_has_completed():
    [(name, payload)] = in_session(step_completed(result={"signal": "SIGTERM"}))
    assert (name, payload["result"]) == ("agent.completed", {"success": True, "exitCode": None})


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (run_completed("cancelled", "cancelled"), "user_cancel"),
        (run_completed("cancelled"), "user_cancel"),
        (run_completed("failed", "host_lost"), "system"),
        (run_completed("failed", "budget_exceeded"), "error"),
        (run_completed("failed", "execution_error"), "system"),
        (run_completed("completed"), "system"),
    ],
)
def test_open_sessions_end_with_the_run(end: RunCompleted, reason: str):
    paid = assistant_message(text("hello"), usage=USAGE, cost=Cost(usd=0.25, source="prices"))
    fleet_events = in_session(paid, paid, end)
    metrics = {"duration": 3000, "tokensUsed": 8580, "cost": 0.5}
    assert fleet_events == [("agent.terminated", WHOSE | {"reason": reason, "metrics": metrics})]


def test_a_sum_with_an_unknown_part_is_unknown():
    paid, unpaid = assistant_message(usage=USAGE, cost=Cost(usd=0.25, source="prices")), assistant_message(usage=USAGE)
    assert in_session(paid, unpaid, paid, run_completed())[-1][1]["metrics"]["cost"] is None
    assert in_session(step_completed())[-1][1]["metrics"]["cost"] is None
    assert in_session(paid, step_completed())[-1][1]["metrics"]["cost"] == 0.25


def test_there_are_no_fleet_events_after_the_outcome():
    state, fleet_events = fold(log(RUN, STEP, run_completed(), tool_call(), step_completed()))
    assert types(fleet_events) == ["agent.spawned", "agent.terminated"]
    assert state == FleetEventState()


# Tries and attempts


def next_attempt(attempt: int = 2) -> RunStarted:
    return RunStarted(name="w", kind="worker", attempt=attempt, host="other")


def test_every_try_is_a_separate_session():
    second = msgspec.structs.replace(STEP, try_=2)
    fleet_events = fleet_events_of(
        RUN, STEP, step_failed("provider_error"), second, StepCompleted(name="build", kind="agent", try_=2)
    )
    assert types(fleet_events) == [
        "agent.spawned",
        "agent.error",
        "agent.completed",
        "agent.spawned",
        "agent.completed",
    ]
    assert [fleet_event.payload["agentId"] for fleet_event in fleet_events] == [AGENT_ID] * 3 + [
        f"{RUN_ID}:build:0:2"
    ] * 2


def test_iterations_of_a_loop_are_separate_sessions():
    first, second = {"path": "each.0.build"}, {"path": "each.1.build", "iteration": 1}
    fleet_events = fleet_events_of(RUN, (STEP, first), (STEP, second), (tool_call(), second), (tool_call(), first))
    assert [fleet_event.payload["agentId"] for fleet_event in fleet_events[2:]] == [
        f"{RUN_ID}:each.1.build:1:1",
        f"{RUN_ID}:each.0.build:0:1",
    ]


def test_a_try_without_an_end_is_terminated_by_the_next():
    fleet_events = fleet_events_of(RUN, STEP, msgspec.structs.replace(STEP, try_=2), step_completed())
    assert types(fleet_events) == ["agent.spawned", "agent.terminated", "agent.spawned"]
    assert [(fleet_event.seq, fleet_event.n) for fleet_event in fleet_events] == [(2, 0), (3, 0), (3, 1)]
    assert fleet_events[1].payload["reason"] == "system"


def test_a_new_attempt_ends_the_sessions_of_the_one_before_once():
    fleet_events = fleet_events_of(
        RUN,
        STEP,
        tool_call(),
        next_attempt(),
        step_failed("outcome_unknown", None),
        run_completed("failed", "outcome_unknown"),
    )
    assert types(fleet_events) == ["agent.spawned", "agent.tool_call", "agent.terminated"]
    assert (fleet_events[-1].seq, fleet_events[-1].payload["reason"]) == (4, "system")


def test_a_session_that_the_next_attempt_resumes_is_a_new_session():
    fleet_events = fleet_events_of(
        RUN,
        STEP,
        tool_call(),
        next_attempt(),
        next_attempt(3),
        tool_call("2"),
        tool_result("1"),
        # The time since the first attempt.
        step_completed(result={"exit_code": 0}, duration_ms=6000),
    )
    assert types(fleet_events) == [
        *("agent.spawned", "agent.tool_call", "agent.terminated"),
        *("agent.spawned", "agent.tool_call", "agent.tool_result", "agent.completed"),
    ]
    assert {fleet_event.payload["agentId"] for fleet_event in fleet_events[3:]} == {f"{AGENT_ID}:3"}
    assert fleet_events[3].payload["workerId"] == "other"
    assert fleet_events[3].payload["process"]["pid"] is None
    assert fleet_events[3].payload["capabilities"]["codeGeneration"] is True
    assert fleet_events[5].payload["tool"]["duration"] is None
    assert fleet_events[6].payload["metrics"]["toolCalls"] == 1
    assert fleet_events[6].payload["metrics"]["duration"] == 3000


# Sub-agents


def fleet_events_of_sub_agent(*payloads: Payload | tuple[Payload, dict[str, Any]]) -> list[FleetEvent]:
    return fleet_events_of(SUB_AGENT, *payloads, parent_run_id=PARENT_ID)


def test_a_sub_agent_without_a_step_is_a_session_from_its_first_message():
    user_message = UserMessage(blocks=[text("look around")])
    done = run_completed(usage=USAGE, cost=Cost(usd=0.1, source="agent"))
    fleet_events = fleet_events_of_sub_agent(
        user_message, assistant_message(thinking_block("hm")), tool_call(), tool_result(), done
    )
    assert types(fleet_events) == [
        *("agent.spawned", "agent.thinking", "agent.tool_call", "agent.tool_result", "agent.completed"),
    ]
    assert {fleet_event.payload["agentId"] for fleet_event in fleet_events} == {RUN_ID}
    assert (fleet_events[0].seq, fleet_events[0].payload["workerId"], fleet_events[0].provider) == (
        2,
        "local-7c1",
        "claude-code",
    )
    assert fleet_events[0].payload["process"]["pid"] is None
    assert fleet_events[-1].payload["result"] == {"success": True, "exitCode": None}
    assert fleet_events[-1].payload["metrics"] | {"duration": 0} == {
        "duration": 0,
        "tokensInput": 4200,
        "tokensOutput": 90,
        "tokensTotal": 4290,
        "toolCalls": 1,
        "filesChanged": 0,
        "cost": 0.1,
    }


def test_a_sub_agent_without_messages_is_spawned_when_it_ends():
    fleet_events = fleet_events_of_sub_agent(run_completed("failed", "provider_error"))
    assert types(fleet_events) == ["agent.spawned", "agent.error", "agent.completed"]
    assert [(fleet_event.seq, fleet_event.n) for fleet_event in fleet_events] == [(2, 0), (2, 1), (2, 2)]
    assert fleet_events[-1].payload["metrics"]["duration"] == 1000


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (run_completed("cancelled"), ["agent.terminated"]),
        (run_completed("failed"), ["agent.error", "agent.completed"]),
        (run_completed("failed", "rate_limit_error"), ["agent.rate_limited", "agent.completed"]),
    ],
)
def test_a_sub_agent_without_a_step_ends_as_its_run_does(end: RunCompleted, expected: list[str]):
    assert types(fleet_events_of_sub_agent(tool_call(), end))[2:] == expected


def test_a_limit_of_a_run_has_the_time_to_wait():
    error = RunError(code="rate_limit_error", message="slow down", retryable=True, retry_after=30.0)
    fleet_events = fleet_events_of_sub_agent(
        tool_call(), RunCompleted(name="w", kind="agent", status="failed", error=error)
    )
    assert fleet_events[2].payload["action"] == {"type": "wait", "waitSeconds": 30.0}


def test_a_sub_agent_that_ended_with_its_attempt_does_not_end_again_with_its_run():
    fleet_events = fleet_events_of_sub_agent(tool_call(), next_attempt(), run_completed("failed", "host_lost"))
    assert types(fleet_events) == ["agent.spawned", "agent.tool_call", "agent.terminated"]


def test_a_sub_agent_with_a_step_is_that_step_alone():
    fleet_events = fleet_events_of_sub_agent(
        STEP, UserMessage(blocks=[]), tool_call(), step_completed(), run_completed()
    )
    assert types(fleet_events) == ["agent.spawned", "agent.tool_call", "agent.completed"]
    assert {fleet_event.payload["agentId"] for fleet_event in fleet_events} == {AGENT_ID}


def test_a_run_of_an_agent_that_never_started_its_step_is_no_session():
    assert fleet_events_of(SUB_AGENT, run_completed("failed", "command_not_found")) == []


# Recorded logs


@pytest.mark.req("FE-9", "FE-13", "FE-14", "FE-21", "FE-22")
def test_the_fleet_events_of_a_recorded_agent():
    _, fleet_events = fold(golden("claude-code"))
    who = {"agentId": f"{RUN_ID}:claude-code:0:1", "taskId": RUN_ID}
    whose = who | {"providerId": "claude-code"}
    bash = {"command": "echo hello-from-tool", "description": "Run a test command"}
    assert [
        (fleet_event.seq, fleet_event.n, fleet_event.type, fleet_event.payload) for fleet_event in fleet_events
    ] == [
        (
            2,
            0,
            "agent.spawned",
            whose
            | {
                "workerId": "local-7c1",
                "accessMode": "api",
                "process": {
                    "pid": 4712,
                    "command": "claude",
                    "args": ["-p", "--output-format", "stream-json", "--verbose"],
                    "cwd": "/home/ada/app",
                },
                "capabilities": {"codeGeneration": False, "webSearch": False},
            },
        ),
        (
            6,
            0,
            "agent.tool_call",
            who | {"tool": {"name": "Bash", "input": bash, "startedAt": "2026-11-15T10:30:00.608Z"}},
        ),
        (
            7,
            0,
            "agent.tool_result",
            who | {"tool": {"name": "Bash", "duration": 68, "success": True, "output": "hello-from-tool"}},
        ),
        (
            9,
            0,
            "agent.completed",
            whose
            | {
                "result": {"success": True, "exitCode": 0},
                "metrics": {
                    "duration": 750,
                    "tokensInput": 4200,
                    "tokensOutput": 90,
                    "tokensTotal": 4290,
                    "toolCalls": 1,
                    "filesChanged": 0,
                    "cost": 0.01272,
                },
            },
        ),
    ]
    assert [fleet_event.timestamp for fleet_event in fleet_events] == [
        event.timestamp for event in golden("claude-code") if event.seq in {2, 6, 7, 9}
    ]


@pytest.mark.parametrize("name", ["command", "parent"])
def test_runs_without_agents_have_no_fleet_events(name: str):
    assert fold(golden(name)) == (FleetEventState(), [])


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.stem)
def test_a_recorded_run_can_be_folded_in_any_two_parts(path: Any):
    events = golden(path.stem)
    for index in range(len(events) + 1):
        assert in_two_parts(events, index) == fold(events)


# Properties of any log

PROMISED: dict[str, dict[str, Any]] = {
    "agent.spawned": {
        **dict.fromkeys(("agentId", "providerId", "taskId", "workerId", "accessMode")),
        "process": dict.fromkeys(("pid", "command", "args", "cwd")),
        "capabilities": dict.fromkeys(("codeGeneration", "webSearch")),
    },
    "agent.ready": {
        **dict.fromkeys(("agentId", "providerId", "taskId")),
        "initialization": dict.fromkeys(("duration", "contextLoaded", "contextTokens")),
    },
    "agent.thinking": {"agentId": None, "taskId": None, "thinking": dict.fromkeys(("content", "tokensUsed"))},
    "agent.tool_call": {"agentId": None, "taskId": None, "tool": dict.fromkeys(("name", "input", "startedAt"))},
    "agent.tool_result": {"agentId": None, "taskId": None, "tool": dict.fromkeys(("name", "duration", "success"))},
    "agent.file_change": {"agentId": None, "taskId": None, "file": dict.fromkeys(("path", "action"))},
    "agent.error": {
        **dict.fromkeys(("agentId", "taskId", "providerId")),
        "error": dict.fromkeys(("code", "message", "recoverable")),
        "action": {"type": None},
    },
    "agent.rate_limited": {
        **dict.fromkeys(("agentId", "taskId", "providerId", "accessMode")),
        "limit": dict.fromkeys(("type", "current", "max", "resetAt")),
        "action": {"type": None},
    },
    "agent.completed": {
        **dict.fromkeys(("agentId", "taskId", "providerId")),
        "result": dict.fromkeys(("success", "exitCode")),
        "metrics": dict.fromkeys(
            ("duration", "tokensInput", "tokensOutput", "tokensTotal", "toolCalls", "filesChanged", "cost")
        ),
    },
    "agent.terminated": {
        **dict.fromkeys(("agentId", "taskId", "providerId", "reason")),
        "metrics": dict.fromkeys(("duration", "tokensUsed", "cost")),
    },
}
"""The fields that a payload always has, by type."""
OPTIONAL: dict[str, set[str]] = {
    "agent.tool_result": {"tool.output", "tool.error"},
    "agent.file_change": {"file.linesAdded", "file.linesRemoved", "file.diff"},
    "agent.error": {"error.context", "action.retryCount"},
    "agent.rate_limited": {"action.waitSeconds"},
    "agent.terminated": {"signal"},
}
"""The optional fields of a payload, by type."""
NEVER_NULL = {"agentId", "taskId", "providerId", "name", "path", "code", "message", "content", "success", "recoverable"}


def fields(payload: Mapping[str, Any], required: dict[str, Any]) -> set[str]:
    """Return the names of the fields, including those inside required objects."""
    inner = {
        f"{name}.{one}"
        for name, value in payload.items()
        if isinstance(required.get(name), dict)
        for one in value
        if name != "capabilities" or one in required[name]
    }
    return set(payload) | inner


def check(fleet_event: FleetEvent) -> None:
    required = PROMISED[fleet_event.type]
    present, always = fields(fleet_event.payload, required), fields(required, required)
    assert always <= present, fleet_event
    assert present - always <= OPTIONAL.get(fleet_event.type, set()), fleet_event
    for name, value in fleet_event.payload.items():
        inside = value.items() if isinstance(required.get(name), dict) else ()
        for one, fleet_events in [(name, value), *inside]:
            assert fleet_events is not None or one not in NEVER_NULL, fleet_event
    assert msgspec.json.decode(msgspec.json.encode(fleet_event), type=FleetEvent) == fleet_event
    msgspec.convert(fleet_event.payload, FLEET_PAYLOADS[fleet_event.type])


def decoded_copy(state: FleetEventState) -> FleetEventState:
    return msgspec.json.decode(msgspec.json.encode(state), type=FleetEventState)


def in_two_parts(events: list[Event], index: int) -> tuple[FleetEventState, list[FleetEvent]]:
    """Fold the events in two parts, with the state encoded in between."""
    state, first = fold(events[:index])
    state, rest = fold(events[index:], decoded_copy(state))
    return state, first + rest


def test_there_are_ten_types():
    assert set(AGENT_EVENT_TYPES) == set(PROMISED)
    assert len(AGENT_EVENT_TYPES) == 10


AGENT_PAYLOADS: list[Payload] = [
    *PAYLOADS.values(),
    *(RUN, SUB_AGENT, next_attempt(), STEP, msgspec.structs.replace(STEP, try_=2)),
    *(
        UserMessage(blocks=[]),
        assistant_message(thinking_block("hm"), usage=USAGE),
        assistant_message(text("x"), cost=Cost(usd=None, source="unknown")),
    ),
    *(note_message(kind, limit=limit) for kind in ("limit", "ready", "warning") for limit in (None, Limit())),
    *(
        note_message(kind, code=code)
        for kind in ("retry", "error")
        for code in (None, "rate_limit_error", "agent_error")
    ),
    *(
        RESTS,
        tool_call("1"),
        tool_call("2"),
        tool_result("1"),
        tool_result("2", files=[FileChange(path="a", action="create")]),
    ),
    *(
        step_completed(result=result)
        for result in (None, "done", [1], {"exit_code": 0}, {"exit_code": True, "signal": 9})
    ),
    *(step_failed(code) for code in (None, "cancelled", "rate_limit_error", "agent_error", "provider_timeout")),
    *(run_completed(), run_completed("failed", "host_lost"), run_completed("cancelled")),
]


@st.composite
def any_log(draw: st.DrawFn) -> list[Event]:
    """Events of a log in any order, which is mostly an order that no log has."""
    places = st.fixed_dictionaries({"path": st.sampled_from(["build", "each.0.build"]), "iteration": st.integers(0, 1)})
    drawn = draw(st.lists(st.tuples(st.sampled_from(AGENT_PAYLOADS), places), max_size=20))
    head: list[Any] = draw(st.sampled_from([[], [RUN, STEP], [SUB_AGENT], [RUN, STEP, next_attempt()]]))
    payloads = [*head, *(one if not one[0].event_type.startswith("run.") else one[0] for one in drawn)]
    return log(*payloads, parent_run_id=draw(st.sampled_from([None, PARENT_ID])))


@given(any_log(), st.data())
def test_any_log_can_be_folded_in_any_two_parts(events: list[Event], data: st.DataObject):
    assert in_two_parts(events, data.draw(st.integers(0, len(events)))) == fold(events)


@given(runs_with_tools(), st.data())
def test_any_run_can_be_folded_in_any_two_parts(run: Run, data: st.DataObject):
    events = events_of(run)
    assert in_two_parts(events, data.draw(st.integers(0, len(events)))) == fold(events)


@given(any_log())
def test_every_fleet_event_has_the_fields_of_its_type(events: list[Event]):
    _, fleet_events = fold(events)
    for fleet_event in fleet_events:
        check(fleet_event)
    assert [(fleet_event.seq, fleet_event.n) for fleet_event in fleet_events] == sorted(
        {(fleet_event.seq, fleet_event.n) for fleet_event in fleet_events}
    )
    assert all(fleet_event.timestamp == events[fleet_event.seq - 1].timestamp for fleet_event in fleet_events)


@given(any_log())
def test_a_session_is_spawned_before_anything_else_and_ends_at_most_once(events: list[Event]):
    """Sessions with the same id, which only a broken log has, come one after another."""
    alive: set[str] = set()
    for fleet_event in fold(events)[1]:
        agent = fleet_event.payload["agentId"]
        if fleet_event.type == "agent.spawned":
            assert agent not in alive
            alive.add(agent)
        else:
            assert agent in alive
        if fleet_event.type in {"agent.completed", "agent.terminated"}:
            alive.remove(agent)


@given(any_log())
def test_folding_does_not_change_earlier_states(events: list[Event]):
    state = FleetEventState()
    for event in events:
        before = msgspec.json.encode(state)
        after, _ = fleet_event_step(state, event)
        assert msgspec.json.encode(state) == before
        state = after


def test_the_generated_logs_have_every_type_of_fleet_event():
    """Otherwise the properties of any log would prove nothing."""
    everything = [
        tool_call("1"),
        tool_result("1", files=[FileChange(path="a", action="create")]),
        assistant_message(thinking_block("hm")),
    ]
    notes = [note_message("ready"), note_message("retry"), note_message("limit", limit=Limit())]
    fleet_events = fleet_events_of(RUN, STEP, *everything, *notes, step_completed(), STEP, step_failed("cancelled"))
    assert set(types(fleet_events)) == set(AGENT_EVENT_TYPES)
    for fleet_event in fleet_events:
        check(fleet_event)


def test_unknown_events_are_skipped():
    strange = log(RUN, STEP)
    strange += [
        msgspec.structs.replace(strange[1], seq=3, type="step.dreamt", payload=UnknownPayload({"kind": "agent"})),
        msgspec.structs.replace(strange[1], seq=4, payload=UnknownPayload([1])),
    ]
    state, fleet_events = fold(strange)
    assert types(fleet_events) == ["agent.spawned"]
    assert list(state.sessions) == ["build"]


def test_blocks_of_a_later_version_are_skipped():
    message = fold(golden("claude-code")[:2])[0], golden("claude-code")[3]
    raw = msgspec.json.encode(message[1]).replace(b'"type":"text"', b'"type":"hologram"')
    event = decode(raw)
    assert event.problems
    assert fleet_event_step(message[0], event) == (message[0], [])


# Bounded state


def test_sessions_calls_and_files_that_stay_open_are_remembered_up_to_a_bound():
    state, _ = fold(log(RUN))
    count = FLEET_EVENT_FACTS + 10
    for number in range(count):
        index = {"path": f"build-{number}", "iteration": 0}
        files = [FileChange(path=f"/srv/demo/{number}", action="create")]
        for event in log((STEP, index), (tool_call(), index), (tool_result("other", files=files), index)):
            state, _ = fleet_event_step(state, event)
    assert len(state.sessions) == len(state.calls) == len(state.files) == FLEET_EVENT_FACTS
    assert "build-9" not in state.sessions
    assert "build-10" in state.sessions
    assert len(msgspec.json.encode(state)) < FLEET_EVENT_FACTS * 1000


def test_many_files_of_one_event_are_counted_and_not_all_remembered():
    files = [FileChange(path=f"/srv/demo/{number}", action="create") for number in range(FLEET_EVENT_FACTS + 10)]
    state, fleet_events = fold(log(RUN, STEP, tool_result(files=[*files, files[0]])))
    assert len(fleet_events) == 2 + len(files) + 1
    assert len(state.files) == FLEET_EVENT_FACTS
    assert state.sessions["build"].files == len(files)


def test_a_long_session_leaves_nothing_behind():
    payloads = [
        tool_call("1"),
        assistant_message(text("x" * 1000), usage=USAGE),
        tool_result("1"),
        note_message("retry", message="y" * 1000),
    ]
    state, _ = fold(log(RUN, STEP, *payloads * 200))
    assert len(msgspec.json.encode(state)) < 1000
    state, _ = fold(log(step_completed()), state)
    assert state == FleetEventState(host="local-7c1", spending=Spending(state.spending.settled))
