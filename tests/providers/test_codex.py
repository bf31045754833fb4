"""Normalize the output of Codex: recordings of the program, and unusual streams."""

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
from shopfloor.engine.agents.transcriber import resolve_outcome
from shopfloor.limits import OPEN_BRANCHES
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
    Usage,
)
from shopfloor.ports import (
    MAIN_AGENT,
    AgentExit,
    AgentReport,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
    UsageDelta,
)
from shopfloor.views import add_usage

FIXTURES = Path(__file__).parent / "fixtures" / "codex"
SCENARIOS = sorted(path.stem for path in FIXTURES.glob("*.jsonl"))
ONE_CALL = Usage(input=400, output=45, cache_read=800, reasoning=12)
TWO_CALLS = Usage(input=800, output=90, cache_read=1600, reasoning=24)


def exit_of(scenario: str) -> AgentExit:
    stderr = FIXTURES / f"{scenario}.stderr"
    ended = msgspec.json.decode((FIXTURES / f"{scenario}.exit.json").read_bytes())
    return AgentExit(**ended, stderr=stderr.read_text() if stderr.exists() else "")


def normalize(data: bytes, ended: AgentExit | None = None, *, resumed: bool = False) -> list[AgentReport]:
    normalizer = provider("codex").normalizer(resumed=resumed)
    return [*normalizer.feed(data), *normalizer.finish(ended)]


def recorded(scenario: str) -> list[AgentReport]:
    data = (FIXTURES / f"{scenario}.jsonl").read_bytes()
    return normalize(data, exit_of(scenario), resumed=scenario == "resume")


