"""Normalize the output of OpenCode: recordings of the program, and unusual streams."""

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
from shopfloor.adapters.providers.opencode.normalizer import OpenCodeNormalizer
from shopfloor.engine.agents.transcriber import resolve_outcome
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import (
    AssistantMessage,
    FileChange,
    Initialization,
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
    AgentExit,
    AgentReport,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
    UsageDelta,
)

FIXTURES = Path(__file__).parent / "fixtures" / "opencode"
SCENARIOS = sorted(path.stem for path in FIXTURES.glob("*.jsonl"))
ONE_STEP = Usage(input=400, output=45, cache_read=800, reasoning=12)
PRICE = 0.000705


def steps(n: int) -> Usage:
    return Usage(input=400 * n, output=45 * n, cache_read=800 * n, reasoning=12 * n)


def exit_of(scenario: str) -> AgentExit:
    stderr = FIXTURES / f"{scenario}.stderr"
    ended = msgspec.json.decode((FIXTURES / f"{scenario}.exit.json").read_bytes())
    return AgentExit(**ended, stderr=stderr.read_text() if stderr.exists() else "")


def normalize(data: bytes, ended: AgentExit | None = None) -> list[AgentReport]:
    normalizer = provider("opencode").normalizer()
    return [*normalizer.feed(data), *normalizer.finish(ended)]


def recording(scenario: str) -> bytes:
    return (FIXTURES / f"{scenario}.jsonl").read_bytes()


def recorded(scenario: str) -> list[AgentReport]:
    return normalize(recording(scenario), exit_of(scenario))


