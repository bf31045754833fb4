"""The events that a client of a run reads: one JSON object each, told apart by `type`.

The TypeScript SDK validates each event against a closed vocabulary and drops what does not fit, so every event fits
it, with what only we have in fields of our own. `stream_wire` has the events whose type only we have.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Literal

import msgspec

from shopfloor.decoding import convert, json_decoder
from shopfloor.errors import (
    AccessError,
    AuthenticationFailed,
    BudgetExceeded,
    ConflictError,
    DatabaseBusy,
    InputError,
    NotFoundError,
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    RateLimited,
    RunFailed,
    ShopfloorError,
    StorageError,
    ToolFailed,
    Unauthorized,
    error_class,
)


def _name() -> Literal["name"]:
    return "name"


class _Event(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True, gc=False):
    seq: int = 0
    """Set by the SDK: the log is told up to here, and `stream(after=seq)` goes on. The server sends it as the id."""

    @property
    def type(self) -> str:
        """What it is, in the word of the wire."""
        return str(self.__struct_config__.tag)


class Start(_Event, frozen=True, kw_only=True, tag="start"):
    """An execution, or the rest of one, begins to be told."""

    execution_id: str


class WorkerStart(_Event, frozen=True, kw_only=True, tag="worker-start"):
    worker_id: str
    worker_slug: str
    description: str | None = None


class BlockStart(_Event, frozen=True, kw_only=True, tag="block-start"):
    """A step begins. `block_id` is its path, with `#<iteration>` in a loop's later rounds, `~<try>` in later tries."""

    block_id: str
    block_name: str
    block_type: str
    # By a factory, so that it is sent although it is the default.
    display: Literal["hidden", "name", "description", "stream"] = msgspec.field(default_factory=_name)
    """How an interface shows the step: by its name."""
    child_id: str | None = None
    """The sub-run, where the step is one."""


class BlockEnd(_Event, frozen=True, kw_only=True, tag="block-end"):
    block_id: str
    block_name: str
    block_type: str
    error: str | None = None


class TextStart(_Event, frozen=True, kw_only=True, tag="text-start"):
    id: str


class TextDelta(_Event, frozen=True, kw_only=True, tag="text-delta"):
    id: str
    delta: str


class TextEnd(_Event, frozen=True, kw_only=True, tag="text-end"):
    id: str


class ReasoningStart(_Event, frozen=True, kw_only=True, tag="reasoning-start"):
    id: str


class ReasoningDelta(_Event, frozen=True, kw_only=True, tag="reasoning-delta"):
    id: str
    delta: str


class ReasoningEnd(_Event, frozen=True, kw_only=True, tag="reasoning-end"):
    id: str


class ToolInputStart(_Event, frozen=True, kw_only=True, tag="tool-input-start"):
    tool_call_id: str
    tool_name: str


class ToolInputDelta(_Event, frozen=True, kw_only=True, tag="tool-input-delta"):
    tool_call_id: str
    input_text_delta: str


class ToolInputAvailable(_Event, frozen=True, kw_only=True, tag="tool-input-available"):
    tool_call_id: str
    tool_name: str
    input: Any


class ToolOutputAvailable(_Event, frozen=True, kw_only=True, tag="tool-output-available"):
    tool_call_id: str
    tool_name: str
    output: Any


class ToolOutputError(_Event, frozen=True, kw_only=True, tag="tool-output-error"):
    tool_call_id: str
    tool_name: str
    error: str


class RequestedCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool that somebody outside has to execute."""

    tool_call_id: str
    tool_name: str
    args: Any
    block_index: int = 0
    """The call's place in the request. An SDK that executes the call itself sends it back with the result: it has shown
    the result to its caller then, and the stream that goes on does not repeat it."""


class ToolRequest(_Event, frozen=True, kw_only=True, tag="tool-request"):
    """The run waits for the results of these."""

    tool_calls: list[RequestedCall]


class ClientToolRequest(_Event, frozen=True, kw_only=True, tag="client-tool-request"):
    """The same, to whoever gave the SDK no handler for them: execute them and call `continue_()`."""

    execution_id: str
    tool_calls: list[RequestedCall]


class Question(_Event, frozen=True, kw_only=True, tag="question"):
    """A worker asks a person. Where it waits for the answer, the stream ends with `finish`, reason `question`."""

    execution_id: str
    call_id: str
    question: str
    options: list[str] | None = None
    waits: bool = False
    until: str | None = None


class Notice(_Event, frozen=True, kw_only=True, tag="notice"):
    """What an agent's program says that no model said: that it tries again, that a tool was denied, …"""

    kind: str
    message: str
    code: str | None = None
    retry_after: float | None = None


class UsageEvent(_Event, frozen=True, kw_only=True, tag="usage"):
    """Tokens and cost of one message, or of all that an agent did in its step."""

    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None


ErrorType = Literal[
    "authentication_error",
    "permission_error",
    "validation_error",
    "not_found_error",
    "rate_limit_error",
    "quota_exceeded_error",
    "provider_error",
    "provider_overloaded",
    "provider_timeout",
    "execution_error",
    "tool_error",
    "internal_error",
]
ErrorSource = Literal["platform", "provider", "tool"]


class ErrorEvent(_Event, frozen=True, kw_only=True, tag="error"):
    """Something went wrong. Made by `error_event`, which finds the type and the source of a code."""

    message: str
    error_type: ErrorType
    source: ErrorSource
    code: str
    """The exact reason: a code of `docs/reference/errors.md`, or one of the worker's own."""
    # By a factory, so that `false` is sent and not left out: clients go by it.
    retryable: bool = msgspec.field(default_factory=bool)
    retry_after: float | None = None
    hint: str | None = None


