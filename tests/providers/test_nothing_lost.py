"""No output of an agent is lost: each line is reported, known to be noise, or kept verbatim."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.providers.streams import CLOCK, PROGRAMS, Stream, by_run, ids, streams, strings_in

from shopfloor.adapters.providers import provider
from shopfloor.adapters.providers.jsonl import unparsed_report
from shopfloor.adapters.providers.usage import price
from shopfloor.engine import transcribe
from shopfloor.limits import LOG_LINE_BYTES
from shopfloor.log import AssistantMessage, Note, StreamBlock, Verifier
from shopfloor.ports import AgentReport, SessionEnded, TranscriptItem

Fields = dict[str, Any]

NOISE: dict[str, set[str]] = {
    "claude-code": {
        "system/background_tasks_changed",
        "system/hook_started",
        "system/session_state_changed",
        "system/status",
        "system/task_progress",
        "system/thinking_tokens",
        "system/ui_invalidate",
        "tool_progress",
    },
    "codex": set(),
    "gemini": set(),
    "copilot": {
        "agent.interrupted",
        "assistant.idle",
        "model.call_final_result",
        "model.call_finished",
        "model.call_start",
        "session.background_tasks_changed",
        "session.mcp_servers_loaded",
        "session.skills_loaded",
        "subagent.configured",
    },
    "opencode": set(),
}
"""Records without content, by provider."""
REPORTED_ELSEWHERE: dict[str, set[str]] = {
    "claude-code": {
        # The frame of a message. Its blocks are separate records, and its deltas are reported.
        "stream_event/content_block_start",
        "stream_event/content_block_stop",
        "stream_event/message_start",
        "stream_event/message_delta",
        "stream_event/message_stop",
        "stream_event/content_block_delta",  # of a signature, which is in its block
        "system/init",  # of a later turn of the same session
        "system/permission_denied",
        "system/task_notification",  # of a sub-agent whose call has its result
        "system/task_started",  # of a sub-agent that has started already
        "system/task_updated",  # the time of its end
        "result",  # in the outcome
        "user",  # repeats a sub-agent's task
    },
    "codex": {
        "turn.started",
        "turn.completed",
        "turn.failed",
        "item.completed/agent_message",
        "item.completed/reasoning",
    },
    "gemini": {"result"},
    "copilot": {
        "abort",  # in the outcome
        "assistant.message_start",
        "assistant.tool_call_delta",  # of a message without an id so far; its call has the input
        "assistant.message",  # without text; its calls are reported when they start
        "assistant.reasoning",  # in its message
        "assistant.turn_end",
        "assistant.turn_start",
        "assistant.turn_retry",
        "model.call_failure",  # reported when it is clear whether the call is repeated
        "result",
        "session.info",  # repeats another event
        "session.tools_updated",
        "tool.execution_partial_result",  # in its result
        "tool.shell_output",
        "user.message",  # repeats a sub-agent's task
    },
    "opencode": {"step_start", "step_finish", "text", "tool_use"},
}
"""Records that give no report by themselves, because another record or the outcome has their content."""


def kind_of(stream: Stream, record: Fields) -> str:
    kind = record["type"]
    inner = record.get("subtype") or record.get("event", {}).get("type") or record.get("item", {}).get("type")
    return f"{kind}/{inner}" if inner and kind != "result" and stream.provider in ("claude-code", "codex") else kind


def short(stream: Stream, record: Fields) -> str:
    """Return the kind of a record, without the subtype where the tables above have none."""
    kind = kind_of(stream, record)
    return kind if kind.startswith(("stream_event", "system", "item.")) else kind.partition("/")[0]


CONTROLS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x1f\x7f]")
CONTENT = ("text", "content", "thinking", "result", "deltaContent", "partialOutput", "output")
"""The keys that hold content."""


def content_texts(value: Any, key: str = "") -> list[str]:
    """Return all content of a record."""
    match value:
        case str() if key in CONTENT:
            return [value]
        case dict():
            return [text for name, inner in value.items() for text in content_texts(inner, name)]
        case list():
            return [text for inner in value for text in content_texts(inner, key)]
        case _:
            return []


@pytest.mark.req("TR-61")
@pytest.mark.parametrize("stream", streams(), ids=ids)
def test_every_line_is_reported_known_noise_or_kept_verbatim(stream: Stream) -> None:
    normalizer = stream.normalizer()
    transcript = "\n".join(text for line in stream.transcript() for text in strings_in(json.loads(line)["payload"]))
    for line in stream.data.split(b"\n")[:-1]:
        reports = normalizer.feed(line + b"\n")
        if reports:
            continue
        record = json.loads(line)
        kind = short(stream, record)
        if kind in NOISE[stream.provider]:
            continue
        assert kind in REPORTED_ELSEWHERE[stream.provider], line[:300]
        # Copilot's results lack terminal control sequences.
        texts = [
            part for text in content_texts(record) for part in (CONTROLS.split(text) if "shell" in kind else [text])
        ]
        lost = [text for text in texts if text not in transcript and json.dumps(text)[1:-1] not in transcript]
        assert lost == [], line[:300]


UNKNOWN = (
    b'{"type":"brand.new","sessionID":"s","data":{}}',
    b"Warning: a plain line",
    b'{"type":',
    b"[1,2]",
    b"\xff\x00",
)


@pytest.mark.req("TR-61")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("line", UNKNOWN)
def test_unknown_lines_are_kept_and_counted(name: str, line: bytes) -> None:
    normalizer = provider(name).normalizer()
    reports = [*normalizer.feed(line + b"\n"), *normalizer.finish(None)]
    unread = [report for report in reports if report == unparsed_report(line)]
    assert len(unread) == 1
    ended = reports[-1]
    assert isinstance(ended, SessionEnded)
    assert ended.unparsed == 1


# One by one.


def read(name: str, *records: Fields, resumed: bool = False) -> list[AgentReport]:
    normalizer = provider(name).normalizer(resumed=resumed)
    data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    return [*normalizer.feed(data), *normalizer.finish(None)]


def events(name: str, data: bytes) -> list[Fields]:
    """Return the events of the transcript, after checking each against the rules."""
    lines = list(transcribe(name, provider(name).normalizer(), (data,), prices=price, clock=lambda: CLOCK))
    for run_id, of_run in by_run(lines).items():
        verifier = Verifier(run_id)
        assert [broken for line in of_run for broken in verifier.line(line + b"\n")] == []
    return [json.loads(line) for line in lines]


def payloads(found: list[Fields], kind: str) -> list[Fields]:
    return [event["payload"] for event in found if event["type"] == kind]


def noted(reports: list[AgentReport]) -> list[tuple[Note, str]]:
    messages = [
        one.payload for one in reports if isinstance(one, TranscriptItem) and isinstance(one.payload, AssistantMessage)
    ]
    chunks = [[block.chunk for block in one.blocks if isinstance(block, StreamBlock)] for one in messages]
    return [(one.note, "".join(texts)) for one, texts in zip(messages, chunks, strict=True) if one.note is not None]


def test_the_output_of_a_hook_is_kept() -> None:
    hook = {"type": "system", "subtype": "hook_response", "hook_name": "SessionStart", "hook_event": "SessionStart"}
    reports = read(
        "claude-code",
        {**hook, "exit_code": 0, "stdout": "house rules\n", "stderr": "", "output": "house rules\n"},
        {**hook, "exit_code": 2, "stdout": "", "stderr": "no\n"},
        {**hook, "exit_code": 0, "stdout": "", "stderr": ""},
    )
    assert noted(reports) == [
        (Note(kind="warning", message="hook SessionStart: exit code 0"), "house rules\n"),
        (Note(kind="warning", message="hook SessionStart: exit code 2"), "no\n"),
    ]


def test_the_end_of_a_background_command_is_reported() -> None:
    ended = {"type": "system", "subtype": "task_notification", "task_id": "b1", "tool_use_id": "t1"}
    reports = read("claude-code", {**ended, "status": "failed", "summary": "exit code 3", "output_file": "/tmp/b1.out"})
    (note, _) = noted(reports)[0]
    assert note.message == "background command b1 failed: exit code 3, call t1, output in /tmp/b1.out"


def test_calls_inside_of_a_message_are_calls() -> None:
    calls = [
        {"id": "ls__1", "name": "ls", "args": {"path": "."}, "status": "success", "resultDisplay": "a\nb"},
        {"id": "cat__2", "name": "cat", "args": {"path": "x"}, "status": "error", "result": [{"text": "no file"}]},
        {"id": "wait__3", "name": "wait", "args": {}},
    ]
    message = {"type": "message", "role": "assistant", "content": "Looking.", "toolCalls": calls}
    found = events("gemini", json.dumps(message).encode() + b"\n")
    assert [(call["call_id"], call["input"]) for call in payloads(found, "tool.call")] == [
        ("ls__1", {"path": "."}),
        ("cat__2", {"path": "x"}),
        ("wait__3", {}),
    ]
    results = payloads(found, "tool.result")
    assert [(one["call_id"], one["output"], "error" in one) for one in results] == [
        ("ls__1", "a\nb", False),
        ("cat__2", [{"text": "no file"}], True),
    ]
    texts = [block.get("text") for message in payloads(found, "message.assistant") for block in message["blocks"]]
    assert "Looking." in texts


RESULTS: dict[str, Fields] = {
    "claude-code": {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c9", "content": "late"}]},
    },
    "gemini": {"type": "tool_result", "tool_id": "c9", "status": "success", "output": "late"},
    "copilot": {
        "type": "tool.execution_complete",
        "data": {"toolCallId": "c9", "success": True, "result": {"content": "late"}},
    },
    "codex": {
        "type": "item.completed",
        "item": {"id": "c9", "type": "command_execution", "command": "ls", "aggregated_output": "late", "exit_code": 0},
    },
    "opencode": {
        "type": "tool_use",
        "sessionID": "s",
        "part": {"tool": "bash", "callID": "c9", "state": {"status": "completed", "input": {}, "output": "late"}},
    },
}
"""A result whose call was made by an earlier process, by provider."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_result_of_an_earlier_process_has_a_call(name: str) -> None:
    found = events(name, json.dumps(RESULTS[name]).encode() + b"\n")
    kinds = [event["type"] for event in found if event["type"].startswith("tool.")]
    assert kinds == ["tool.call", "tool.result"]
    (call,), (result,) = payloads(found, "tool.call"), payloads(found, "tool.result")
    assert (call["call_id"], call["name"]) == (result["call_id"], result["name"])
    assert result["output"] == "late"