def stream(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def record(kind: str, **part: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": 1794705029466, "sessionID": "ses_1", "part": {"messageID": "msg_1", **part}}


def failed(**error: Any) -> dict[str, Any]:
    return {"type": "error", "timestamp": 1794705029466, "sessionID": "ses_1", "error": error}


START = record("step_start", type="step-start")
STOP = record("step_finish", reason="stop", tokens={}, cost=0)


def text_record(text: str, **part: Any) -> dict[str, Any]:
    return record("text", text=text, **part)


def used_tool(tool: str = "bash", **state: Any) -> dict[str, Any]:
    return record("tool_use", tool=tool, callID="call_1", state={"status": "completed", "input": {}, **state})


def story(reports: list[AgentReport]) -> list[str]:
    """Return a short description of each report, in order."""
    lines: list[str] = []
    for report in reports:
        match report:
            case TranscriptItem(payload=AssistantMessage(note=Note() as note)):
                lines.append(f"note {note.kind}")
            case TranscriptItem(payload=AssistantMessage(blocks=[TextBlock(text=text)])):
                lines.append(f"says {text}")
            case TranscriptItem(payload=AssistantMessage(blocks=[ThinkingBlock(thinking=text)])):
                lines.append(f"thinks {text}")
            case TranscriptItem(payload=AssistantMessage(blocks=[ToolUseBlock(tool_name=name)])):
                lines.append(f"uses {name}")
            case TranscriptItem(payload=AssistantMessage(blocks=[StreamBlock(chunk=chunk)])):
                lines.append(f"keeps {chunk}")
            case TranscriptItem(payload=UserMessage(blocks=[TextBlock(text=text)], synthetic=True)):
                lines.append(f"user {text}")
            case TranscriptItem(payload=ToolCall(name=name)):
                lines.append(f"calls {name}")
            case TranscriptItem(payload=ToolResult(name=name)):
                lines.append(f"result {name}")
            case SubAgentStarted(name=name):
                lines.append(f"starts {name}")
            case SubAgentEnded(status=status):
                lines.append(f"ends {status}")
            case _:
                pass
    return lines


def results(reports: list[AgentReport]) -> list[ToolResult]:
    return [
        report.payload
        for report in reports
        if isinstance(report, TranscriptItem) and isinstance(report.payload, ToolResult)
    ]


def notes(reports: list[AgentReport]) -> list[Note]:
    payloads = [report.payload for report in reports if isinstance(report, TranscriptItem)]
    return [payload.note for payload in payloads if isinstance(payload, AssistantMessage) and payload.note is not None]


def did(name: str) -> list[str]:
    return [f"uses {name}", f"calls {name}", f"result {name}"]


STORIES = {
    "bash": ["says I will run a command.", *did("bash"), "says The command printed hello-from-tool."],
    "deny": [*did("invalid"), "says Trying a forbidden tool.", "says It was denied; stopping."],
    "err401": ["note error"],
    "err529": ["note error"],
    "fail": [*did("bash"), "says The command failed with exit code 1."],
    "fail_edit": [*did("edit"), "says Edit failed as expected."],
    "files": [
        *["says Writing a file.", *did("write"), *did("read"), "says Editing it.", *did("edit")],
        "says File written and edited.",
    ],
    "kill": ["says Sleeping for a while."],
    "kill_sigint": ["says Sleeping for a while.", *did("bash"), "says Slept."],
    "nasty": [
        *did("bash") * 2,
        "says Output was weird: \x1b[31mred?\x1b[0m <script>alert(1)</script> \u2028 end",
    ],
    "overflow": [
        "note error",
        "says Summary of all.",
        "user The previous request exceeded the provider's size limit due to large media attachments.",
        "says Went on after.",
    ],
    "parallel": ["says Two at once.", *did("bash") * 2, "says Both ran."],
    "patch": [*did("apply_patch"), "says Patched."],
    "refused": [
        *["thinks Hm.", "says Writing.", *did("write"), *did("bash"), *did("read")],
        *["note denied", "says Ready now."],
    ],
    "refused_end": ["says Reading.", *did("read"), "note denied"],
    "resume": ["says Resumed: I remember the previous turn."],
    "rl_forever": ["note error"],
    "rl_once": ["says Answer after one retry."],
    "task": [
        *["says Delegating.", "uses task", "calls task", "starts general", "ends completed", "result task"],
        "says The sub-agent reported back.",
    ],
    "task_failed": [
        *[*did("task"), "uses task", "calls task", "starts general", "ends failed", "result task"],
        "says It failed.",
    ],
    "text": ["says Hello from the stub. Second block: snowman ☃, emoji 😀, <b>html</b>, line\nbreak."],
    "thinking": ["says I thought about it; now I act.", *did("bash"), "says Listing seen."],
    "thinking_flag": [
        "thinks Let me think about this. The user wants a directory listing.",
        *["says I thought about it; now I act.", *did("bash")],
        *["thinks The listing is in; summarise.", "says Listing seen."],
    ],
    "todo": [*did("todowrite"), "says Plan recorded."],
    "unreachable": ["note error"],
}
STEPS = {
    **dict.fromkeys(("text", "resume", "rl_once", "refused_end"), 1),
    **dict.fromkeys(("nasty", "task_failed"), 3),
    **dict.fromkeys(("files", "refused"), 4),
    **dict.fromkeys(("err401", "err529", "rl_forever", "unreachable", "kill", "unknown_session"), 0),
}
FAILURES = {
    "err401": ("authentication_error", "invalid x-api-key (stub)", False, None),
    "err529": ("provider_overloaded", "Overloaded (stub)", True, None),
    "kill": ("agent_error", "opencode ended in the middle: killed by SIGKILL", False, None),
    "refused_end": (
        "agent_error",
        "opencode went no further: The user rejected permission to use this specific tool call.",
        False,
        None,
    ),
    "rl_forever": ("rate_limit_error", "This request would exceed your rate limit (stub).", True, 1.0),
    "unknown_session": (
        "invalid_request_error",
        "opencode did not start: exit code 1: Error: Session not found",
        False,
        None,
    ),
    "unreachable": (
        "provider_unreachable",
        "Cannot connect to API: Unable to connect. Is the computer able to access the url?",
        True,
        None,
    ),
}


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "unknown_session"])
def test_all_messages_and_calls_are_reported_once_and_in_order(scenario: str) -> None:
    reports = recorded(scenario)
    assert story(reports) == ["note ready", *STORIES[scenario]]
    assert final_report(reports).unparsed == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_ends_as_the_program_did(scenario: str) -> None:
    ended = final_report(recorded(scenario))
    if scenario in FAILURES:
        code, message, retryable, retry_after = FAILURES[scenario]
        assert (ended.status, ended.text) == ("failed", None)
        assert ended.error is not None
        assert (ended.error.code, ended.error.message, ended.error.retryable) == (code, message, retryable)
        assert ended.error.retry_after == (msgspec.UNSET if retry_after is None else retry_after)
    else:
        assert (ended.status, ended.error) == ("completed", None)
        assert f"says {ended.text}" == STORIES[scenario][-1]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_usage_and_cost_are_reported_by_step_and_add_up(scenario: str) -> None:
    reports = recorded(scenario)
    ended = final_report(reports)
    n = STEPS.get(scenario, 2)
    spent = [report for report in reports if isinstance(report, UsageDelta)]
    assert spent == [UsageDelta(usage=ONE_STEP, cost_usd=PRICE)] * n
    assert (ended.usage, ended.turns) == ((steps(n), n) if n else (None, None))
    assert ended.cost_usd == (pytest.approx(PRICE * n) if n else None)
    assert ended.models == {}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_chunk_boundaries_make_no_difference(scenario: str) -> None:
    data, ended = recording(scenario), exit_of(scenario)
    normalizer = provider("opencode").normalizer()
    reports = [report for at in range(len(data)) for report in normalizer.feed(data[at : at + 1])]
    assert [*reports, *normalizer.finish(ended)] == normalize(data, ended)