class WorkerResult(_Event, frozen=True, kw_only=True, tag="worker-result"):
    worker_id: str
    output: Any = None
    error: str | None = None


FinishReason = Literal["stop", "tool-calls", "question", "waiting", "error", "cancelled"]


class Finish(_Event, frozen=True, kw_only=True, tag="finish"):
    """The last event for now: the run ended, or it waits. Made by `finish`."""

    finish_reason: Literal["stop", "tool-calls", "error", "other"]
    reason: FinishReason
    """The exact reason. `question`, `waiting` and `cancelled` are `other` to clients that do not know them."""


def finish(reason: FinishReason) -> Finish:
    """The event that ends a stream for this reason."""
    match reason:
        case "stop" | "tool-calls" | "error":
            return Finish(finish_reason=reason, reason=reason)
        case _:
            return Finish(finish_reason="other", reason=reason)


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event of a later version: passed on as it is. Never sent by us."""

    type: str
    data: dict[str, Any]
    seq: int = 0


StreamEvent = (
    Start
    | WorkerStart
    | BlockStart
    | BlockEnd
    | TextStart
    | TextDelta
    | TextEnd
    | ReasoningStart
    | ReasoningDelta
    | ReasoningEnd
    | ToolInputStart
    | ToolInputDelta
    | ToolInputAvailable
    | ToolOutputAvailable
    | ToolOutputError
    | ToolRequest
    | ClientToolRequest
    | Question
    | Notice
    | UsageEvent
    | ErrorEvent
    | WorkerResult
    | Finish
)
"""What a stream is made of; clients also meet `UnknownEvent`."""

DONE: Final = "[DONE]"
"""What a stream says last, instead of an event."""


_ERROR_TYPES: Final[dict[type[ShopfloorError], ErrorType]] = {
    InputError: "validation_error",
    ConflictError: "validation_error",
    NotFoundError: "not_found_error",
    AccessError: "permission_error",
    Unauthorized: "authentication_error",
    RunFailed: "execution_error",
    ProviderError: "provider_error",
    RateLimited: "rate_limit_error",
    ProviderOverloaded: "provider_overloaded",
    ProviderTimeout: "provider_timeout",
    AuthenticationFailed: "authentication_error",
    ToolFailed: "tool_error",
    BudgetExceeded: "quota_exceeded_error",
    ShopfloorError: "internal_error",
}
"""The type of an error is that of the nearest class above it which is listed here."""


def error_event(
    message: str,
    code: str,
    *,
    retryable: bool = False,
    retry_after: float | None = None,
    hint: str | None = None,
) -> ErrorEvent:
    """The event of an error with this code. A code that is none of ours is a worker's own failure."""
    kind = error_class(code)
    kind = RunFailed if kind is ShopfloorError and code != ShopfloorError.code else kind
    source: ErrorSource = "platform"
    if issubclass(kind, ProviderError | ToolFailed):
        source = "tool" if issubclass(kind, ToolFailed) else "provider"
    return ErrorEvent(
        message=message,
        error_type=next(_ERROR_TYPES[one] for one in kind.__mro__ if one in _ERROR_TYPES),
        source=source,
        code=code,
        retryable=retryable,
        retry_after=retry_after,
        hint=hint,
    )


def to_error_event(error: ShopfloorError) -> ErrorEvent:
    """The event that says an error of ours."""
    passing = error.retryable if isinstance(error, RunFailed) else isinstance(error, StorageError | DatabaseBusy)
    after = error.retry_after if isinstance(error, RunFailed) else None
    return error_event(error.message, error.code, retryable=passing, retry_after=after, hint=error.hint)


_OWN: Final = (Question, Notice, UsageEvent)
"""The events that only we have."""
_OWN_TYPES: Final = frozenset(str(one.__struct_config__.tag) for one in _OWN)


class _ResourceUpdate(msgspec.Struct, frozen=True, kw_only=True, tag="resource-update", tag_field="type"):
    name: str
    value: dict[str, Any]


_encode = msgspec.json.Encoder().encode
_decode_any = json_decoder(dict[str, Any]).decode


@cache
def _decoder() -> msgspec.json.Decoder[StreamEvent | _ResourceUpdate]:
    return json_decoder(StreamEvent | _ResourceUpdate)


def encode_event(event: StreamEvent | UnknownEvent) -> bytes:
    """The event as it is sent: JSON, on one line."""
    if isinstance(event, UnknownEvent):
        return _encode(event.data)
    if isinstance(event, _OWN):
        fields: dict[str, Any] = msgspec.to_builtins(event)
        name: str = fields.pop("type")
        return _encode(_ResourceUpdate(name=name, value=fields))
    return _encode(event)


def decode_event(raw: bytes | str) -> StreamEvent | UnknownEvent:
    """The event that was sent. Raises `msgspec.MsgspecError` for what is no event at all."""
    try:
        event = _decoder().decode(raw)
        if not isinstance(event, _ResourceUpdate):
            return event
        if event.name in _OWN_TYPES:
            return convert({**event.value, "type": event.name}, StreamEvent)
    except msgspec.ValidationError:
        pass
    # Of a later version: a type that we do not know, or one that has changed.
    data = _decode_any(raw)
    return UnknownEvent(str(data.get("type", "")), data)