def stream(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def started(thread: str = "t") -> list[object]:
    return [{"type": "thread.started", "thread_id": thread}, {"type": "turn.started"}]


def item(moment: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{moment}", "item": fields}


def message(n: int, text: str) -> dict[str, Any]:
    return item("completed", id=f"item_{n}", type="agent_message", text=text)


def retry(n: int, reason: str = "stream disconnected before completion: stream closed") -> dict[str, Any]:
    return {"type": "error", "message": f"Reconnecting... {n}/5 ({reason})"}


def completed(input_tokens: int = 0, **more: int) -> dict[str, Any]:
    return {"type": "turn.completed", "usage": {"input_tokens": input_tokens, **more}}


def payloads(reports: list[AgentReport]) -> list[Any]:
    return [report.payload for report in reports if isinstance(report, TranscriptItem)]


def texts(reports: list[AgentReport]) -> list[str]:
    message_text = [block for one in payloads(reports) if isinstance(one, AssistantMessage) for block in one.blocks]
    return [block.text for block in message_text if isinstance(block, TextBlock)]


def notes(reports: list[AgentReport]) -> list[Note]:
    return [one.note for one in payloads(reports) if isinstance(one, AssistantMessage) and one.note is not None]


def calls(reports: list[AgentReport]) -> list[ToolCall]:
    return [one for one in payloads(reports) if isinstance(one, ToolCall)]


def results(reports: list[AgentReport]) -> list[ToolResult]:
    return [one for one in payloads(reports) if isinstance(one, ToolResult)]


def unparsed_chunks(reports: list[AgentReport]) -> list[str]:
    message_text = [block for one in payloads(reports) if isinstance(one, AssistantMessage) for block in one.blocks]
    return [block.chunk for block in message_text if isinstance(block, StreamBlock)]


def outline(reports: list[AgentReport]) -> list[str]:
    """Return each report as one line, in order. A call and the block that requests it are one line."""
    lines: list[str] = []
    for one in payloads(reports):
        match one:
            case AssistantMessage(note=Note(kind=kind)):
                lines.append(f"note {kind}")
            case AssistantMessage(blocks=[TextBlock(text=text)]):
                lines.append(f"text {text}")
            case AssistantMessage(blocks=[ThinkingBlock(thinking=thought)]):
                lines.append(f"thinking {thought}")
            case AssistantMessage(blocks=[ToolUseBlock(tool_id=used)]):
                lines.append(f"call {number(used)}")
            case ToolCall(call_id=call_id, name=name):
                assert lines[-1] == f"call {number(call_id)}"
                lines[-1] += f" {name}"
            case ToolResult(call_id=call_id, name=name, error=error):
                lines.append(f"{'failure' if error else 'result'} {number(call_id)} {name}")
            case _:
                lines.append(f"other {one}")
    return lines


def number(call_id: str) -> str:
    return call_id.rpartition("_")[2]


def ended_well(reports: list[AgentReport], *, text: str, usage: Usage | None) -> SessionEnded:
    ended = final_report(reports)
    assert (ended.status, ended.text, ended.error, ended.unparsed) == ("completed", text, None, 0)
    assert ended.usage == usage
    assert [spent.usage for spent in reports if isinstance(spent, UsageDelta)] == ([usage] if usage else [])
    return ended


def failed(reports: list[AgentReport]) -> tuple[str, bool]:
    ended = final_report(reports)
    assert (ended.status, ended.text) == ("failed", None)
    assert ended.error is not None
    return ended.error.code, ended.error.retryable


# The recordings.


def test_every_text_message_is_reported_and_the_last_is_the_answer() -> None:
    reports = recorded("text")
    second = "Second block: snowman ☃, emoji 😀, <b>html</b>, line\nbreak."
    assert outline(reports) == ["note ready", "text Hello from the stub. ", f"text {second}"]
    ended = ended_well(reports, text=second, usage=ONE_CALL)
    assert ended.session_id == "01a1dcbb-58e6-71b3-a27f-3353f2d5de6a"
    assert (ended.models, ended.cost_usd, ended.turns) == ({}, None, None)


def test_the_thread_is_the_session_and_every_message_says_so() -> None:
    ready, first, second, *_ = payloads(recorded("text"))
    thread = "01a1dcbb-58e6-71b3-a27f-3353f2d5de6a"
    assert ready.note.ready.session_id == thread
    assert [one.session_id for one in (ready, first, second)] == [thread] * 3
    assert [first.message_id, second.message_id] == [f"{thread}:item_0", f"{thread}:item_1"]
    assert first.blocks[0].fidelity == "agent_emitted"


def test_a_command_is_reported_when_it_starts_and_its_result_when_it_ends() -> None:
    reports = recorded("bash")
    assert outline(reports) == [
        "note ready",
        "text I will run a command.",
        "call 1 command_execution",
        "result 1 command_execution",
        "text The command printed hello-from-tool.",
    ]
    call, result = calls(reports)[0], results(reports)[0]
    assert (call.input, call.output) == ({"command": "/bin/bash -lc 'echo hello-from-tool && pwd'"}, None)
    assert (result.input, result.output) == (None, "hello-from-tool\n/srv/demo/work/ws-codex-bash\n")
    assert (result.exit_code, result.error, result.call_id) == (0, None, call.call_id)
    assert {call.fidelity, result.fidelity} == {"agent_emitted"}
    ended_well(reports, text="The command printed hello-from-tool.", usage=TWO_CALLS)


def test_a_use_of_a_tool_is_a_block_and_a_call_with_the_same_id() -> None:
    reported = payloads(recorded("bash"))
    block, call = reported[2].blocks[0], reported[3]
    assert (block.tool_id, block.tool_name, block.tool_input) == (call.call_id, call.name, call.input)


def test_a_command_that_the_sandbox_stops_has_failed() -> None:
    reports = recorded("deny_readonly")
    result = results(reports)[0]
    message_text = "touch: cannot touch '/srv/demo/work/ws-codex-deny_readonly/forbidden': Read-only file system"
    assert (result.exit_code, result.output, result.error) == (1, message_text + "\n", f"exit code 1\n{message_text}")
    ended_well(reports, text="It was denied; stopping.", usage=TWO_CALLS)


def test_a_failed_command_has_its_output_and_exit_code_and_the_run_continues() -> None:
    reports = recorded("fail")
    assert outline(reports)[1:3] == ["call 0 command_execution", "failure 0 command_execution"]
    result = results(reports)[0]
    assert (result.exit_code, result.output) == (1, "to-stdout\nto-stderr\n")
    assert result.error == "exit code 1\nto-stdout\nto-stderr"
    ended_well(reports, text="The command failed with exit code 1.", usage=TWO_CALLS)


def test_a_patch_that_was_refused_is_not_in_the_stream_and_nothing_is_made_up() -> None:
    reports = recorded("fail_edit")
    assert outline(reports) == ["note ready", "text Edit failed as expected."]
    ended_well(reports, text="Edit failed as expected.", usage=TWO_CALLS)


def test_file_changes_are_reported_with_their_files() -> None:
    reports = recorded("files")
    assert outline(reports)[2:] == [
        "call 1 file_change",
        "result 1 file_change",
        "call 2 command_execution",
        "result 2 command_execution",
        "text Editing it.",
        "call 4 file_change",
        "result 4 file_change",
        "text File written and edited.",
    ]
    note = "/srv/demo/work/ws-codex-files/note.txt"
    made, read, changed = results(reports)
    assert made.files == [FileChange(path=note, action="create")]
    assert (read.files, read.output) == (None, "line one\nline two\n")
    assert changed.files == [FileChange(path=note, action="modify")]
    assert calls(reports)[2].input == {"changes": [{"path": note, "kind": "update"}]}
    ended_well(
        reports, text="File written and edited.", usage=Usage(input=1600, output=180, cache_read=3200, reasoning=48)
    )


def test_parallel_calls_are_reported_in_the_order_in_which_they_ran() -> None:
    reports = recorded("parallel")
    assert [result.output for result in results(reports)] == ["second\n", "first\nfirst-end\n"]
    assert outline(reports)[2:6] == [
        "call 1 command_execution",
        "result 1 command_execution",
        "call 2 command_execution",
        "result 2 command_execution",
    ]
    ended_well(reports, text="Both ran.", usage=TWO_CALLS)


def test_thinking_is_reported_as_thinking() -> None:
    reports = recorded("thinking")
    assert outline(reports) == [
        "note ready",
        "thinking **Stub reasoning**\n\nLet me think about this. The user wants a directory listing.",
        "text I thought about it; now I act.",
        "call 2 command_execution",
        "result 2 command_execution",
        "thinking **Stub reasoning**\n\nThe listing is in; summarise.",
        "text Listing seen.",
    ]
    ended_well(reports, text="Listing seen.", usage=TWO_CALLS)


def test_a_todo_list_is_a_call_whose_result_comes_at_the_end_of_the_turn() -> None:
    reports = recorded("todo")
    assert outline(reports) == ["note ready", "call 0 todo_list", "text Plan recorded.", "result 0 todo_list"]
    todo = {"items": [{"text": "step 1", "completed": False}, {"text": "step 2", "completed": False}]}
    assert calls(reports)[0].input == results(reports)[0].output == todo
    ended_well(reports, text="Plan recorded.", usage=TWO_CALLS)


def test_unusual_characters_and_a_very_long_line_are_kept() -> None:
    reports = recorded("nasty")
    odd, long = results(reports)
    assert odd.output == (
        "nul:[\0] badutf8:[\ufffd\ufffd\ufffd\ufffd] trunc:[\ufffd] ansi:\x1b[31mRED\x1b[0m\x1b[2K\r bell:\x07 "
        'html:<script>alert("x")</script>&amp; u2028:[\u2028] bom:[\ufeff] emoji:😀 crlf:\r\nend\n'
    )
    assert long.output == "L" * 200_000 + "\n"
    assert unparsed_chunks(reports) == []
    text = "Output was weird: \x1b[31mred?\x1b[0m <script>alert(1)</script> \u2028 end"
    ended_well(reports, text=text, usage=Usage(input=1200, output=135, cache_read=2400, reasoning=36))


def test_a_retry_is_a_note_with_its_number_and_status() -> None:
    reports = recorded("rl_once")
    assert outline(reports) == ["note ready", "note retry", "text Answer after one retry."]
    note = notes(reports)[1]
    assert (note.try_, note.tries, note.status, note.code) == (1, 6, 429, "rate_limit_error")
    assert note.message == "Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)"
    ended_well(reports, text="Answer after one retry.", usage=ONE_CALL)


@pytest.mark.parametrize(
    ("scenario", "status", "code", "retryable"),
    [
        ("rl_forever", 429, "rate_limit_error", True),
        ("err401", 401, "authentication_error", False),
        ("err529", 503, "provider_overloaded", True),
    ],
)
def test_a_call_that_fails_for_good_says_why(scenario: str, status: int, code: str, retryable: bool) -> None:
    reports = recorded(scenario)
    assert outline(reports) == ["note ready", *["note retry"] * 5, "note error"]
    assert [(note.try_, note.status, note.code) for note in notes(reports)[1:]] == [
        *[(n, status, code) for n in range(1, 6)],
        (None, status, code),
    ]
    assert failed(reports) == (code, retryable)
    ended = final_report(reports)
    assert ended.usage is None
    assert ended.error is not None
    assert str(status) in ended.error.message


def test_a_process_that_is_killed_leaves_its_call_open_and_has_failed_in_the_middle() -> None:
    reports = recorded("kill")
    assert outline(reports) == ["note ready", "text Sleeping for a while.", "call 1 command_execution"]
    assert failed(reports) == ("agent_error", False)
    ended = final_report(reports)
    assert ended.error is not None
    assert ended.error.message == "codex ended in the middle: killed by SIGKILL"
    assert ended.session_id == "01a1dcbc-552b-7d62-8f41-30ec49c497ff"


def test_a_process_that_we_stopped_is_cancelled() -> None:
    reports = recorded("kill_sigint")
    assert outline(reports) == ["note ready", "text Sleeping for a while.", "call 1 command_execution"]
    ended = final_report(reports)
    assert (ended.status, ended.text, ended.usage) == ("cancelled", None, None)
    assert ended.error is not None
    assert ended.error.code == "cancelled"


def test_a_call_of_an_unknown_tool_is_not_in_the_stream() -> None:
    reports = recorded("task")
    assert outline(reports) == ["note ready", "text Delegating.", "text The sub-agent reported back."]
    ended_well(reports, text="The sub-agent reported back.", usage=TWO_CALLS)


def test_a_sub_agent_starts_when_its_call_completes() -> None:
    reports = recorded("task_v1")
    assert outline(reports) == [
        "note ready",
        "note warning",
        "text Delegating.",
        "call 2 spawn_agent",
        "result 2 spawn_agent",
        "text The sub-agent reported back.",
    ]
    child, task = "01a1dcc1-8e3e-7473-a3da-ef3388468a01", "[[agent:sub]] List the files and report."
    started_item = [report for report in reports if isinstance(report, SubAgentStarted)]
    assert started_item == [SubAgentStarted(agent=child, parent=MAIN_AGENT, name="subagent", task=task)]
    assert not [report for report in reports if isinstance(report, SubAgentEnded)]
    assert calls(reports)[0].input == {"prompt": task}
    assert results(reports)[0].output["receiver_thread_ids"] == [child]
    assert (notes(reports)[1].message or "").startswith("Model metadata for `gpt-5.1-codex` not found.")
    ended_well(reports, text="The sub-agent reported back.", usage=TWO_CALLS)


def test_a_resumed_thread_reports_a_total_without_the_share_of_this_run() -> None:
    reports = recorded("resume")
    assert outline(reports) == ["note ready", "text Resumed: I remember the previous turn."]
    ended = ended_well(reports, text="Resumed: I remember the previous turn.", usage=None)
    assert ended.session_id == "01a1dcba-f63f-7e13-a5b0-3ded4b647be5"


# Further recordings.


def test_each_update_of_a_list_is_reported_once() -> None:
    reports = recorded("todo_updates")
    assert outline(reports) == [
        "note ready",
        "text Planning.",
        "call 1 todo_list",
        "call 1.1 todo_list",
        "result 1.1 todo_list",
        "call 1.2 todo_list",
        "result 1.2 todo_list",
        "text Planned.",
        "result 1 todo_list",
    ]
    done = [[todo["completed"] for todo in call.input["items"]] for call in calls(reports)]
    assert done == [[False, False], [True, False], [True, True]]
    assert [todo["completed"] for todo in results(reports)[-1].output["items"]] == [True, True]


def test_a_search_of_the_web_has_two_ids_and_is_one_call() -> None:
    reports = recorded("web_search")
    search = {"query": "shop floor", "action": {"type": "search", "query": "shop floor"}}
    assert [call.input for call in calls(reports)] == [search]
    assert [(result.call_id, result.output) for result in results(reports)] == [(calls(reports)[0].call_id, search)]
    ended_well(reports, text="Searched.", usage=ONE_CALL)


def test_a_tool_of_an_mcp_server_has_the_name_that_the_model_uses() -> None:
    reports = recorded("mcp")
    assert outline(reports)[2:-1] == [
        "call 1 mcp__demo__add",
        "result 1 mcp__demo__add",
        "call 2 mcp__demo__boom",
        "failure 2 mcp__demo__boom",
    ]
    good, bad = results(reports)
    assert calls(reports)[0].input == {"a": 1, "b": 2}
    assert good.output == {"content": [{"type": "text", "text": "3"}], "structured_content": {"sum": 3}}
    assert bad.error == "it broke"


def test_a_sub_agent_ends_once_with_its_answer() -> None:
    reports = recorded("agents")
    child = "01a1de9c-bfc7-79a1-8413-edb90f528ced"
    about = [report for report in reports if isinstance(report, SubAgentStarted | SubAgentEnded)]
    assert about == [
        SubAgentStarted(agent=child, name="subagent", task="SUBTASK list the files"),
        SubAgentEnded(agent=child, status="completed", text="Sub says: three files."),
    ]
    assert [call.name for call in calls(reports)] == ["spawn_agent", "wait", "close_agent"]
    assert [result.error for result in results(reports)] == [None, None, None]


def test_a_failed_sub_agent_has_its_reason_and_an_unknown_one_is_not_reported() -> None:
    reports = recorded("agents_failed")
    first, second = "01a1de9c-c589-7591-8f0b-e7a723f888bf", "01a1de9c-c5b6-7f01-85bf-db73af9d3588"
    assert [report.agent for report in reports if isinstance(report, SubAgentStarted)] == [first, second]
    ends = [report for report in reports if isinstance(report, SubAgentEnded)]
    assert [(end.agent, end.status) for end in ends] == [(first, "failed")]
    assert ends[0].error is not None
    assert (ends[0].error.code, ends[0].error.message) == ("invalid_request_error", "bad request (stub)")
    assert outline(reports)[-3:-1] == ["call 5 send_input", "failure 5 send_input"]
    assert results(reports)[-1].error == "not_found"


def test_a_sub_agent_that_is_closed_at_work_was_cancelled() -> None:
    reports = recorded("agents_closed")
    ends = [report for report in reports if isinstance(report, SubAgentEnded)]
    assert [(end.status, end.error) for end in ends] == [("cancelled", None)]


def test_messages_that_a_retry_repeats_are_reported_once() -> None:
    reports = recorded("midstream")
    assert outline(reports) == [
        "note ready",
        "thinking **Plan**",
        "text First, the beginning.",
        "note retry",
        "note retry",
        "note retry",
        "text And the end.",
    ]
    assert [note.status for note in notes(reports)[1:]] == [None, 429, None]
    ended_well(reports, text="And the end.", usage=ONE_CALL)


def test_a_retry_after_a_tool_is_reported_as_it_came() -> None:
    reports = recorded("midstream_tool")
    assert outline(reports)[1:] == [
        "text Looking.",
        "call 1 command_execution",
        "result 1 command_execution",
        "note retry",
        "text Looking.",
        "call 3 command_execution",
        "result 3 command_execution",
        "text Looked.",
    ]


def test_a_usage_limit_is_a_rate_limit() -> None:
    reports = recorded("usage_limit")
    assert outline(reports) == ["note ready", "note error"]
    assert failed(reports) == ("rate_limit_error", True)


# Chunks of bytes.


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_chunk_boundaries_make_no_difference(scenario: str) -> None:
    data = (FIXTURES / f"{scenario}.jsonl").read_bytes()
    normalizer = provider("codex").normalizer(resumed=scenario == "resume")
    reports: list[AgentReport] = []
    for at in range(len(data)):
        reports += normalizer.feed(data[at : at + 1])
    assert [*reports, *normalizer.finish(exit_of(scenario))] == recorded(scenario)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_is_understood_to_the_last_line(scenario: str) -> None:
    reports = recorded(scenario)
    assert final_report(reports).unparsed == 0
    assert len([report for report in reports if isinstance(report, SessionEnded)]) == 1
    ids = [call.call_id for call in calls(reports)]
    assert len(set(ids)) == len(ids)
    assert {result.call_id for result in results(reports)} <= set(ids)


@pytest.mark.parametrize("scenario", ["bash", "rl_forever", "todo", "agents"])
def test_a_stream_that_stops_anywhere_never_ends_well_before_its_last_record(scenario: str) -> None:
    lines = (FIXTURES / f"{scenario}.jsonl").read_bytes().splitlines(keepends=True)
    for count in range(len(lines)):
        ended = final_report(normalize(b"".join(lines[:count])))
        assert (ended.status, ended.text) == ("failed", None)


# Retries.


def test_a_new_message_after_a_retry_is_reported() -> None:
    reports = normalize(stream(*started(), message(0, "One."), retry(1), message(1, "Other."), completed(5)))
    assert texts(reports) == ["One.", "Other."]


def test_the_same_text_without_a_retry_is_reported_every_time() -> None:
    reports = normalize(stream(*started(), message(0, "Again."), message(1, "Again."), completed(5)))
    assert texts(reports) == ["Again.", "Again."]


def test_only_earlier_messages_are_repeats_and_only_once_per_retry() -> None:
    records = [message(0, "Again."), retry(1), message(1, "Again."), message(2, "Again."), completed(5)]
    assert texts(normalize(stream(*started(), *records))) == ["Again.", "Again."]


def test_a_retry_that_takes_another_turn_is_what_the_next_one_repeats() -> None:
    message_text = [message(0, "a"), message(1, "b"), retry(1), message(2, "a"), message(3, "c")]
    again = [retry(2), message(4, "a"), message(5, "c"), message(6, "d"), completed(5)]
    assert texts(normalize(stream(*started(), *message_text, *again))) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "reason",
    [
        "exceeded retry limit, last status: 429 Too Many Requests",
        "Connection failed: error sending request",
        "We’re currently experiencing high demand, which may cause temporary errors.",  # noqa: RUF001
    ],
)
def test_a_rejected_call_sent_no_messages_so_none_is_a_repeat(reason: str) -> None:
    records = [message(0, "Checking."), retry(1, reason), message(1, "Checking."), completed(5)]
    assert texts(normalize(stream(*started(), *records))) == ["Checking.", "Checking."]


def test_the_words_of_an_earlier_turn_are_no_repeat() -> None:
    first = [*started(), message(0, "Done."), completed(5)]
    second = [{"type": "turn.started"}, retry(1), message(1, "Done."), completed(9)]
    assert texts(normalize(stream(*first, *second))) == ["Done.", "Done."]


def test_the_answer_is_reported_even_if_its_last_message_is_a_repeat() -> None:
    reports = normalize(stream(*started(), message(0, "All."), retry(1), message(1, "All."), completed(5)))
    assert (texts(reports), final_report(reports).text) == (["All."], "All.")


def test_a_retry_without_an_end_has_no_number() -> None:
    waits = "Reconnecting... waiting for network (Connection failed: error sending request)"
    note = notes(normalize(stream(*started(), {"type": "error", "message": waits})))[1]
    assert (note.kind, note.try_, note.tries, note.code) == ("retry", None, None, "provider_unreachable")


def test_a_retry_without_a_reason_has_no_code() -> None:
    note = notes(normalize(stream({"type": "error", "message": "Reconnecting... 2/5"})))[0]
    assert (note.kind, note.try_, note.tries, note.code) == ("retry", 2, 6, None)


def test_a_retry_has_its_delay_if_that_is_known() -> None:
    reason = "rate limit exceeded: Rate limit reached for gpt-5.5 on tokens per min. Please try again in 1.5s."
    note = notes(normalize(stream(retry(1, reason))))[0]
    assert (note.code, note.retry_after) == ("rate_limit_error", 1.5)


# Error messages.


@pytest.mark.parametrize(
    ("message_text", "code"),
    [
        ("unexpected status 403 Forbidden: forbidden, url: http://localhost/v1/responses", "authentication_error"),
        ("unexpected status 404 Not Found: The model does not exist", "invalid_request_error"),
        ("unexpected status 408 Request Timeout: timeout", "provider_timeout"),
        ("unexpected status 502 Bad Gateway: bad gateway", "provider_error"),
        ("We’re currently experiencing high demand, which may cause temporary errors.", "provider_error"),  # noqa: RUF001
        ("Selected model is at capacity. Please try a different model.", "provider_overloaded"),
        ("Quota exceeded. Check your plan and billing details.", "rate_limit_error"),
        ("You've hit your usage limit. Upgrade to Plus to continue using Codex.", "rate_limit_error"),
        ("Your workspace is out of credits. Add credits to continue.", "rate_limit_error"),
        ("rate limit exceeded: slow down", "rate_limit_error"),
        ("To use Codex with your ChatGPT plan, upgrade to Plus: https://example.com.", "authentication_error"),
        ("Your access token could not be refreshed. Please log out and sign in again.", "authentication_error"),
        ("Missing environment variable: `ACME_KEY`.", "authentication_error"),
        ("Codex ran out of room in the model's context window. Start a new thread.", "invalid_request_error"),
        ("Invalid prompt: policy", "invalid_request_error"),
        ("shared rollout token budget exhausted", "budget_exceeded"),
        ("stream disconnected before completion: idle timeout waiting for SSE", "provider_timeout"),
        ("stream disconnected before completion: stream closed before response.completed", "provider_error"),
        ("Connection failed: error sending request", "provider_unreachable"),
        ("an unknown message", "agent_error"),
        ("", "agent_error"),
    ],
)
def test_a_failed_turn_has_a_code_by_its_message(message_text: str, code: str) -> None:
    reports = normalize(
        stream(*started(), {"type": "turn.failed", "error": {"message": message_text}}), AgentExit(code=1)
    )
    assert failed(reports)[0] == code
    ended = final_report(reports)
    assert ended.error is not None
    assert ended.error.message == message_text


def test_the_body_of_a_refusal_is_read_for_its_message() -> None:
    body = json.dumps({"error": {"message": "Unsupported value: model", "type": "invalid_request_error"}})
    ended = final_report(normalize(stream(*started(), {"type": "turn.failed", "error": {"message": body}})))
    assert ended.error is not None
    assert (ended.error.code, ended.error.message) == ("invalid_request_error", "Unsupported value: model")


def test_a_failure_is_noted_once() -> None:
    why = {"message": "Quota exceeded."}
    reports = normalize(stream(*started(), {"type": "error", **why}, {"type": "turn.failed", "error": why}))
    assert [note.kind for note in notes(reports)] == ["ready", "error"]
    alone = normalize(stream(*started(), {"type": "turn.failed", "error": why}))
    assert [(note.kind, note.message) for note in notes(alone)[1:]] == [("error", "Quota exceeded.")]


def test_an_error_without_an_end_of_the_turn_is_why_it_failed() -> None:
    reports = normalize(stream(*started(), {"type": "error", "message": "Quota exceeded."}), AgentExit(code=1))
    assert failed(reports) == ("rate_limit_error", True)


# Outcomes.


def test_a_turn_that_completed_has_failed_where_the_program_says_so() -> None:
    data = stream(*started(), message(0, "Done."), completed(5))
    exit_ = AgentExit(code=1, stderr="noise\nError: not supported in exec mode\nmore noise\n")
    ended = resolve_outcome(final_report(normalize(data, exit_)), exit_)
    assert (ended.status, ended.text) == ("failed", None)
    assert ended.error is not None
    assert ended.error.code == "agent_error"
    assert ended.error.message.endswith("did not end well: exit code 1: Error: not supported in exec mode")


@pytest.mark.parametrize(
    "ended", [None, AgentExit(code=0), AgentExit(signal="SIGKILL"), AgentExit(code=1, cancelled=True)]
)
def test_the_exit_after_a_completed_turn_does_not_undo_it(ended: AgentExit | None) -> None:
    last = final_report(normalize(stream(*started(), message(0, "Done."), completed(5)), ended))
    assert (last.status, last.text) == ("completed", "Done.")


def test_a_program_that_did_not_start_says_why() -> None:
    stderr = "error: unexpected argument '-s' found\n\nUsage: codex exec\n\nFor more information, try '--help'.\n"
    ended = final_report(normalize(b"", AgentExit(code=2, stderr=stderr)))
    assert ended.error is not None
    assert ended.error.message == "codex did not start: exit code 2: error: unexpected argument '-s' found"
    assert (ended.status, ended.session_id) == ("failed", None)


def test_a_program_that_was_stopped_before_any_output_is_cancelled() -> None:
    assert final_report(normalize(b"", AgentExit(signal="SIGTERM", cancelled=True))).status == "cancelled"


def test_a_second_turn_that_stops_is_the_end_of_both() -> None:
    data = stream(*started(), message(0, "Done."), completed(100), {"type": "turn.started"}, message(1, "More"))
    ended = final_report(normalize(data, AgentExit(signal="SIGKILL")))
    assert (ended.status, ended.text, ended.usage) == ("failed", None, Usage(input=100))


# Tokens.


def test_each_turn_adds_to_the_total_of_the_thread() -> None:
    first = completed(1000, cached_input_tokens=600, cache_write_input_tokens=100, output_tokens=50)
    second = completed(1500, cached_input_tokens=800, cache_write_input_tokens=100, output_tokens=70)
    reports = normalize(stream(*started(), first, {"type": "turn.started"}, second))
    assert [spent.usage for spent in reports if isinstance(spent, UsageDelta)] == [
        Usage(input=300, cache_read=600, cache_write=100, output=50),
        Usage(input=300, cache_read=200, output=20),
    ]
    assert final_report(reports).usage == Usage(input=600, cache_read=800, cache_write=100, output=70)


def test_of_a_resumed_thread_later_turns_are_known_and_the_sum_is_not() -> None:
    data = stream(*started(), completed(1000), {"type": "turn.started"}, completed(1200))
    reports = normalize(data, resumed=True)
    assert [spent.usage for spent in reports if isinstance(spent, UsageDelta)] == [Usage(input=200)]
    assert final_report(reports).usage is None


def test_a_resumed_thread_with_known_prior_usage_reports_the_increase() -> None:
    normalizer = provider("codex").normalizer(resumed=True, prior_usage=Usage(input=900, cache_read=50))
    data = stream(*started(), completed(1000, cached_input_tokens=60), {"type": "turn.started"}, completed(1200))
    reports = [*normalizer.feed(data), *normalizer.finish(None)]
    spent = [spent.usage for spent in reports if isinstance(spent, UsageDelta)]
    assert spent[0] == Usage(input=40, cache_read=10)
    assert final_report(reports).usage == add_usage(*spent)


def test_uncounted_tokens_are_not_reported_as_zero() -> None:
    reports = normalize(stream(*started(), message(0, "Hi."), completed(0, output_tokens=0)))
    assert not [report for report in reports if isinstance(report, UsageDelta)]
    assert final_report(reports).usage is None


def test_a_total_that_shrinks_takes_nothing_back() -> None:
    reports = normalize(stream(*started(), completed(1000), {"type": "turn.started"}, completed(400, output_tokens=-3)))
    assert final_report(reports).usage == Usage(input=1000)


def test_another_thread_in_the_same_stream_starts_at_zero() -> None:
    reports = normalize(stream(*started("a"), completed(1000), *started("b"), completed(300)))
    assert final_report(reports).usage == Usage(input=1300)


# Unusual streams.


def test_a_call_without_a_start_is_reported_with_its_result() -> None:
    done = item(
        "completed", id="item_0", type="file_change", changes=[{"path": "a", "kind": "delete"}], status="completed"
    )
    reports = normalize(stream(*started(), done))
    assert outline(reports)[1:] == ["call 0 file_change", "result 0 file_change"]
    assert results(reports)[0].files == [FileChange(path="a", action="delete")]


def test_a_patch_that_failed_changed_no_files() -> None:
    done = item("completed", id="item_0", type="file_change", changes=[{"path": "a", "kind": "add"}], status="failed")
    result = results(normalize(stream(*started(), done)))[0]
    assert (result.error, result.files) == ("failed", None)


def test_a_command_that_was_declined_says_so() -> None:
    fields = {"id": "item_0", "type": "command_execution", "command": "rm x"}
    done = item("completed", **fields, aggregated_output="", exit_code=None, status="declined")
    result = results(normalize(stream(*started(), done)))[0]
    assert (result.error, result.exit_code) == ("declined", None)


def test_a_list_that_starts_with_an_update_is_called_then() -> None:
    fields = {"id": "item_0", "type": "todo_list", "items": []}
    reports = normalize(stream(*started(), item("updated", **fields), item("completed", **fields)))
    assert outline(reports)[1:] == ["call 0 todo_list", "result 0 todo_list"]


def test_an_error_of_an_mcp_tool_is_its_own_message() -> None:
    fields = {"id": "item_0", "type": "mcp_tool_call", "server": "s", "tool": "t", "arguments": None}
    done = item("completed", **fields, result=None, error={"message": "no such server"}, status="failed")
    assert results(normalize(stream(done)))[0].error == "no such server"


def test_a_sub_agent_whose_start_is_not_in_the_stream_is_reported_at_the_first_wait() -> None:
    waited = {"id": "item_0", "type": "collab_tool_call", "tool": "wait", "status": "completed"}
    states = {"x": {"status": "completed", "message": "Yes."}, "y": {"status": "running", "message": None}}
    reports = normalize(
        stream(*started(), item("completed", **waited, receiver_thread_ids=["x"], agents_states=states))
    )
    about = [report for report in reports if isinstance(report, SubAgentStarted | SubAgentEnded)]
    assert about == [
        SubAgentStarted(agent="x", name="subagent"),
        SubAgentEnded(agent="x", text="Yes."),
        SubAgentStarted(agent="y", name="subagent"),
    ]


def test_a_sub_agent_of_a_sub_agent_has_it_as_its_parent() -> None:
    def spawn(n: int, sender: str, child: str) -> object:
        fields = {"id": f"item_{n}", "type": "collab_tool_call", "tool": "spawn_agent", "sender_thread_id": sender}
        return item("completed", **fields, receiver_thread_ids=[child], agents_states={}, status="completed")

    reports = normalize(stream(*started("t"), spawn(0, "t", "x"), spawn(1, "x", "y")))
    assert [(one.agent, one.parent) for one in reports if isinstance(one, SubAgentStarted)] == [
        ("x", MAIN_AGENT),
        ("y", "x"),
    ]


def test_items_of_another_process_in_the_same_stream_have_other_ids() -> None:
    reports = normalize(
        stream(*started(), message(0, "One."), completed(5), *started(), message(0, "Two."), completed(9))
    )
    ids = [one.message_id for one in payloads(reports) if one.blocks]
    assert ids == ["t:item_0", "t:2:item_0"]


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1, 2]",
        b'"text"',
        b"null",
        b'{"type": "something.new", "x": 1}',
        b'{"no": "type"}',
        b'{"type": ["turn.started"]}',
        b'{"type": "thread.started"}',
        b'{"type": "thread.started", "thread_id": 7}',
        b'{"type": "error"}',
        b'{"type": "turn.failed", "error": "why"}',
        b'{"type": "item.completed"}',
        b'{"type": "item.completed", "item": []}',
        b'{"type": "item.completed", "item": {"id": "item_0", "type": "hologram"}}',
        b'{"type": "item.completed", "item": {"id": "item_0", "type": "agent_message"}}',
        b'{"type": "item.completed", "item": {"id": "item_0", "type": "agent_message", "text": 3}}',
        b'{"type": "item.completed", "item": {"type": "agent_message", "text": "no id"}}',
        b'{"type": "item.completed", "item": {"id": "item_0", "type": "command_execution"}}',
        b'{"type": "item.updated", "item": {"id": "item_0", "type": "command_execution", "command": "ls"}}',
        b'{"type": "item.completed", "item": {"id": "item_0", "type": "file_change", "changes": [{"kind": "add"}]}}',
        b'{"type": "item.completed", "item": {"id": "item_0", "type": "todo_list"}}',
        b'{"type": "item.completed", "item": {"id": "item_0", "type": {"a": 1}}}',
        b'{"type": "item.completed", "item": {"id": "item_0", "type": "collab_tool_call", "tool": null}}',
    ],
)
def test_a_line_that_is_not_understood_is_kept_as_it_came(line: bytes) -> None:
    reports = normalize(line + b"\n" + stream(*started(), message(1, "Fine."), completed(5)))
    assert unparsed_chunks(reports) == [line.decode()]
    assert texts(reports) == ["Fine."]
    ended = final_report(reports)
    assert (ended.status, ended.unparsed) == ("completed", 1)


