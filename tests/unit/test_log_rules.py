"""The verifier: every rule of the format, and a line that breaks it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from tests.sample_events import (
    CHILD_ID,
    GOLDEN_FILES,
    PARENT_ID,
    PAYLOADS,
    RUN_ID,
    assistant_message,
    completed,
    fields_of,
    started,
)

from shopfloor.limits import LOG_LINE_BYTES
from shopfloor.log import RULES, AssistantMessage, RuleViolation, StreamBlock, Verifier

Fields = dict[str, Any]
Change = Callable[[list[Fields]], None]


class Case(NamedTuple):
    """A complete run in which one line, by default the last, breaks exactly one rule."""

    rule: str
    name: str
    events: list[Fields]
    change: Change = lambda events: None
    line: int = -1
    raw: Callable[[bytes], bytes] = lambda raw: raw


def run_of(*names: str) -> list[Fields]:
    """Return events of these types after `run.started`."""
    payloads = [started(), *(PAYLOADS[name] for name in names)]
    return [fields_of(payload, seq) for seq, payload in enumerate(payloads, 1)]


def with_last(**fields: Any) -> Change:
    return lambda events: events[-1].update(fields)


def with_payload(**fields: Any) -> Change:
    return lambda events: events[-1]["payload"].update(fields)


def without(name: str) -> Change:
    def change(events: list[Fields]) -> None:
        del events[-1][name]

    return change


def without_in_payload(name: str) -> Change:
    def change(events: list[Fields]) -> None:
        del events[-1]["payload"][name]

    return change


def piece(chunk: str, offset: int) -> AssistantMessage:
    block = StreamBlock(fidelity="agent_emitted", kind="text", block=0, offset=offset, chunk=chunk)
    return AssistantMessage(message_id="m", blocks=[block])


def with_piece(**fields: Any) -> Change:
    return lambda events: events[-1]["payload"]["blocks"][0].update(fields)


MESSAGE_RUN = run_of("message.assistant")
PIECES = [*run_of(), fields_of(piece("one", 0), 2), fields_of(piece("!", 3), 3)]
STEP = run_of("step.started", "step.completed")
CALL = run_of("step.call_workflow.started")
WHOLE = run_of("step.started", "message.user", "tool.call", "tool.result", "step.completed", "run.completed")
SUB_RUN = [event | {"parent_run_id": PARENT_ID} for event in MESSAGE_RUN]
TRY_AGAIN = [fields_of(started(), 1), fields_of(started(1), 2)]
ENVELOPE = ["seq", "run_id", "type", "path", "iteration", "timestamp", "payload"]


def twice_inside(raw: bytes) -> bytes:
    return raw.replace(b'{"b":1}', b'{"b":1,"b":1}')


CASES = [
    Case("line-end", "torn", MESSAGE_RUN, raw=lambda raw: raw[:-1]),
    Case("line-end", "torn in the middle", MESSAGE_RUN, raw=lambda raw: raw[:40]),
    Case("line-end", "CR LF", MESSAGE_RUN, raw=lambda raw: raw[:-1] + b"\r\n"),
    Case("line-size", "too long", run_of("tool.call"), with_payload(input="x" * LOG_LINE_BYTES)),
    Case("utf-8", "a byte that is none", MESSAGE_RUN, raw=lambda raw: raw.replace(b"end_turn", b"end_\xff")),
    Case("utf-8", "a surrogate as bytes", MESSAGE_RUN, raw=lambda raw: raw.replace(b"end_turn", b"\xed\xa0\x80")),
    Case("json-object", "no JSON", MESSAGE_RUN, raw=lambda raw: b"oops\n"),
    Case("json-object", "an empty line", MESSAGE_RUN, raw=lambda raw: b"\n"),
    Case("json-object", "zeros", MESSAGE_RUN, raw=lambda raw: b"\0" * 100 + b"\n"),
    Case("json-object", "an array", MESSAGE_RUN, raw=lambda raw: b"[1]\n"),
    Case("json-object", "null", MESSAGE_RUN, raw=lambda raw: b"null\n"),
    Case("json-object", "two objects", MESSAGE_RUN, raw=lambda raw: raw[:-1] + raw),
    Case("json-object", "half an object", MESSAGE_RUN, raw=lambda raw: raw[:40] + b"\n"),
    Case("json-object", "nested without end", MESSAGE_RUN, raw=lambda raw: b"[" * 100_000 + b"\n"),
    *(Case("envelope", f"no {name}", MESSAGE_RUN, without(name)) for name in ENVELOPE),
    *(Case("envelope", f"{name} is null", MESSAGE_RUN, with_last(**{name: None})) for name in ENVELOPE[:-1]),
    Case("envelope", "seq is text", MESSAGE_RUN, with_last(seq="2")),
    Case("envelope", "iteration is true", MESSAGE_RUN, with_last(iteration=True)),
    Case("envelope", "iteration is a fraction", MESSAGE_RUN, with_last(iteration=0.5)),
    Case("envelope", "an empty parent", MESSAGE_RUN, with_last(parent_run_id="")),
    Case("envelope", "a null parent", MESSAGE_RUN, with_last(parent_run_id=None)),
    Case("envelope", "a null child", MESSAGE_RUN, with_last(child_run_id=None)),
    Case("envelope", "a child that is a number", MESSAGE_RUN, with_last(child_run_id=1)),
    Case("run-id", "another run", MESSAGE_RUN, with_last(run_id=CHILD_ID)),
    Case("run-id", "no UUID", MESSAGE_RUN, with_last(run_id="run-1")),
    Case("run-id", "UUID of version 1", MESSAGE_RUN, with_last(run_id="5f3a1c9e-6d0b-1c55-9a6e-2f8d1b7c4e10")),
    Case("seq", "a gap", MESSAGE_RUN, with_last(seq=3)),
    Case("seq", "twice the same", MESSAGE_RUN, with_last(seq=1)),
    Case("seq", "from 0", run_of(), with_last(seq=0)),
    Case("seq", "from 2", run_of(), with_last(seq=2)),
    Case("parent-link", "lost", SUB_RUN, without("parent_run_id")),
    Case("parent-link", "another", SUB_RUN, with_last(parent_run_id=CHILD_ID)),
    Case("parent-link", "out of nowhere", MESSAGE_RUN, with_last(parent_run_id=PARENT_ID)),
    Case("parent-link", "no UUID", SUB_RUN, with_last(parent_run_id="run-1")),
    Case("child-link", "missing", CALL, without("child_run_id")),
    Case("child-link", "no UUID", CALL, with_last(child_run_id="run-1")),
    Case("child-link", "on a message", MESSAGE_RUN, with_last(child_run_id=CHILD_ID)),
    Case("type", "unknown", MESSAGE_RUN, with_last(type="message.system")),
    Case("type", "empty", MESSAGE_RUN, with_last(type="")),
    Case("path", "on run.started", run_of(), with_last(path="build")),
    Case("path", "on run.completed", run_of("run.completed"), with_last(path="build")),
    Case("path", "missing from step.started", run_of("step.started"), with_last(path="")),
    Case("path", "missing from step.call_workflow.started", CALL, with_last(path="")),
    Case("iteration", "negative", MESSAGE_RUN, with_last(iteration=-1)),
    Case("timestamp", "without milliseconds", MESSAGE_RUN, with_last(timestamp="2026-11-15T10:30:00Z")),
    Case("timestamp", "with microseconds", MESSAGE_RUN, with_last(timestamp="2026-11-15T10:30:00.000000Z")),
    Case("timestamp", "with an offset", MESSAGE_RUN, with_last(timestamp="2026-11-15T10:30:00.000+00:00")),
    Case("timestamp", "with a blank", MESSAGE_RUN, with_last(timestamp="2026-11-15 10:30:00.000Z")),
    Case("timestamp", "empty", MESSAGE_RUN, with_last(timestamp="")),
    Case("timestamp", "a month that there is not", MESSAGE_RUN, with_last(timestamp="2026-13-15T10:30:00.000Z")),
    Case("timestamp", "an hour that there is not", MESSAGE_RUN, with_last(timestamp="2026-11-15T25:30:00.000Z")),
    Case("timestamp", "other digits", MESSAGE_RUN, with_last(timestamp="\u0662\u0660\u0662\u0666-11-15T10:30:00.000Z")),
    Case("payload", "not an object", MESSAGE_RUN, with_last(payload=[])),
    Case("payload", "without its blocks", MESSAGE_RUN, without_in_payload("blocks")),
    Case("payload", "an unknown block", MESSAGE_RUN, with_payload(blocks=[{"type": "image", "fidelity": "router"}])),
    Case("payload", "a block without fidelity", MESSAGE_RUN, with_payload(blocks=[{"type": "text", "text": "x"}])),
    Case("payload", "an unknown fidelity", run_of("tool.call"), with_payload(fidelity="guessed")),
    Case("payload", "another role", MESSAGE_RUN, with_payload(role="user")),
    Case("payload", "an unknown status", run_of("run.completed"), with_payload(status="done")),
    Case("payload", "a step without a try", run_of("step.started"), without_in_payload("try")),
    Case("payload", "a try that is text", run_of("step.started"), with_payload(**{"try": "1"})),
    Case("start", "another event first", [fields_of(assistant_message("x"), 1)]),
    Case("start", "the same attempt twice", TRY_AGAIN),
    Case("start", "a lower attempt", [fields_of(started(3), 1), fields_of(started(2), 2)]),
    Case("start", "attempt 0", [fields_of(started(0), 1)]),
    Case("outcome", "a message after it", [*run_of("run.completed"), fields_of(assistant_message("x"), 3)]),
    Case("outcome", "an attempt after it", [*run_of("run.completed"), fields_of(started(2), 3)]),
    Case("outcome", "two of them", run_of("run.completed", "run.completed")),
    Case("keys", "in the envelope", MESSAGE_RUN, raw=lambda raw: raw.replace(b'"seq":2', b'"seq":1,"seq":2')),
    Case(
        "keys", "in the payload", MESSAGE_RUN, raw=lambda raw: raw.replace(b'"payload":{', b'"payload":{"blocks":[],')
    ),
    Case("keys", "deep inside", run_of("tool.call"), with_payload(input={"a": [{"b": 1}]}), raw=twice_inside),
    Case("clock", "a millisecond back", MESSAGE_RUN, with_last(timestamp="2026-11-15T10:29:59.999Z")),
    Case("clock", "a year back", MESSAGE_RUN, with_last(timestamp="2025-11-15T10:30:00.000Z")),
    Case("step-end", "a step", run_of("step.started", "run.completed"), with_payload(status="completed")),
    Case("step-end", "a sub-run", [*CALL, fields_of(PAYLOADS["run.completed"], 3)], with_payload(status="completed")),
    Case("tool-pair", "no call", run_of("tool.result")),
    Case("tool-pair", "another call", run_of("tool.call", "tool.result"), with_payload(call_id="another")),
    Case("step-once", "twice", run_of("step.started", "step.started")),
    Case("step-once", "again after its end", run_of("step.started", "step.completed", "step.started")),
    Case("step-pair", "never started", run_of("step.completed")),
    Case("step-pair", "completed twice", run_of("step.started", "step.completed", "step.completed")),
    Case("step-pair", "another iteration", STEP, with_last(iteration=1)),
    Case("step-pair", "another path", STEP, with_last(path="test")),
    Case("step-pair", "another try", STEP, with_payload(**{"try": 2})),
    Case("piece", "text that is missing", PIECES, with_piece(offset=4)),
    Case("piece", "text that is there twice", PIECES, with_piece(offset=2)),
    Case("piece", "a block that begins again", [*PIECES, fields_of(piece("?", 4), 4)], with_piece(offset=0)),
]


def verify(lines: list[bytes], run_id: str | None = RUN_ID) -> list[RuleViolation]:
    verifier = Verifier(run_id)
    return [broken for line in lines for broken in verifier.line(line)]


def lines_of(events: list[Fields]) -> list[bytes]:
    return [msgspec.json.encode(event) + b"\n" for event in events]


def test_every_rule_but_the_one_of_the_file_has_a_case() -> None:
    assert {case.rule for case in CASES} == RULES.keys() - {"mode", "empty"}


def test_a_file_without_a_line_is_empty_and_one_with_a_line_is_not() -> None:
    verifier = Verifier(RUN_ID)
    assert [(broken.line, broken.rule) for broken in verifier.end()] == [(0, "empty")]
    verifier.line(lines_of(run_of())[0])
    assert verifier.end() == []


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_run_that_did_not_complete_may_leave_steps_open(status: str) -> None:
    events = run_of("step.started", "run.completed")
    events[-1] = events[-1] | {"payload": events[-1]["payload"] | {"status": status}}
    assert verify(lines_of(events)) == []


def test_the_same_key_in_different_objects_and_the_same_time_twice_are_fine() -> None:
    events = run_of("tool.call")
    events[-1]["payload"]["input"] = [{"a": {"a": 1}}, {"a": 1}, {"b": [{"b": 10**400}]}]
    assert verify(lines_of(events)) == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}: {case.name}")
def test_a_line_that_breaks_one_rule_is_named_with_that_rule(case: Case) -> None:
    events = msgspec.json.decode(msgspec.json.encode(case.events))
    case.change(events)
    lines = lines_of(events)
    lines[case.line] = case.raw(lines[case.line])
    found = verify(lines)
    assert [(broken.line, broken.rule) for broken in found] == [(len(lines), case.rule)]
    assert found[0].message


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.rule != "line-size"], ids=lambda case: f"{case.rule}: {case.name}"
)
def test_the_run_of_a_case_breaks_nothing_before_it_is_changed(case: Case) -> None:
    lines = lines_of(case.events)
    ordered = case.rule in {"start", "outcome", "step-once", "step-pair", "tool-pair"}
    assert verify(lines[:-1] if ordered else lines) == []


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.name)
def test_a_golden_file_breaks_no_rule(path: Path) -> None:
    assert verify(path.read_bytes().splitlines(keepends=True)) == []


@pytest.mark.req("TR-10")
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_run_from_its_start_to_its_outcome_breaks_no_rule_however_it_ended(status: Any) -> None:
    events = [*WHOLE[:-1], fields_of(completed(status), len(WHOLE))]
    verifier = Verifier(RUN_ID)
    assert [verifier.line(line) for line in lines_of(events)] == [[]] * len(events)
    assert verifier.ended
    assert verifier.lines == len(events)


def test_an_active_run_breaks_no_rule_and_has_not_ended() -> None:
    verifier = Verifier(RUN_ID)
    assert [verifier.line(line) for line in lines_of(WHOLE[:-1])] == [[]] * (len(WHOLE) - 1)
    assert not verifier.ended


@pytest.mark.req("TR-7")
def test_the_run_id_on_the_lines_is_the_one_that_names_the_file() -> None:
    found = verify(lines_of(MESSAGE_RUN), run_id=CHILD_ID)
    assert [(broken.line, broken.rule) for broken in found] == [(1, "run-id"), (2, "run-id")]


def test_a_file_without_a_run_id_in_its_name_is_checked_against_its_first_line() -> None:
    assert verify(lines_of(MESSAGE_RUN), run_id=None) == []


def test_a_later_attempt_may_try_a_step_again() -> None:
    again = PAYLOADS["step.started"]
    events = [*run_of("step.started"), fields_of(started(2), 3), fields_of(msgspec.structs.replace(again, try_=2), 4)]
    assert verify(lines_of(events)) == []


def test_every_line_that_is_off_is_named() -> None:
    events = run_of("message.user", "tool.call", "tool.result", "run.completed")
    events[1]["timestamp"] = "today"
    events[3]["iteration"] = -2
    assert [(broken.line, broken.rule) for broken in verify(lines_of(events))] == [(2, "timestamp"), (4, "iteration")]


def test_one_line_can_break_several_rules() -> None:
    events = run_of("message.user")
    events[-1] |= {"seq": 9, "timestamp": "today", "type": "x"}
    assert [broken.rule for broken in verify(lines_of(events))] == ["seq", "timestamp", "type"]


def test_a_line_with_an_invalid_envelope_counts_if_its_seq_can_be_read() -> None:
    events = run_of("message.user", "tool.call")
    del events[1]["path"]
    assert [(broken.line, broken.rule) for broken in verify(lines_of(events))] == [(2, "envelope")]


def test_fields_of_a_later_version_break_no_rule() -> None:
    events = run_of("message.user")
    events[-1]["later"] = 1
    events[-1]["payload"]["later"] = 1
    assert verify(lines_of(events)) == []