def test_the_first_record_names_the_session() -> None:
    reports = recorded("text")
    session = "ses_e233eefa6ffeILPsnUuOcrnTVD"
    note = Note(kind="ready", ready=Initialization(session_id=session))
    assert reports[0] == TranscriptItem(
        payload=AssistantMessage(session_id=session, note=note, blocks=[]), at="2026-11-15T01:10:11.794Z"
    )
    assert final_report(reports).session_id == session


def test_a_first_record_that_is_not_understood_does_not_make_it_ready() -> None:
    reports = normalize(stream(record("surprise"), text_record("Hello.")))
    assert [line.partition(" {")[0] for line in story(reports)] == ["keeps", "note ready", "says Hello."]


def test_the_parts_of_a_message_share_its_id() -> None:
    payloads = [report.payload for report in recorded("bash") if isinstance(report, TranscriptItem)]
    ids = [payload.message_id for payload in payloads if isinstance(payload, AssistantMessage) and not payload.note]
    assert ids == ["msg_1dcc167dc001L13rhBpVNb3i8T"] * 2 + ["msg_1dcc17c42001M7JuYDlr9Lbyn8"]


def test_a_call_has_its_start_time_and_its_result_the_end_time() -> None:
    reported = {type(report.payload): report for report in recorded("bash") if isinstance(report, TranscriptItem)}
    call_id = "call_d8e511d62908b69c0ed972"
    arguments = {"command": "echo hello-from-tool && pwd"}
    assert reported[ToolCall] == TranscriptItem(
        payload=ToolCall(name="bash", call_id=call_id, input=arguments, output=None, fidelity="agent_emitted"),
        at="2026-11-15T01:10:29.430Z",
    )
    assert reported[ToolResult] == TranscriptItem(
        payload=ToolResult(
            name="bash",
            call_id=call_id,
            input=None,
            output="hello-from-tool\n/srv/demo/work/ws-opencode-bash\n",
            duration_ms=395,
            exit_code=0,
            fidelity="agent_emitted",
        ),
        at="2026-11-15T01:10:29.825Z",
    )


def test_a_command_that_failed_has_its_exit_code_and_a_tool_that_failed_its_error() -> None:
    (command,) = results(recorded("fail"))
    assert (command.output, command.exit_code, command.error) == ("to-stdout\nto-stderr\n", 1, None)
    (edit,) = results(recorded("fail_edit"))
    assert (edit.output, edit.error) == (None, "File /srv/demo/work/ws-opencode-fail_edit/missing.txt not found")
    (unknown,) = results(recorded("deny"))
    assert unknown.error is not None
    assert unknown.error.startswith("Model tried to call unavailable tool 'bash'.")


def test_changed_files_are_reported_with_their_diffs() -> None:
    written, read, edited = results(recorded("files"))
    path = "/srv/demo/work/ws-opencode-files/note.txt"
    assert written.files == [FileChange(path=path, action="create")]
    assert read.files is None
    assert edited.files is not None
    (change,) = edited.files
    assert (change.path, change.action, change.lines_added, change.lines_removed) == (path, "modify", 1, 1)
    assert change.diff is not None
    assert change.diff.endswith("@@ -1,2 +1,2 @@\n line one\n-line two\n+line 2 edited\n")


def test_a_patch_reports_each_file() -> None:
    (patched,) = results(recorded("patch"))
    reported = [
        (Path(file.path).name, file.action, file.lines_added, file.lines_removed) for file in patched.files or []
    ]
    assert reported == [("new.txt", "create", 2, 0), ("a.txt", "modify", 1, 1), ("d.txt", "delete", 0, 1)]


def test_an_edit_that_makes_a_file_creates_it_and_a_write_over_one_changes_it() -> None:
    diff = {"file": "/a", "patch": "--- /a\n+++ /a\n@@ -0,0 +1,1 @@\n+x\n"}
    (made,) = results(normalize(stream(used_tool("edit", metadata={"filediff": diff}))))
    assert [(file.action, file.lines_added) for file in made.files or []] == [("create", 1)]
    (over,) = results(normalize(stream(used_tool("write", metadata={"filepath": "/a", "exists": True}))))
    assert over.files == [FileChange(path="/a", action="modify")]