def test_a_repeated_start_is_one_call_and_a_line_that_is_kept() -> None:
    started_item = item("started", id="item_0", type="command_execution", command="ls", status="in_progress")
    reports = normalize(stream(*started(), started_item, started_item))
    assert (len(calls(reports)), final_report(reports).unparsed) == (1, 1)


def test_malformed_parts_of_a_collab_call_do_no_harm() -> None:
    fields = {"id": "item_0", "type": "collab_tool_call", "tool": "wait", "status": "failed"}
    odd = item("completed", **fields, receiver_thread_ids=[1, None, ["x"]], agents_states={"a": 5})
    reports = normalize(stream(*started(), odd))
    assert not [report for report in reports if isinstance(report, SubAgentStarted)]
    assert [result.error for result in results(reports)] == ["failed"]


def test_blank_lines_and_unknown_keys_are_ignored() -> None:
    data = b"\n \r\n" + stream({"type": "thread.started", "thread_id": "t", "more": {"a": 1}}) + b"\n"
    reports = normalize(data)
    assert (outline(reports), final_report(reports).unparsed) == (["note ready"], 0)


def test_a_last_line_without_its_end_is_read_too() -> None:
    data = stream(*started(), message(0, "Done."), completed(5))
    assert normalize(data.rstrip(b"\n")) == normalize(data)


