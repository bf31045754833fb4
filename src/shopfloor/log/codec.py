"""Encoding and decoding of events, and the checks of an event before it is appended, the same for every log writer.

Encoding is strict. Decoding is tolerant: unknown types and fields are passed on as plain data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec.structs import replace

from shopfloor.decoding import convert, json_decoder
from shopfloor.errors import InvalidEvent, LogBusy, RunEnded
from shopfloor.limits import LOG_LINE_BYTES
from shopfloor.log.blocks import BLOCK_TYPES, FIDELITIES, Block, UnknownBlock
from shopfloor.log.events import Envelope, Event, Line, validate_run_id
from shopfloor.log.masking import MaskHook
from shopfloor.log.payloads import (
    PAYLOAD_TYPES,
    STATUSES,
    AssistantMessage,
    CallCompleted,
    CallStarted,
    Payload,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
)

Check = Callable[[Any, str, int, str | None], None]
"""Checks a payload with its path, iteration and child run against the rules of its type; raises `InvalidEvent`."""

ENCODE_ERRORS: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""The errors of `encode_into`. Retry with `encode`, which replaces invalid text or raises `InvalidEvent`."""

_encoder = msgspec.json.Encoder()
_encode = _encoder.encode
encode_into: Final[Callable[[Line, bytearray], None]] = _encoder.encode_into
"""Replaces the content of a buffer by the bytes of a line: faster than `encode`, without its clean-up and checks."""

_decode_any = msgspec.json.Decoder().decode
_BLOCK_CLASSES = frozenset(BLOCK_TYPES.values())


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_PayloadT = TypeVar("_PayloadT", bound=Payload)


class _RawPayloadEvent(Envelope, frozen=True, kw_only=True):
    payload: msgspec.Raw


class _TypedEvent(Event, Generic[_PayloadT], frozen=True, kw_only=True):
    """An event with a payload of the class for its type, so that envelope and payload are decoded in one pass."""

    payload: _PayloadT


_decode_envelope = json_decoder(_RawPayloadEvent).decode
# Decoders are built on first use: no command needs all of them.
_typed_decoders: dict[str, Callable[[bytes], Event]] = {}


def _new_typed_decoder(event_type: str) -> Callable[[bytes], Event] | None:
    cls: Any = PAYLOAD_TYPES.get(event_type)
    if cls is None:
        return None
    return _typed_decoders.setdefault(event_type, json_decoder(_TypedEvent[cls]).decode)


@cache
def _payload_decoder(event_type: str) -> Callable[[msgspec.Raw], Payload]:
    return json_decoder(PAYLOAD_TYPES[event_type]).decode


def encode(line: Line) -> bytes:
    """Return the bytes of a line without its LF. Raises `InvalidEvent` if the line does not fit the format."""
    try:
        raw = _encode(line)
    except UnicodeEncodeError:
        raw = _encode_cleaned(line)
    except ENCODE_ERRORS as error:
        raise _not_json(line, error) from error
    check_size(line, len(raw) + 1)
    return raw


def check_size(line: Line, size: int) -> None:
    """Raise `InvalidEvent` if `size`, the bytes of a line with its LF, is over the limit."""
    if size > LOG_LINE_BYTES:
        raise InvalidEvent(
            f"a {line.type} event of {size:,} bytes is over the limit of {LOG_LINE_BYTES:,}",
            hint="store large content in a file and name the file in the event",
        )


def _encode_cleaned(line: Line) -> bytes:
    """Encode the line with U+FFFD in place of lone surrogates, which UTF-8 cannot represent."""
    try:
        return _encode(_clean(msgspec.to_builtins(line, str_keys=True)))
    except ENCODE_ERRORS as error:
        raise _not_json(line, error) from error


def _not_json(line: Line, error: Exception) -> InvalidEvent:
    return InvalidEvent(f"a {line.type} event cannot be written as JSON: {error}")


def _clean(value: Any) -> Any:
    match value:
        case str():
            # A pair of surrogates is one character; only unpaired ones are replaced.
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case dict():
            return {_clean(key): _clean(item) for key, item in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_clean(item) for item in cast("list[Any]", value)]
        case _:
            return value


def check(payload: Payload, path: str, iteration: int, child_run_id: str | None) -> None:
    """Raise `InvalidEvent` if an event breaks the closed vocabularies or a rule about single events."""
    check_payload = CHECKS.get(type(payload))
    if check_payload is None:
        raise unknown_payload_error(payload)
    check_payload(payload, path, iteration, child_run_id)


