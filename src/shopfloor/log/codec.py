"""Events to bytes and back. Encoding is strict, decoding tolerant: what it does not know it passes on."""

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
"""Holds a payload and its place (path, iteration, child run) against what its kind of event may have."""

ENCODE_ERRORS: Final = (TypeError, ValueError, OverflowError, RecursionError)
"""What `encode_into` raises for a line that only `encode` can mend or refuse."""

_encoder = msgspec.json.Encoder()
_encode = _encoder.encode
encode_into: Final[Callable[[Line, bytearray], None]] = _encoder.encode_into
"""Puts the bytes of a line into a buffer, in place of what is there: `encode`, without its care and its checks."""

_decode_any = msgspec.json.Decoder().decode
_BLOCK_CLASSES = frozenset(BLOCK_TYPES.values())


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_Known = TypeVar("_Known", bound=Payload)


class _Shell(Envelope, frozen=True, kw_only=True):
    payload: msgspec.Raw


class _Fitting(Event, Generic[_Known], frozen=True, kw_only=True):
    """An event whose payload is what its type says: decoded with its envelope, in one go."""

    payload: _Known


_decode_shell = json_decoder(_Shell).decode
# Each decoder is built when it is first needed: no command needs them all.
_fitting_decoders: dict[str, Callable[[bytes], Event]] = {}


def _new_fitting_decoder(event_type: str) -> Callable[[bytes], Event] | None:
    cls: Any = PAYLOAD_TYPES.get(event_type)
    if cls is None:
        return None
    return _fitting_decoders.setdefault(event_type, json_decoder(_Fitting[cls]).decode)


@cache
def _payload_decoder(event_type: str) -> Callable[[msgspec.Raw], Payload]:
    return json_decoder(PAYLOAD_TYPES[event_type]).decode


def encode(line: Line) -> bytes:
    """The line's bytes, without its end. Raises `InvalidEvent` for what is not of the format."""
    try:
        raw = _encode(line)
    except UnicodeEncodeError:
        raw = _encode_cleaned(line)
    except ENCODE_ERRORS as error:
        raise _not_json(line, error) from error
    check_size(line, len(raw) + 1)
    return raw


def check_size(line: Line, size: int) -> None:
    """Raises `InvalidEvent` where a line, with its end, is longer than any may be."""
    if size > LOG_LINE_BYTES:
        raise InvalidEvent(
            f"a {line.type} event of {size:,} bytes is over the limit of {LOG_LINE_BYTES:,}",
            hint="keep large content in a file and name the file in the event",
        )


def _encode_cleaned(line: Line) -> bytes:
    """The line with U+FFFD for lone surrogates, which UTF-8 cannot carry."""
    try:
        return _encode(_clean(msgspec.to_builtins(line, str_keys=True)))
    except ENCODE_ERRORS as error:
        raise _not_json(line, error) from error


def _not_json(line: Line, error: Exception) -> InvalidEvent:
    return InvalidEvent(f"a {line.type} event cannot be written as JSON: {error}")


def _clean(value: Any) -> Any:
    match value:
        case str():
            # A pair of surrogates is one character; only those left alone are replaced.
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case dict():
            return {_clean(key): _clean(item) for key, item in cast("dict[str, Any]", value).items()}
        case list() | tuple():
            return [_clean(item) for item in cast("list[Any]", value)]
        case _:
            return value


def check(payload: Payload, path: str, iteration: int, child_run_id: str | None) -> None:
    """Holds an event against the closed vocabularies and the rules that a single event can break."""
    hold = CHECKS.get(type(payload))
    if hold is None:
        raise unknown_payload_error(payload)
    hold(payload, path, iteration, child_run_id)


def unknown_payload_error(payload: object) -> InvalidEvent:
    return InvalidEvent(f"{type(payload).__name__} is not one of the ten kinds of event")


def _check_place(iteration: int, child_run_id: str | None) -> None:
    if iteration < 0:
        raise InvalidEvent(f"iteration is {iteration}; it counts from 0")
    if child_run_id is not None:
        raise InvalidEvent("child_run_id belongs to step.call_workflow events, and only to them")


def _check_run(payload: Any, path: str, iteration: int, child_run_id: str | None) -> None:
    _check_place(iteration, child_run_id)
    if path:
        raise InvalidEvent(f"{payload.event_type} is at run level, where the path is empty, not {path!r}")
    if type(payload) is RunStarted and payload.attempt < 1:
        raise InvalidEvent(f"attempt is {payload.attempt}; it counts from 1")
    if type(payload) is RunCompleted and payload.status not in STATUSES:
        raise InvalidEvent(f"{payload.status!r} is not an outcome: {', '.join(sorted(STATUSES))}")