def test_memory_does_not_grow_with_calls_that_never_end() -> None:
    normalizer = provider("codex").normalizer()
    for n in range(OPEN_BRANCHES + 50):
        started_item = item("started", id=f"item_{n}", type="command_execution", command="ls")
        spawned = {"id": f"s_{n}", "type": "collab_tool_call", "tool": "spawn_agent", "receiver_thread_ids": [f"c{n}"]}
        reports = normalizer.feed(stream(started_item, item("completed", **spawned), message(n, str(n)), retry(1)))
        assert len(reports) == 8
    assert largest_container(normalizer) <= OPEN_BRANCHES


def largest_container(thing: object) -> int:
    sizes = [len(value) for value in vars(thing).values() if isinstance(value, dict | list)]
    inner = [vars(value) for value in vars(thing).values() if hasattr(value, "__dict__")]
    return max(
        [
            *sizes,
            *(len(value) for collection in inner for value in collection.values() if isinstance(value, dict | list)),
        ]
    )


_odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_types = st.sampled_from(
    [
        "thread.started",
        "turn.started",
        "turn.completed",
        "turn.failed",
        "error",
        "item.started",
        "item.updated",
        "item.completed",
    ]
)
_kinds = st.sampled_from(
    [
        "agent_message",
        "reasoning",
        "command_execution",
        "file_change",
        "mcp_tool_call",
        "web_search",
        "todo_list",
        "collab_tool_call",
    ]
)
_keys = [
    "text",
    "message",
    "command",
    "aggregated_output",
    "exit_code",
    "status",
    "changes",
    "server",
    "tool",
    "arguments",
    "result",
    "error",
    "query",
    "action",
    "items",
    "prompt",
    "receiver_thread_ids",
    "agents_states",
    "sender_thread_id",
]
_items = st.fixed_dictionaries(
    {"id": st.sampled_from(["item_0", "item_1"]) | _odd, "type": _kinds},
    optional={key: st.text(max_size=5) | _odd for key in _keys},
)
_records = st.fixed_dictionaries(
    {"type": _types},
    optional={"thread_id": st.text(max_size=5) | _odd, "item": _items | _odd}
    | dict.fromkeys(("message", "error", "usage"), _odd),
)


@given(st.lists(st.binary(max_size=60) | _records.map(lambda record: json.dumps(record).encode()), max_size=20))
def test_any_input_has_one_end_and_no_exception(lines: list[bytes]) -> None:
    reports = normalize(b"\n".join(lines), AgentExit(code=0))
    assert [report for report in reports if isinstance(report, SessionEnded)] == reports[-1:]
    assert len(unparsed_chunks(reports)) == final_report(reports).unparsed
    assert msgspec.json.encode(payloads(reports))


@pytest.mark.parametrize("usage", [7, ["x"], {"input_tokens": "many"}, {"input_tokens": -1}, {"output_tokens": 1.5}])
def test_a_turn_whose_usage_cannot_be_read_is_over_and_its_line_is_counted_as_not_understood(usage: Any) -> None:
    lines = [*started(), message(0, "done"), {"type": "turn.completed", "usage": usage}]
    (ended,) = [one for one in normalize(stream(*lines), AgentExit(code=0)) if isinstance(one, SessionEnded)]
    assert (ended.status, ended.unparsed, ended.usage) == ("completed", 1, None)