@pytest.mark.req("TR-65")
@pytest.mark.parametrize("stream", streams(), ids=ids)
def test_every_result_has_its_call_and_times_never_run_backwards(stream: Stream) -> None:
    for lines in by_run(stream.transcript()).values():
        calls: set[str] = set()
        last = ""
        for event in map(json.loads, lines):
            assert event["timestamp"] >= last
            last = event["timestamp"]
            if event["type"] == "tool.call":
                calls.add(event["payload"]["call_id"])
            elif event["type"] == "tool.result":
                assert event["payload"]["call_id"] in calls


# Raw control characters, and lines that are too long.

TEXT_LINES: dict[str, bytes] = {
    "claude-code": b'{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"%b"}]}}',
    "codex": b'{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"%b"}}',
    "gemini": b'{"type":"message","role":"assistant","content":"%b","delta":true}',
    "copilot": b'{"type":"assistant.message","data":{"messageId":"m","content":"%b","model":"x"}}',
    "opencode": b'{"type":"text","sessionID":"s","part":{"id":"p","messageID":"m","text":"%b"}}',
}
"""A line with a text message, by provider."""


def texts_of(found: list[Fields]) -> list[str]:
    blocks = [block for message in payloads(found, "message.assistant") for block in message["blocks"]]
    return [block["text"] for block in blocks if block["type"] == "text"]