def _check_step(payload: Any, path: str, iteration: int, child_run_id: str | None) -> None:
    _check_place(iteration, child_run_id)
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
        _check_place(iteration, child_run_id)
    for block in payload.blocks:
        if type(block) not in _BLOCK_CLASSES:
            raise InvalidEvent(f"{type(block).__name__} is not one of the six kinds of block")
        if block.fidelity not in FIDELITIES:
            raise InvalidEvent(f"{block.fidelity!r} is not a fidelity: router or agent_emitted")


def _check_tool(payload: Any, path: str, iteration: int, child_run_id: str | None) -> None:
    _check_place(iteration, child_run_id)
    if payload.fidelity not in FIDELITIES:
        raise InvalidEvent(f"{payload.fidelity!r} is not a fidelity: router or agent_emitted")


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
"""What each kind of event is held against."""


def decode(raw: bytes, event_type: str = "") -> Event:
    """The event in a line. Raises `InvalidEvent` only where there is no envelope to be read.

    Whoever knows the type already, as an entry does, has the event sooner.
    """
    if decoder := _fitting_decoders.get(event_type) or _new_fitting_decoder(event_type):
        try:
            event = decoder(raw)
        except _UNREADABLE:
            return _decode_tolerantly(raw)
        # A line cannot say of itself what we did not understand.
        return event if not event.problems else _decode_tolerantly(raw)
    return _decode_tolerantly(raw)


def _decode_tolerantly(raw: bytes) -> Event:
    try:
        shell = _decode_shell(raw)
    except _UNREADABLE as error:
        raise InvalidEvent(f"not an event: {error}") from error
    payload, problems = decode_payload(shell.type, shell.payload)
    return Event(
        seq=shell.seq,
        run_id=shell.run_id,
        parent_run_id=shell.parent_run_id,
        child_run_id=shell.child_run_id,
        type=shell.type,
        path=shell.path,
        iteration=shell.iteration,
        timestamp=shell.timestamp,
        payload=payload,
        problems=problems,
    )


def decode_payload(event_type: str, raw: msgspec.Raw | bytes) -> tuple[Payload | UnknownPayload, tuple[str, ...]]:
    if event_type not in PAYLOAD_TYPES:
        return UnknownPayload(_decode_freely(raw)), (f"unknown event type {event_type!r}",)
    try:
        return _payload_decoder(event_type)(msgspec.Raw(raw)), ()
    except _UNREADABLE as error:
        return _decode_openly(event_type, raw, str(error))


def _decode_freely(raw: msgspec.Raw | bytes) -> Any:
    try:
        return _decode_any(raw)
    except _UNREADABLE as error:
        raise InvalidEvent(f"not an event: {error}") from error


def _decode_openly(
    event_type: str, raw: msgspec.Raw | bytes, why: str
) -> tuple[Payload | UnknownPayload, tuple[str, ...]]:
    """A payload that does not fit: a message may be whole but for blocks of a later version."""
    data = _decode_freely(raw)
    cls = PAYLOAD_TYPES[event_type]
    if not issubclass(cls, UserMessage | AssistantMessage) or not isinstance(data, dict):
        return UnknownPayload(data), (f"payload of {event_type}: {why}",)
    message = cast("dict[str, Any]", data)
    blocks = message.get("blocks")
    if not isinstance(blocks, list):
        return UnknownPayload(message), (f"payload of {event_type}: {why}",)
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
    """Raise where this event cannot follow the event `seq`, the last of the log so far."""
    if has_ended:
        raise RunEnded(f"the run {run_id} has its outcome; nothing can follow it")
    if not seq and not isinstance(payload, RunStarted):
        raise InvalidEvent(f"a log begins with run.started, not with {payload.event_type}")


def event_time(newest: str, now: str, at: str | None, payload: Payload) -> tuple[str, Payload]:
    """The time of an event, and its payload. Times never run backwards in a log, also if our clock was set back.

    `newest` is the time of the event before it. Where `at` is earlier than that, or later than `now`, our clock's time
    is used, and the payload says so.
    """
    now = max(now, newest)
    if at is None:
        return now, payload
    return (at, payload) if newest <= at <= now else (now, replace(payload, clock="reader"))


def apply_mask(hook: MaskHook, payload: Payload) -> Payload:
    """The payload as the hook wants it written. Raises `InvalidEvent` where the hook breaks it."""
    data = cast("dict[str, Any]", msgspec.to_builtins(payload, str_keys=True))
    changed = hook(data)
    try:
        return payload if changed == data else convert(changed, type(payload))
    except msgspec.ValidationError as error:
        raise InvalidEvent(f"masking broke a {payload.event_type} event: {error}") from error


def log_busy(run_id: str) -> LogBusy:
    """The error for a second writer."""
    return LogBusy(
        f"another process is writing the log of {run_id}",
        hint="a log has one writer; read it with `shopfloor tail` or wait until the run ends",
    )
