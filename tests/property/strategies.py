"""Strategies for any event, derived from the types, so that a new field is tested without a change here."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st
from tests.sample_events import CHILD_ID, PARENT_ID, RUN_ID, TIMESTAMP, location_of

from shopfloor.log import (
    PAYLOAD_TYPES,
    AssistantMessage,
    CallCompleted,
    CallStarted,
    Line,
    Payload,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolResult,
    encode,
    is_message_chunk,
)

AWKWARD = st.sampled_from(
    ["\0", "\u2028", "\u2029", "\x85", "\r", "\n", "\x1b", "\ufeff", '"', "\\", "/", "😀", "\x7f"]
)
CHARACTERS = st.characters(exclude_categories=["Cs"])
SURROGATES = st.characters(categories=["Cs"])

text = st.text(CHARACTERS | AWKWARD, max_size=20)
text_with_surrogates = st.text(CHARACTERS | SURROGATES, max_size=20)
# JSON has numbers of any size; numbers beyond 64 bits are covered in the unit tests.
integers = st.integers(-(2**63), 2**64 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)


def json_of(strings: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    leaves = st.none() | st.booleans() | integers | floats | strings
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3), max_leaves=6
    )


def payloads_of(strings: st.SearchStrategy[str]) -> dict[str, st.SearchStrategy[Any]]:
    """Any payload of the ten types, with texts from this strategy."""
    made = _Maker(strings)
    infos = msgspec.inspect.multi_type_info(PAYLOAD_TYPES.values())
    return {name: made.of(info) for name, info in zip(PAYLOAD_TYPES, infos, strict=True)}


class _Maker:
    def __init__(self, strings: st.SearchStrategy[str]) -> None:
        self._strings = strings
        self._json = json_of(strings)

    def of(self, info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
        match info:
            case msgspec.inspect.StructType():
                return self._struct(info)
            case msgspec.inspect.UnionType(types=types):
                return st.one_of(*map(self.of, types))
            case msgspec.inspect.ListType(item_type=item):
                return st.lists(self.of(item), max_size=4)
            case msgspec.inspect.DictType(value_type=value):
                return st.dictionaries(self._strings, self.of(value), max_size=3)
            case msgspec.inspect.LiteralType(values=values):
                return st.sampled_from(values)
            case _:
                return self._simple(info)

    def _simple(self, info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
        simple = {
            msgspec.inspect.StrType: self._strings,
            msgspec.inspect.IntType: st.integers(1, 2**63 - 1),
            msgspec.inspect.FloatType: floats,
            msgspec.inspect.BoolType: st.booleans(),
            msgspec.inspect.NoneType: st.none(),
            msgspec.inspect.AnyType: self._json,
        }
        return simple[type(info)]

    def _struct(self, info: msgspec.inspect.StructType) -> st.SearchStrategy[Any]:
        required = {field.name: self.of(field.type) for field in info.fields if field.required}
        optional = {field.name: self.of(field.type) for field in info.fields if not field.required}
        fields = st.fixed_dictionaries(required, optional=optional)
        return fields.map(lambda given: info.cls(**given))


PAYLOADS = payloads_of(text)
payloads = st.one_of(*PAYLOADS.values())
INSIDE = [name for name in PAYLOAD_TYPES if name.startswith(("message.", "tool."))]


@st.composite
def lines(draw: st.DrawFn, of: st.SearchStrategy[Any] = payloads, paths: st.SearchStrategy[str] = text) -> Line:
    """Any event that a writer may write, anywhere."""
    payload = draw(of)
    place = location_of(payload)
    if not isinstance(payload, RunStarted | RunCompleted):
        place["path"] = draw(paths.filter(bool))
    return Line(
        seq=draw(st.integers(1, 2**63 - 1)),
        run_id=draw(st.sampled_from([RUN_ID, CHILD_ID])),
        parent_run_id=draw(st.sampled_from([None, PARENT_ID])),
        type=payload.event_type,
        iteration=draw(st.integers(0, 2**31)),
        timestamp=TIMESTAMP,
        payload=payload,
        **place,
    )


def _pair(draw: st.DrawFn, started: type[Payload], ended: type[Payload]) -> tuple[Any, Any]:
    first, last = draw(PAYLOADS[started.event_type]), draw(PAYLOADS[ended.event_type])
    return first, msgspec.structs.replace(last, try_=first.try_)


@st.composite
def runs(draw: st.DrawFn, *, max_steps: int = 3) -> list[tuple[Payload, dict[str, Any]]]:
    """A run with its events in order, each with its path; complete, or interrupted by a crash."""
    events: list[tuple[Payload, dict[str, Any]]] = []
    for attempt in range(1, draw(st.integers(1, 2)) + 1):
        events.append((msgspec.structs.replace(draw(PAYLOADS["run.started"]), attempt=attempt), {}))
        for number in range(draw(st.integers(0, max_steps))):
            place = {"path": f"{attempt}.{number}", "iteration": draw(st.integers(0, 3))}
            kinds = draw(st.sampled_from([(StepStarted, StepCompleted), (CallStarted, CallCompleted)]))
            link = {"child_run_id": CHILD_ID} if kinds[0] is CallStarted else {}
            first, last = _pair(draw, *kinds)
            events.append((first, place | link))
            for name in draw(st.lists(st.sampled_from(INSIDE), max_size=3)):
                # Chunks of a message continue where the one before ended: see `test_partial_messages.py`.
                payload = draw(PAYLOADS[name].filter(lambda payload: not _is_piece(payload)))
                if isinstance(payload, ToolResult):
                    call = msgspec.structs.replace(draw(PAYLOADS["tool.call"]), call_id=payload.call_id)
                    events.append((call, place))
                events.append((payload, place))
            if draw(st.booleans()):
                events.append((last, place | link))
    if draw(st.booleans()):
        outcome = draw(PAYLOADS["run.completed"])
        # Only a failed or cancelled run leaves steps open.
        ends = sum(isinstance(payload, StepCompleted | CallCompleted) for payload, _ in events)
        is_whole = ends == sum(isinstance(payload, StepStarted | CallStarted) for payload, _ in events)
        status = outcome.status if is_whole else draw(st.sampled_from(["failed", "cancelled"]))
        events.append((msgspec.structs.replace(outcome, status=status), {}))
    return events


def _is_piece(payload: Payload) -> bool:
    return isinstance(payload, AssistantMessage) and is_message_chunk(payload)


def log_of(run: list[tuple[Payload, dict[str, Any]]], parent: str | None = None) -> list[bytes]:
    """Return the lines of the run's log, each with its line feed."""
    raw: list[bytes] = []
    for seq, (payload, place) in enumerate(run, 1):
        envelope = {"path": "", "iteration": 0} | place
        line = Line(
            seq=seq,
            run_id=RUN_ID,
            parent_run_id=parent,
            type=payload.event_type,
            timestamp=TIMESTAMP,
            payload=payload,
            **envelope,
        )
        raw.append(encode(line) + b"\n")
    return raw