@pytest.mark.req("TR-32")
@pytest.mark.parametrize("name", PROGRAMS)
def test_raw_control_characters_inside_of_a_text_are_kept(name: str) -> None:
    raw = bytes(range(32)).replace(b"\n", b"")
    found = events(name, TEXT_LINES[name] % (b"before" + raw + b"after") + b"\n")
    assert texts_of(found) == [f"before{raw.decode()}after"]
    assert not [one for one in found if "unparsed" in json.dumps(one)]


@pytest.mark.req("TR-62")
def test_a_text_that_is_too_long_once_encoded_is_cut_and_marked_and_the_rest_goes_on() -> None:
    nuls = 12 * 1024 * 1024
    for raw in (b"\x00", b"\\u0000"):
        data = (
            TEXT_LINES["codex"] % (raw * nuls if raw == b"\x00" else raw * (nuls // 3))
            + b"\n"
            + TEXT_LINES["codex"] % b"then"
            + b"\n"
        )
        lines = list(transcribe("codex", provider("codex").normalizer(), (data,), prices=price, clock=lambda: CLOCK))
        assert max(map(len, lines)) < LOG_LINE_BYTES
        found = [json.loads(line) for line in lines]
        cut, then = texts_of(found)
        assert then == "then"
        if raw == b"\x00":
            assert cut.startswith("\0" * 1000)
            assert cut.endswith(f" of {nuls:,} characters)")
            assert [message.get("truncated") for message in payloads(found, "message.assistant")] == [True, None]
        else:
            assert cut == "\0" * (nuls // 3)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_line_that_is_kept_is_cut_too(name: str) -> None:
    data = b"\xff" * (30 * 1024 * 1024) + b"\n" + TEXT_LINES[name] % b"then" + b"\n"
    lines = list(transcribe(name, provider(name).normalizer(), (data,), prices=price, clock=lambda: CLOCK))
    assert max(map(len, lines)) < LOG_LINE_BYTES
    found = [json.loads(line) for line in lines]
    assert texts_of(found) == ["then"]
    first = next(message for message in payloads(found, "message.assistant") if message["blocks"])
    assert first["truncated"] is True


# One JSON document instead of lines.

RESULT: Fields = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "result": "Four.",
    "session_id": "s1",
    "num_turns": 1,
    "total_cost_usd": 0.01,
    "usage": {"input_tokens": 10, "output_tokens": 2},
    "modelUsage": {"claude-opus-5-5": {"inputTokens": 10, "outputTokens": 2, "costUSD": 0.01}},
}
GEMINI: Fields = {
    "session_id": "g1",
    "response": "Four.",
    "stats": {
        "models": {
            "gemini-2.5-flash": {
                "api": {"totalRequests": 1},
                "tokens": {"prompt": 12, "candidates": 3, "total": 20, "cached": 4, "thoughts": 5, "tool": 0},
            }
        },
        "tools": {"totalCalls": 0},
    },
}


@pytest.mark.req("TR-64")
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    ("name", "document", "usage"),
    [
        ("claude-code", RESULT, {"input": 10, "output": 2}),
        (
            "claude-code",
            [{"type": "system", "subtype": "init", "session_id": "s1"}, RESULT],
            {"input": 10, "output": 2},
        ),
        ("gemini", GEMINI, {"input": 8, "output": 8, "cache_read": 4, "reasoning": 5}),
    ],
)
def test_a_single_json_document_is_understood(name: str, document: Any, usage: Fields, indent: int | None) -> None:
    data = json.dumps(document, indent=indent).encode()
    for end in (b"", b"\n"):
        found = events(name, data + end)
        assert texts_of(found) == ["Four."]
        outcome = found[-1]["payload"]
        assert (outcome["status"], outcome["result"]) == ("completed", "Four.")
        assert {key: count for key, count in outcome["usage"].items() if count} == usage
        assert "unparsed" not in payloads(found, "step.completed")[0]["result"]


def test_a_document_with_an_error_is_a_failure() -> None:
    error = {"type": "FatalAuthenticationError", "message": "no key", "code": 41}
    found = events("gemini", json.dumps({"session_id": "g1", "stats": {}, "error": error}, indent=2).encode())
    outcome = found[-1]["payload"]
    assert (outcome["status"], outcome["error"]["message"]) == ("failed", "no key")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_document_that_never_ends_is_kept_line_by_line(name: str) -> None:
    found = events(name, b'{\n  "a": 1,\n' + TEXT_LINES[name] % b"then" + b"\n[\n1,\n")
    chunks = [block.get("chunk") for message in payloads(found, "message.assistant") for block in message["blocks"]]
    assert [chunk for chunk in chunks if chunk] == ["{", '  "a": 1,', "[", "1,"]
    assert texts_of(found) == ["then"]


# Usage.


@pytest.mark.req("TR-63")
def test_the_totals_of_a_codex_thread_belong_to_a_run_only_if_it_started_the_thread() -> None:
    usage = {"input_tokens": 3600, "cached_input_tokens": 2400, "output_tokens": 135}
    data = b'{"type":"thread.started","thread_id":"t"}\n{"type":"turn.started"}\n'
    data += json.dumps({"type": "turn.completed", "usage": usage}).encode() + b"\n"
    (step,), outcome = payloads(events("codex", data), "step.completed"), events("codex", data)[-1]["payload"]
    assert "usage" not in step
    assert "usage" not in outcome
    assert step["session"]["usage"]["input"] == 1200
    fresh = transcribe("codex", provider("codex").normalizer(resumed=False), (data,), prices=price)
    outcome = json.loads(list(fresh)[-1])["payload"]
    assert outcome["usage"]["input"] == 1200


@pytest.mark.req("TR-63")
@pytest.mark.parametrize(
    ("name", "scenario", "covers"),
    [
        ("claude-code", "task", "own"),
        ("codex", "agents", "own"),
        ("opencode", "task", "own"),
        ("gemini", "task", "own_and_sub_agents"),
        ("claude-code", "text", None),
        ("copilot", "task", None),
    ],
)
def test_the_record_says_whether_sub_agents_are_counted(name: str, scenario: str, covers: str | None) -> None:
    found = [json.loads(line) for line in Stream(name, scenario).transcript()]
    assert found[-1]["payload"].get("covers") == covers
    own = [event for event in found if event["type"] == "step.completed" and event["run_id"] == found[-1]["run_id"]]
    assert own[0]["payload"].get("covers") == covers


def test_a_cost_that_cannot_be_divided_and_its_tokens_are_of_all() -> None:
    stream = Stream("claude-code", "task")
    data = stream.data.replace(b"claude-opus-5-5", b"claude-nobody-knows")
    outcome = events("claude-code", data)[-1]["payload"]
    assert outcome["covers"] == "own_and_sub_agents"
    assert outcome["usage"]["input"] == 4800
    assert outcome["cost"] == {"usd": 0.02544, "source": "agent"}
    assert "sub_usage" not in outcome


# Prompts and times.


@pytest.mark.req("TR-66")
@pytest.mark.parametrize("name", ["gemini", "copilot"])
def test_the_prompt_in_a_stream_is_a_user_message(name: str) -> None:
    found = [json.loads(line) for line in Stream(name, "text").transcript()]
    (message,) = payloads(found, "message.user")
    assert [block["text"] for block in message["blocks"]] == ["Please do the scripted task."]
    assert "synthetic" not in message


def test_a_time_before_that_of_the_last_event_is_replaced_and_marked() -> None:
    message = {"type": "message", "role": "user"}
    lines = [
        {**message, "content": text, "timestamp": f"2026-11-15T10:00:0{at}.000Z"}
        for text, at in (("a", 2), ("b", 1), ("c", 3))
    ]
    found = events("gemini", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    times = [(event["timestamp"][17:19], event["payload"].get("clock")) for event in found]
    assert times == [
        ("02", "reader"),
        ("02", "reader"),
        ("02", None),
        ("02", "reader"),
        ("03", None),
        *[("03", "reader")] * 2,
    ]


def test_without_timestamps_the_time_of_reading_is_used() -> None:
    found = events("codex", TEXT_LINES["codex"] % b"x" + b"\n")
    assert {(event["timestamp"], event["payload"].get("clock")) for event in found} == {(CLOCK, "reader")}
