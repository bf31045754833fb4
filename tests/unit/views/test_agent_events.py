"""The `agent.*` signals: what whoever watches agents is told of a log."""

from __future__ import annotations

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
    Cost,
    Event,
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
from shopfloor.views.agent_event_types import AGENT_EVENT_TYPES, FleetEvent
from shopfloor.views.agent_events import FleetEventState, fleet_event_step
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


def said(*blocks: TextBlock | ThinkingBlock, **more: Any) -> AssistantMessage:
    return AssistantMessage(blocks=[*blocks], **more)


def noted(kind: Any, **more: Any) -> AssistantMessage:
    return AssistantMessage(blocks=[], note=Note(kind=kind, **more))


def thought(text: str) -> ThinkingBlock:
    return ThinkingBlock(fidelity="agent_emitted", thinking=text)


def text(words: str) -> TextBlock:
    return TextBlock(fidelity="agent_emitted", text=words)


def called(call_id: str = "1", fidelity: Any = "agent_emitted") -> ToolCall:
    return ToolCall(name="Bash", call_id=call_id, input={"command": "ls"}, output=None, fidelity=fidelity)


def answered(call_id: str = "1", fidelity: Any = "agent_emitted", **more: Any) -> ToolResult:
    given: dict[str, Any] = {"output": "ok"} | more
    return ToolResult(name="Bash", call_id=call_id, input=None, fidelity=fidelity, **given)


def ended(**more: Any) -> StepCompleted:
    return StepCompleted(name="build", kind="agent", try_=1, **more)


def failed(code: str | None, exit_code: int | None = 1, **more: Any) -> StepCompleted:
    given: dict[str, Any] = {"result": {"exit_code": exit_code} if exit_code is not None else {}} | more
    return ended(error="it went wrong", error_code=code, **given)


def outcome(status: Any = "completed", code: str | None = None, **more: Any) -> RunCompleted:
    error = RunError(code=code, message="it went wrong") if code else None
    return RunCompleted(name="w", kind="worker", status=status, error=error, **more)


def log(*payloads: Payload | tuple[Payload, dict[str, Any]], **envelope: Any) -> list[Event]:
    """Events a second apart; what belongs to a step belongs to `build`, unless something else is said."""
    events: list[Event] = []
    for seq, one in enumerate(payloads, 1):
        payload, place = one if isinstance(one, tuple) else (one, {})
        usual = {"path": "" if payload.event_type.startswith("run.") else "build", "iteration": 0}
        given: dict[str, Any] = usual | envelope | place
        timestamp = format_timestamp(seq * 1000)
        events.append(
            Event(seq=seq, run_id=RUN_ID, type=payload.event_type, timestamp=timestamp, payload=payload, **given)
        )
    return events


def fold(events: list[Event], state: FleetEventState | None = None) -> tuple[FleetEventState, list[FleetEvent]]:
    state, told = state or FleetEventState(), list[FleetEvent]()
    for event in events:
        state, more = fleet_event_step(state, event)
        told += more
    return state, told


def told_by(*payloads: Payload | tuple[Payload, dict[str, Any]], **envelope: Any) -> list[FleetEvent]:
    return fold(log(*payloads, **envelope))[1]


