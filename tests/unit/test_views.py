"""The views: pure folds of a log."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from shopfloor.engine import pack
from shopfloor.log import (
    AssistantMessage,
    Awaits,
    CallCompleted,
    CallStarted,
    ClientInfo,
    Cost,
    Event,
    Note,
    Payload,
    RunCompleted,
    RunError,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
    UserMessage,
    decode,
    format_timestamp,
    new_run_id,
)
from shopfloor.views import (
    ArchiveEntry,
    RunRow,
    Timeline,
    archive,
    preview,
    queued_row,
    row_fold,
    timeline_fold,
    truncate_bytes,
)

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(name: str) -> list[Event]:
    return [decode(line) for line in (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()]


def log_of(*payloads: Payload) -> list[Event]:
    run_id = new_run_id()
    started = RunStarted(name="w", kind="worker", attempt=1, host="h", task="t")
    return [
        Event(
            seq=number,
            run_id=run_id,
            type=payload.event_type,
            path="" if payload.event_type.startswith("run.") else "s",
            iteration=0,
            timestamp=format_timestamp(number * 1000),
            payload=payload,
        )
        for number, payload in enumerate([started, *payloads], start=1)
    ]


def row_of(events: list[Event]) -> RunRow:
    return row_fold(RunRow(), events)


def timeline_of(events: list[Event]) -> list[tuple[str, dict]]:
    _, rows = timeline_fold(Timeline(), events)
    return [(row.event_type, row.data) for row in rows]


def call(call_id: str, name: str = "Bash", **fields) -> ToolCall:
    return ToolCall(name=name, call_id=call_id, input=fields, output=None, fidelity="agent_emitted")


def result(call_id: str, output: object = "ok", name: str = "Bash", **more) -> ToolResult:
    return ToolResult(name=name, call_id=call_id, input=None, output=output, fidelity="agent_emitted", **more)


# the row


def test_the_row_of_a_command():
    row = row_of(golden("command"))
    assert (row.id, row.agent_id, row.worker_type) == ("5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10", "command", "command")
    assert (row.status, row.error_code, row.error_message) == ("failed", "command_failed", "exit code 3")
    assert (row.started_at, row.completed_at) == ("2026-11-15T10:30:00.000Z", "2026-11-15T10:30:00.011Z")
    assert (row.result, row.duration_ms, row.last_seq, row.messages) == ("hello\noops\n", 11, 6, 2)


@pytest.mark.req("TR-26")
def test_a_tool_use_in_message_and_call_is_counted_once():
    block = ToolUseBlock(fidelity="agent_emitted", tool_name="Bash", tool_id="1", tool_input={})
    events = log_of(AssistantMessage(blocks=[block]), call("1"), result("1"))
    assert row_of(events).tool_calls == 1
    assert row_of(golden("claude-code")).tool_calls == 1


def test_usage_and_cost_are_the_totals_of_the_run_if_it_has_them():
    row = row_of(golden("claude-code"))
    assert row.spending.own.usage == Usage(input=2400, output=90, cache_read=1600, cache_write=200)
    assert row.spending.own.cost_usd == 0.01272


def test_usage_of_steps_is_summed_during_the_run():
    step = StepCompleted(name="s", kind="agent", try_=1, usage=Usage(input=5, output=1))
    assert row_of(log_of(step, step)).spending.own.usage == Usage(input=10, output=2)


def usage_message(input_: int, usd: float | None = None, **more) -> AssistantMessage:
    cost = None if usd is None else Cost(usd=usd, source="agent")
    return AssistantMessage(blocks=[], usage=Usage(input=input_, output=1), cost=cost, **more)


def test_the_usage_of_messages_counts_until_their_step_has_a_total():
    step_started = StepStarted(name="s", kind="agent", try_=1)
    payloads = [step_started, usage_message(5, 0.5), usage_message(7, 0.25)]
    row = row_of(log_of(*payloads))
    assert (row.spending.own.usage, row.spending.own.cost_usd) == (Usage(input=12, output=2), 0.75)
    total = StepCompleted(name="s", kind="agent", try_=1, usage=Usage(input=20), cost=Cost(usd=1.0, source="agent"))
    row = row_of(log_of(*payloads, total))
    assert (row.spending.own.usage, row.spending.own.cost_usd, row.spending.steps) == (Usage(input=20), 1.0, {})
    row = row_of(log_of(*payloads, StepCompleted(name="s", kind="agent", try_=1, error="it broke")))
    assert (row.spending.own.usage, row.spending.own.cost_usd, row.spending.steps) == (
        Usage(input=12, output=2),
        0.75,
        {},
    )


def test_the_usage_of_an_interrupted_session_stays_counted():
    again = RunStarted(name="w", kind="worker", attempt=2, host="h")
    step_started = StepStarted(name="s", kind="agent", try_=1)
    row = row_of(log_of(step_started, usage_message(5, 0.5), again, usage_message(7)))
    assert (row.spending.settled.usage, row.spending.own.usage, row.spending.own.cost_usd) == (
        Usage(input=5, output=1),
        Usage(input=12, output=2),
        0.5,
    )
    left = usage_message(9, 0.75, note=Note(kind="left"))
    row = row_of(log_of(step_started, usage_message(5, 0.5), left, again, usage_message(7)))
    assert (row.spending.own.usage, row.spending.own.cost_usd) == (Usage(input=16, output=2), 0.75)
    lost = RunCompleted(name="w", kind="worker", status="failed")
    row = row_of(log_of(step_started, usage_message(5, 0.5), lost))
    assert (row.spending.own.usage, row.spending.own.cost_usd, row.spending.steps) == (
        Usage(input=5, output=1),
        0.5,
        {},
    )


def test_a_total_of_a_step_that_is_no_agents_counts_no_message_twice():
    step_started = StepStarted(name="s", kind="llm", try_=1)
    again = RunStarted(name="w", kind="worker", attempt=2, host="h")
    total = StepCompleted(name="s", kind="llm", try_=1, usage=Usage(input=12, output=2))
    row = row_of(log_of(step_started, usage_message(5), again, usage_message(7), total))
    assert row.spending.own.usage == Usage(input=12, output=2)
    row = row_of(log_of(step_started, usage_message(5), usage_message(7), again, total))
    assert row.spending.own.usage == Usage(input=12, output=2)


def test_a_run_waits_while_a_call_that_awaits_is_open():
    ask = ToolCall(name="ask", call_id="q", input={}, output=None, fidelity="router", awaits=Awaits(kind="question"))
    assert row_of(log_of(ask)).status == "waiting"
    assert row_of(log_of(ask, result("q", name="ask"))).status == "running"


def test_a_waiting_run_has_the_kinds_of_its_waits():
    def ask(call_id: str, kind: str) -> ToolCall:
        return msgspec.structs.replace(call(call_id), awaits=Awaits(kind=kind))

    both = log_of(ask("q", "question"), ask("a", "approval"), ask("r", "question"))
    assert row_of(both).waits_for == ["question", "approval"]
    assert row_of(log_of(ask("q", "question"), ask("a", "approval"), result("q"))).waits_for == ["approval"]
    assert row_of(log_of(ask("q", "question"), result("q"))).waits_for is None
    assert row_of(log_of(ask("q", "question"), RunCompleted(name="w", kind="w", status="failed"))).waits_for is None


def test_a_run_that_waits_for_a_sub_run_has_that_kind():
    called = CallStarted(name="c", kind="call_workflow", try_=1)
    row = row_of(log_of(called))
    assert (row.status, row.waits_for, row.children) == ("waiting", ["run"], 1)


def test_a_row_counts_the_runs_that_it_called():
    called = CallStarted(name="c", kind="call_workflow", try_=1)
    assert row_of(log_of(called, CallCompleted(name="c", kind="call_workflow", try_=1), called)).children == 2
    assert row_of(golden("parent")).children == 1


def test_a_row_has_its_provider_and_model():
    first, second = Session(provider="claude-code"), Session(provider="codex")
    steps = [StepStarted(name="s", kind="agent", try_=1, session=session) for session in (first, None, second)]
    message = AssistantMessage(model="gpt-5.5", blocks=[])
    row = row_of(
        log_of(*steps, message, AssistantMessage(blocks=[]), AssistantMessage(model="<x>", synthetic=True, blocks=[]))
    )
    assert (row.provider, row.model) == ("codex", "gpt-5.5")
    assert row_of(log_of(StepStarted(name="s", kind="command", try_=1))).provider is None


@pytest.mark.parametrize(
    ("worker_type", "provider"), [("claude-code", "claude-code"), ("builtin", None), ("command", None), (None, None)]
)
def test_a_run_without_a_worker_has_its_provider(worker_type: str | None, provider: str | None):
    started = RunStarted(name="w", kind="agent", attempt=1, host="h", worker_type=worker_type)
    event = log_of(started)[1]
    assert row_of([event]).provider == provider


def test_a_later_attempt_changes_the_host_and_not_the_start():
    again = RunStarted(name="w", kind="worker", attempt=2, host="other")
    row = row_of(log_of(again))
    assert (row.attempt, row.host, row.task, row.started_at) == (2, "other", "t", format_timestamp(1000))


@pytest.mark.parametrize("name", ["command", "claude-code", "parent"])
def test_a_fold_can_be_stored_at_any_event_and_continued(name: str):
    events = golden(name)
    for place in range(len(events)):
        row, (state, _) = row_of(events[:place]), timeline_fold(Timeline(), events[:place])
        rows = []
        for event in events[place:]:
            state, more = timeline_fold(state, [event], row.waits)
            row = row_fold(row, [event])
            rows += [(one.event_type, one.data) for one in more]
        assert row == row_of(events)
        assert rows == timeline_of(events)[len(timeline_of(events[:place])) :]


def test_an_attempt_after_an_answer_is_shown_as_resumed_at_any_stored_state():
    ask = ToolCall(name="ask", call_id="q", input={}, output=None, fidelity="router", awaits=Awaits(kind="question"))
    again = RunStarted(name="w", kind="worker", attempt=2, host="h")
    events = log_of(StepStarted(name="s", kind="operation", try_=1), ask, again, again)
    for place in range(len(events)):
        row, (state, rows) = row_of(events[:place]), timeline_fold(Timeline(), events[:place])
        _, more = timeline_fold(state, events[place:], row.waits)
        statuses = [one.data["status"] for one in rows + more if one.event_type == "status"]
        assert statuses == ["starting", "s", "resumed", "resumed"]


# the timeline


def test_the_timeline_of_a_command():
    assert timeline_of(golden("command")) == [
        ("status", {"status": "starting"}),
        ("status", {"status": "command"}),
        ("error", {"message": "exit code 3", "step": "command"}),
        ("status", {"status": "failed"}),
    ]


def test_the_timeline_of_an_agent():
    assert timeline_of(golden("claude-code")) == [
        ("status", {"status": "starting"}),
        ("status", {"status": "claude-code"}),
        ("tool_started", {"tool_name": "Bash", "preview": "echo hello-from-tool"}),
        ("tool_completed", {"tool_name": "Bash", "duration_ms": 68, "call_seq": 6}),
        ("status", {"status": "completed"}),
    ]


def test_an_unreported_duration_is_the_time_between_call_and_result():
    rows = timeline_of(log_of(call("1", command="ls"), result("1"), result("2", name="Read")))
    assert rows[2:] == [
        ("tool_completed", {"tool_name": "Bash", "duration_ms": 1000, "call_seq": 2}),
        ("tool_completed", {"tool_name": "Read", "duration_ms": None}),
    ]


def test_a_summary_is_a_status():
    payloads = ToolCall(
        name="update_summary", call_id="1", input={"summary": "7/12 done"}, output=None, fidelity="router"
    )
    done = ToolResult(name="update_summary", call_id="1", input=None, output=None, fidelity="router")
    assert timeline_of(log_of(payloads, done))[1:] == [("status", {"status": "7/12 done"})]


@pytest.mark.req("WT-23")
def test_a_tool_that_failed_has_its_error_in_the_timeline():
    rows = timeline_of(log_of(call("1"), result("1", error="no such file")))
    payloads = {"tool_name": "Bash", "duration_ms": 1000, "call_seq": 2, "error": "no such file"}
    assert rows[-1] == ("tool_completed", payloads)


def test_an_error_of_the_run_itself_comes_before_the_outcome():
    ended = RunCompleted(
        name="w", kind="worker", status="failed", error=RunError(code="host_lost", message="the host is gone")
    )
    assert timeline_of(log_of(ended))[1:] == [
        ("error", {"message": "the host is gone", "code": "host_lost"}),
        ("status", {"status": "failed"}),
    ]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"command": "pytest tests/", "timeout": 5}, "pytest tests/"),
        ({"file_path": "/a/b.py", "content": "…"}, "/a/b.py"),
        ({"x": 1}, '{"x": 1}'),
        ("plain\n  text", "plain text"),
        (None, "null"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_preview_is_the_most_descriptive_part_on_one_line(arguments, shown):
    assert preview(arguments) == shown


def test_a_preview_has_at_most_200_characters():
    assert len(preview("x" * 1000)) == 200
    assert preview("x" * 1000).endswith("x…")


# the archive


def archive_of(events: list[Event]) -> list[dict]:
    return [msgspec.to_builtins(entry) for entry in archive(events)]


def test_the_archive_of_an_agent_has_its_messages_by_role():
    assert archive_of(golden("claude-code")) == [
        {"role": "user", "content": [{"type": "text", "text": "Please do the scripted task."}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I will run a command."},
                {
                    "type": "tool_call",
                    "id": "toolu_d3968191a2490945cc2e8f",
                    "name": "Bash",
                    "args": '{"command": "echo hello-from-tool", "description": "Run a test command"}',
                },
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "call_id": "toolu_d3968191a2490945cc2e8f", "text": "hello-from-tool"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "The command printed hello-from-tool."}]},
    ]


def test_parts_of_one_message_are_one_text_and_of_two_messages_are_two():
    def payloads(text: str, message_id: str | None) -> AssistantMessage:
        return AssistantMessage(message_id=message_id, blocks=[TextBlock(fidelity="agent_emitted", text=text)])

    (entry,) = archive_of(
        log_of(payloads("a", "1"), payloads("b", "1"), payloads("c", "2"), payloads("d", None), payloads("e", None))
    )
    assert [item["text"] for item in entry["content"]] == ["ab", "c", "d", "e"]


def test_output_of_a_command_is_joined_by_stream_and_capped():
    def out(text: str) -> AssistantMessage:
        return AssistantMessage(blocks=[TextBlock(fidelity="router", text=text, stream="stdout")])

    (entry,) = archive_of(log_of(*[out("€" * 1000) for _ in range(40)]))
    (item,) = entry["content"]
    assert len(item["text"].encode()) <= 50_000
    assert item["text"].endswith("€… [cut: 120,000 bytes in all]")


@pytest.mark.req("WT-12", "WT-13")
def test_results_and_arguments_are_truncated_between_characters_and_marked():
    user = UserMessage(blocks=[TextBlock(fidelity="router", text="go")])
    entries = archive_of(log_of(user, call("1", command="é" * 5000), result("1", "é" * 50_000)))
    args, text = entries[1]["content"][0]["args"], entries[2]["content"][0]["text"]
    assert (1990 < len(args.encode()) <= 2000, 49_990 < len(text.encode()) <= 50_000) == (True, True)
    assert args.endswith("bytes in all]")
    assert text.endswith("é… [cut: 100,000 bytes in all]")
    assert truncate_bytes("é" * 25_000, 50_000) == "é" * 25_000


def test_a_log_without_messages_has_no_archive():
    assert archive(log_of(StepStarted(name="s", kind="command", try_=1))) == []


@pytest.mark.req("WT-5", "WT-14")
def test_a_packed_archive_is_gzipped_json_and_unpacks_to_what_was_packed():
    entries = archive(golden("claude-code"))
    packed = pack(entries)
    assert packed is not None
    assert msgspec.json.decode(gzip.decompress(packed), type=list[ArchiveEntry]) == entries
    assert pack(entries) == packed


def test_the_row_of_a_queued_run_has_the_fields_of_its_first_event():
    events = log_of()
    first = RunStarted(
        name="w",
        kind="agent",
        attempt=0,
        host="",
        task="do it",
        worker_type="codex",
        agent_id="ada",
        channel_id="c",
        channel_name="#c",
        client=ClientInfo(name="codex"),
        queued_at=format_timestamp(1),
    )
    queued = queued_row(events[0].run_id, first)
    assert (queued.status, queued.host, queued.attempt, queued.last_seq) == ("queued", None, 0, 0)
    assert queued.started_at == format_timestamp(1)
    step_started = row_of([replace(events[0], payload=replace(first, attempt=1, host="h"))])
    assert step_started == replace(
        queued, status="running", host="h", attempt=1, last_seq=1, started_at=events[0].timestamp
    )