def test_a_change_of_no_file_is_none() -> None:
    (patched,) = results(normalize(stream(used_tool("apply_patch", metadata={"files": [{"type": "add"}, 7]}))))
    assert patched.files is None


def test_unusual_bytes_arrive_as_they_were_printed() -> None:
    weird, long = results(recorded("nasty"))
    assert weird.output == (
        "nul:[\x00] badutf8:[\ufffd\ufffd\ufffd\ufffd] trunc:[\ufffd] ansi:\x1b[31mRED\x1b[0m\x1b[2K\r bell:\x07 "
        'html:<script>alert("x")</script>&amp; u2028:[\u2028] bom:[\ufeff] emoji:😀 crlf:\r\nend\n'
    )
    assert "Full output saved to" in long.output


def test_a_sub_agent_is_reported_with_its_answer_when_it_has_ended() -> None:
    reports = recorded("task")
    child = "ses_e2339ca01ffeIFy8SOIAQaKcvP"
    assert [report for report in reports if isinstance(report, SubAgentStarted | SubAgentEnded)] == [
        SubAgentStarted(
            agent=child,
            name="general",
            task="[[agent:sub]] List the files and report.",
            model="stub/stub-model",
            at="2026-11-15T01:15:39.913Z",
        ),
        SubAgentEnded(agent=child, text="Sub-agent report: one command ran.", at="2026-11-15T01:15:42.581Z"),
    ]


def test_a_failed_sub_agent_has_its_reason_and_one_that_never_started_is_not_reported() -> None:
    reports = recorded("task_failed")
    (ended,) = [report for report in reports if isinstance(report, SubAgentEnded)]
    assert ended.error is not None
    assert ended.error.message.endswith("no such thing")
    assert [result.error for result in results(reports)] == [
        "Unknown agent type: nosuch is not a valid agent type",
        ended.error.message,
    ]


def test_a_sub_agent_that_gets_more_work_starts_once() -> None:
    again = [{**used_tool("task", metadata={"sessionId": "ses_2"}, output=text)} for text in ("One.", "Two.")]
    reports = normalize(stream(*again))
    assert [report.text for report in reports if isinstance(report, SubAgentEnded)] == ["One."]
    assert [result.output for result in results(reports)] == ["One.", "Two."]


def test_an_error_says_its_status_and_when_to_try_again() -> None:
    assert notes(recorded("rl_forever"))[1] == Note(
        kind="error",
        message="This request would exceed your rate limit (stub).",
        code="rate_limit_error",
        status=429,
        retry_after=1.0,
    )


def test_an_error_that_it_got_over_is_no_failure_though_it_exits_with_1() -> None:
    assert exit_of("overflow").code == 1
    reports = recorded("overflow")
    assert [note.code for note in notes(reports)] == [None, "invalid_request_error"]
    assert final_report(reports).text == "Went on after."


def test_an_answer_and_an_exit_code_that_nothing_explains_is_a_failure() -> None:
    exit_ = AgentExit(code=7, stderr="Error: odd\n")
    error = resolve_outcome(final_report(normalize(recording("text"), exit_)), exit_).error
    assert error is not None
    assert error.message.endswith("did not end well: exit code 7: Error: odd")


def test_of_a_file_only_the_stream_is_known() -> None:
    ends = {scenario: final_report(normalize(recording(scenario))).status for scenario in SCENARIOS}
    assert {scenario for scenario, status in ends.items() if status == "failed"} == set(FAILURES)


def test_a_session_that_we_stopped_is_cancelled_unless_it_has_answered() -> None:
    stopped = AgentExit(code=None, signal="SIGTERM", cancelled=True)
    assert final_report(normalize(recording("kill"), stopped)).status == "cancelled"
    assert final_report(normalize(recording("err401"), stopped)).status == "cancelled"
    assert final_report(normalize(b"", stopped)).status == "cancelled"
    assert final_report(normalize(recording("text"), stopped)).status == "completed"


@pytest.mark.parametrize(
    ("reason", "status"), [("stop", "completed"), ("length", "completed"), ("tool-calls", "failed")]
)
def test_a_step_that_asks_for_tools_is_not_the_last(reason: str, status: str) -> None:
    end = record("step_finish", reason=reason)
    assert final_report(normalize(stream(START, text_record("Half."), end), AgentExit(code=0))).status == status