def in_session(*payloads: Payload | tuple[Payload, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """What is told of a session after it was spawned."""
    first, *rest = told_by(RUN, STEP, *payloads)
    assert first.type == "agent.spawned"
    return [(signal.type, signal.payload) for signal in rest]


def types(signals: list[FleetEvent]) -> list[str]:
    return [signal.type for signal in signals]


def golden(name: str) -> list[Event]:
    return [decode(line) for line in (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()]


# What each carries


@pytest.mark.req("FE-9", "FE-10")
def test_a_session_that_begins_is_spawned():
    _, signal = fold(log(RUN, STEP))
    assert signal == [
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


def test_what_is_not_known_of_a_session_is_null_and_what_it_is_not_known_to_do_is_false():
    [signal] = told_by(RUN, StepStarted(name="build", kind="agent", try_=1, session=Session(provider="codex")))
    assert signal.payload["accessMode"] is None
    assert signal.payload["process"] == {"pid": None, "command": None, "args": [], "cwd": None}
    assert signal.payload["capabilities"] == {"codeGeneration": False, "webSearch": False}


def test_steps_that_are_no_agents_and_agents_that_nobody_is_known_to_serve_are_not_told_of():
    command = StepStarted(name="make", kind="command", try_=1, process=PROCESS)
    unserved = StepStarted(name="build", kind="agent", try_=1)
    assert told_by(RUN, command, said(thought("hm")), called(), ended(), unserved, called(), ended()) == []


@pytest.mark.req("FE-11")
def test_an_agent_that_can_take_instructions_is_ready():
    begun = Initialization(model="opus", context_tokens=1200)
    assert in_session(noted("ready", ready=begun)) == [
        ("agent.ready", WHOSE | {"initialization": {"duration": 1000, "contextLoaded": True, "contextTokens": 1200}})
    ]


def test_an_agent_that_says_nothing_of_its_context_has_none_that_is_known():
    [(_, payload)] = in_session(noted("ready"))
    assert payload["initialization"] == {"duration": 1000, "contextLoaded": False, "contextTokens": None}


def test_an_agent_is_ready_once():
    assert len(in_session(noted("ready"), noted("ready"))) == 1


@pytest.mark.req("FE-12")
def test_what_an_event_has_of_thoughts_is_one_signal():
    message = said(thought("first"), text("aloud"), thought("second"), usage=USAGE)
    assert in_session(message) == [
        ("agent.thinking", WHO | {"thinking": {"content": "first\n\nsecond", "tokensUsed": 7}})
    ]


def test_pieces_of_a_thought_are_signals_of_their_own():
    told = in_session(said(thought("a"), message_id="m"), said(thought("b"), message_id="m"), said(text("c")))
    assert [payload["thinking"] for _, payload in told] == [
        {"content": "a", "tokensUsed": 0},
        {"content": "b", "tokensUsed": 0},
    ]


@pytest.mark.req("FE-13")
def test_a_tool_is_called():
    tool = {"name": "Bash", "input": {"command": "ls"}, "startedAt": format_timestamp(3000)}
    assert in_session(called()) == [("agent.tool_call", WHO | {"tool": tool})]


@pytest.mark.req("FE-14")
def test_a_tool_gives_its_result():
    told = in_session(called(), answered(duration_ms=68))
    assert told[1] == (
        "agent.tool_result",
        WHO | {"tool": {"name": "Bash", "duration": 68, "success": True, "output": "ok"}},
    )


@pytest.mark.req("FE-14")
def test_a_tool_that_failed_says_why():
    told = in_session(called(), answered(output=None, error="no such file"))
    assert told[1][1]["tool"] == {"name": "Bash", "duration": 1000, "success": False, "error": "no such file"}


def test_a_command_that_failed_is_no_success_though_its_tool_was():
    [(_, payload)] = in_session(answered(exit_code=1, output="oops"))
    assert payload["tool"] == {"name": "Bash", "duration": None, "success": False, "output": "oops"}


def test_a_call_is_timed_by_its_own_result_also_where_two_sessions_use_the_same_ids():
    other = {"path": "other"}
    told = told_by(RUN, STEP, (STEP, other), called(), (called(), other), answered(), (answered(), other))
    assert [signal.payload["tool"]["duration"] for signal in told if signal.type == "agent.tool_result"] == [2000] * 2


def test_tools_that_are_ours_are_not_the_agents():
    assert in_session(called(fidelity="router"), answered(fidelity="router")) == []


@pytest.mark.req("FE-15")
def test_every_file_that_a_tool_changed_is_a_signal():
    files = [
        FileChange(path="/srv/demo/a", action="modify", lines_added=2, lines_removed=0, diff="@@\n+a\n+b"),
        FileChange(path="/srv/demo/b", action="delete"),
    ]
    told = told_by(RUN, STEP, answered(files=files))[1:]
    assert [(signal.type, signal.seq, signal.n) for signal in told] == [
        ("agent.tool_result", 3, 0),
        ("agent.file_change", 3, 1),
        ("agent.file_change", 3, 2),
    ]
    assert [signal.payload for signal in told[1:]] == [
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
def test_a_long_diff_is_cut_once():
    def diff_of(diff: str) -> str:
        told = in_session(answered(files=[FileChange(path="a", action="create", diff=diff)]))
        return told[-1][1]["file"]["diff"]

    assert diff_of("+" * AGENT_DIFF_CHARS) == "+" * AGENT_DIFF_CHARS
    cut = diff_of("+" * (AGENT_DIFF_CHARS * 3))
    assert cut == "+" * AGENT_DIFF_CHARS + "\n… (cut)"
    assert diff_of(cut) == cut


@pytest.mark.req("FE-17", "FE-18")
def test_a_model_call_that_is_made_again_is_an_error_that_passes():
    again = noted("retry", code="provider_overloaded", message="Overloaded", status=529, try_=2, tries=10)
    assert in_session(again) == [
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
def test_an_error_that_the_agent_does_not_get_over_aborts_it():
    assert in_session(noted("error", code="authentication_error", message="bad key")) == [
        (
            "agent.error",
            WHOSE
            | {
                "error": {"code": "authentication_error", "message": "bad key", "recoverable": False},
                "action": {"type": "abort"},
            },
        )
    ]


def test_an_error_without_a_name_is_the_agents():
    [(_, payload)] = in_session(noted("error"))
    assert payload["error"] == {"code": "agent_error", "message": "agent_error", "recoverable": False}


def test_warnings_and_denials_are_no_errors():
    assert in_session(noted("warning", message="hm"), noted("denied", message="no")) == []


@pytest.mark.req("FE-17")
def test_a_step_that_failed_is_an_error_and_an_end():
    told = in_session(failed("max_turns_exceeded", retryable=True))
    assert [name for name, _ in told] == ["agent.error", "agent.completed"]
    assert told[0][1] == WHOSE | {
        "error": {"code": "max_turns_exceeded", "message": "it went wrong", "recoverable": True},
        "action": {"type": "abort"},
    }


def test_an_error_that_was_told_is_not_told_again_at_the_end():
    told = in_session(noted("error", code="provider_error", message="API Error"), failed("provider_error"))
    assert [name for name, _ in told] == ["agent.error", "agent.completed"]


def test_an_error_is_told_again_where_the_agent_had_got_over_it():
    told = in_session(noted("error", code="provider_error"), said(text("after all")), failed("provider_error"))
    assert [name for name, _ in told] == ["agent.error", "agent.error", "agent.completed"]


@pytest.mark.req("FE-19", "FE-20")
def test_a_limit_that_is_reached_is_waited_for():
    reached = Limit(kind="tokens", current=1.0, reset_at=format_timestamp(63_500), window="five_hour")
    assert in_session(noted("limit", limit=reached)) == [
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
def test_a_limit_that_is_near_is_told_of_and_not_waited_for():
    near = Limit(status="warning", current=80, max=100, reset_at=format_timestamp(60_000))
    [(name, payload)] = in_session(noted("limit", limit=near))
    assert name == "agent.rate_limited"
    assert payload["limit"] == {"type": "requests", "current": 80, "max": 100, "resetAt": format_timestamp(60_000)}
    assert payload["action"] == {"type": "wait"}


def test_a_limit_that_is_open_is_not_told_of():
    assert in_session(noted("limit", limit=Limit(status="allowed", current=0.1)), noted("limit")) == []


@pytest.mark.req("FE-20")
def test_a_call_that_was_refused_for_its_rate_is_a_limit_and_no_error():
    [(name, payload)] = in_session(noted("retry", code="rate_limit_error", try_=1, retry_after=1.5))
    assert name == "agent.rate_limited"
    assert payload["limit"] == {"type": "requests", "current": None, "max": None, "resetAt": None}
    assert payload["action"] == {"type": "wait", "waitSeconds": 1.5}


def test_a_session_that_ends_for_its_rate_is_limited_and_has_completed_badly():
    limits = [Limit(status="rejected", reset_at=format_timestamp(60_000)), Limit(status="warning")]
    told = in_session(failed("rate_limit_error", rate_limits=limits))
    assert [name for name, _ in told] == ["agent.rate_limited", "agent.completed"]
    assert told[0][1]["limit"]["resetAt"] == format_timestamp(60_000)
    assert told[0][1]["action"]["waitSeconds"] == 57


@pytest.mark.parametrize(
    "note",
    [noted("limit", limit=Limit()), noted("error", code="rate_limit_error"), noted("error", status=429)],
)
def test_a_limit_that_was_told_is_not_told_again_at_the_end(note: AssistantMessage):
    synthetic = said(text("API Error: 429"), synthetic=True)
    told = in_session(note, synthetic, failed("rate_limit_error"))
    assert [name for name, _ in told] == ["agent.rate_limited", "agent.completed"]


RESTS = ToolCall(
    name="rate_limit",
    call_id="r",
    input={},
    output=None,
    fidelity="router",
    awaits=Awaits(kind="rate_limit", until=format_timestamp(60_000)),
)


@pytest.mark.req("FE-20")
def test_a_step_that_waits_for_its_provider_is_limited_as_long():
    go_on = UserMessage(blocks=[text("Go on.")])
    told = in_session(RESTS, go_on, RESTS, ended())
    assert [name for name, _ in told] == ["agent.rate_limited", "agent.rate_limited", "agent.completed"]
    assert [payload["action"]["waitSeconds"] for _, payload in told[:2]] == [57, 55]
    assert told[0][1]["limit"] == {
        "type": "requests",
        "current": None,
        "max": None,
        "resetAt": format_timestamp(60_000),
    }


def test_a_limit_that_was_told_is_not_told_again_when_the_step_waits_for_it():
    synthetic = UserMessage(blocks=[text("Rate limited.")], synthetic=True)
    told = in_session(noted("limit", limit=Limit()), synthetic, RESTS, failed("rate_limit_error"))
    assert [name for name, _ in told] == ["agent.rate_limited", "agent.completed"]


def test_a_wait_of_a_session_that_has_ended_is_not_told():
    assert types(told_by(RUN, RESTS, STEP, again(), RESTS)) == ["agent.spawned", "agent.terminated"]


@pytest.mark.parametrize("mode", ["local", None, "magic"])
def test_how_a_limited_provider_is_used_is_one_of_two_or_not_known(mode: str | None):
    step = msgspec.structs.replace(STEP, session=msgspec.structs.replace(SESSION, access_mode=mode))
    told = told_by(RUN, step, noted("limit", limit=Limit()))
    assert told[0].payload["accessMode"] == (mode if mode == "local" else None)
    assert told[1].payload["accessMode"] is None


def test_a_reset_that_is_no_time_is_not_waited_for():
    for odd in ("soon", "2026-11-15", ""):
        [(_, payload)] = in_session(noted("limit", limit=Limit(reset_at=odd)))
        assert payload["limit"]["resetAt"] == odd
        assert payload["action"] == {"type": "wait"}


@pytest.mark.req("FE-21", "FE-22")
def test_a_session_that_ended_by_itself_has_completed():
    done = ended(result={"exit_code": 0}, usage=USAGE, cost=Cost(usd=0.0127, source="agent"), duration_ms=750)
    changed = [FileChange(path="/a", action="create"), FileChange(path="/b", action="create")]
    again = [FileChange(path="/a", action="modify")]
    told = in_session(called("1"), answered("1", files=changed), called("2"), answered("2", files=again), done)
    assert told[-1] == (
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


def test_what_a_session_took_and_nobody_knows_is_null_and_not_nothing():
    [(_, payload)] = in_session(ended(result="done", cost=Cost(usd=None, source="unknown")))
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
    cancelled = failed("cancelled", None, result={"signal": "SIGTERM"}, usage=USAGE, cost=Cost(usd=0.5, source="agent"))
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


# How a session ends

BY_ITSELF = [
    pytest.param(failed("agent_error"), id="it failed"),
    pytest.param(failed("provider_timeout"), id="its provider was too slow for it"),
    pytest.param(failed(None), id="it failed, and nobody said how"),
]
FROM_OUTSIDE = [
    pytest.param(failed("cancelled"), "user_cancel", id="cancelled, and it left with an exit code"),
    pytest.param(failed("host_stopped", None), "system", id="its host was stopped"),
    pytest.param(failed("outcome_unknown", None), "system", id="a crash"),
    pytest.param(failed("provider_timeout", None), "timeout", id="too slow for us"),
    pytest.param(failed("provider_timeout", None, result={"signal": "SIGKILL"}), "timeout", id="and killed for it"),
    pytest.param(failed("step_timeout"), "timeout", id="too slow, and it left with an exit code"),
    pytest.param(failed("agent_error", None, result={"signal": "SIGKILL"}), "system", id="somebody killed it"),
    pytest.param(failed(None, None), "system", id="whoever ended the step was not there"),
]
FOR_AN_ERROR = [
    pytest.param(failed("budget_exceeded"), id="its budget"),
    pytest.param(failed("agent_error", None, result={"signal": "SIGSEGV"}), id="it broke"),
    pytest.param(failed("execution_error", None, result=None), id="it was left in the middle"),
]


@pytest.mark.parametrize("step", BY_ITSELF)
def test_a_session_that_failed_by_itself_has_completed_without_success(step: StepCompleted):
    told = in_session(step)
    assert [name for name, _ in told] == ["agent.error", "agent.completed"]
    assert told[-1][1]["result"] == {"success": False, "exitCode": 1}


@pytest.mark.req("FE-23")
@pytest.mark.parametrize(("step", "reason"), FROM_OUTSIDE)
def test_a_session_that_was_ended_from_outside_is_terminated_and_says_why(step: StepCompleted, reason: str):
    [(name, payload)] = in_session(step)
    assert (name, payload["reason"]) == ("agent.terminated", reason)


@pytest.mark.req("FE-23")
@pytest.mark.parametrize("step", FOR_AN_ERROR)
def test_a_session_that_was_ended_for_an_error_says_which(step: StepCompleted):
    told = in_session(step)
    assert [name for name, _ in told] == ["agent.error", "agent.terminated"]
    assert told[0][1]["error"]["code"] == step.error_code
    assert told[1][1]["reason"] == "error"


def test_a_session_without_a_process_that_failed_ended_by_itself():
    step = msgspec.structs.replace(STEP, session=Session(provider="codex"))
    told = told_by(RUN, step, failed("agent_error", None))
    assert types(told) == ["agent.spawned", "agent.error", "agent.completed"]
    assert told[-1].payload["result"] == {"success": False, "exitCode": None}


def test_a_session_that_had_done_its_work_when_it_was_stopped_has_completed():
    [(name, payload)] = in_session(ended(result={"signal": "SIGTERM"}))
    assert (name, payload["result"]) == ("agent.completed", {"success": True, "exitCode": None})


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (outcome("cancelled", "cancelled"), "user_cancel"),
        (outcome("cancelled"), "user_cancel"),
        (outcome("failed", "host_lost"), "system"),
        (outcome("failed", "budget_exceeded"), "error"),
        (outcome("failed", "execution_error"), "system"),
        (outcome("completed"), "system"),
    ],
)
def test_what_is_open_when_the_run_ends_ends_with_it(end: RunCompleted, reason: str):
    paid = said(text("hello"), usage=USAGE, cost=Cost(usd=0.25, source="prices"))
    told = in_session(paid, paid, end)
    metrics = {"duration": 3000, "tokensUsed": 8580, "cost": 0.5}
    assert told == [("agent.terminated", WHOSE | {"reason": reason, "metrics": metrics})]


def test_a_sum_of_which_a_part_is_not_known_is_not_known():
    paid, unpaid = said(usage=USAGE, cost=Cost(usd=0.25, source="prices")), said(usage=USAGE)
    assert in_session(paid, unpaid, paid, outcome())[-1][1]["metrics"]["cost"] is None
    assert in_session(ended())[-1][1]["metrics"]["cost"] is None
    assert in_session(paid, ended())[-1][1]["metrics"]["cost"] == 0.25


def test_nothing_is_told_after_the_outcome():
    state, told = fold(log(RUN, STEP, outcome(), called(), ended()))
    assert types(told) == ["agent.spawned", "agent.terminated"]
    assert state == FleetEventState()


# Tries and attempts


def again(attempt: int = 2) -> RunStarted:
    return RunStarted(name="w", kind="worker", attempt=attempt, host="other")


def test_every_try_is_a_session_of_its_own():
    second = msgspec.structs.replace(STEP, try_=2)
    told = told_by(RUN, STEP, failed("provider_error"), second, StepCompleted(name="build", kind="agent", try_=2))
    assert types(told) == ["agent.spawned", "agent.error", "agent.completed", "agent.spawned", "agent.completed"]
    assert [signal.payload["agentId"] for signal in told] == [AGENT_ID] * 3 + [f"{RUN_ID}:build:0:2"] * 2


def test_rounds_of_a_loop_are_sessions_of_their_own():
    first, second = {"path": "each.0.build"}, {"path": "each.1.build", "iteration": 1}
    told = told_by(RUN, (STEP, first), (STEP, second), (called(), second), (called(), first))
    assert [signal.payload["agentId"] for signal in told[2:]] == [
        f"{RUN_ID}:each.1.build:1:1",
        f"{RUN_ID}:each.0.build:0:1",
    ]


def test_a_try_that_nobody_ended_is_terminated_by_the_next():
    told = told_by(RUN, STEP, msgspec.structs.replace(STEP, try_=2), ended())
    assert types(told) == ["agent.spawned", "agent.terminated", "agent.spawned"]
    assert [(signal.seq, signal.n) for signal in told] == [(2, 0), (3, 0), (3, 1)]
    assert told[1].payload["reason"] == "system"


def test_a_new_attempt_ends_the_sessions_of_the_one_before_and_that_is_told_once():
    told = told_by(RUN, STEP, called(), again(), failed("outcome_unknown", None), outcome("failed", "outcome_unknown"))
    assert types(told) == ["agent.spawned", "agent.tool_call", "agent.terminated"]
    assert (told[-1].seq, told[-1].payload["reason"]) == (4, "system")


def test_a_session_that_the_next_attempt_goes_on_with_is_another_one():
    told = told_by(RUN, STEP, called(), again(), again(3), called("2"), answered("1"), ended(result={"exit_code": 0}))
    assert types(told) == [
        *("agent.spawned", "agent.tool_call", "agent.terminated"),
        *("agent.spawned", "agent.tool_call", "agent.tool_result", "agent.completed"),
    ]
    assert {signal.payload["agentId"] for signal in told[3:]} == {f"{AGENT_ID}:3"}
    assert told[3].payload["workerId"] == "other"
    assert told[3].payload["process"]["pid"] is None
    assert told[3].payload["capabilities"]["codeGeneration"] is True
    assert told[5].payload["tool"]["duration"] is None
    assert told[6].payload["metrics"]["toolCalls"] == 1
    assert told[6].payload["metrics"]["duration"] == 3000


# Sub-agents


def told_of_a_sub_agent(*payloads: Payload | tuple[Payload, dict[str, Any]]) -> list[FleetEvent]:
    return told_by(SUB_AGENT, *payloads, parent_run_id=PARENT_ID)


def test_a_sub_agent_without_a_step_is_a_session_with_its_first_word():
    asked = UserMessage(blocks=[text("look around")])
    done = outcome(usage=USAGE, cost=Cost(usd=0.1, source="agent"))
    told = told_of_a_sub_agent(asked, said(thought("hm")), called(), answered(), done)
    assert types(told) == [
        *("agent.spawned", "agent.thinking", "agent.tool_call", "agent.tool_result", "agent.completed"),
    ]
    assert {signal.payload["agentId"] for signal in told} == {RUN_ID}
    assert (told[0].seq, told[0].payload["workerId"], told[0].provider) == (2, "local-7c1", "claude-code")
    assert told[0].payload["process"]["pid"] is None
    assert told[-1].payload["result"] == {"success": True, "exitCode": None}
    assert told[-1].payload["metrics"] | {"duration": 0} == {
        "duration": 0,
        "tokensInput": 4200,
        "tokensOutput": 90,
        "tokensTotal": 4290,
        "toolCalls": 1,
        "filesChanged": 0,
        "cost": 0.1,
    }


def test_a_sub_agent_that_said_nothing_is_told_of_when_it_ends():
    told = told_of_a_sub_agent(outcome("failed", "provider_error"))
    assert types(told) == ["agent.spawned", "agent.error", "agent.completed"]
    assert [(signal.seq, signal.n) for signal in told] == [(2, 0), (2, 1), (2, 2)]
    assert told[-1].payload["metrics"]["duration"] == 1000


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (outcome("cancelled"), ["agent.terminated"]),
        (outcome("failed"), ["agent.error", "agent.completed"]),
        (outcome("failed", "rate_limit_error"), ["agent.rate_limited", "agent.completed"]),
    ],
)
def test_a_sub_agent_without_a_step_ends_as_its_run_does(end: RunCompleted, expected: list[str]):
    assert types(told_of_a_sub_agent(called(), end))[2:] == expected


def test_a_limit_of_a_run_says_how_long_to_wait():
    error = RunError(code="rate_limit_error", message="slow down", retryable=True, retry_after=30.0)
    told = told_of_a_sub_agent(called(), RunCompleted(name="w", kind="agent", status="failed", error=error))
    assert told[2].payload["action"] == {"type": "wait", "waitSeconds": 30.0}


def test_a_sub_agent_that_ended_with_its_attempt_does_not_end_again_with_its_run():
    told = told_of_a_sub_agent(called(), again(), outcome("failed", "host_lost"))
    assert types(told) == ["agent.spawned", "agent.tool_call", "agent.terminated"]


def test_a_sub_agent_with_a_step_is_that_step_alone():
    told = told_of_a_sub_agent(STEP, UserMessage(blocks=[]), called(), ended(), outcome())
    assert types(told) == ["agent.spawned", "agent.tool_call", "agent.completed"]
    assert {signal.payload["agentId"] for signal in told} == {AGENT_ID}


def test_a_run_of_an_agent_that_never_began_its_step_was_no_session():
    assert told_by(SUB_AGENT, outcome("failed", "command_not_found")) == []


# Logs as they are


@pytest.mark.req("FE-9", "FE-13", "FE-14", "FE-21", "FE-22")
def test_the_signals_of_a_recorded_agent():
    _, told = fold(golden("claude-code"))
    who = {"agentId": f"{RUN_ID}:claude-code:0:1", "taskId": RUN_ID}
    whose = who | {"providerId": "claude-code"}
    bash = {"command": "echo hello-from-tool", "description": "Run a test command"}
    assert [(signal.seq, signal.n, signal.type, signal.payload) for signal in told] == [
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
    assert [signal.timestamp for signal in told] == [
        event.timestamp for event in golden("claude-code") if event.seq in {2, 6, 7, 9}
    ]


@pytest.mark.parametrize("name", ["command", "parent"])
def test_runs_without_agents_have_no_signals(name: str):
    assert fold(golden(name)) == (FleetEventState(), [])


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.stem)
def test_a_recorded_run_can_be_folded_in_any_two_parts(path: Any):
    events = golden(path.stem)
    for place in range(len(events) + 1):
        assert in_two_parts(events, place) == fold(events)


# What holds for any log

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
"""The fields that a payload always has, by its type."""
OPTIONAL: dict[str, set[str]] = {
    "agent.tool_result": {"tool.output", "tool.error"},
    "agent.file_change": {"file.linesAdded", "file.linesRemoved", "file.diff"},
    "agent.error": {"error.context", "action.retryCount"},
    "agent.rate_limited": {"action.waitSeconds"},
    "agent.terminated": {"signal"},
}
"""Those that it may have."""
NEVER_NULL = {"agentId", "taskId", "providerId", "name", "path", "code", "message", "content", "success", "recoverable"}


def fields(payload: dict[str, Any], promised: dict[str, Any]) -> set[str]:
    """The names of the fields, of those inside the objects that are promised too."""
    inner = {
        f"{name}.{one}"
        for name, value in payload.items()
        if isinstance(promised.get(name), dict)
        for one in value
        if name != "capabilities" or one in promised[name]
    }
    return set(payload) | inner


def check(signal: FleetEvent) -> None:
    promised = PROMISED[signal.type]
    present, always = fields(signal.payload, promised), fields(promised, promised)
    assert always <= present, signal
    assert present - always <= OPTIONAL.get(signal.type, set()), signal
    for name, value in signal.payload.items():
        inside = value.items() if isinstance(promised.get(name), dict) else ()
        for one, told in [(name, value), *inside]:
            assert told is not None or one not in NEVER_NULL, signal
    assert msgspec.json.decode(msgspec.json.encode(signal), type=FleetEvent) == signal


def kept(state: FleetEventState) -> FleetEventState:
    return msgspec.json.decode(msgspec.json.encode(state), type=FleetEventState)


def in_two_parts(events: list[Event], place: int) -> tuple[FleetEventState, list[FleetEvent]]:
    """The same, where the state is stored in between."""
    state, first = fold(events[:place])
    state, rest = fold(events[place:], kept(state))
    return state, first + rest


def test_there_are_ten_of_them():
    assert set(AGENT_EVENT_TYPES) == set(PROMISED)
    assert len(AGENT_EVENT_TYPES) == 10


AGENT_PAYLOADS: list[Payload] = [
    *PAYLOADS.values(),
    *(RUN, SUB_AGENT, again(), STEP, msgspec.structs.replace(STEP, try_=2)),
    *(UserMessage(blocks=[]), said(thought("hm"), usage=USAGE), said(text("x"), cost=Cost(usd=None, source="unknown"))),
    *(noted(kind, limit=limit) for kind in ("limit", "ready", "warning") for limit in (None, Limit())),
    *(noted(kind, code=code) for kind in ("retry", "error") for code in (None, "rate_limit_error", "agent_error")),
    *(RESTS, called("1"), called("2"), answered("1"), answered("2", files=[FileChange(path="a", action="create")])),
    *(ended(result=result) for result in (None, "done", [1], {"exit_code": 0}, {"exit_code": True, "signal": 9})),
    *(failed(code) for code in (None, "cancelled", "rate_limit_error", "agent_error", "provider_timeout")),
    *(outcome(), outcome("failed", "host_lost"), outcome("cancelled")),
]


@st.composite
def any_log(draw: st.DrawFn) -> list[Event]:
    """Events that a log could have, in any order: more often than not in an order that no log has."""
    places = st.fixed_dictionaries({"path": st.sampled_from(["build", "each.0.build"]), "iteration": st.integers(0, 1)})
    drawn = draw(st.lists(st.tuples(st.sampled_from(AGENT_PAYLOADS), places), max_size=20))
    head: list[Any] = draw(st.sampled_from([[], [RUN, STEP], [SUB_AGENT], [RUN, STEP, again()]]))
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
def test_every_signal_has_the_fields_that_its_type_promises(events: list[Event]):
    _, told = fold(events)
    for signal in told:
        check(signal)
    assert [(signal.seq, signal.n) for signal in told] == sorted({(signal.seq, signal.n) for signal in told})
    assert all(signal.timestamp == events[signal.seq - 1].timestamp for signal in told)


@given(any_log())
def test_a_session_is_spawned_before_anything_else_and_ends_at_most_once(events: list[Event]):
    """Of sessions that share an id, as only a broken log has them, each in turn."""
    alive: set[str] = set()
    for signal in fold(events)[1]:
        agent = signal.payload["agentId"]
        if signal.type == "agent.spawned":
            assert agent not in alive
            alive.add(agent)
        else:
            assert agent in alive
        if signal.type in {"agent.completed", "agent.terminated"}:
            alive.remove(agent)


@given(any_log())
def test_folding_leaves_the_states_before_as_they_were(events: list[Event]):
    state = FleetEventState()
    for event in events:
        before = msgspec.json.encode(state)
        after, _ = fleet_event_step(state, event)
        assert msgspec.json.encode(state) == before
        state = after


def test_every_kind_of_signal_is_met_by_these_tests():
    """Else what holds for any log would hold for nothing."""
    everything = [called("1"), answered("1", files=[FileChange(path="a", action="create")]), said(thought("hm"))]
    notes = [noted("ready"), noted("retry"), noted("limit", limit=Limit())]
    told = told_by(RUN, STEP, *everything, *notes, ended(), STEP, failed("cancelled"))
    assert set(types(told)) == set(AGENT_EVENT_TYPES)
    for signal in told:
        check(signal)


def test_what_is_not_understood_is_passed_over():
    strange = log(RUN, STEP)
    strange += [
        msgspec.structs.replace(strange[1], seq=3, type="step.dreamt", payload=UnknownPayload({"kind": "agent"})),
        msgspec.structs.replace(strange[1], seq=4, payload=UnknownPayload([1])),
    ]
    state, told = fold(strange)
    assert types(told) == ["agent.spawned"]
    assert list(state.agents) == ["build"]


def test_blocks_of_a_later_version_are_passed_over():
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
        place = {"path": f"build-{number}", "iteration": 0}
        files = [FileChange(path=f"/srv/demo/{number}", action="create")]
        for event in log((STEP, place), (called(), place), (answered("other", files=files), place)):
            state, _ = fleet_event_step(state, event)
    assert len(state.agents) == len(state.calls) == len(state.files) == FLEET_EVENT_FACTS
    assert "build-9" not in state.agents
    assert "build-10" in state.agents
    assert len(msgspec.json.encode(state)) < FLEET_EVENT_FACTS * 1000


def test_many_files_of_one_event_are_counted_and_not_all_remembered():
    files = [FileChange(path=f"/srv/demo/{number}", action="create") for number in range(FLEET_EVENT_FACTS + 10)]
    state, told = fold(log(RUN, STEP, answered(files=[*files, files[0]])))
    assert len(told) == 2 + len(files) + 1
    assert len(state.files) == FLEET_EVENT_FACTS
    assert state.agents["build"].files == len(files)


def test_a_long_session_leaves_nothing_behind():
    payloads = [called("1"), said(text("x" * 1000), usage=USAGE), answered("1"), noted("retry", message="y" * 1000)]
    state, _ = fold(log(RUN, STEP, *payloads * 200))
    assert len(msgspec.json.encode(state)) < 1000
    state, _ = fold(log(ended()), state)
    assert state == FleetEventState(host="local-7c1", spending=Spending(state.spending.settled))
