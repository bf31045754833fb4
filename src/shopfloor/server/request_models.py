"""Request models: the bodies of requests. The OpenAPI document has their names, fields and descriptions."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from shopfloor.errors import InvalidParameter
from shopfloor.limits import OPEN_BRANCHES, TASK_MAX_CHARS
from shopfloor.ports import CallResult, RunRequest, run_fields
from shopfloor.server.host_models import DrainParameters
from shopfloor.server.limits import BODY_DEPTH, MAX_SAFE_INTEGER
from shopfloor.server.parameters import UUID4
from shopfloor.views import NOTIFICATION_KINDS, NotificationKind

T = TypeVar("T")

_FailureText = Annotated[
    Annotated[str, Meta(max_length=TASK_MAX_CHARS)] | None, Meta(description="Why there is no result.")
]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _SdkBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A body with fields in camel case. Unknown fields are ignored, because SDKs send more than the server uses."""


class GivenResult(_SdkBody, frozen=True, kw_only=True):
    """The result of a call, or why it failed. Without either, the result is null; with both, the call failed."""

    tool_call_id: run_fields.ShortText
    tool_name: run_fields.ShortText | None = None
    result: Any = None
    error: Annotated[str | None, Meta(description="Why there is no result.")] = None
    block_index: Annotated[Any, Meta(description="Sent by an SDK that has already shown the result to its caller.")] = (
        None
    )

    def to_call_result(self) -> CallResult:
        """Convert to the engine's result of a call."""
        if self.error is None:
            return CallResult(call_id=self.tool_call_id, result=self.result)
        return CallResult(call_id=self.tool_call_id, error=self.error or "the tool failed without a reason")

    @property
    def is_shown(self) -> bool:
        """Whether the caller has seen the result, so that the stream must not repeat it."""
        return self.block_index is not None


class StartExecution(_SdkBody, frozen=True, kw_only=True, tag="start", tag_field="type"):
    """Start a run of a worker and stream its events."""

    input: run_fields.Input = {}
    text: run_fields.Text = None
    detach: Annotated[bool, Meta(description="Whether the run continues after the connection is closed.")] = False
    idempotency_key: run_fields.IdempotencyKey = None
    owner: run_fields.Owner = None
    channel_id: run_fields.ChannelId = None
    channel_name: run_fields.ChannelName = None
    task: run_fields.Task = None
    cwd: run_fields.Folder = None
    client: run_fields.Client = None
    approve: run_fields.Approve = []
    approve_timeout: run_fields.ApproveTimeout = None
    priority: run_fields.Priority = 0
    labels: run_fields.Labels = {}

    def to_run_request(self, worker: str) -> RunRequest:
        """Convert to the engine's request for a run of this worker."""
        shared = RunRequest.__struct_fields__[1:]
        return RunRequest(worker=worker, **{name: getattr(self, name) for name in shared})


class ContinueExecution(_SdkBody, frozen=True, kw_only=True, tag="continue", tag_field="type"):
    """Continue a waiting run with results of its calls and stream its further events."""

    execution_id: Annotated[run_fields.ShortText, Meta(description="The run.", extra_json_schema={"pattern": UUID4})]
    tool_results: Annotated[list[GivenResult], Meta(min_length=1, max_length=OPEN_BRANCHES)]
    detach: Annotated[bool, Meta(description="Whether the run continues after the connection is closed.")] = False


class PinRequest(_Body, frozen=True, kw_only=True):
    """Whether a run is kept when old runs are pruned."""

    pinned: bool


class AddHook(_Body, frozen=True, kw_only=True):
    """A webhook to add."""

    url: Annotated[str, Meta(description="Where to send events: an http or https address.")]
    kinds: Annotated[
        list[NotificationKind],
        Meta(description="What to send; by default `outcome` and `question`.", max_length=len(NOTIFICATION_KINDS)),
    ] = []


class CancelRequest(_Body, frozen=True, kw_only=True):
    """A request to cancel a run."""

    reason: Annotated[run_fields.ShortText | None, Meta(description="The reason to record in the run's outcome.")] = (
        None
    )