def test_a_step_that_did_not_end_is_no_answer() -> None:
    ended = final_report(normalize(stream(START, STOP, START, text_record("Half."))))
    assert (ended.status, ended.text) == ("failed", None)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"name": "ProviderAuthError", "data": {"message": "no key"}}, "authentication_error"),
        ({"name": "ContentFilterError", "data": {"message": "blocked"}}, "invalid_request_error"),
        ({"name": "APIError", "data": {"message": "bad", "statusCode": 400}}, "invalid_request_error"),
        ({"name": "APIError", "data": {"message": "bad", "statusCode": 500}}, "provider_error"),
        ({"name": "APIError", "data": {"message": "The operation timed out."}}, "provider_timeout"),
        ({"name": "APIError", "data": {"message": "Something else"}}, "provider_error"),
        ({"name": "UnknownError", "data": {"message": "Unexpected server error."}}, "agent_error"),
        ({}, "agent_error"),
    ],
)
def test_errors_have_our_words(error: dict[str, Any], code: str) -> None:
    ended = final_report(normalize(stream(failed(**error)), AgentExit(code=1)))
    assert (ended.status, ended.error and ended.error.code) == ("failed", code)


def test_an_error_that_is_only_a_message_is_reported() -> None:
    ended = final_report(normalize(stream({**failed(), "error": "It broke."})))
    assert ended.error is not None
    assert ended.error.message == "It broke."


def test_a_message_that_was_aborted_is_cancelled() -> None:
    ended = final_report(normalize(stream(failed(name="MessageAbortedError", data={"message": "Aborted"}))))
    assert (ended.status, ended.error and ended.error.code) == ("cancelled", "cancelled")


@pytest.mark.parametrize(("after", "expected"), [("2.5", 2.5), ("Sun, 15 Nov 2026 01:00:00 GMT", None), ("", None)])
def test_only_seconds_are_a_valid_retry_delay(after: str, expected: float | None) -> None:
    data = {"message": "slow", "statusCode": 429, "responseHeaders": {"retry-after": after}}
    assert notes(normalize(stream(failed(name="APIError", data=data))))[1].retry_after == expected


def test_repeated_records_are_reported_once() -> None:
    text, tool = text_record("Hello.", id="prt_1"), used_tool()
    tool["part"]["id"] = "prt_2"
    finish = record("step_finish", id="prt_3", reason="stop", tokens={"input": 5}, cost=0.5)
    reports = normalize(stream(START, text, text, tool, tool, finish, finish))
    assert story(reports) == ["note ready", "says Hello.", *did("bash")]
    assert final_report(reports).cost_usd == 0.5


def test_output_that_is_dropped_from_the_thread_is_not_a_call() -> None:
    dropped = used_tool(time={"start": 1, "end": 2, "compacted": 3}, output="of an earlier process")
    assert story(normalize(stream(START, dropped, STOP))) == ["note ready"]


def test_a_price_of_zero_is_no_price() -> None:
    reports = normalize(stream(START, record("step_finish", reason="stop", tokens={"input": 5}, cost=0)))
    assert [report for report in reports if isinstance(report, UsageDelta)] == [UsageDelta(usage=Usage(input=5))]
    assert final_report(reports).cost_usd is None


ODD = [
    {"type": "text", "part": {"text": "x"}},
    {"type": "text", "sessionID": "s"},
    record("text", text=7),
    record("surprise", text="x"),
    record("tool_use", tool="bash", callID="c", state={"status": "running"}),
    record("tool_use", tool=None, callID="c", state={"status": "completed"}),
    record("step_finish"),
    record("step_finish", reason="stop", cost=10**400),
    [],
    "text",
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: json.dumps(odd)[:60])
def test_a_record_that_is_not_understood_is_kept_as_it_came(odd: object) -> None:
    reports = normalize(stream(odd))
    assert story(reports) == [f"keeps {json.dumps(odd)}"]
    assert final_report(reports).unparsed == 1


@pytest.mark.parametrize("tokens", [None, 7, [], {"input": -1, "output": "x", "cache": 3}])
def test_numbers_that_cannot_be_are_none(tokens: object) -> None:
    ended = final_report(normalize(stream(START, record("step_finish", reason="stop", tokens=tokens, cost="much"))))
    assert (ended.status, ended.usage, ended.cost_usd) == ("completed", Usage(), None)


def test_the_memory_of_reported_parts_is_bounded() -> None:
    normalizer = OpenCodeNormalizer()
    for number in range(OPEN_BRANCHES + 50):
        normalizer.feed(stream(text_record("x", id=f"prt_{number}")))
    assert len(normalizer._seen) == OPEN_BRANCHES


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(recording("task").split(b"\n"))), max_size=8))
def test_any_input_has_one_end_and_no_exception(lines: list[bytes]) -> None:
    reports = normalize(b"\n".join(lines))
    assert [isinstance(report, SessionEnded) for report in reports] == [*[False] * (len(reports) - 1), True]
