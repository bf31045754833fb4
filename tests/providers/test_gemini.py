"""Normalize the output of Gemini CLI: recordings of the program, and unusual streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shopfloor.adapters.providers import provider
from shopfloor.adapters.providers.gemini.normalizer import GeminiNormalizer
from shopfloor.adapters.providers.jsonl import final_report
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import (
    AssistantMessage,
    FileChange,
    Initialization,
    Note,
    StreamBlock,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from shopfloor.ports import (
    AgentExit,
    AgentReport,
    MessageDelta,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
    UsageDelta,
)

FIXTURES = Path(__file__).parent / "fixtures" / "gemini"
SCENARIOS = sorted(path.stem for path in FIXTURES.glob("*.jsonl"))
MODEL = "gemini-2.5-flash"


def calls(n: int) -> Usage:
    """Return the usage of calls of the scripted model."""
    return Usage(input=400 * n, output=57 * n, cache_read=800 * n, reasoning=12 * n)


def exit_of(scenario: str) -> AgentExit:
    stderr = FIXTURES / f"{scenario}.stderr"
    ended = msgspec.json.decode((FIXTURES / f"{scenario}.exit.json").read_bytes())
    return AgentExit(**ended, stderr=stderr.read_text() if stderr.exists() else "")


def normalize(data: bytes, ended: AgentExit | None = None) -> list[AgentReport]:
    normalizer = provider("gemini").normalizer()
    return [*normalizer.feed(data), *normalizer.finish(ended)]


def recording(scenario: str) -> bytes:
    return (FIXTURES / f"{scenario}.jsonl").read_bytes()


def recorded(scenario: str) -> list[AgentReport]:
    return normalize(recording(scenario), exit_of(scenario))


def stream(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


INIT = {"type": "init", "timestamp": "2026-11-15T01:00:00.000Z", "session_id": "s", "model": MODEL}
PROMPT = {"type": "message", "role": "user", "content": "Do it."}
DONE = {"type": "result", "status": "success", "stats": {}}


def piece(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text, "delta": True}


def use(tool_id: str, name: str = "glob", **arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "tool_name": name, "tool_id": tool_id, "parameters": arguments}


def story(reports: list[AgentReport]) -> list[str]:
    """Return a short description of each report, in order."""
    lines: list[str] = []
    for report in reports:
        match report:
            case TranscriptItem(payload=AssistantMessage(note=Note() as note)):
                lines.append(f"note {note.kind}")
            case TranscriptItem(payload=AssistantMessage(blocks=[TextBlock(text=text)])):
                lines.append(f"says {text}")
            case TranscriptItem(payload=AssistantMessage(blocks=[ToolUseBlock(tool_name=name)])):
                lines.append(f"uses {name}")
            case TranscriptItem(payload=AssistantMessage(blocks=[StreamBlock(chunk=chunk)])):
                lines.append(f"keeps {chunk}")
            case TranscriptItem(payload=UserMessage(blocks=[TextBlock(text=text)]), is_prompt=is_prompt):
                lines.append("prompted" if is_prompt else f"hears {text}")
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


def messages(reports: list[AgentReport]) -> list[AssistantMessage]:
    payloads = [report.payload for report in reports if isinstance(report, TranscriptItem)]
    return [payload for payload in payloads if isinstance(payload, AssistantMessage) and payload.note is None]


def notes(reports: list[AgentReport]) -> list[Note]:
    payloads = [report.payload for report in reports if isinstance(report, TranscriptItem)]
    return [payload.note for payload in payloads if isinstance(payload, AssistantMessage) and payload.note is not None]


def used(name: str) -> list[str]:
    return [f"uses {name}", f"calls {name}"]


SHELL = "run_shell_command"
STORIES = {
    "bash": [
        "says I will run a command.",
        *used(SHELL),
        f"result {SHELL}",
        "says The command printed hello-from-tool.",
    ],
    "blocked": ["note error"],
    "cancelled": used(SHELL),
    "deny": ["says Trying a forbidden tool.", *used(SHELL), f"result {SHELL}", "says It was denied; stopping."],
    "err401": [],
    "err529": [],
    "fail": [*used(SHELL), f"result {SHELL}", "says The command failed with exit code 1."],
    "fail_edit": [*used("replace"), "result replace", "says Edit failed as expected."],
    "files": [
        *["says Writing a file.", *used("write_file"), "result write_file"],
        *[*used("read_file"), "result read_file"],
        *["says Editing it.", *used("replace"), "result replace"],
        "says File written and edited.",
    ],
    "kill": ["says Sleeping for a while.", *used(SHELL)],
    "kill_sigint": ["says Sleeping for a while.", *used(SHELL), f"result {SHELL}", "says Slept."],
    "loop": [*[*used("list_directory"), "result list_directory"] * 4, "note error"],
    "max_turns": ["says Looking.", *used("list_directory"), "result list_directory"],
    "nasty": [
        *[*used(SHELL), f"result {SHELL}"] * 2,
        "says Output was weird: red?m <script>alert(1)</script> \u2028 end",
    ],
    "parallel": ["says Two at once.", *used(SHELL) * 2, *[f"result {SHELL}"] * 2, "says Both ran."],
    "resume": ["says Resumed: I remember the previous turn."],
    "rl_forever": [],
    "rl_once": ["says Answer after one retry."],
    "task": [
        *["says Delegating.", *used("invoke_agent"), "starts generalist"],
        *["ends completed", "result invoke_agent", "says The sub-agent reported back."],
    ],
    "text": ["says Hello from the stub. Second block: snowman ☃, emoji 😀, <b>html</b>, line\nbreak."],
    "thinking": ["says I thought about it; now I act.", *used(SHELL), f"result {SHELL}", "says Listing seen."],
    "todo": [*used("write_todos"), "result write_todos", "says Plan recorded."],
    "unreachable": [],
}
SPENT = {
    **dict.fromkeys(("text", "resume", "rl_once", "max_turns"), 1),
    **dict.fromkeys(("files", "loop", "blocked"), 4),
    "nasty": 3,
    "task": 5,
    **dict.fromkeys(("err401", "err529", "rl_forever", "unreachable"), 0),
}
FAILURES = {
    "blocked": ("invalid_request_error", "The model response was blocked due to safety settings.", False, None),
    "err401": ("authentication_error", "invalid x-api-key (stub)", False, None),
    "err529": ("provider_overloaded", "[API Error: Overloaded (stub)]", True, None),
    "kill": (
        "agent_error",
        "gemini ended in the middle: killed by SIGKILL: Ripgrep is not available. Falling back to GrepTool.",
        False,
        None,
    ),
    "loop": ("agent_error", "Loop detected, stopping execution", False, None),
    "max_turns": ("max_turns_exceeded", "Reached max session turns for this session.", False, None),
    "rl_forever": ("rate_limit_error", "[API Error: This request would exceed your rate limit (stub).", True, 1.0),
    "unknown_session": (
        "invalid_request_error",
        "gemini did not start: exit code 42: Error resuming session: No previous sessions found for this project.",
        False,
        None,
    ),
    "unreachable": (
        "provider_unreachable",
        "[API Error: exception TypeError: fetch failed sending request]",
        True,
        None,
    ),
}


@pytest.mark.parametrize("scenario", [name for name in SCENARIOS if name != "unknown_session"])
def test_all_messages_and_calls_are_reported_once_and_in_order(scenario: str) -> None:
    reports = recorded(scenario)
    assert story(reports) == ["note ready", "prompted", *STORIES[scenario]]
    assert final_report(reports).unparsed == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_recording_ends_as_the_program_did(scenario: str) -> None:
    ended = final_report(recorded(scenario))
    if scenario in FAILURES:
        code, message, retryable, retry_after = FAILURES[scenario]
        assert (ended.status, ended.text) == ("failed", None)
        assert ended.error is not None
        assert (ended.error.code, ended.error.retryable) == (code, retryable)
        assert ended.error.message.startswith(message)
        assert ended.error.retry_after == (msgspec.UNSET if retry_after is None else retry_after)
    elif scenario == "cancelled":
        assert (ended.status, ended.error and ended.error.code) == ("cancelled", "cancelled")
    else:
        assert (ended.status, ended.error) == ("completed", None)
        assert f"says {ended.text}" == STORIES[scenario][-1]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_usage_is_reported_at_the_end_by_model_and_without_a_price(scenario: str) -> None:
    reports = recorded(scenario)
    ended = final_report(reports)
    spent = [report for report in reports if isinstance(report, UsageDelta)]
    if scenario in ("kill", "cancelled", "unknown_session"):
        assert (ended.usage, ended.models, spent) == (None, {}, [])
        return
    usage = calls(SPENT.get(scenario, 2))
    assert (ended.usage, ended.models, ended.cost_usd) == (usage, {MODEL: usage}, None)
    assert spent == ([UsageDelta(usage=usage, model=MODEL)] if usage.input else [])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_chunk_boundaries_make_no_difference(scenario: str) -> None:
    data, ended = recording(scenario), exit_of(scenario)
    normalizer = provider("gemini").normalizer()
    reports = [report for at in range(len(data)) for report in normalizer.feed(data[at : at + 1])]
    assert [*reports, *normalizer.finish(ended)] == normalize(data, ended)


def test_the_session_is_ready_with_its_id_and_its_model() -> None:
    ready = recorded("text")[0]
    session = "79b52c29-7127-476c-955e-836f9b117cc2"
    note = Note(kind="ready", ready=Initialization(session_id=session, model=MODEL))
    assert ready == TranscriptItem(
        payload=AssistantMessage(session_id=session, note=note, blocks=[]), at="2026-11-15T01:04:18.500Z"
    )
    assert final_report(recorded("text")).session_id == session


def test_deltas_add_up_to_the_message_with_the_same_id() -> None:
    reports = recorded("text")
    pieces = [report for report in reports if isinstance(report, MessageDelta)]
    (message,) = messages(reports)
    assert {(piece.message_id, piece.block, piece.kind) for piece in pieces} == {(message.message_id, 0, "text")}
    assert message.blocks == [TextBlock(text="".join(piece.text for piece in pieces), fidelity="agent_emitted")]
    assert message.model == MODEL


def test_consecutive_output_is_one_message_with_numbered_blocks() -> None:
    reports = normalize(stream(INIT, PROMPT, piece("One."), use("a"), piece("Two."), use("b")))
    ids = {message.message_id for message in messages(reports)}
    assert ids == {"s:2026-11-15T01:00:00.000Z:1"}
    assert [(report.text, report.block) for report in reports if isinstance(report, MessageDelta)] == [
        ("One.", 0),
        ("Two.", 2),
    ]
    assert final_report(reports).turns == 1


def test_after_a_result_the_model_starts_another_message() -> None:
    reports = recorded("parallel")
    ids = [message.message_id for message in messages(reports)]
    assert ids[:3] == [ids[0]] * 3
    assert ids[3] != ids[0]
    assert final_report(reports).turns == 2


def test_messages_of_a_session_that_is_resumed_have_ids_of_their_own() -> None:
    first, second = messages(recorded("bash")), messages(recorded("resume"))
    assert first[0].session_id == second[0].session_id
    assert {message.message_id for message in first}.isdisjoint(message.message_id for message in second)


def test_a_call_and_its_result_share_an_id_and_have_the_agents_times() -> None:
    reported = {type(report.payload): report for report in recorded("bash") if isinstance(report, TranscriptItem)}
    call_id = "run_shell_command__fc_a827f8545ae9a6f040dcfd"
    arguments = {"command": "echo hello-from-tool && pwd", "description": "Run a test command"}
    assert reported[ToolCall] == TranscriptItem(
        payload=ToolCall(name=SHELL, call_id=call_id, input=arguments, output=None, fidelity="agent_emitted"),
        at="2026-11-15T01:08:12.372Z",
    )
    assert reported[ToolResult] == TranscriptItem(
        payload=ToolResult(
            name=SHELL,
            call_id=call_id,
            input=None,
            output="hello-from-tool\n/srv/demo/work/ws-gemini-bash",
            fidelity="agent_emitted",
        ),
        at="2026-11-15T01:08:12.851Z",
    )


def test_a_tool_that_failed_says_why() -> None:
    (result,) = results(recorded("fail_edit"))
    assert result.error == "File not found: /srv/demo/work/ws-gemini-fail_edit/missing.txt"
    assert result.output == "Error: File not found. Cannot apply edit. Use an empty old_string to create a new file."
    assert result.files is None


def test_a_command_that_failed_is_no_error_and_its_exit_code_is_not_known() -> None:
    (result,) = results(recorded("fail"))
    assert (result.output, result.error, result.exit_code) == ("to-stdout\nto-stderr", None, None)


def test_written_files_are_reported_though_the_result_has_no_output() -> None:
    written, read, edited = results(recorded("files"))
    note = FileChange(path="/srv/demo/work/ws-gemini-files/note.txt", action="modify")
    assert (written.output, written.files) == (None, [note])
    assert (read.output, read.files) == ("", None)
    assert (edited.output, edited.files) == (None, [note])


def test_long_output_is_kept_whole() -> None:
    binary, long = results(recorded("nasty"))
    assert (binary.output, long.output) == ("", "L" * 20_000)


def test_a_sub_agent_starts_with_its_call_and_ends_with_the_result() -> None:
    reports = recorded("task")
    key = "invoke_agent__fc_de6bcaadaec3664e67e111"
    started = SubAgentStarted(
        agent=key,
        name="generalist",
        task="[[agent:sub]] List the files and report.",
        at="2026-11-15T01:09:56.549Z",
    )
    assert [report for report in reports if isinstance(report, SubAgentStarted)] == [started]
    ended = SubAgentEnded(agent=key, at="2026-11-15T01:09:57.229Z")
    assert [report for report in reports if isinstance(report, SubAgentEnded)] == [ended]


def test_a_sub_agent_that_failed_says_why() -> None:
    failed = {"type": "tool_result", "tool_id": "a", "status": "error", "error": {"message": "no such agent"}}
    reports = normalize(stream(INIT, use("a", "invoke_agent", agent_name="x"), failed))
    (ended,) = [report for report in reports if isinstance(report, SubAgentEnded)]
    assert (ended.status, ended.error and ended.error.message) == ("failed", "no such agent")


def test_of_a_file_only_the_stream_is_known() -> None:
    codes: dict[str, str | None] = {}
    for scenario in ("err401", "err529", "rl_forever", "max_turns", "kill", "bash"):
        error = final_report(normalize(recording(scenario))).error
        codes[scenario] = error.code if error else None
    assert codes == {
        "err401": "authentication_error",
        "err529": "provider_error",
        "rl_forever": "rate_limit_error",
        "max_turns": "max_turns_exceeded",
        "kill": "agent_error",
        "bash": None,
    }


def test_a_session_that_we_stopped_is_cancelled_unless_it_had_ended() -> None:
    stopped = AgentExit(code=None, signal="SIGTERM", cancelled=True)
    assert final_report(normalize(recording("kill"), stopped)).status == "cancelled"
    assert final_report(normalize(recording("err401"), stopped)).status == "cancelled"
    assert final_report(normalize(recording("bash"), stopped)).status == "completed"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (41, "authentication_error"),
        (52, "invalid_request_error"),
        (53, "max_turns_exceeded"),
        (54, "agent_error"),
        (145, "authentication_error"),
        (144, "invalid_request_error"),
        (173, "rate_limit_error"),
        (244, "provider_error"),
        (247, "provider_overloaded"),
        (1, "agent_error"),
        (0, "agent_error"),
    ],
)
def test_the_exit_code_decides_without_a_result(code: int, expected: str) -> None:
    error = final_report(normalize(b"", AgentExit(code=code, stderr="\x1b[31mWhy.\x1b[0m\n"))).error
    assert error is not None
    assert (error.code, error.message) == (expected, f"gemini did not start: exit code {code}: Why.")


def test_messages_of_the_program_are_notes() -> None:
    warning = {"type": "error", "severity": "warning", "message": "Agent execution blocked: by a hook"}
    reports = normalize(stream(INIT, PROMPT, warning, piece("Fine."), DONE))
    assert notes(reports)[1:] == [Note(kind="warning", message="Agent execution blocked: by a hook")]
    assert final_report(reports).status == "completed"


def test_a_loop_that_it_got_out_of_is_no_failure() -> None:
    loop = {"type": "error", "severity": "warning", "message": "Loop detected, stopping execution"}
    assert final_report(normalize(stream(INIT, loop, piece("Out of it."), DONE))).status == "completed"


def test_turns_that_are_used_up_are_a_failure_though_the_result_is_a_success() -> None:
    turns = {"type": "error", "severity": "error", "message": "Maximum session turns exceeded"}
    ended = final_report(normalize(stream(INIT, turns, DONE)))
    assert (ended.status, ended.error and ended.error.code) == ("failed", "max_turns_exceeded")


def test_an_error_result_without_a_message_is_an_error() -> None:
    ended = final_report(normalize(stream(INIT, PROMPT, {**DONE, "status": "error"})))
    assert ended.error is not None
    assert (ended.error.code, ended.error.message) == (
        "provider_error",
        "the model gave no answer that gemini could use",
    )


@pytest.mark.parametrize(("output", "error"), [("It broke.", "It broke."), (None, "the tool failed")])
def test_a_tool_that_failed_without_a_reason_failed(output: object, error: str) -> None:
    result = {"type": "tool_result", "tool_id": "a", "status": "error", "output": output}
    assert [result.error for result in results(normalize(stream(INIT, use("a"), result)))] == [error]


def test_a_tool_that_is_not_allowed_is_noted() -> None:
    denied = {"type": "policy_violation", "message": "Tool execution denied by policy."}
    result = {"type": "tool_result", "tool_id": "a", "status": "error", "error": denied}
    reports = normalize(stream(INIT, use("a"), result, DONE))
    assert notes(reports)[1:] == [Note(kind="denied", message="Tool execution denied by policy.")]


def test_only_the_first_user_message_is_the_prompt() -> None:
    later = {"type": "message", "role": "user", "content": "Go on."}
    reports = normalize(stream(INIT, PROMPT, piece("A"), later, piece("B"), DONE))
    assert story(reports) == ["note ready", "prompted", "says A", "hears Go on.", "says B"]


def test_a_complete_message_after_its_deltas_is_reported_once() -> None:
    whole = {"type": "message", "role": "assistant", "content": "AB"}
    reports = normalize(stream(INIT, PROMPT, piece("A"), piece("B"), whole, whole, DONE))
    assert story(reports) == ["note ready", "prompted", "says AB", "says AB"]


def test_an_interrupted_text_is_reported_at_the_end() -> None:
    reports = normalize(stream(INIT, PROMPT, piece("Half a")) + b'{"type":"mess', AgentExit(signal="SIGKILL"))
    assert story(reports) == ["note ready", "prompted", 'keeps {"type":"mess', "says Half a"]
    ended = final_report(reports)
    assert (ended.unparsed, ended.text, ended.session_id) == (1, None, "s")
    assert ended.error is not None
    assert ended.error.message == "gemini ended in the middle: killed by SIGKILL"


def test_the_result_of_a_call_that_was_not_seen_is_kept_under_the_name_in_its_id() -> None:
    reports = normalize(stream({"type": "tool_result", "tool_id": "glob__1", "status": "success", "output": "x"}))
    assert [(result.name, result.output) for result in results(reports)] == [("glob", "x")]


def test_a_call_without_an_id_gets_one() -> None:
    minimal = {"type": "tool_use", "tool_name": "glob"}
    reports = normalize(stream(INIT, minimal, minimal))
    ids = [
        report.payload.call_id
        for report in reports
        if isinstance(report, TranscriptItem) and isinstance(report.payload, ToolCall)
    ]
    assert len(set(ids)) == 2


ODD = [
    {"type": "surprise"},
    {"type": ["init"]},
    {"type": "init", "session_id": 7},
    {"type": "message", "role": "assistant", "content": None},
    {"type": "message", "role": "robot", "content": "x"},
    {"type": "tool_use", "tool_name": {}},
    {"type": "tool_result", "tool_id": "a", "status": "maybe"},
    {"type": "error", "message": []},
    {"type": "result", "status": {}},
    [],
    7,
]


@pytest.mark.parametrize("record", ODD, ids=json.dumps)
def test_a_record_that_is_not_understood_is_kept_as_it_came(record: object) -> None:
    reports = normalize(stream(record))
    assert story(reports) == [f"keeps {json.dumps(record)}"]
    assert final_report(reports).unparsed == 1


@pytest.mark.parametrize("stats", [None, 7, [], {"models": {"m": 7}}, {"models": []}, {"total_tokens": -5}])
def test_numbers_that_cannot_be_are_none(stats: object) -> None:
    reports = normalize(stream(INIT, PROMPT, piece("x"), {**DONE, "stats": stats}))
    ended = final_report(reports)
    assert ended.status == "completed"
    assert ended.usage in (None, Usage())
    assert not [report for report in reports if isinstance(report, UsageDelta)]


def test_tokens_without_a_model_count_too() -> None:
    stats = {"total_tokens": 130, "input_tokens": 100, "cached": 40, "output_tokens": 20}
    reports = normalize(stream(INIT, {**DONE, "stats": stats}))
    usage = Usage(input=60, output=30, cache_read=40, reasoning=10)
    assert (final_report(reports).usage, final_report(reports).models) == (usage, {})
    assert [report for report in reports if isinstance(report, UsageDelta)] == [UsageDelta(usage=usage)]


def test_calls_that_never_end_are_not_remembered_for_ever() -> None:
    normalizer = GeminiNormalizer()
    for number in range(OPEN_BRANCHES + 50):
        normalizer.feed(stream(use(f"glob__{number}")))
    assert len(normalizer._calls) == OPEN_BRANCHES


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(recording("task").split(b"\n"))), max_size=8))
def test_any_input_has_one_end_and_no_exception(lines: list[bytes]) -> None:
    reports = normalize(b"\n".join(lines))
    assert [isinstance(report, SessionEnded) for report in reports] == [*[False] * (len(reports) - 1), True]


@pytest.mark.parametrize("without", range(1, 8))
@pytest.mark.parametrize("scenario", ["text", "bash", "resume", "parallel"])
def test_a_message_has_one_id_where_the_first_records_have_no_time(scenario: str, without: int) -> None:
    records = [json.loads(line) for line in recording(scenario).splitlines()]
    for record in records[:without]:
        del record["timestamp"]
    typed: dict[str, str] = {}
    reported: dict[str, str] = {}
    for report in normalize(stream(*records)):
        match report:
            case MessageDelta(message_id=message_id, text=text):
                typed[message_id] = typed.get(message_id, "") + text
            case TranscriptItem(payload=AssistantMessage(message_id=str() as message_id, blocks=blocks)):
                texts = [block.text for block in blocks if isinstance(block, TextBlock)]
                reported[message_id] = reported.get(message_id, "") + "".join(texts)
            case _:
                pass
    assert typed
    assert {message_id: text for message_id, text in reported.items() if text} == typed
