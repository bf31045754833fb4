"""Normalize the output of Copilot, as recorded from the program, and start it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from shopfloor.adapters.providers import provider
from shopfloor.adapters.providers.copilot.normalizer import CopilotNormalizer
from shopfloor.adapters.providers.jsonl import final_report
from shopfloor.errors import UnsupportedOption
from shopfloor.log import (
    AssistantMessage,
    FileChange,
    Note,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    UserMessage,
)
from shopfloor.ports import (
    MAIN_AGENT,
    AgentExit,
    AgentReport,
    AgentRequest,
    MessageDelta,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
)

FIXTURES = Path(__file__).parent / "fixtures" / "copilot"
SCENARIOS = sorted(path.stem for path in FIXTURES.glob("*.jsonl"))
CANCELLED = AgentExit(signal="SIGTERM", cancelled=True)


def recorded(scenario: str) -> bytes:
    return (FIXTURES / f"{scenario}.jsonl").read_bytes()


def exit_of(scenario: str) -> AgentExit:
    stderr = FIXTURES / f"{scenario}.stderr"
    ended = json.loads((FIXTURES / f"{scenario}.exit.json").read_text())
    return AgentExit(**ended, stderr=stderr.read_text() if stderr.exists() else "")


def read(data: bytes, ended: AgentExit | None) -> list[AgentReport]:
    normalizer = CopilotNormalizer()
    return [*normalizer.feed(data), *normalizer.finish(ended)]


def reports_of(scenario: str) -> list[AgentReport]:
    return read(recorded(scenario), exit_of(scenario))


def lines(*events: dict) -> bytes:
    stamp = {"id": "e", "parentId": None, "timestamp": "2026-11-15T01:10:22.904Z"}
    return b"".join(json.dumps({**stamp, **event}).encode() + b"\n" for event in events)


def event(kind: str, agent: str | None = None, **data: object) -> dict:
    return {"type": kind, "data": data, **({"agentId": agent} if agent else {})}


def payloads(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list:
    return [report.payload for report in reports if isinstance(report, TranscriptItem) and report.agent == agent]


def blocks(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list:
    messages = [one for one in payloads(reports, agent) if isinstance(one, AssistantMessage)]
    return [block for message in messages for block in message.blocks]


def texts(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[str]:
    return [block.text for block in blocks(reports, agent) if isinstance(block, TextBlock)]


def notes(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[Note]:
    messages = [one for one in payloads(reports, agent) if isinstance(one, AssistantMessage)]
    return [message.note for message in messages if message.note is not None]


def calls(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[ToolCall]:
    return [one for one in payloads(reports, agent) if isinstance(one, ToolCall)]


def results(reports: list[AgentReport], agent: str = MAIN_AGENT) -> list[ToolResult]:
    return [one for one in payloads(reports, agent) if isinstance(one, ToolResult)]


# Properties of every recording.


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_gives_the_same_reports_however_it_is_cut(scenario: str) -> None:
    data, whole = recorded(scenario), reports_of(scenario)
    normalizer = CopilotNormalizer()
    reports = [report for at in range(len(data)) for report in normalizer.feed(data[at : at + 1])]
    assert [*reports, *normalizer.finish(exit_of(scenario))] == whole


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_is_understood_to_the_last_line_and_ends_once(scenario: str) -> None:
    reports = reports_of(scenario)
    assert final_report(reports).unparsed == 0
    assert [isinstance(report, SessionEnded) for report in reports].count(True) == 1


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_use_of_a_tool_is_a_block_and_one_call_and_at_most_one_result(scenario: str) -> None:
    reports = reports_of(scenario)
    whole = [report.payload for report in reports if isinstance(report, TranscriptItem)]
    messages = [one.blocks for one in whole if isinstance(one, AssistantMessage)]
    used = [block.tool_id for many in messages for block in many if isinstance(block, ToolUseBlock)]
    called = [one.call_id for one in whole if isinstance(one, ToolCall)]
    result_ids = [one.call_id for one in whole if isinstance(one, ToolResult)]
    assert sorted(called) == sorted(used)
    assert len(result_ids) == len([call for call in result_ids if call in called]) <= len(called)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_streamed_messages_are_reported_complete_under_the_same_id(scenario: str) -> None:
    reports = reports_of(scenario)
    whole: dict[str, str] = {}
    for report in reports:
        if isinstance(report, TranscriptItem) and isinstance(report.payload, AssistantMessage):
            for block in report.payload.blocks:
                if isinstance(block, TextBlock | ThinkingBlock):
                    messages = block.text if isinstance(block, TextBlock) else block.thinking
                    whole[report.payload.message_id or ""] = messages
    typed: dict[str, str] = {}
    for report in reports:
        if isinstance(report, MessageDelta) and report.kind != "tool_input":
            typed[report.message_id] = typed.get(report.message_id, "") + report.text
    assert typed == {key: whole.get(key) for key in typed}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_that_stops_anywhere_never_raises_and_has_an_end(scenario: str) -> None:
    data = recorded(scenario)
    for end in range(0, len(data) - 1, max(1, len(data) // 60)):
        ended = final_report(read(data[:end], None))
        assert ended.status != "completed"
        assert ended.error is not None


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_malformed_records_never_raise(scenario: str) -> None:
    chance = random.Random(scenario)
    odd = [None, 7, -1, 1.5, "x", [], {}, [[]], {"a": 1}, True]
    records = [json.loads(line) for line in recorded(scenario).split(b"\n") if line]
    for record in records:
        for place in (record, record.get("data", {})):
            if place and chance.random() < 0.3:
                place[chance.choice(sorted(place))] = chance.choice(odd)
    reports = read(b"".join(json.dumps(record).encode() + b"\n" for record in records), None)
    assert final_report(reports).status in {"completed", "failed", "cancelled"}
    assert all(msgspec.json.encode(report.payload) for report in reports if isinstance(report, TranscriptItem))


# One by one.


def test_a_text_has_its_id_model_and_time_and_is_the_answer() -> None:
    reports = reports_of("text")
    ready, prompt, message = [report for report in reports if isinstance(report, TranscriptItem)]
    assert prompt.is_prompt
    assert prompt.payload == UserMessage(
        blocks=[TextBlock(text="Please do the scripted task.", fidelity="agent_emitted")]
    )
    assert isinstance(ready.payload, AssistantMessage)
    assert ready.payload.note is not None
    assert ready.payload.note.kind == "ready"
    assert ready.payload.note.ready is not None
    assert ready.payload.note.ready.model == "stub-model"
    assert isinstance(message.payload, AssistantMessage)
    assert message.payload.message_id == "70566182-ebf2-4a7d-b053-071deef42a1f"
    assert message.payload.model == "stub-model"
    assert message.at is not None
    assert message.at.startswith("2026-11-15T01:09:59.")
    ended = final_report(reports)
    assert ended.status == "completed"
    assert (
        ended.text
        == texts(reports)[0]
        == "Hello from the stub. Second block: snowman ☃, emoji 😀, <b>html</b>, line\nbreak."
    )
    assert ended.session_id == "406c3c56-8442-4bb5-83a9-cada6a76d88b"
    assert (ended.turns, ended.usage, ended.cost_usd) == (1, None, None)


def test_a_command_is_called_once_and_gives_its_output_and_exit_code() -> None:
    reports = reports_of("bash")
    (call,), (result,) = calls(reports), results(reports)
    assert call.name == result.name == "bash"
    assert call.input["command"] == "echo hello-from-tool && pwd"
    assert result.call_id == call.call_id
    assert result.output.startswith("hello-from-tool\n/srv/demo/work/ws-copilot-bash\n")
    assert (result.exit_code, result.error) == (0, None)
    assert texts(reports) == ["I will run a command.", "The command printed hello-from-tool."]
    assert final_report(reports).turns == 2


def test_a_command_that_exits_with_1_is_no_error_of_the_tool() -> None:
    (result,) = results(reports_of("fail"))
    assert (result.exit_code, result.error) == (1, None)
    assert "to-stderr" in result.output


def test_a_tool_that_fails_gives_its_error_and_no_output() -> None:
    (result,) = results(reports_of("fail_edit"))
    assert result.error is not None
    assert "ENOENT" in result.error
    assert (result.output, result.files) == (None, None)


def test_a_tool_that_there_is_not_is_a_call_all_the_same() -> None:
    reports = reports_of("todo")
    assert [call.name for call in calls(reports)] == ["_todo"]
    assert results(reports)[0].error == "Tool '_todo' does not exist."


def test_changed_files_are_reported_with_their_diffs() -> None:
    create, view, edit = results(reports_of("files"))
    path = "/srv/demo/work/ws-copilot-files/note.txt"
    assert create.files is not None
    assert create.files == [
        FileChange(path=path, action="create", lines_added=2, lines_removed=0, diff=create.files[0].diff)
    ]
    assert view.files is None
    assert view.output == "line one\nline two\n"
    assert edit.files is not None
    assert (edit.files[0].action, edit.files[0].lines_added, edit.files[0].lines_removed) == ("modify", 1, 1)
    assert "+line 2 edited" in (edit.files[0].diff or "")


def test_parallel_calls_find_their_results() -> None:
    reports = reports_of("parallel")
    arguments = {call.call_id: call.input["command"] for call in calls(reports)}
    assert len(arguments) == 2
    assert {result.call_id for result in results(reports)} == set(arguments)
    for result in results(reports):
        assert arguments[result.call_id].split()[-1] in result.output


def test_thinking_is_reported_once_before_its_message() -> None:
    reports = reports_of("thinking")
    messages = [block for block in blocks(reports) if isinstance(block, ThinkingBlock | TextBlock)]
    assert [type(block).__name__ for block in messages] == ["ThinkingBlock", "TextBlock"] * 2
    assert isinstance(messages[0], ThinkingBlock)
    assert messages[0].thinking == "Let me think about this. The user wants a directory listing."


def test_thinking_that_was_not_streamed_is_a_block_of_its_message() -> None:
    thought = {"messageId": "m", "content": "Yes.", "model": "x", "reasoningText": "Hm.", "reasoningOpaque": "c2ln"}
    repeated = event("assistant.reasoning", reasoningId="r", content="Hm.")
    alone = event("assistant.reasoning", reasoningId="r2", content="Another.")
    reports = read(lines(event("assistant.message", **thought), repeated, alone), None)
    first, second = [one for one in payloads(reports) if isinstance(one, AssistantMessage)]
    assert first.blocks == [
        ThinkingBlock(thinking="Hm.", signature="c2ln", fidelity="agent_emitted"),
        TextBlock(text="Yes.", fidelity="agent_emitted"),
    ]
    assert second.message_id == "r2"


def test_unusual_output_is_kept() -> None:
    reports = reports_of("nasty")
    first, second = results(reports)
    assert "nul:[\x00]" in first.output
    assert "u2028:[\u2028] bom:[\ufeff]" in first.output
    assert second.output.startswith("Output too large")
    assert final_report(reports).text == "Output was weird: \x1b[31mred?\x1b[0m <script>alert(1)</script> \u2028 end"


def test_a_denied_tool_is_noted_and_its_result_has_the_reason() -> None:
    reports = reports_of("deny")
    (result,) = results(reports)
    assert result.error is not None
    assert result.error.startswith("Permission denied because no interactive user response")
    assert [(note.kind, note.message) for note in notes(reports)][1:] == [("denied", result.error)]
    assert final_report(reports).status == "completed"


def test_messages_about_tools_are_noted() -> None:
    reports = reports_of("tools_limited")
    warnings = [note.message or "" for note in notes(reports) if note.kind == "warning"]
    assert warnings[0].startswith("Disabled tools: bash, create")
    assert warnings[1] == 'Unknown tool name in the tool allowlist: "nonsense"'
    assert results(reports)[0].error == "Tool 'bash' does not exist."


def test_a_resumed_session_says_its_id_and_its_own_prompt() -> None:
    reports = reports_of("resume")
    assert final_report(reports).session_id == "d5d69f6c-df5e-4ba1-8018-1be612aaa80d"
    prompts = [report for report in reports if isinstance(report, TranscriptItem) and report.is_prompt]
    block = TextBlock(text="And now continue.", fidelity="agent_emitted")
    assert [report.payload for report in prompts] == [UserMessage(blocks=[block])]
    assert texts(reports) == ["Resumed: I remember the previous turn."]


# Failures.


def test_a_call_that_is_made_again_is_noted_as_a_retry() -> None:
    reports = reports_of("rl_once")
    retries = [note for note in notes(reports) if note.kind == "retry"]
    assert [(note.code, note.status, note.try_) for note in retries] == [("rate_limit_error", 429, 1)]
    assert retries[0].message == "This request would exceed your rate limit (stub)."
    assert final_report(reports).status == "completed"


@pytest.mark.parametrize(
    ("scenario", "code", "status", "retries", "retryable"),
    [
        ("rl_forever", "rate_limit_error", 429, 5, True),
        ("err529", "provider_overloaded", 503, 5, True),
        ("err401", "authentication_error", 401, 2, False),
        ("unreachable", "provider_unreachable", None, 5, True),
    ],
)
def test_an_unreachable_model_fails_the_session(
    scenario: str, code: str, status: int | None, retries: int, retryable: bool
) -> None:
    reports = reports_of(scenario)
    kinds = [note.kind for note in notes(reports)]
    assert kinds == ["ready", *["retry"] * retries, "error", "error"]
    assert {(note.code, note.status) for note in notes(reports)[1:]} == {(code, status)}
    ended = final_report(reports)
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error.code, ended.error.retryable) == (code, retryable)
    assert ended.error.message == notes(reports)[-1].message


def test_the_text_of_an_interrupted_call_is_reported_as_discarded() -> None:
    reports = reports_of("cut")
    assert texts(reports) == ["A long answer that will be cut off i", "The whole answer."]
    assert [(note.kind, note.message) for note in notes(reports)][1] == ("warning", "discarded")
    assert notes(reports)[2].kind == "retry"
    assert notes(reports)[2].code == "provider_unreachable"
    assert final_report(reports).text == "The whole answer."


def test_an_answer_that_copilot_discards_is_reported_with_its_thinking() -> None:
    reports = reports_of("length")
    messages = [block for block in blocks(reports) if isinstance(block, ThinkingBlock | TextBlock)]
    assert messages == [
        ThinkingBlock(thinking="How long may it be?", fidelity="agent_emitted"),
        TextBlock(text="A long answer that is too long.", fidelity="agent_emitted"),
        TextBlock(text="A short one.", fidelity="agent_emitted"),
    ]


def test_half_the_input_of_a_tool_is_kept_and_is_no_call() -> None:
    started = event("assistant.message_start", messageId="m")
    half = event("assistant.tool_call_delta", toolCallId="c", toolName="bash", inputDelta='{"comm')
    reports = read(lines(started, half), None)
    assert [report.block for report in reports if isinstance(report, MessageDelta)] == [1]
    assert blocks(reports) == [StreamBlock(chunk='{"comm', fidelity="agent_emitted")]
    assert notes(reports)[0].message == "unfinished: a call of bash"
    assert calls(reports) == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"errorType": "quota", "statusCode": 402}, "rate_limit_error"),
        ({"errorType": "authorization", "statusCode": 403}, "authentication_error"),
        ({"errorType": "context_limit"}, "invalid_request_error"),
        ({"errorType": "query", "statusCode": 500}, "provider_error"),
        ({"errorType": "query"}, "agent_error"),
        ({"errorType": "policy"}, "invalid_request_error"),
    ],
)
def test_a_session_error_has_our_code(fields: dict, code: str) -> None:
    failed = lines(event("session.error", message="no", **fields), {"type": "result", "exitCode": 1, "sessionId": "s"})
    error = final_report(read(failed, AgentExit(code=1))).error
    assert error is not None
    assert (error.code, error.message) == (code, "no")


def test_an_error_after_which_copilot_continues_is_a_warning() -> None:
    continuing = lines(
        event("session.error", errorType="hook", message="a hook failed"),
        event("session.warning", warningType="mcp", message="a server is slow"),
        {"type": "result", "exitCode": 0, "sessionId": "s"},
    )
    reports = read(continuing, AgentExit(code=0))
    assert [(note.kind, note.message) for note in notes(reports)] == [
        ("warning", "a hook failed"),
        ("warning", "a server is slow"),
    ]
    assert final_report(reports).status == "completed"


def test_a_prompt_that_a_policy_blocks_is_rejected() -> None:
    blocked = event("session.warning", warningType="policy_blocked", message="not here")
    ended = final_report(read(lines(blocked, {"type": "result", "exitCode": 1, "sessionId": "s"}), AgentExit(code=1)))
    assert ended.error is not None
    assert ended.error.code == "invalid_request_error"


def test_a_session_that_is_blocked_says_why() -> None:
    result = {"type": "result", "exitCode": 1, "sessionId": "s", "outcome": "blocked", "blocker": {"reason": "denied"}}
    error = final_report(read(lines(result), AgentExit(code=1))).error
    assert error is not None
    assert (error.code, error.message) == ("agent_error", "copilot was blocked: denied")


# Stopped in the middle.


def test_a_killed_call_stays_open_and_its_output_is_kept() -> None:
    reports = reports_of("kill")
    assert len(calls(reports)) == 1
    assert results(reports) == []
    (stream,) = [block for block in blocks(reports) if isinstance(block, StreamBlock)]
    assert (stream.chunk, stream.unparsed) == ("started\n", False)
    ended = final_report(reports)
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error.code, ended.error.message) == ("agent_error", "copilot ended in the middle: killed by SIGKILL")
    assert ended.text is None


def test_a_stream_that_we_stopped_is_cancelled() -> None:
    ended = final_report(read(recorded("kill"), CANCELLED))
    assert ended.status == "cancelled"
    assert ended.error is not None
    assert ended.error.code == "cancelled"


def test_a_file_that_stops_in_the_middle_says_so() -> None:
    error = final_report(read(recorded("kill"), None)).error
    assert error is not None
    assert error.message == "copilot ended in the middle: nothing more came"


def test_a_session_whose_launcher_alone_was_interrupted_has_completed() -> None:
    for ended in (exit_of("kill_sigint"), CANCELLED):
        assert final_report(read(recorded("kill_sigint"), ended)).text == "Slept."


@pytest.mark.parametrize("scenario", ["abort", "abort_speech"])
def test_an_interrupted_session_is_cancelled_whatever_its_exit_code_says(scenario: str) -> None:
    for ended in (exit_of(scenario), AgentExit(code=0), None):
        assert final_report(read(recorded(scenario), ended)).status == "cancelled"


def test_an_unfinished_message_is_reported_after_an_interruption() -> None:
    reports = reports_of("abort_speech")
    thought, text = [block for block in blocks(reports) if isinstance(block, ThinkingBlock | TextBlock)]
    assert isinstance(thought, ThinkingBlock)
    assert thought.thinking == "What could I say about this?"
    assert isinstance(text, TextBlock)
    assert text.text.startswith("A long story that nobody")


def test_a_session_that_has_no_credits_left_has_no_budget_left() -> None:
    over = lines(event("abort", reason="autopilot_credit_limit"), {"type": "result", "exitCode": 0, "sessionId": "s"})
    ended = final_report(read(over, AgentExit(code=0)))
    assert ended.status == "failed"
    assert ended.error is not None
    assert ended.error.code == "budget_exceeded"


def test_a_program_that_does_not_start_says_why() -> None:
    reports = reports_of("no_session")
    error = final_report(reports).error
    assert len(reports) == 1
    assert error is not None
    assert error.message.startswith("copilot did not start: exit code 1: Error: No session, task, or name matched")


def test_a_requested_call_that_never_starts_is_reported_at_the_end() -> None:
    agent_request = [{"toolCallId": "c", "name": "bash", "arguments": {"command": "ls"}}]
    reports = read(
        lines(event("assistant.message", messageId="m", content="", model="x", toolRequests=agent_request)), None
    )
    assert [(call.call_id, call.input) for call in calls(reports)] == [("c", {"command": "ls"})]


def test_a_result_of_a_call_of_an_earlier_process_is_a_result_without_a_name() -> None:
    line = lines(event("tool.execution_complete", toolCallId="c", success=True, result={"content": "x"}))
    reports = read(line, None)
    assert [(one.call_id, one.name, one.output) for one in results(reports)] == [("c", "", "x")]
    assert final_report(reports).unparsed == 0


def test_the_end_of_endless_output_is_kept() -> None:
    start = lines(event("tool.execution_start", toolCallId="c", toolName="bash", arguments={}))
    printed = lines(event("tool.shell_output", toolCallId="c", text="x" * 50_000, sequence=0))
    last = lines(event("tool.shell_output", toolCallId="c", text="the end", sequence=1))
    (block,) = blocks(read(start + printed * 20 + last, None))
    assert block.chunk.startswith("(cut) …\n")
    assert block.chunk.endswith("the end")
    assert len(block.chunk) < 300_000


# Background commands and sub-agents.


def test_a_command_in_the_background_is_read_out_in_copilots_own_call() -> None:
    reports = reports_of("async_shell")
    assert [call.name for call in calls(reports)] == ["bash", "read_bash"]
    assert results(reports)[1].output.startswith("late\n")
    messages = [one for one in payloads(reports) if isinstance(one, AssistantMessage)]
    assert [message.synthetic for message in messages if message.note is None] == [False, False, True, False]
    prompt, messages = [one for one in payloads(reports) if isinstance(one, UserMessage)]
    assert not prompt.synthetic
    assert messages.synthetic
    assert not [block for block in blocks(reports) if isinstance(block, StreamBlock)]


def test_unread_output_of_a_background_command_is_kept() -> None:
    data = recorded("async_shell")
    incomplete = data.index(b'"type":"system.notification"')
    (stream,) = [
        block
        for block in blocks(read(data[: data.rindex(b"\n", 0, incomplete)], None))
        if isinstance(block, StreamBlock)
    ]
    assert stream.chunk == "late\n"


def test_a_sub_agent_starts_with_its_task_has_its_own_messages_and_ends() -> None:
    reports = reports_of("task")
    key = "2a51237e-67d5-4a76-8f3d-eb8283684264"
    (started,) = [report for report in reports if isinstance(report, SubAgentStarted)]
    assert (started.agent, started.parent, started.name) == (key, MAIN_AGENT, "general-purpose")
    assert started.task == "[[agent:sub]] List the files and report."
    assert texts(reports, key) == ["Sub-agent working.", "Sub-agent report: one command ran."]
    assert [call.name for call in calls(reports, key)] == ["bash"]
    assert results(reports, key)[0].exit_code == 0
    assert not [one for one in payloads(reports, key) if isinstance(one, UserMessage)]
    (ended,) = [report for report in reports if isinstance(report, SubAgentEnded)]
    assert (ended.status, ended.text) == ("completed", "Sub-agent report: one command ran.")
    assert texts(reports) == ["Delegating.", "The sub-agent reported back."]
    assert {report.agent for report in reports if isinstance(report, MessageDelta)} == {MAIN_AGENT, key}


def test_a_failed_sub_agent_has_the_reason_and_the_session_continues() -> None:
    reports = reports_of("sub_fails")
    (ended,) = [report for report in reports if isinstance(report, SubAgentEnded)]
    assert ended.status == "failed"
    assert ended.error is not None
    assert (ended.error.code, ended.error.message) == ("invalid_request_error", "400 bad sub")
    assert [note.kind for note in notes(reports, ended.agent)] == ["error", "error"]
    assert [note.kind for note in notes(reports)] == ["ready"]
    assert final_report(reports).status == "completed"


def test_a_sub_agent_in_the_background_ends_when_it_is_done() -> None:
    reports = reports_of("background")
    (ended,) = [report for report in reports if isinstance(report, SubAgentEnded)]
    assert ended.text == "Sub report."
    assert [call.name for call in calls(reports)] == ["task", "read_agent"]
    assert final_report(reports).turns == 3


def test_a_sub_agent_that_gets_another_message_keeps_its_key_and_ends_once() -> None:
    reports = reports_of("asked_again")
    (started,) = [report for report in reports if isinstance(report, SubAgentStarted)]
    assert texts(reports, started.agent) == ["First report.", "Second report."]
    (agent_request,) = [one for one in payloads(reports, started.agent) if isinstance(one, UserMessage)]
    assert agent_request.synthetic
    assert agent_request.blocks == [TextBlock(text="And what of SECOND?", fidelity="agent_emitted")]
    assert [report.text for report in reports if isinstance(report, SubAgentEnded)] == ["First report."]


def test_a_sub_agent_of_a_sub_agent_has_it_as_its_parent() -> None:
    reports = read(
        lines(
            event("tool.execution_start", toolCallId="c1", toolName="task", arguments={"prompt": "one"}),
            event("subagent.started", "a", toolCallId="c1", agentName="general-purpose"),
            event("tool.execution_start", "a", toolCallId="c2", toolName="task", arguments={"prompt": "two"}),
            event("subagent.started", "b", toolCallId="c2", agentName="explore"),
            event("subagent.completed", "b", toolCallId="c2", agentName="explore", cancelled=True),
        ),
        None,
    )
    started = [report for report in reports if isinstance(report, SubAgentStarted)]
    assert [(one.agent, one.parent, one.task) for one in started] == [("a", MAIN_AGENT, "one"), ("b", "a", "two")]
    assert [report.status for report in reports if isinstance(report, SubAgentEnded)] == ["cancelled"]


# Lines that are not understood.


def test_lines_that_are_not_understood_are_kept_and_counted() -> None:
    odd = [b"no json", b'{"type":"hologram","data":{}}', b'{"type":"assistant.message","data":{"messageId":7}}', b"[1]"]
    reports = read(b"\n".join([*odd, b"", b"\xff\xfe", b'{"no":"type"}', b'{"type":"user.message","data":[]}']), None)
    unparsed = [block for block in blocks(reports) if isinstance(block, StreamBlock) and block.unparsed]
    assert [block.chunk.encode() for block in unparsed[:4]] == odd
    assert unparsed[4].raw is not None
    assert final_report(reports).unparsed == len(unparsed) == 7


def test_a_call_that_starts_twice_is_reported_once() -> None:
    start = event("tool.execution_start", toolCallId="c", toolName="bash", arguments={})
    assert len(calls(read(lines(start, start), None))) == 1


def test_thinking_that_comes_before_its_message_is_reported_once() -> None:
    reports = read(
        lines(
            event("assistant.reasoning_delta", reasoningId="r", deltaContent="Hm."),
            event("assistant.reasoning", reasoningId="r", content="Hm."),
            event("assistant.message", messageId="m", content="Yes.", model="x", reasoningText="Hm."),
        ),
        None,
    )
    assert blocks(reports) == [
        ThinkingBlock(thinking="Hm.", fidelity="agent_emitted"),
        TextBlock(text="Yes.", fidelity="agent_emitted"),
    ]


def test_an_event_of_an_unnamed_sub_agent_is_kept() -> None:
    unowned = lines(
        event("subagent.started", toolCallId="c", agentName="explore"),
        event("subagent.completed", toolCallId="c", agentName="explore"),
    )
    assert final_report(read(unowned, None)).unparsed == 2


def test_ignored_records_give_no_reports() -> None:
    quiet = lines(event("session.custom_agents_updated"), event("mcp.tools.list_changed"), event("model.call_start"))
    assert [type(report) for report in read(quiet, None)] == [SessionEnded]


def test_drafts_without_end_do_not_pile_up() -> None:
    normalizer = CopilotNormalizer()
    for number in range(3_000):
        normalizer.feed(lines(event("assistant.message_delta", messageId=f"m{number}", deltaContent="x")))
        normalizer.feed(lines(event("tool.shell_output", toolCallId=f"c{number}", text="x")))
        normalizer.feed(lines(event("assistant.turn_start", f"a{number}", turnId="0")))
    assert len(normalizer.finish(None)) < 1_500


# The launcher.


def agent_request(**changes: object) -> AgentRequest:
    arguments = {"prompt": "Do it.\n", "cwd": "/srv/demo", "session_id": "0cb916db-26aa-40f2-86b5-1ba81b225fd2"}
    return msgspec.convert({**arguments, **changes}, AgentRequest)


def argv(env: dict[str, str] | None = None, **changes: object) -> list[str]:
    return provider("copilot").launch(agent_request(**changes), env or {}).argv


def test_a_session_is_started_with_its_prompt_by_stdin_and_an_id_that_we_chose() -> None:
    launch = provider("copilot").launch(agent_request(), {})
    assert launch.argv == [
        "copilot",
        "--output-format=json",
        "--stream=on",
        "--allow-all-tools",
        "--session-id=0cb916db-26aa-40f2-86b5-1ba81b225fd2",
    ]
    assert launch.stdin == b"Do it.\n"
    assert launch.session_id == "0cb916db-26aa-40f2-86b5-1ba81b225fd2"
    assert (launch.access_mode, launch.env) == ("subscription", {})


def test_a_resumed_session_keeps_its_id() -> None:
    launch = provider("copilot").launch(agent_request(resume="old-one", model="gpt-5.4"), {})
    assert launch.argv[-2:] == ["--resume=old-one", "--model=gpt-5.4"]
    assert launch.session_id == "old-one"
    assert not [word for word in launch.argv if word.startswith("--session-id")]


def test_the_system_prompt_goes_before_the_prompt() -> None:
    assert provider("copilot").launch(agent_request(system_prompt="Be short."), {}).stdin == b"Be short.\n\nDo it.\n"


def test_only_the_tools_that_were_named_are_there() -> None:
    assert "--available-tools=view,bash" in argv(tools=["view", "bash"])
    # An empty list would mean all tools.
    assert "--available-tools=none" in argv(tools=[])


def test_a_read_only_run_has_no_tool_that_writes() -> None:
    looking = argv(read_only=True, env={"SHOPFLOOR_AGENT_UNRESTRICTED": "1"})
    assert {"--available-tools=view,grep,glob", "--deny-tool=shell", "--deny-tool=write"} <= set(looking)
    assert "--allow-all" not in looking
    assert "--available-tools=view" in argv(read_only=True, tools=["view", "bash"])
    assert "--available-tools=none" in argv(read_only=True, tools=["bash"])


def test_without_restrictions_it_may_leave_its_folder() -> None:
    assert "--allow-all" in argv(env={"SHOPFLOOR_AGENT_UNRESTRICTED": "1"})


def test_another_model_provider_is_an_api() -> None:
    env = {"COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1:11434/v1"}
    assert provider("copilot").launch(agent_request(), env).access_mode == "api"


@pytest.mark.parametrize("limit", [{"max_turns": 3}, {"max_budget_usd": 1.0}, {"prompt": " \n"}])
def test_unsupported_limits_are_refused(limit: dict) -> None:
    with pytest.raises(UnsupportedOption, match=r"copilot (does not support|cannot start)"):
        provider("copilot").launch(agent_request(**limit), {})


def test_it_logs_in_by_a_provider_a_token_or_a_user(tmp_path: Path) -> None:
    copilot = provider("copilot")
    assert copilot.login({}, tmp_path) is None
    assert copilot.login({"COPILOT_PROVIDER_BASE_URL": "http://127.0.0.1", "GH_TOKEN": "gho_x"}, tmp_path) == (
        "COPILOT_PROVIDER_BASE_URL"
    )
    assert copilot.login({"GITHUB_TOKEN": "gho_x", "GH_TOKEN": " "}, tmp_path) == "GITHUB_TOKEN"
    assert copilot.login({"GH_TOKEN": "ghp_classic"}, tmp_path) is None
    file = tmp_path / ".copilot" / "config.json"
    file.parent.mkdir()
    file.write_text('// This file is managed automatically.\n{\n  "firstLaunchAt": "2026-11-15T09:35:25.448Z"\n}\n')
    assert copilot.login({}, tmp_path) is None
    file.write_text('// Managed.\n{"lastLoggedInUser": {"host": "https://github.com", "login": "mona"}}\n')
    assert copilot.login({}, tmp_path) == str(file)
    assert copilot.login({"COPILOT_HOME": str(tmp_path / "elsewhere")}, tmp_path) is None


def test_its_capabilities() -> None:
    can = provider("copilot").capabilities
    assert (can.resume, can.tool_limits, can.read_only, can.deltas, can.thinking, can.sub_agents) == (True,) * 6
    assert (can.usage, can.cost, can.max_turns, can.max_budget) == (False,) * 4
