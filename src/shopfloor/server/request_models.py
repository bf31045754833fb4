"""The bodies of requests: what each may be, down to the last field, and what the API's description says of them."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from shopfloor.errors import InvalidParameter
from shopfloor.limits import OPEN_BRANCHES, TASK_MAX_CHARS
from shopfloor.ports import CallResult, RunRequest, run_fields
from shopfloor.server.limits import BODY_DEPTH
from shopfloor.server.parameters import UUID4

T = TypeVar("T")

_Failed = Annotated[Annotated[str, Meta(max_length=TASK_MAX_CHARS)] | None, Meta(description="Why there is no result.")]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Words in camel case. Fields that we do not know are ignored: an SDK sends more than we use."""


class GivenResult(_Told, frozen=True, kw_only=True):
    """What a call gave, or why it gave nothing. With neither it gave null; with both it failed."""

    tool_call_id: run_fields.ShortText
    tool_name: run_fields.ShortText | None = None
    result: Any = None
    error: Annotated[str | None, Meta(description="Why there is no result.")] = None
    block_index: Annotated[Any, Meta(description="Sent back by an SDK that has shown the result to its caller.")] = None

    def to_call_result(self) -> CallResult:
        if self.error is None:
            return CallResult(call_id=self.tool_call_id, result=self.result)
        return CallResult(call_id=self.tool_call_id, error=self.error or "the tool failed without saying why")

    @property
    def is_shown(self) -> bool:
        """Whether the caller has seen the result, so that it is not told again."""
        return self.block_index is not None


class StartExecution(_Told, frozen=True, kw_only=True, tag="start", tag_field="type"):
    """Runs a worker, and tells what it does."""

    input: run_fields.Input = {}
    detach: Annotated[bool, Meta(description="Whether the run goes on when the connection is closed.")] = False
    idempotency_key: run_fields.IdempotencyKey = None
    owner: run_fields.Owner = None
    channel_id: run_fields.ChannelId = None
    channel_name: run_fields.ChannelName = None
    task: run_fields.Task = None
    cwd: run_fields.Folder = None

    def request(self, worker: str) -> RunRequest:
        shared = RunRequest.__struct_fields__[1:]
        return RunRequest(worker=worker, **{name: getattr(self, name) for name in shared})


class ContinueExecution(_Told, frozen=True, kw_only=True, tag="continue", tag_field="type"):
    """Goes on with a run that waits, with results of its calls, and tells what remains."""

    execution_id: Annotated[run_fields.ShortText, Meta(description="The run.", extra_json_schema={"pattern": UUID4})]
    tool_results: Annotated[list[GivenResult], Meta(min_length=1, max_length=OPEN_BRANCHES)]
    detach: Annotated[bool, Meta(description="Whether the run goes on when the connection is closed.")] = False


class PinRequest(_Body, frozen=True, kw_only=True):
    """Whether a run is kept when old ones are pruned."""

    pinned: bool


class CancelOrder(_Body, frozen=True, kw_only=True):
    """Asks a run to end."""

    reason: Annotated[run_fields.ShortText | None, Meta(description="What its outcome says.")] = None


class AnswerOrder(_Body, frozen=True, kw_only=True):
    """Answers what a run waits for."""

    call_id: Annotated[run_fields.ShortText, Meta(description="The call that waits, as `awaits` of the run names it.")]
    answer: Annotated[Any | UnsetType, Meta(description="The answer: whatever was asked for.")] = UNSET
    error: _Failed = None

    def to_call_result(self) -> CallResult:
        if self.answer is UNSET and self.error is None:
            raise InvalidParameter(f"body: there is neither `answer` nor `error` for the call {self.call_id!r}")
        if self.answer is not UNSET and self.error is not None:
            raise InvalidParameter(f"body: there are both `answer` and `error` for the call {self.call_id!r}")
        return CallResult(call_id=self.call_id, result=None if self.answer is UNSET else self.answer, error=self.error)


ExecutionRequest = StartExecution | ContinueExecution
REQUEST_MODELS = (StartExecution, ContinueExecution, RunRequest, PinRequest, CancelOrder, AnswerOrder)

_JSON = "application/json"
_HINT = "see /api/docs for what it takes"


async def decode_body(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """The body, if it is of the shape that the decoder is for."""
    said = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if said != _JSON:
        raise InvalidParameter(f"body: it is said to be {said or 'nothing'}, not JSON", hint=f"Content-Type: {_JSON}")
    raw = await request.body()
    try:
        body = decoder.decode(raw)
    except msgspec.ValidationError as error:
        message = str(error)
        raise InvalidParameter(f"body: {message[:1].lower()}{message[1:]}", hint=_HINT) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidParameter(f"body: it is not JSON: {error}", hint=_HINT) from error
    except RecursionError as error:
        raise _too_deep() from error
    # What has few brackets cannot be nested deeply; only the rest is looked at.
    if raw.count(b"{") + raw.count(b"[") > BODY_DEPTH and _is_deep(msgspec.json.decode(raw)):
        raise _too_deep()
    return body


def _too_deep() -> InvalidParameter:
    return InvalidParameter(f"body: it is nested too deep: {BODY_DEPTH} levels can be kept")


def _is_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(BODY_DEPTH):
        inside: list[Any] = []
        for one in level:
            inside += cast("dict[str, Any]", one).values() if isinstance(one, dict) else cast("list[Any]", one)
        level = [one for one in inside if isinstance(one, dict | list)]
        if not level:
            return False
    return True
