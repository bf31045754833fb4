"""The events that a client of a run reads, their JSON form, and errors as events. The field `type` is the tag.

The TypeScript SDK validates each event against a closed vocabulary and drops events that do not fit. So every event
fits that vocabulary, with additional fields of our own. Events of types that only Shopfloor has (`question`, `notice`,
`usage`) are sent as a `resource-update`, which the SDK passes on: `name` is the type, `value` has the fields.
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


def _default_display() -> Literal["name"]:
    return "name"


class _StreamEvent(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag_field="type", omit_defaults=True, gc=False
):
    seq: int = 0
    """The log position of the event, set by the SDK: `stream(after=seq)` continues here. The server sends it as the
    SSE id."""

    @property
    def type(self) -> str:
        """The event's type as sent."""
        return str(self.__struct_config__.tag)


class Start(_StreamEvent, frozen=True, kw_only=True, tag="start"):
    """The start of a stream, or of a resumed stream."""

    execution_id: str


class WorkerStart(_StreamEvent, frozen=True, kw_only=True, tag="worker-start"):
    """The start of the run."""

    worker_id: str
    worker_slug: str
    description: str | None = None


class BlockStart(_StreamEvent, frozen=True, kw_only=True, tag="block-start"):
    """The start of a step. `block_id` is its path, with `#<iteration>` in a loop and `~<try>` in later tries."""

    block_id: str
    block_name: str
    block_type: str
    # A factory, so that the default is sent and not omitted.
    display: Literal["hidden", "name", "description", "stream"] = msgspec.field(default_factory=_default_display)
    """How an interface shows the step."""
    child_id: str | None = None
    """The id of the sub-run, if the step is a sub-run."""


class BlockEnd(_StreamEvent, frozen=True, kw_only=True, tag="block-end"):
    """The end of a step."""

    block_id: str
    block_name: str
    block_type: str
    error: str | None = None
    duration_ms: int | None = None
    """How long the step took, as its log says."""


class TextStart(_StreamEvent, frozen=True, kw_only=True, tag="text-start"):
    """The start of a text block."""

    id: str


class TextDelta(_StreamEvent, frozen=True, kw_only=True, tag="text-delta"):
    """The next part of a text block."""

    id: str
    delta: str


class TextEnd(_StreamEvent, frozen=True, kw_only=True, tag="text-end"):
    """The end of a text block."""

    id: str


class ReasoningStart(_StreamEvent, frozen=True, kw_only=True, tag="reasoning-start"):
    """The start of a thinking block."""

    id: str


class ReasoningDelta(_StreamEvent, frozen=True, kw_only=True, tag="reasoning-delta"):
    """The next part of a thinking block."""

    id: str
    delta: str


class ReasoningEnd(_StreamEvent, frozen=True, kw_only=True, tag="reasoning-end"):
    """The end of a thinking block."""

    id: str


class ToolInputStart(_StreamEvent, frozen=True, kw_only=True, tag="tool-input-start"):
    """The start of a call's input."""

    tool_call_id: str
    tool_name: str


class ToolInputDelta(_StreamEvent, frozen=True, kw_only=True, tag="tool-input-delta"):
    """The next part of a call's input, as JSON text."""

    tool_call_id: str
    input_text_delta: str


class ToolInputAvailable(_StreamEvent, frozen=True, kw_only=True, tag="tool-input-available"):
    """A call with its complete input."""

    tool_call_id: str
    tool_name: str
    input: Any


class ToolOutputAvailable(_StreamEvent, frozen=True, kw_only=True, tag="tool-output-available"):
    """The result of a call."""

    tool_call_id: str
    tool_name: str
    output: Any


class ToolOutputError(_StreamEvent, frozen=True, kw_only=True, tag="tool-output-error"):
    """The error of a call."""

    tool_call_id: str
    tool_name: str
    error: str