def unknown_payload_error(payload: object) -> InvalidEvent:
    """Return the error for a payload that is not an instance of one of the payload classes."""
    names = ", ".join(cls.__name__ for cls in PAYLOAD_TYPES.values())
    return InvalidEvent(f"{type(payload).__name__} is not the payload of an event", hint=f"use one of {names}")


def _check_position(iteration: int, child_run_id: str | None) -> None:
    if iteration < 0:
        raise InvalidEvent(f"iteration is {iteration}; it counts from 0")
    if child_run_id is not None:
        raise InvalidEvent("child_run_id belongs to step.call_workflow events, and only to them")


def _check_run(payload: Any, path: str, iteration: int, child_run_id: str | None) -> None:
    _check_position(iteration, child_run_id)
    if path:
        raise InvalidEvent(f"{payload.event_type} is at run level, where the path is empty, not {path!r}")
    if type(payload) is RunStarted and payload.attempt < 1:
        raise InvalidEvent(f"attempt is {payload.attempt}; it counts from 1")
    if type(payload) is RunCompleted and payload.status not in STATUSES:
        raise InvalidEvent(f"{payload.status!r} is not an outcome: {', '.join(sorted(STATUSES))}")


def _check_step(payload: Any, path: str, iteration: int, child_run_id: str | None) -> None:
    _check_position(iteration, child_run_id)
    if not path:
        raise InvalidEvent(f"{payload.event_type} needs the path of its step")
    if payload.try_ < 1:
        raise InvalidEvent(f"try is {payload.try_}; it counts from 1")


def _check_call(payload: Any, path: str, iteration: int, child_run_id: str | None) -> None:
    _check_step(payload, path, iteration, None)
    if child_run_id is None:
        raise InvalidEvent(f"{payload.event_type} needs the child_run_id of its sub-run")
    validate_run_id(child_run_id)


def _check_message(payload: Any, path: str, iteration: int, child_run_id: str | None) -> None:
    if iteration < 0 or child_run_id is not None:
        _check_position(iteration, child_run_id)
    for block in payload.blocks:
        if type(block) not in _BLOCK_CLASSES:
            names = ", ".join(cls.__name__ for cls in BLOCK_TYPES.values())
            raise InvalidEvent(f"{type(block).__name__} is not a block of a message", hint=f"use one of {names}")
        if block.fidelity not in FIDELITIES:
            raise InvalidEvent(f"fidelity must be `router` or `agent_emitted`, got {block.fidelity!r}")


def _check_tool(payload: Any, path: str, iteration: int, child_run_id: str | None) -> None:
    _check_position(iteration, child_run_id)
    if payload.fidelity not in FIDELITIES:
        raise InvalidEvent(f"fidelity must be `router` or `agent_emitted`, got {payload.fidelity!r}")


CHECKS: Final[dict[type, Check]] = {
    RunStarted: _check_run,
    RunCompleted: _check_run,
    StepStarted: _check_step,
    StepCompleted: _check_step,
    CallStarted: _check_call,
    CallCompleted: _check_call,
    UserMessage: _check_message,
    AssistantMessage: _check_message,
    ToolCall: _check_tool,
    ToolResult: _check_tool,
}
"""The check of each payload class."""


def decode(raw: bytes, event_type: str = "") -> Event:
    """Decode a line. Raises `InvalidEvent` only if the envelope is unreadable.

    Passing the `event_type`, which an entry has, makes decoding faster.
    """
    if decoder := _typed_decoders.get(event_type) or _new_typed_decoder(event_type):
        try:
            event = decoder(raw)
        except _UNREADABLE:
            return _decode_tolerantly(raw)
        # `problems` is set by the reader only: ignore a field of that name in the line.
        return event if not event.problems else _decode_tolerantly(raw)
    return _decode_tolerantly(raw)


def _decode_tolerantly(raw: bytes) -> Event:
    try:
        envelope = _decode_envelope(raw)
    except _UNREADABLE as error:
        raise InvalidEvent(f"not an event: {error}") from error
    payload, problems = decode_payload(envelope.type, envelope.payload)
    return Event(
        seq=envelope.seq,
        run_id=envelope.run_id,
        parent_run_id=envelope.parent_run_id,
        child_run_id=envelope.child_run_id,
        type=envelope.type,
        path=envelope.path,
        iteration=envelope.iteration,
        timestamp=envelope.timestamp,
        payload=payload,
        problems=problems,
    )


