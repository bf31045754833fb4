"""Normalize the output of Claude Code: recordings of the program, and unusual streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shopfloor.adapters.providers import provider
from shopfloor.adapters.providers.jsonl import final_report
from shopfloor.adapters.providers.permission_records import answer_permission
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import (
    AssistantMessage,
    FileChange,
    Limit,
    Note,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from shopfloor.ports import (
    MAIN_AGENT,
    AgentExit,
    AgentReport,
    MessageDelta,
    PermissionRequest,
    PermissionWithdrawn,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
    UsageDelta,
)
from shopfloor.views import add_usage

FIXTURES = Path(__file__).parent / "fixtures" / "claude-code"
SCENARIOS = sorted(path.stem for path in FIXTURES.glob("*.jsonl"))
OPUS = "claude-opus-5-5"


def times(n: int) -> Usage:
    """Return the usage of model calls in the older recordings."""
    return Usage(input=1200 * n, output=45 * n, cache_read=800 * n, cache_write=100 * n)


def small(n: int) -> Usage:
    """Return the usage of model calls in the newer recordings."""
    return Usage(input=100 * n, output=20 * n)


def exit_of(scenario: str) -> AgentExit:
    stderr = FIXTURES / f"{scenario}.stderr"
    ended = msgspec.json.decode((FIXTURES / f"{scenario}.exit.json").read_bytes())
    return AgentExit(**ended, stderr=stderr.read_text() if stderr.exists() else "")


def normalize(data: bytes, ended: AgentExit | None = None, *, resumed: bool = False) -> list[AgentReport]:
    normalizer = provider("claude-code").normalizer(resumed=resumed)
    return [*normalizer.feed(data), *normalizer.finish(ended)]


def recorded(scenario: str) -> list[AgentReport]:
    data = (FIXTURES / f"{scenario}.jsonl").read_bytes()
    return normalize(data, exit_of(scenario), resumed=scenario in ("resume", "no_session"))


def stream(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


# Minimal records.


def init(session: str = "s", **more: Any) -> dict[str, Any]:
    return {"type": "system", "subtype": "init", "session_id": session, "model": OPUS, **more}


def assistant(*content: Any, message_id: str = "m", model: str = OPUS, **more: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": message_id, "model": model, "content": list(content)}, **more}


def text_message(text: str, **more: Any) -> dict[str, Any]:
    return assistant({"type": "text", "text": text}, **more)


def use(name: str, call_id: str = "c", /, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def user(*content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": list(content)}, **more}


def tool_output(content: Any, call_id: str = "c", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def result(text: str = "Done.", **more: Any) -> dict[str, Any]:
    return {"type": "result", "subtype": "success", "is_error": False, "result": text, **more}


def event(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "stream_event", "event": {"type": kind, **more}}


def model_usage(n: int, cost: float = 0.0) -> dict[str, Any]:
    return {"inputTokens": 100 * n, "outputTokens": 20 * n, "costUSD": cost}


def tokens(n: int) -> dict[str, Any]:
    return {"input_tokens": 100 * n, "output_tokens": 20 * n}


# Contents of reports.


def payloads(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[Any]:
    return [report.payload for report in reports if isinstance(report, TranscriptItem) and report.agent == agent]


def blocks(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[Any]:
    messages = [one for one in payloads(reports, agent) if isinstance(one, AssistantMessage) and not one.synthetic]
    return [block for message in messages for block in message.blocks]


def texts(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[str]:
    return [block.text for block in blocks(reports, agent) if isinstance(block, TextBlock)]


def synthetic(reports: list[AgentReport]) -> list[str]:
    found = [one for one in payloads(reports) if isinstance(one, AssistantMessage | UserMessage) and one.synthetic]
    return [block.text for one in found for block in one.blocks if isinstance(block, TextBlock)]


def notes(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[Note]:
    found = [one.note for one in payloads(reports, agent) if isinstance(one, AssistantMessage)]
    return [note for note in found if note is not None and note.kind != "ready"]


def calls(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[ToolCall]:
    return [one for one in payloads(reports, agent) if isinstance(one, ToolCall)]


def results(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[ToolResult]:
    return [one for one in payloads(reports, agent) if isinstance(one, ToolResult)]


def spent(reports: list[AgentReport]) -> Usage:
    total = Usage()
    for report in reports:
        total = add_usage(total, report.usage) if isinstance(report, UsageDelta) else total
    return total


def agents(reports: list[AgentReport]) -> list[tuple[Any, ...]]:
    """Return the starts and ends of sub-agents, in order."""
    reported: list[tuple[Any, ...]] = []
    for report in reports:
        if isinstance(report, SubAgentStarted):
            reported.append(("began", report.agent, report.parent, report.name, report.task))
        if isinstance(report, SubAgentEnded):
            reported.append(("ended", report.agent, report.status, report.text))
    return reported


def in_order(reports: list[AgentReport]) -> list[str]:
    """Return a short description of each message and call."""
    reported: list[str] = []
    for one in [report for report in reports if isinstance(report, TranscriptItem)]:
        match one.payload:
            case ToolCall(name=name):
                reported.append(f"call {name}")
            case ToolResult(name=name, error=error):
                reported.append(f"{'failed' if error else 'result'} {name}")
            case AssistantMessage(note=Note(kind=kind)):
                reported.append(kind)
            case AssistantMessage(blocks=[block]) | UserMessage(blocks=[block]):
                reported.append(type(block).__name__)
            case _:
                reported.append("?")
    return reported


def unparsed_blocks(reports: list[AgentReport]) -> list[StreamBlock]:
    return [block for block in blocks(reports) if isinstance(block, StreamBlock)]


# The recordings.


def test_all_recordings_are_here() -> None:
    older = "bash deny err401 err529 fail fail_edit files kill kill_sigint max_turns nasty parallel resume rl_forever"
    older += " rl_once rl_unified_warn struct task text text_partial thinking todo tools_restricted"
    newer = "background budget cut_off killed_typing limit_rejected nested no_login no_session refused_agent"
    newer += " sent_again sub_fails terminated unreachable"
    assert sorted((older + " " + newer).split()) == SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_is_understood_to_its_last_line(scenario: str) -> None:
    reports = recorded(scenario)
    assert final_report(reports).unparsed == 0
    assert unparsed_blocks(reports) == []
    assert sum(isinstance(report, SessionEnded) for report in reports) == 1
    assert len([one for one in payloads(reports) if isinstance(one, AssistantMessage) and one.note is not None]) >= (
        scenario != "no_session"
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_gives_the_same_reports_byte_by_byte(scenario: str) -> None:
    data = (FIXTURES / f"{scenario}.jsonl").read_bytes()
    normalizer = provider("claude-code").normalizer(resumed=scenario in ("resume", "no_session"))
    reports = [report for at in range(len(data)) for report in normalizer.feed(data[at : at + 1])]
    assert [*reports, *normalizer.finish(exit_of(scenario))] == recorded(scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_reported_usage_is_the_sum_of_the_results(scenario: str) -> None:
    lines = [json.loads(line) for line in (FIXTURES / f"{scenario}.jsonl").read_bytes().splitlines()]
    known = [one.get("model_usage_since_last_result", {}) for one in lines if one["type"] == "result"]
    total = [usage for models in known for usage in models.values()]
    if total:
        counted = spent(recorded(scenario))
        assert counted.input == sum(usage["inputTokens"] for usage in total)
        assert counted.output == sum(usage["outputTokens"] for usage in total)


def test_the_ready_note_describes_the_session() -> None:
    first = payloads(recorded("text"))[0]
    ready = first.note.ready
    assert (first.note.kind, ready.session_id) == ("ready", "5c9d357b-4c04-4d89-b91e-64e9d40cba38")
    assert (ready.model, ready.version, ready.cwd) == (OPUS, "2.1.325", "/srv/demo/work/ws-claude-text")
    assert ready.tools[:3] == ["Task", "Bash", "CronCreate"]
    assert ready.permission_mode == "bypassPermissions"


def test_blocks_of_one_message_share_its_id_and_are_reported_at_once() -> None:
    reports = recorded("text")
    reported = [report for report in reports if isinstance(report, TranscriptItem)][1:]
    assert [one.message_id for one in payloads(reports)[1:]] == ["msg_e906775ecb7bacd003a236"] * 2
    assert {one.model for one in payloads(reports)[1:]} == {OPUS}
    assert [one.at for one in reported] == ["2026-11-15T01:00:35.623Z", "2026-11-15T01:00:35.626Z"]
    assert texts(reports) == [
        "Hello from the stub. ",
        "Second block: snowman ☃, emoji 😀, <b>html</b>, line\nbreak.",
    ]


def test_a_text_is_the_answer_and_its_usage_is_reported_once() -> None:
    reports = recorded("text")
    assert [report for report in reports if isinstance(report, UsageDelta)] == [
        UsageDelta(usage=times(1), model=OPUS, cost_usd=0.006359999999999999)
    ]
    assert final_report(reports) == SessionEnded(
        status="completed",
        is_final=True,
        text="Second block: snowman ☃, emoji 😀, <b>html</b>, line\nbreak.",
        usage=times(1),
        models={OPUS: times(1)},
        cost_usd=0.006359999999999999,
        turns=1,
        session_id="5c9d357b-4c04-4d89-b91e-64e9d40cba38",
    )


def test_a_streamed_message_is_reported_in_deltas_and_then_complete() -> None:
    reports = recorded("text_partial")
    typed = [report for report in reports if isinstance(report, MessageDelta)]
    assert {(one.message_id, one.kind, one.agent) for one in typed} == {
        ("msg_7a01d9350b17d8993f4916", "text", MAIN_AGENT)
    }
    assert ["".join(one.text for one in typed if one.block == block) for block in (0, 1)] == texts(reports)
    # Its tokens are known before the end, and their price is not.
    assert [report for report in reports if isinstance(report, UsageDelta)] == [UsageDelta(usage=times(1), model=OPUS)]
    ended = final_report(reports)
    assert (ended.usage, ended.models, ended.cost_usd) == (times(1), {OPUS: times(1)}, 0.006359999999999999)


def test_a_call_is_a_block_and_a_call_and_has_its_result() -> None:
    reports = recorded("bash")
    assert in_order(reports) == ["ready", "TextBlock", "ToolUseBlock", "call Bash", "result Bash", "TextBlock"]
    used = next(block for block in blocks(reports) if isinstance(block, ToolUseBlock))
    arguments = {"command": "echo hello-from-tool && pwd", "description": "Run a test command"}
    call_id = "toolu_d3968191a2490945cc2e8f"
    assert used == ToolUseBlock(fidelity="agent_emitted", tool_name="Bash", tool_id=call_id, tool_input=arguments)
    assert calls(reports) == [
        ToolCall(name="Bash", call_id=call_id, input=arguments, output=None, fidelity="agent_emitted")
    ]
    assert results(reports) == [
        ToolResult(
            name="Bash",
            call_id=call_id,
            input=None,
            output="hello-from-tool\n/srv/demo/work/ws-claude-bash",
            duration_ms=68,
            fidelity="agent_emitted",
        )
    ]
    ended = final_report(reports)
    assert (ended.text, ended.usage, ended.turns) == ("The command printed hello-from-tool.", times(2), 2)
    assert ended.cost_usd == pytest.approx(0.01272)


def test_files_that_were_written_and_edited_have_their_changes() -> None:
    reports = recorded("files")
    path = "/srv/demo/work/ws-claude-files/note.txt"
    assert [one.name for one in results(reports)] == ["Write", "Read", "Edit"]
    assert [one.files for one in results(reports)] == [
        [
            FileChange(
                path=path,
                action="create",
                lines_added=2,
                lines_removed=0,
                diff=f"--- /dev/null\n+++ {path}\n@@ -0,0 +1,2 @@\n+line one\n+line two\n",
            )
        ],
        None,
        [
            FileChange(
                path=path,
                action="modify",
                lines_added=1,
                lines_removed=1,
                diff=f"--- {path}\n+++ {path}\n@@ -1,2 +1,2 @@\n line one\n-line two\n+line 2 edited\n",
            )
        ],
    ]
    assert texts(reports) == ["Writing a file.", "Editing it.", "File written and edited."]
    assert final_report(reports).usage == times(4)


def test_calls_at_the_same_time_have_their_own_results_in_the_order_they_came() -> None:
    reports = recorded("parallel")
    first, second = calls(reports)
    assert [one.call_id for one in results(reports)] == [second.call_id, first.call_id]
    assert [one.output for one in results(reports)] == ["second", "first\nfirst-end"]
    assert [one.duration_ms for one in results(reports)] == [76, 1127]
    assert final_report(reports).turns == 3


def test_thinking_is_reported_with_its_signature() -> None:
    reports = recorded("thinking")
    thoughts = [block for block in blocks(reports) if isinstance(block, ThinkingBlock)]
    assert [block.thinking for block in thoughts] == [
        "Let me think about this. The user wants a directory listing.",
        "The listing is in; summarise.",
    ]
    assert {block.signature for block in thoughts} == {"c3R1Yi1zaWduYXR1cmU="}
    assert texts(reports) == ["I thought about it; now I act.", "Listing seen."]


def test_a_command_that_failed_has_its_exit_code_and_the_run_completes() -> None:
    reports = recorded("fail")
    [failed] = results(reports)
    assert (failed.exit_code, failed.error, failed.output) == (1, *["Exit code 1\nto-stdout\nto-stderr"] * 2)
    assert final_report(reports).status == "completed"


def test_an_edit_that_failed_has_changed_nothing() -> None:
    reports = recorded("fail_edit")
    [failed] = results(reports)
    assert failed.name == "Edit"
    assert failed.error is not None
    assert (failed.files, failed.exit_code) == (None, None)
    assert final_report(reports).text == "Edit failed as expected."


@pytest.mark.parametrize(
    ("scenario", "name", "why"),
    [
        ("todo", "@todo", "<tool_use_error>Error: No such tool available: @todo</tool_use_error>"),
        ("tools_restricted", "shell", "<tool_use_error>Error: No such tool available: shell</tool_use_error>"),
    ],
)
def test_a_tool_that_is_not_there_is_called_by_its_name_and_fails(scenario: str, name: str, why: str) -> None:
    reports = recorded(scenario)
    assert [(one.name, one.error) for one in results(reports)] == [(name, why)]
    assert [one.name for one in calls(reports)] == [name]
    assert final_report(reports).status == "completed"


def test_a_denial_is_noted_once_between_the_call_and_its_result() -> None:
    reports = recorded("deny")
    assert in_order(reports)[2:6] == ["ToolUseBlock", "call Bash", "denied", "failed Bash"]
    [note] = notes(reports)
    assert note.message is not None
    assert note.message.startswith("touch in '/srv/demo/work/ws-claude-deny/forbidden' needs approval.")
    assert final_report(reports).text == "It was denied; stopping."


def test_unusual_bytes_of_a_tool_are_kept_and_a_long_output_as_the_program_truncates_it() -> None:
    reports = recorded("nasty")
    first, second = results(reports)
    assert "nul:[\0] badutf8:[" in first.output
    assert "\x1b[31mRED" in first.output
    assert "u2028:[\u2028] bom:[\ufeff] emoji:😀 crlf:\r\nend" in first.output
    assert second.output.startswith("<persisted-output>\nOutput too large (195.3KB).")
    assert texts(reports) == ["Output was weird: \x1b[31mred?\x1b[0m <script>alert(1)</script> \u2028 end"]
    assert final_report(reports).usage == times(3)


def test_a_structured_answer_is_reported_as_data() -> None:
    ended = final_report(recorded("struct"))
    assert (ended.structured, ended.text) == ({"name": "stub", "count": 2}, '{"name":"stub","count":2}')


def test_a_resumed_session_reports_the_usage_of_this_run() -> None:
    reports = recorded("resume")
    ended = final_report(reports)
    assert (ended.usage, ended.cost_usd) == (times(1), pytest.approx(0.00636))
    assert spent(reports) == times(1)
    assert ended.session_id == "de4a694b-9d0e-46e1-9e75-322085bfe2b2"
    assert ended.text == "Resumed: I remember the previous turn."


# Errors.


def test_a_retry_is_noted_and_the_answer_comes_after_it() -> None:
    reports = recorded("rl_once")
    assert notes(reports) == [
        Note(
            kind="retry",
            message="rate_limit",
            code="rate_limit_error",
            status=429,
            try_=1,
            tries=11,
            retry_after=1.0,
        )
    ]
    assert final_report(reports).text == "Answer after one retry."


@pytest.mark.parametrize(
    ("scenario", "code", "retryable", "why"),
    [
        ("rl_forever", "rate_limit_error", True, "API Error: Request rejected (429)"),
        ("err529", "provider_overloaded", True, "API Error: 529 Overloaded (stub)."),
        ("err401", "authentication_error", False, "Invalid API key"),
        ("no_login", "authentication_error", False, "Not logged in"),
        ("unreachable", "provider_unreachable", True, "API Error: Connection refused"),
    ],
)
def test_a_model_that_does_not_answer_is_a_failure_and_no_answer(
    scenario: str, code: str, retryable: bool, why: str
) -> None:
    reports = recorded(scenario)
    ended = final_report(reports)
    assert ended.error is not None
    assert (ended.status, ended.text, ended.usage, ended.cost_usd) == ("failed", None, Usage(), 0.0)
    assert (ended.error.code, ended.error.retryable) == (code, retryable)
    assert ended.error.message.startswith(why)
    assert ended.error.retry_after is msgspec.UNSET
    assert synthetic(reports) == [ended.error.message]
    assert texts(reports) == []
    assert {note.code for note in notes(reports)} <= {code}


def test_each_try_that_failed_is_noted() -> None:
    assert [(note.kind, note.status, note.try_, note.tries) for note in notes(recorded("err529"))] == [
        ("retry", 529, 1, 3),
        ("retry", 529, 2, 3),
    ]
    assert [(note.code, note.status) for note in notes(recorded("unreachable"))] == [("provider_unreachable", None)]


def test_a_limit_that_is_near_is_noted_and_its_last_state_is_kept() -> None:
    reports = recorded("rl_unified_warn")
    near = [
        Limit(status="warning", current=used, reset_at="2026-11-15T02:05:14.000Z", window="five_hour")
        for used in (0.91, 0.93)
    ]
    assert notes(reports) == [Note(kind="limit", limit=limit) for limit in near]
    ended = final_report(reports)
    assert (ended.status, ended.limits) == ("completed", near[1:])
    assert in_order(reports)[2:5] == ["call Bash", "limit", "result Bash"]


def test_a_reached_limit_has_the_time_to_retry() -> None:
    reports = recorded("limit_rejected")
    [note] = notes(reports)
    assert note.limit == Limit(status="rejected", current=1.0, reset_at="2026-11-15T11:18:24.000Z", window="five_hour")
    ended = final_report(reports)
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.limits) == ("failed", "rate_limit_error", [note.limit])
    assert ended.error.retry_after == pytest.approx(3597.759)


def test_too_many_turns_are_an_error_of_their_own() -> None:
    reports = recorded("max_turns")
    ended = final_report(reports)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "max_turns_exceeded")
    assert ended.error.message == "Reached maximum number of turns (2)"
    assert (ended.usage, ended.turns) == (times(2), 3)
    assert in_order(reports).count("result Bash") == 2


def test_a_budget_that_is_spent_is_an_error_of_its_own_and_the_last_call_stays_open() -> None:
    reports = recorded("budget")
    ended = final_report(reports)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "budget_exceeded")
    assert (len(calls(reports)), len(results(reports))) == (2, 1)
    # The result itself does not count the last message here.
    assert (ended.usage, ended.cost_usd) == (small(2), 0.0016)


def test_a_stream_that_just_stops_is_a_failure_in_the_middle() -> None:
    reports = recorded("kill")
    ended = final_report(reports)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "agent_error")
    assert ended.error.message == "claude ended in the middle: killed by SIGKILL"
    assert (ended.usage, ended.cost_usd, ended.text) == (None, None, None)
    assert (len(calls(reports)), results(reports)) == (1, [])
    assert ended.session_id == "0095f507-6b63-4780-90b6-140706fbc935"


def test_an_unfinished_message_is_charged_all_the_same() -> None:
    reports = recorded("killed_typing")
    assert (texts(reports), spent(reports)) == ([], Usage(input=100, output=1))
    assert any(isinstance(report, MessageDelta) for report in reports)
    assert final_report(reports).usage == Usage(input=100, output=1)


def test_a_session_that_we_interrupted_is_cancelled_though_it_exits_with_zero() -> None:
    reports = recorded("kill_sigint")
    ended = final_report(reports)
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("cancelled", "cancelled")
    assert ended.usage == times(1)
    assert synthetic(reports) == ["[Request interrupted by user for tool use]"]
    assert results(reports)[0].error is not None


@pytest.mark.parametrize("ended", [None, AgentExit(code=0)])
def test_a_session_that_something_else_interrupted_has_failed(ended: AgentExit | None) -> None:
    last = final_report(normalize((FIXTURES / "kill_sigint.jsonl").read_bytes(), ended))
    assert last.error is not None
    assert (last.status, last.error.code, last.error.message) == ("failed", "agent_error", "claude was interrupted")


def test_a_session_that_we_ended_is_cancelled_without_a_result() -> None:
    reports = recorded("terminated")
    ended = final_report(reports)
    assert (ended.status, ended.usage, ended.cost_usd) == ("cancelled", small(1), None)
    # The shell of a command is a task of Claude Code, but not a sub-agent.
    assert agents(reports) == []
    assert [one.exit_code for one in results(reports)] == [137]


def test_a_session_that_is_not_there_fails_in_the_programs_words() -> None:
    ended = final_report(recorded("no_session"))
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "agent_error")
    assert ended.error.message.startswith("No conversation found with session ID: ")


def test_an_interrupted_answer_is_kept_and_the_message_about_it_is_synthetic() -> None:
    reports = recorded("cut_off")
    assert texts(reports) == ["first block", "recovered"]
    [nudge] = synthetic(reports)
    assert nudge.startswith("Your response above was cut off mid-stream.")
    # The input of the failed attempt is charged too.
    assert final_report(reports).usage == Usage(input=200, output=21)


# Sub-agents.


def test_a_sub_agent_is_reported_from_its_start_to_its_end() -> None:
    reports = recorded("task")
    key = "toolu_a36419399d5899a75ecfcd"
    assert agents(reports) == [
        ("began", key, MAIN_AGENT, "general-purpose", "[[agent:sub]] List the files and report."),
        ("ended", key, "completed", "Sub-agent report: one command ran."),
    ]
    assert [(one.name, one.input["command"]) for one in calls(reports, key)] == [("Bash", "echo in-subagent")]
    assert [one.output for one in results(reports, key)] == ["in-subagent"]
    assert [one.name for one in calls(reports)] == ["Agent"]
    [answer] = results(reports)
    assert answer.output.startswith("  <tools-used-before-summary>Bash</tools-used-before-summary>\n")
    ended = next(report for report in reports if isinstance(report, SubAgentEnded))
    assert ended.at == "2026-11-15T01:00:47.258Z"


def test_the_prompt_of_a_sub_agent_is_not_reported_twice() -> None:
    reports = recorded("task")
    reported = [report.payload for report in reports if isinstance(report, TranscriptItem)]
    assert [one for one in reported if isinstance(one, UserMessage)] == []


def test_the_session_has_its_own_tokens_and_the_deltas_include_those_of_sub_agents() -> None:
    reports = recorded("task")
    ended = final_report(reports)
    assert (ended.usage, ended.models) == (times(2), {OPUS: times(2)})
    assert spent(reports) == times(4)
    assert ended.cost_usd == pytest.approx(0.02544)


def test_a_sub_agent_in_the_background_ends_with_its_notice_and_not_with_its_call() -> None:
    reports = recorded("background")
    assert agents(reports) == [
        ("began", "call_0_1", MAIN_AGENT, "general-purpose", "TASK-A"),
        ("ended", "call_0_1", "completed", "Report A"),
    ]
    places = {type(report).__name__: at for at, report in enumerate(reports)}
    answered = next(
        at for at, one in enumerate(reports) if isinstance(one, TranscriptItem) and isinstance(one.payload, ToolResult)
    )
    assert answered < places["SubAgentEnded"]
    assert texts(reports, "call_0_1") == ["Report A"]


def test_results_that_were_held_back_add_up_and_the_last_is_the_answer() -> None:
    reports = recorded("background")
    ended = final_report(reports)
    assert (ended.text, ended.turns) == ("All is done.", 3)
    assert (ended.usage, spent(reports), ended.cost_usd) == (small(3), small(4), 0.0032)
    ready = [one for one in payloads(reports) if isinstance(one, AssistantMessage) and one.note is not None]
    assert len(ready) == 1


def test_a_sub_agent_that_is_sent_another_message_is_another_one() -> None:
    reports = recorded("sent_again")
    assert agents(reports) == [
        ("began", "call_0_1", MAIN_AGENT, "general-purpose", "TASK-A"),
        ("ended", "call_0_1", "completed", "First report"),
        ("began", "call_2_0", MAIN_AGENT, "general-purpose", "More, please."),
        ("ended", "call_2_0", "completed", "Second report"),
    ]
    assert texts(reports, "call_0_1") == ["First report"]
    assert texts(reports, "call_2_0") == ["Second report"]
    assert (final_report(reports).usage, spent(reports)) == (small(4), small(6))


def test_a_sub_agent_of_a_sub_agent_has_its_parent() -> None:
    reports = recorded("nested")
    assert agents(reports) == [
        ("began", "call_0_1", MAIN_AGENT, "general-purpose", "TASK-A"),
        ("began", "call_1_0", "call_0_1", "general-purpose", "TASK-B"),
        ("ended", "call_1_0", "completed", "Inner report"),
        ("ended", "call_0_1", "completed", "Outer report"),
    ]
    assert [one.name for one in calls(reports, "call_0_1")] == ["Agent"]
    assert [one.call_id for one in results(reports, "call_0_1")] == ["call_1_0"]
    assert (texts(reports, "call_1_0"), texts(reports, "call_0_1")) == (["Inner report"], ["Outer report"])


def test_a_sub_agent_that_failed_says_why_and_its_retries_are_its_own() -> None:
    reports = recorded("sub_fails")
    ended = next(report for report in reports if isinstance(report, SubAgentEnded))
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.text) == ("failed", "provider_overloaded", None)
    assert [(note.kind, note.status, note.try_) for note in notes(reports, "call_0_1")] == [
        ("retry", 529, 1),
        ("retry", 529, 2),
    ]
    assert notes(reports) == []
    last = final_report(reports)
    assert (last.status, last.text) == ("completed", "It failed.")


def test_a_sub_agent_whose_call_failed_has_no_start() -> None:
    reports = recorded("refused_agent")
    assert agents(reports) == []
    [refused] = results(reports)
    assert (refused.name, refused.error is not None) == ("Agent", True)


def test_an_older_version_shows_sub_agents_only_by_their_messages() -> None:
    reports = normalize(
        stream(
            assistant(use("Task", "t", prompt="Look.", subagent_type="Explore", model="haiku")),
            user({"type": "text", "text": "Look."}, parent_tool_use_id="t"),
            text_message("I look.", parent_tool_use_id="t", message_id="n"),
            user(
                tool_output([{"type": "text", "text": "Seen."}], "t"),
                tool_use_result={"status": "completed", "content": [{"type": "text", "text": "Seen."}]},
                timestamp="2026-11-15T01:00:47.264Z",
            ),
            result(),
        )
    )
    assert agents(reports) == [("began", "t", MAIN_AGENT, "Explore", "Look."), ("ended", "t", "completed", "Seen.")]
    assert texts(reports, "t") == ["I look."]
    started = next(report for report in reports if isinstance(report, SubAgentStarted))
    ended = next(report for report in reports if isinstance(report, SubAgentEnded))
    assert (started.model, ended.at) == ("haiku", "2026-11-15T01:00:47.264Z")
    assert [one.output for one in results(reports)] == ["Seen."]


def test_a_sub_agent_with_nothing_but_a_result_is_reported_then() -> None:
    call = assistant(use("Task", "t", prompt="Look."))
    reports = normalize(stream(call, user(tool_output("Seen.", "t")), result()))
    assert agents(reports) == [("began", "t", MAIN_AGENT, "Task", "Look."), ("ended", "t", "completed", "Seen.")]


def test_a_sub_agent_at_work_when_the_stream_ends_stays_so() -> None:
    line = text_message("I look.", parent_tool_use_id="t")
    assert agents(normalize(stream(assistant(use("Task", "t", prompt="Look.")), line))) == [
        ("began", "t", MAIN_AGENT, "Task", "Look.")
    ]


def test_a_sub_agent_that_was_stopped_is_cancelled() -> None:
    task = {"type": "system", "task_id": "a", "tool_use_id": "t"}
    reports = normalize(
        stream(
            {**task, "subtype": "task_started", "task_type": "local_agent", "subagent_type": "Plan", "prompt": "P"},
            {**task, "subtype": "task_notification", "status": "stopped", "summary": "Stopped."},
        )
    )
    assert agents(reports) == [("began", "t", MAIN_AGENT, "Plan", "P"), ("ended", "t", "cancelled", None)]


def test_a_sub_agent_that_is_moved_to_the_background_does_not_end_with_its_call() -> None:
    task = {"type": "system", "task_id": "a"}
    started = {**task, "subtype": "task_started", "tool_use_id": "t", "task_type": "local_agent", "prompt": "P"}
    moved = {**task, "subtype": "task_updated", "patch": {"is_backgrounded": True}}
    done = {**task, "subtype": "task_notification", "status": "completed", "summary": "Seen."}
    call = assistant(use("Agent", "t", prompt="P"))
    early = normalize(stream(call, started, moved, user(tool_output("moved", "t"))))
    assert agents(early) == [("began", "t", MAIN_AGENT, "Agent", "P")]
    late = normalize(stream(call, started, moved, user(tool_output("moved", "t")), done))
    assert agents(late)[1:] == [("ended", "t", "completed", "Seen.")]


def test_a_denial_inside_a_sub_agent_is_noted_there() -> None:
    started = {"type": "system", "subtype": "task_started", "task_id": "a", "tool_use_id": "t", "subagent_type": "X"}
    denied = {
        "type": "system",
        "subtype": "permission_denied",
        "tool_name": "Bash",
        "tool_use_id": "c",
        "agent_id": "a",
    }
    reports = normalize(stream(started, denied, result(permission_denials=[denied])))
    assert notes(reports) == []
    assert notes(reports, "t") == [Note(kind="denied", message="Bash was not allowed")]


def test_a_change_that_a_sub_agent_made_is_known_by_the_call_alone() -> None:
    edit = assistant(use("Edit", "e", file_path="/srv/demo/a"), use("Write", "w", file_path="/srv/demo/b"))
    answers = user(tool_output("done", "e"), tool_output("File created successfully at: /srv/demo/b", "w"))
    assert [one.files for one in results(normalize(stream(edit, answers)))] == [
        [FileChange(path="/srv/demo/a", action="modify")],
        [FileChange(path="/srv/demo/b", action="create")],
    ]


def test_a_new_file_without_a_last_line_end_says_so() -> None:
    made = {"type": "create", "filePath": "/srv/demo/a", "content": "x", "structuredPatch": [], "originalFile": None}
    data = stream(assistant(use("Write", file_path="/srv/demo/a")), user(tool_output("ok"), tool_use_result=made))
    [change] = results(normalize(data))[0].files or []
    assert (change.action, change.lines_added) == ("create", 1)
    assert change.diff == "--- /dev/null\n+++ /srv/demo/a\n@@ -0,0 +1,1 @@\n+x\n\\ No newline at end of file\n"


def test_an_unchanged_file_has_no_diff() -> None:
    same = {"type": "update", "filePath": "/srv/demo/a", "content": "x", "structuredPatch": [], "originalFile": "x"}
    data = stream(assistant(use("Write", file_path="/srv/demo/a")), user(tool_output("ok"), tool_use_result=same))
    assert results(normalize(data))[0].files == [FileChange(path="/srv/demo/a", action="modify")]


def test_a_command_in_the_background_is_no_sub_agent() -> None:
    task = {"type": "system", "task_id": "b", "tool_use_id": "c", "task_type": "local_bash"}
    done = {**task, "subtype": "task_notification", "status": "completed", "summary": "d"}
    updated = {**task, "subtype": "task_updated", "patch": {"status": "completed"}}
    reports = normalize(stream(assistant(use("Bash")), {**task, "subtype": "task_started"}, updated, done, result()))
    assert (agents(reports), final_report(reports).unparsed) == ([], 0)


# Usage and cost.


def test_streamed_messages_are_counted_once_however_often_their_usage_is_repeated() -> None:
    start = event(
        "message_start", message={"id": "m", "model": OPUS, "usage": {"input_tokens": 100, "output_tokens": 1}}
    )
    # Some versions report only the final counts of a message.
    grew = [event("message_delta", usage={"output_tokens": count}) for count in (10, 20)]
    reports = normalize(stream(init(), start, text_message("Hi."), *grew, result(usage=tokens(1))))
    assert [report.usage for report in reports if isinstance(report, UsageDelta)] == [
        Usage(input=100, output=10),
        Usage(output=10),
    ]
    assert final_report(reports).usage == small(1)


def test_without_usage_since_the_last_result_the_totals_are_subtracted() -> None:
    first = result(usage=tokens(1), total_cost_usd=0.1, modelUsage={OPUS: model_usage(1, 0.1)}, num_turns=1)
    second = result("Again.", usage=tokens(2), total_cost_usd=0.3, modelUsage={OPUS: model_usage(3, 0.3)}, num_turns=2)
    reports = normalize(stream(init(), text_message("a"), first, text_message("b"), second))
    found = [report for report in reports if isinstance(report, UsageDelta)]
    assert [(one.usage, one.model) for one in found] == [(small(1), OPUS), (small(2), OPUS)]
    assert [one.cost_usd for one in found] == pytest.approx([0.1, 0.2])
    ended = final_report(reports)
    assert (ended.text, ended.turns, ended.usage) == ("Again.", 3, small(3))
    assert ended.cost_usd == pytest.approx(0.3)


def test_a_resumed_session_that_only_reports_its_total_has_no_price() -> None:
    last = result(usage=tokens(1), total_cost_usd=0.9, modelUsage={OPUS: model_usage(9, 0.9)})
    reports = normalize(stream(init(), text_message("a"), last), resumed=True)
    assert [report for report in reports if isinstance(report, UsageDelta)] == [UsageDelta(usage=small(1), model=OPUS)]
    ended = final_report(reports)
    assert (ended.usage, ended.models, ended.cost_usd) == (small(1), {OPUS: small(1)}, None)


def test_a_second_result_of_such_a_session_does_not_make_a_price_of_a_part() -> None:
    totals = [{"total_cost_usd": 0.1 * n, "modelUsage": {OPUS: model_usage(n, 0.1 * n)}} for n in (9, 10)]
    data = stream(init(), *(result(usage=tokens(1), **total) for total in totals))
    ended = final_report(normalize(data, resumed=True))
    assert (ended.usage, ended.cost_usd) == (small(2), None)


def test_models_are_counted_separately_by_their_canonical_names() -> None:
    since = {
        f"{OPUS}[1m]": {**model_usage(2, 0.2), "canonicalModel": OPUS},
        OPUS: model_usage(1, 0.1),
        "claude-haiku-5": model_usage(1, 0.01),
    }
    reports = normalize(stream(init(), result(model_usage_since_last_result=since)))
    found = [report for report in reports if isinstance(report, UsageDelta)]
    assert [(one.usage, one.model) for one in found] == [(small(3), OPUS), (small(1), "claude-haiku-5")]
    assert [one.cost_usd for one in found] == pytest.approx([0.3, 0.01])
    assert final_report(reports).models == {OPUS: small(3), "claude-haiku-5": small(1)}


def test_a_model_under_two_names_is_not_counted_twice() -> None:
    start = event("message_start", message={"id": "m", "model": f"{OPUS}-20261101", "usage": tokens(1)})
    grew = event("message_delta", usage=tokens(1))
    last = result(usage=tokens(1), model_usage_since_last_result={OPUS: model_usage(2, 0.2)})
    reports = normalize(stream(init(), start, grew, last))
    assert [report for report in reports if isinstance(report, UsageDelta)] == [
        UsageDelta(usage=small(1), model=f"{OPUS}-20261101"),
        UsageDelta(usage=small(1)),
    ]
    ended = final_report(reports)
    assert (ended.usage, ended.models, ended.cost_usd) == (small(2), {OPUS: small(2)}, 0.2)


def test_a_result_with_less_usage_than_was_streamed_takes_nothing_back() -> None:
    start = event("message_start", message={"id": "m", "model": OPUS, "usage": tokens(1)})
    last = result(is_error=True, subtype="error_during_execution", usage={}, model_usage_since_last_result={})
    reports = normalize(stream(init(), start, event("message_delta", usage={}), last))
    assert (spent(reports), final_report(reports).usage) == (small(1), small(1))


def test_tokens_of_models_without_a_name_are_counted_too() -> None:
    start = event("message_start", message={"id": "m"})
    grew = event("message_delta", usage=tokens(1))
    reports = normalize(stream(start, grew, text_message("a", model=""), result(usage=tokens(1))))
    assert [report for report in reports if isinstance(report, UsageDelta)] == [UsageDelta(usage=small(1))]
    ended = final_report(reports)
    assert (ended.usage, ended.models) == (small(1), {})


def test_tokens_streamed_while_sub_agents_work_belong_to_the_session() -> None:
    start = event("message_start", message={"id": "m", "model": OPUS, "usage": tokens(1)})
    grew = event("message_delta", usage=tokens(1))
    helper = text_message("I look.", parent_tool_use_id="t")
    last = result(usage={}, model_usage_since_last_result={OPUS: model_usage(3), "claude-haiku-5": model_usage(1)})
    reports = normalize(stream(init(), start, grew, helper, last))
    assert spent(reports) == small(4)
    ended = final_report(reports)
    assert (ended.usage, ended.models) == (small(1), {OPUS: small(1)})


def test_thinking_is_a_part_of_the_output_tokens() -> None:
    usage = {"output_tokens": 45, "output_tokens_details": {"thinking_tokens": 12}}
    since = {OPUS: {"outputTokens": 45, "thinkingTokens": 12}}
    reports = normalize(stream(init(), result(usage=usage, model_usage_since_last_result=since)))
    assert final_report(reports).usage == Usage(output=45, reasoning=12)


# Records of Claude Code about itself.


def test_informational_messages_are_noted() -> None:
    system = {"type": "system"}
    reports = normalize(
        stream(
            init(),
            {**system, "subtype": "informational", "content": "Careful.", "level": "warning"},
            {**system, "subtype": "notification", "text": "Look.", "key": "k", "priority": "low"},
            {**system, "subtype": "model_fallback", "content": "Another model answers."},
            {**system, "subtype": "compact_boundary", "compact_metadata": {"trigger": "auto"}},
            {**system, "subtype": "hook_response", "hook_name": "Stop", "exit_code": 2, "stderr": "no"},
            {**system, "subtype": "hook_response", "hook_name": "Stop", "exit_code": 0, "output": "fine"},
            {**system, "subtype": "local_command_output", "content": "Total cost: 0"},
        )
    )
    assert [(note.kind, note.message) for note in notes(reports)] == [
        ("warning", "Careful."),
        ("warning", "Look."),
        ("warning", "Another model answers."),
        ("warning", "the conversation was compacted"),
        ("warning", "hook Stop: exit code 2"),
        ("warning", "hook Stop: exit code 0"),
    ]
    assert synthetic(reports) == ["Total cost: 0"]
    assert final_report(reports).unparsed == 0


def test_a_request_for_permission_and_its_withdrawal_are_reported_and_answered() -> None:
    asked = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {"command": "ls"}, "tool_use_id": "toolu_1"}
    request, withdrawn, _ = normalize(
        stream(
            {"type": "control_request", "request_id": "r1", "request": asked},
            {"type": "control_cancel_request", "request_id": "r1"},
        )
    )
    assert request == PermissionRequest(request_id="r1", tool="Bash", tool_input={"command": "ls"}, tool_id="toolu_1")
    assert withdrawn == PermissionWithdrawn("r1")
    assert isinstance(request, PermissionRequest)
    allowed = json.loads(answer_permission(request, None))["response"]
    assert (allowed["request_id"], allowed["response"]["behavior"]) == ("r1", "allow")
    assert allowed["response"]["updatedInput"] == {"command": "ls"}
    denied = json.loads(answer_permission(request, "denied: no"))["response"]["response"]
    assert denied == {"behavior": "deny", "message": "denied: no"}


def test_ignored_records_give_no_reports() -> None:
    records = [
        {"type": "control_request", "request": {"subtype": "mcp_message"}},
        {"type": "control_response", "response": {}},
        {"type": "tool_progress", "tool_use_id": "c", "elapsed_time_seconds": 3},
        {"type": "keep_alive"},
        {"type": "system", "subtype": "session_state_changed", "state": "idle"},
        {"type": "system", "subtype": "status", "status": "requesting"},
        {"type": "system", "subtype": "ui_invalidate"},
        event("ping"),
        event("error", error={}),
    ]
    reports = normalize(stream(*records))
    assert reports[:-1] == []
    assert final_report(reports).unparsed == 0


def test_messages_in_the_users_name_are_synthetic_unless_they_are_repeated() -> None:
    text = {"type": "text", "text": "Go on."}
    reports = normalize(
        stream(
            user(text, isSynthetic=True), user(text), user(text, isReplay=True), {**user(), "message": {"content": "x"}}
        )
    )
    assert [one.synthetic for one in payloads(reports)] == [True, True, False, True]
    assert payloads(reports)[3].blocks == [TextBlock(fidelity="agent_emitted", text="x")]


def test_a_limit_that_is_open_again_is_waited_for_no_more() -> None:
    limits = [
        {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1794708314}},
        {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed"}},
    ]
    busy = text_message("No.", timestamp="2026-11-15T01:05:28.514Z", model="<synthetic>", is_api_error_message=True)
    end = result("No.", is_error=True, api_error_status=429)
    waits = [
        final_report(normalize(stream(init(), *seen, busy, end))).error for seen in (limits[:1], limits, limits[1:])
    ]
    assert [error.retry_after if error else None for error in waits] == [3585.486, msgspec.UNSET, msgspec.UNSET]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ({"error": "billing_error"}, "invalid_request_error"),
        ({"error": "overloaded"}, "provider_overloaded"),
        ({"error": "unknown", "api_error_status": 400}, "invalid_request_error"),
        ({"error": "server_error", "api_error": "stream_idle_timeout"}, "provider_timeout"),
        ({"error": "server_error", "api_error_type": "rate_limit_error"}, "rate_limit_error"),
        ({"error": "server_error"}, "provider_error"),
        ({"error": "max_output_tokens", "api_error": "max_output_tokens"}, "agent_error"),
        ({}, "agent_error"),
    ],
)
def test_each_reason_to_stop_has_our_code(words: dict[str, Any], code: str) -> None:
    busy = text_message("No.", model="<synthetic>", is_api_error_message=True, **words)
    error = final_report(normalize(stream(init(), busy, result("No.", is_error=True)))).error
    assert error is not None
    assert (error.code, error.message) == (code, "No.")


def test_a_failure_that_was_got_over_is_not_the_end() -> None:
    busy = text_message("No.", model="<synthetic>", is_api_error_message=True, error="overloaded")
    end = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": ["one", "two", 3]}
    error = final_report(normalize(stream(init(), busy, text_message("Yes."), end))).error
    assert error is not None
    assert (error.code, error.message) == ("agent_error", "one; two")


# Ends.


def test_an_older_version_that_ends_by_too_many_turns_does_not_call_it_an_error() -> None:
    end = {"type": "result", "subtype": "error_max_turns", "is_error": False}
    ended = final_report(normalize(stream(init(), text_message("a"), end)))
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "max_turns_exceeded")


def test_a_result_that_does_not_call_itself_a_success_is_none() -> None:
    ended = final_report(normalize(stream(init(), {"type": "result", "terminal_reason": "of tomorrow"})))
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.error.message) == ("failed", "agent_error", "of tomorrow")


def test_a_stream_that_continues_after_a_result_and_stops_is_incomplete() -> None:
    ended = final_report(
        normalize(stream(init(), text_message("a"), result("a"), init(), text_message("b")), AgentExit(code=1))
    )
    assert ended.error is not None
    assert (ended.status, ended.text) == ("failed", None)
    assert ended.error.message == "claude ended in the middle: exit code 1"


def test_a_program_that_does_not_start_reports_the_end_of_stderr() -> None:
    ended = final_report(normalize(b"", AgentExit(code=1, stderr="Warning: x\nError: no such option\n\n")))
    assert ended.error is not None
    assert ended.error.message == "claude did not start: exit code 1: Error: no such option"


def test_without_an_exit_the_error_only_says_that_the_stream_ended() -> None:
    error = final_report(normalize(b"")).error
    assert error is not None
    assert error.message == "claude did not start: nothing more came"


def test_a_session_that_answered_before_we_stopped_it_has_completed() -> None:
    ended = final_report(
        normalize(stream(init(), text_message("a"), result("a")), AgentExit(signal="SIGTERM", cancelled=True))
    )
    assert (ended.status, ended.text, ended.error) == ("completed", "a", None)


def test_the_order_of_keys_does_not_matter() -> None:
    record = result("a")
    assert final_report(normalize(stream(dict(reversed(record.items()))))).text == "a"


def test_a_last_line_without_an_end_is_read() -> None:
    assert final_report(normalize(stream(init(), result("a"))[:-1])).text == "a"


# Unusual streams.


def test_blocks_that_are_not_understood_are_kept_beside_those_that_are() -> None:
    odd = {"type": "hologram", "data": [1]}
    reports = normalize(stream(assistant({"type": "text", "text": "a"}, odd), user(odd, isSynthetic=True), result()))
    assert texts(reports) == ["a"]
    assert [json.loads(block.chunk) for block in unparsed_blocks(reports)] == [odd]
    assert final_report(reports).unparsed == 2


def test_tools_that_the_provider_runs_itself_are_calls_with_results_too() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}}
    found = {
        "type": "web_search_tool_result",
        "tool_use_id": "s",
        "content": [{"type": "web_search_result", "url": "u"}],
    }
    reports = normalize(stream(assistant(search), assistant(found), result()))
    assert in_order(reports) == ["ToolUseBlock", "call web_search", "result web_search"]
    assert results(reports)[0].output == [{"type": "web_search_result", "url": "u"}]


def test_redacted_thinking_is_kept() -> None:
    reports = normalize(stream(assistant({"type": "redacted_thinking", "data": "xyz"}), result()))
    assert blocks(reports) == [ThinkingBlock(fidelity="agent_emitted", thinking="", signature="xyz")]


def test_outputs_are_kept_as_they_are_and_texts_are_joined() -> None:
    image = {"type": "image", "source": {}}
    text = {"type": "text", "text": "a"}
    call = assistant(*(use("mcp__x__y", f"c{n}") for n in range(4)))
    answers = user(
        tool_output([text, text], "c0"),
        tool_output([text, image], "c1", is_error=True),
        tool_output(None, "c2"),
        tool_output("é", "c3"),
    )
    reported = results(normalize(stream(call, answers, result())))
    assert [one.output for one in reported] == ["a\na", [text, image], "", "é"]
    assert [one.error for one in reported] == [None, "a", None, None]


def test_a_result_without_its_call_is_reported_all_the_same() -> None:
    [reported] = results(normalize(stream(user(tool_output("Exit code 1", "gone", is_error=True)), result())))
    assert (reported.name, reported.output, reported.duration_ms, reported.exit_code) == ("", "Exit code 1", None, None)


def test_messages_without_an_id_get_a_unique_one() -> None:
    nameless = {"type": "assistant", "message": {"content": [{"type": "text", "text": "a"}]}}
    reported = payloads(normalize(stream(nameless, nameless, result())))
    assert len({one.message_id for one in reported}) == 2


def test_deltas_of_tool_input_have_the_name_of_the_tool() -> None:
    start = event("message_start", message={"id": "m", "model": OPUS})
    block = event("content_block_start", index=1, content_block={"type": "tool_use", "id": "c", "name": "Bash"})
    pieces = [
        event("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": text})
        for text in ("", '{"a"', ":1}")
    ]
    thought = event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "hm"})
    signed = event("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "s"})
    typed = [one for one in normalize(stream(start, thought, signed, block, *pieces)) if isinstance(one, MessageDelta)]
    assert typed == [
        MessageDelta(message_id="m", block=0, kind="thinking", text="hm"),
        MessageDelta(message_id="m", block=1, kind="tool_input", text='{"a"', tool_name="Bash", tool_id="c"),
        MessageDelta(message_id="m", block=1, kind="tool_input", text=":1}", tool_name="Bash", tool_id="c"),
    ]


def test_deltas_of_a_message_without_a_start_are_left_to_the_complete_message() -> None:
    piece = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"})
    assert [one for one in normalize(stream(piece, result())) if isinstance(one, MessageDelta)] == []


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1]",
        b'{"type":"of tomorrow"}',
        b'{"type":"system","subtype":"of tomorrow"}',
        b'{"type":"assistant"}',
        b'{"type":"assistant","message":{"content":7}}',
        b'{"type":"assistant","message":{"content":["a"]}}',
        b'{"type":"user","message":{"content":null}}',
        b'{"type":"stream_event","event":{"type":"of tomorrow"}}',
        b'{"type":"system","subtype":"informational"}',
        b'{"type":"system","subtype":"local_command_output"}',
        b"{}",
    ],
)
def test_a_line_that_is_not_understood_is_kept_as_it_came(line: bytes) -> None:
    reports = normalize(line + b"\n" + stream(result("a")))
    assert [block.chunk.encode() for block in unparsed_blocks(reports)] == [line]
    ended = final_report(reports)
    assert (ended.unparsed, ended.status, ended.text) == (1, "completed", "a")


def test_numbers_that_cannot_be_are_not_counted() -> None:
    odd: dict[str, Any] = {"input_tokens": -5, "output_tokens": "many", "cache_read_input_tokens": True}
    last = result(usage=odd, modelUsage=[], model_usage_since_last_result={OPUS: 3}, total_cost_usd="x", num_turns="y")
    ended = final_report(normalize(stream(init(), last)))
    assert (ended.usage, ended.turns, ended.cost_usd, ended.status) == (Usage(), None, 0.0, "completed")


def test_the_memory_of_a_stream_is_bounded() -> None:
    normalizer = provider("claude-code").normalizer()
    for n in range(OPEN_BRANCHES + 10):
        normalizer.feed(stream(assistant(use("Bash", f"c{n}")), text_message("x", parent_tool_use_id=f"p{n}")))
    [first] = results(normalizer.feed(stream(user(tool_output("a", "c0")))))
    [last] = results(normalizer.feed(stream(user(tool_output("a", f"c{OPEN_BRANCHES + 9}")))))
    assert (first.name, last.name) == ("", "Bash")


KINDS = ["assistant", "user", "system", "result", "stream_event", "rate_limit_event", "tool_progress"]
KEYS = [
    *("type", "subtype", "message", "content", "id", "usage", "event", "delta", "index", "tool_use_id", "name", "text"),
    *("parent_tool_use_id", "agent_id", "task_id", "tool_use_result", "structuredPatch", "filePath", "timestamp"),
    *("modelUsage", "model_usage_since_last_result", "rate_limit_info", "resetsAt", "patch", "permission_denials"),
]
words = st.sampled_from([*KINDS, "init", "task_started", "task_notification", "text", "tool_use", "tool_result", "a"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)
records = st.builds(
    lambda kind, more: {**more, "type": kind}, st.sampled_from(KINDS), st.dictionaries(st.sampled_from(KEYS), values)
)


@given(st.lists(records, max_size=6), st.lists(st.integers(0, 400), max_size=4), st.booleans())
def test_no_input_raises(parsed_records: list[Any], cuts: list[int], cancelled: bool) -> None:
    data = stream(*parsed_records)
    normalizer = provider("claude-code").normalizer()
    reports: list[AgentReport] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        reports += normalizer.feed(data[start:end])
    reports += normalizer.finish(AgentExit(code=0, cancelled=cancelled))
    assert [isinstance(report, SessionEnded) for report in reports].index(True) == len(reports) - 1
    # All reports can be encoded.
    assert msgspec.json.encode(reports)


@given(st.binary(max_size=200))
def test_no_bytes_raise(data: bytes) -> None:
    assert isinstance(normalize(data)[-1], SessionEnded)