class RequestedCall(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool call that the client has to execute."""

    tool_call_id: str
    tool_name: str
    args: Any
    block_index: int = 0
    """The call's index in the request. An SDK that executes the call itself sends the index back with the result: it
    has then shown the result to its caller, and the resumed stream does not repeat the result."""


class ToolRequest(_StreamEvent, frozen=True, kw_only=True, tag="tool-request"):
    """A request to execute calls; the run waits for their results."""

    tool_calls: list[RequestedCall]


class ClientToolRequest(_StreamEvent, frozen=True, kw_only=True, tag="client-tool-request"):
    """A request to execute calls for which the SDK has no handler: execute them and call `continue_()`."""

    execution_id: str
    tool_calls: list[RequestedCall]


class Question(_StreamEvent, frozen=True, kw_only=True, tag="question"):
    """A worker's question to a person. If the run waits for the answer, `finish` follows with the reason `question`."""

    execution_id: str
    call_id: str
    question: str
    options: list[str] | None = None
    waits: bool = False
    until: str | None = None


class Notice(_StreamEvent, frozen=True, kw_only=True, tag="notice"):
    """A notice of the agent's program, not of a model, such as a retry or a denied tool."""

    kind: str
    message: str
    code: str | None = None
    retry_after: float | None = None


class UsageEvent(_StreamEvent, frozen=True, kw_only=True, tag="usage"):
    """Tokens and cost of one message, or of an agent's whole step."""

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


class ErrorEvent(_StreamEvent, frozen=True, kw_only=True, tag="error"):
    """An error. Built by `error_event`, which derives type and source from the code."""

    message: str
    error_type: ErrorType
    source: ErrorSource
    code: str
    """A code of `docs/reference/errors.md`, or a code of the worker's own."""
    # A factory, so that `false` is sent and not omitted: clients depend on the field.
    retryable: bool = msgspec.field(default_factory=bool)
    retry_after: float | None = None
    hint: str | None = None


class WorkerResult(_StreamEvent, frozen=True, kw_only=True, tag="worker-result"):
    """The outcome of the run."""

    worker_id: str
    output: Any = None
    error: str | None = None
    duration_ms: int | None = None
    """How long the run took, waits included, as its log says."""


FinishReason = Literal["stop", "tool-calls", "question", "waiting", "error", "cancelled"]


class Finish(_StreamEvent, frozen=True, kw_only=True, tag="finish"):
    """The last event for now: the run ended, or it waits. Built by `finish`."""

    finish_reason: Literal["stop", "tool-calls", "error", "other"]
    reason: FinishReason
    """The exact reason. `question`, `waiting` and `cancelled` are `other` to clients that do not know them."""


def finish(reason: FinishReason) -> Finish:
    """Return the event that ends a stream for this reason."""
    match reason:
        case "stop" | "tool-calls" | "error":
            return Finish(finish_reason=reason, reason=reason)
        case _:
            return Finish(finish_reason="other", reason=reason)


class UnknownEvent(msgspec.Struct, frozen=True):
    """An event of a later version, passed on unchanged. The server of this version never sends it."""

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
"""The events of a stream; clients may also receive `UnknownEvent`."""

DONE: Final = "[DONE]"
"""The data of the last SSE message, instead of an event."""


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
"""Error types by class: an error has the type of its nearest listed base class."""


def error_event(
    message: str,
    code: str,
    *,
    retryable: bool = False,
    retry_after: float | None = None,
    hint: str | None = None,
) -> ErrorEvent:
    """Return the event of an error with this code. An unknown code is a failure of the worker itself."""
    kind = error_class(code)
    kind = RunFailed if kind is ShopfloorError and code != ShopfloorError.code else kind
    source: ErrorSource = "platform"
    if issubclass(kind, ProviderError | ToolFailed):
        source = "tool" if issubclass(kind, ToolFailed) else "provider"
    return ErrorEvent(
        message=message,
        error_type=next(_ERROR_TYPES[base] for base in kind.__mro__ if base in _ERROR_TYPES),
        source=source,
        code=code,
        retryable=retryable,
        retry_after=retry_after,
        hint=hint,
    )


def to_error_event(error: ShopfloorError) -> ErrorEvent:
    """Return the event of a `ShopfloorError`."""
    retryable = error.retryable if isinstance(error, RunFailed) else isinstance(error, StorageError | DatabaseBusy)
    retry_after = error.retry_after if isinstance(error, RunFailed) else None
    return error_event(error.message, error.code, retryable=retryable, retry_after=retry_after, hint=error.hint)


_SHOPFLOOR_EVENTS: Final = (Question, Notice, UsageEvent)
"""The events that are not in the vocabulary of the TypeScript SDK."""
_SHOPFLOOR_TYPES: Final = frozenset(str(event.__struct_config__.tag) for event in _SHOPFLOOR_EVENTS)


class _ResourceUpdate(msgspec.Struct, frozen=True, kw_only=True, tag="resource-update", tag_field="type"):
    name: str
    value: dict[str, Any]


_encode = msgspec.json.Encoder().encode
_decode_any = json_decoder(dict[str, Any]).decode


@cache
def _decoder() -> msgspec.json.Decoder[StreamEvent | _ResourceUpdate]:
    return json_decoder(StreamEvent | _ResourceUpdate)


def encode_event(event: StreamEvent | UnknownEvent) -> bytes:
    """Return the event as it is sent: JSON on one line."""
    if isinstance(event, UnknownEvent):
        return _encode(event.data)
    if isinstance(event, _SHOPFLOOR_EVENTS):
        fields: dict[str, Any] = msgspec.to_builtins(event)
        name: str = fields.pop("type")
        return _encode(_ResourceUpdate(name=name, value=fields))
    return _encode(event)


def decode_event(raw: bytes | str) -> StreamEvent | UnknownEvent:
    """Return the event that was sent. Raises `msgspec.MsgspecError` if `raw` is no JSON object."""
    try:
        event = _decoder().decode(raw)
        if not isinstance(event, _ResourceUpdate):
            return event
        if event.name in _SHOPFLOOR_TYPES:
            return convert({**event.value, "type": event.name}, StreamEvent)
    except msgspec.ValidationError:
        pass
    # An event of a later version: its type is unknown or has changed.
    data = _decode_any(raw)
    return UnknownEvent(str(data.get("type", "")), data)