def decode_payload(event_type: str, raw: msgspec.Raw | bytes) -> tuple[Payload | UnknownPayload, tuple[str, ...]]:
    """Decode a payload and return it with the problems found. Raises `InvalidEvent` if it is not JSON."""
    if event_type not in PAYLOAD_TYPES:
        return UnknownPayload(_decode_plain(raw)), (f"unknown event type {event_type!r}",)
    try:
        return _payload_decoder(event_type)(msgspec.Raw(raw)), ()
    except _UNREADABLE as error:
        return _decode_partially(event_type, raw, str(error))


def _decode_plain(raw: msgspec.Raw | bytes) -> Any:
    try:
        return _decode_any(raw)
    except _UNREADABLE as error:
        raise InvalidEvent(f"not an event: {error}") from error


def _decode_partially(
    event_type: str, raw: msgspec.Raw | bytes, reason: str
) -> tuple[Payload | UnknownPayload, tuple[str, ...]]:
    """Decode a payload that does not match its class: a message may be valid except for blocks of a later version."""
    data = _decode_plain(raw)
    cls = PAYLOAD_TYPES[event_type]
    if not issubclass(cls, UserMessage | AssistantMessage) or not isinstance(data, dict):
        return UnknownPayload(data), (f"payload of {event_type}: {reason}",)
    message = cast("dict[str, Any]", data)
    blocks = message.get("blocks")
    if not isinstance(blocks, list):
        return UnknownPayload(message), (f"payload of {event_type}: {reason}",)
    known, problems = _decode_blocks(cast("list[Any]", blocks))
    try:
        empty = convert({**message, "blocks": []}, cls)
    except msgspec.ValidationError as error:
        return UnknownPayload(message), (f"payload of {event_type}: {error}", *problems)
    return msgspec.structs.replace(empty, blocks=known), problems


def _decode_blocks(blocks: list[Any]) -> tuple[list[Block | UnknownBlock], tuple[str, ...]]:
    known: list[Block | UnknownBlock] = []
    problems: list[str] = []
    for number, block in enumerate(blocks):
        data: dict[str, Any] = cast("dict[str, Any]", block) if isinstance(block, dict) else {"value": block}
        name = str(data.get("type"))
        cls = BLOCK_TYPES.get(name)
        if cls is None:
            known.append(UnknownBlock(name, data))
            problems.append(f"unknown block type {name!r}")
            continue
        try:
            known.append(convert(data, cls))
        except msgspec.ValidationError as error:
            known.append(UnknownBlock(name, data))
            problems.append(f"block {number} ({name}): {error}")
    return known, tuple(problems)


def check_next(run_id: str, seq: int, payload: Payload, *, has_ended: bool) -> None:
    """Raise if this payload cannot follow the event `seq`, the last one in the log: `RunEnded` or `InvalidEvent`."""
    if has_ended:
        raise RunEnded(f"the run {run_id} has its outcome; nothing can follow it")
    if not seq and not isinstance(payload, RunStarted):
        raise InvalidEvent(f"a log begins with run.started, not with {payload.event_type}")


def event_time(newest: str, now: str, at: str | None, payload: Payload) -> tuple[str, Payload]:
    """Return the time of an event, and its payload. Times in a log never decrease, even if the clock was set back.

    `newest` is the time of the previous event. If `at` is earlier than `newest` or later than `now`, the clock's time
    is used and the payload gets `clock="reader"`.
    """
    now = max(now, newest)
    if at is None:
        return now, payload
    return (at, payload) if newest <= at <= now else (now, replace(payload, clock="reader"))


def apply_mask(hook: MaskHook, payload: Payload) -> Payload:
    """Return the payload after the mask hook. Raises `InvalidEvent` if the hook returns an invalid payload."""
    data = cast("dict[str, Any]", msgspec.to_builtins(payload, str_keys=True))
    changed = hook(data)
    try:
        return payload if changed == data else convert(changed, type(payload))
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"masking broke a {payload.event_type} event: {error}") from error


def log_busy(run_id: str) -> LogBusy:
    """Return the error for a second writer of a log."""
    return LogBusy(
        f"another process is writing the log of {run_id}",
        hint="a log has one writer; read it with `shopfloor tail` or wait until the run ends",
    )