class AnswerRequest(_Body, frozen=True, kw_only=True):
    """The answer to a call that a run waits for."""

    call_id: Annotated[run_fields.ShortText, Meta(description="The `call_id` from the run's `awaits`.")]
    answer: Annotated[Any | UnsetType, Meta(description="The answer, as the call's tool or question expects it.")] = (
        UNSET
    )
    error: _FailureText = None

    def to_call_result(self) -> CallResult:
        """Convert to the engine's result of a call.

        Raises `InvalidParameter` unless exactly one of `answer` and `error` is set.
        """
        if self.answer is UNSET and self.error is None:
            raise InvalidParameter(f"body: neither `answer` nor `error` is set for the call {self.call_id!r}")
        if self.answer is not UNSET and self.error is not None:
            raise InvalidParameter(f"body: both `answer` and `error` are set for the call {self.call_id!r}")
        return CallResult(call_id=self.call_id, result=None if self.answer is UNSET else self.answer, error=self.error)


class RerunRequest(_Body, frozen=True, kw_only=True):
    """A request to run a worker again."""

    input: Annotated[
        dict[str, Any] | None,
        Meta(
            description="The inputs to change; the others stay as they were. With null, an input is left out, and its"
            " default applies."
        ),
    ] = None
    idempotency_key: run_fields.IdempotencyKey = None


class ReplyRequest(_Body, frozen=True, kw_only=True):
    """A request to continue the session of an agent."""

    text: Annotated[
        str, Meta(min_length=1, max_length=TASK_MAX_CHARS, description="The new prompt: what the agent should do next.")
    ]
    idempotency_key: run_fields.IdempotencyKey = None


class ForkRequest(_Body, frozen=True, kw_only=True):
    """A request for a run that starts with a part of another run."""

    at: Annotated[int, Meta(ge=1, le=MAX_SAFE_INTEGER, description="The `seq` of the last event to start with.")]
    idempotency_key: run_fields.IdempotencyKey = None


class DisableRequest(_Body, frozen=True, kw_only=True):
    """A request to disable a provider."""

    maintenance: Annotated[bool, Meta(description="Whether it is disabled for maintenance.")] = False
    reason: Annotated[run_fields.ShortText | None, Meta(description="Why; shown to those whose runs need it.")] = None


ExecutionRequest = StartExecution | ContinueExecution


REQUEST_MODELS = (
    StartExecution,
    ContinueExecution,
    RunRequest,
    PinRequest,
    CancelRequest,
    AnswerRequest,
    RerunRequest,
    ReplyRequest,
    ForkRequest,
    DrainParameters,
    DisableRequest,
    AddHook,
)

_JSON = "application/json"
_HINT = "see /api/docs for the fields of the body"


async def read_json_body(request: Request) -> bytes:
    """Return the body of a request, not decoded yet. Raises `InvalidParameter` if its type is not JSON."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != _JSON:
        raise InvalidParameter(
            f"body: expected JSON, got Content-Type {media_type or '(none)'}", hint=f"send Content-Type: {_JSON}"
        )
    return await request.body()


async def decode_body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode the JSON body of a request. Raises `InvalidParameter` if it is not JSON or has invalid fields."""
    raw = await read_json_body(request)
    try:
        body = decoder.decode(raw)
    except msgspec.ValidationError as error:
        message = str(error)
        raise InvalidParameter(f"body: {message[:1].lower()}{message[1:]}", hint=_HINT) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidParameter(f"body: not valid JSON: {error}", hint=_HINT) from error
    except RecursionError as error:
        raise _too_deep() from error
    check_depth(raw)
    return body


def check_depth(raw: bytes) -> None:
    """Raise `InvalidParameter` if this valid JSON is nested too deep."""
    # Text with few brackets cannot be nested deeply, so only other text is decoded.
    if raw.count(b"{") + raw.count(b"[") > BODY_DEPTH and _is_deep(msgspec.json.decode(raw)):
        raise _too_deep()


def _too_deep() -> InvalidParameter:
    return InvalidParameter(f"body: nested too deep, at most {BODY_DEPTH} levels are allowed")


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(BODY_DEPTH):
        children: list[Any] = []
        for node in level:
            children += cast("dict[str, Any]", node).values() if isinstance(node, dict) else cast("list[Any]", node)
        level = [child for child in children if isinstance(child, dict | list)]
        if not level:
            return False
    return True
