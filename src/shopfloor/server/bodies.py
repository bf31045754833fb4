"""The bodies of requests: what each may be, down to the last field, and what the API's description says of them."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from shopfloor.errors import InvalidParameter
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.ports import Asked, CallResult
from shopfloor.server.limits import BODY_DEPTH, FOLDER_MOST_CHARS, SLUG_MOST_CHARS, TASK_MOST_CHARS, WORDS_MOST_CHARS
from shopfloor.server.parameters import UUID4

T = TypeVar("T")

_Word = Annotated[str, Meta(min_length=1, max_length=WORDS_MOST_CHARS)]
_Owner = Annotated[_Word | None, Meta(description="Under whom it is listed; the worker itself by default.")]
_Task = Annotated[
    Annotated[str, Meta(min_length=1, max_length=TASK_MOST_CHARS)] | None,
    Meta(description="What lists show; made of the input by default."),
]
_Input = Annotated[dict[str, Any], Meta(description="What the worker is given, by name.")]
_ChannelId = Annotated[_Word | None, Meta(description="Where it came from; `api` by default.")]
_ChannelName = Annotated[_Word | None, Meta(description="What people call that place.")]
_Key = Annotated[_Word | None, Meta(description="The same key again is the same run.")]
_Folder = Annotated[
    Annotated[str, Meta(pattern=r"^/[^\x00]*$", max_length=FOLDER_MOST_CHARS)] | None,
    Meta(description="The folder it works in, on the server's machine: an absolute path."),
]
_Failed = Annotated[
    Annotated[str, Meta(max_length=TASK_MOST_CHARS)] | None, Meta(description="Why there is no result.")
]


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class _Told(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Words in camel case. Fields that we do not know are ignored: an SDK sends more than we use."""


class GivenResult(_Told, frozen=True, kw_only=True):
    """What a call gave, or why it gave nothing. With neither it gave null; with both it failed."""

    tool_call_id: _Word
    tool_name: _Word | None = None
    result: Any = None
    error: Annotated[str | None, Meta(description="Why there is no result.")] = None
    block_index: Annotated[Any, Meta(description="Sent back by an SDK that has shown the result to its caller.")] = None

    def as_result(self) -> CallResult:
        if self.error is None:
            return CallResult(call_id=self.tool_call_id, result=self.result)
        return CallResult(call_id=self.tool_call_id, error=self.error or "the tool failed without saying why")

    @property
    def is_shown(self) -> bool:
        """Whether the caller has seen the result, so that it is not told again."""
        return self.block_index is not None


class StartExecution(_Told, frozen=True, kw_only=True, tag="start", tag_field="type"):
    """Runs a worker, and tells what it does."""

    input: _Input = {}
    detach: Annotated[bool, Meta(description="Whether the run goes on when the connection is closed.")] = False
    idempotency_key: _Key = None
    owner: _Owner = None
    channel_id: _ChannelId = None
    channel_name: _ChannelName = None
    task: _Task = None
    cwd: _Folder = None

    def asked(self, worker: str) -> Asked:
        return Asked(
            worker=worker,
            input=self.input,
            task=self.task,
            owner=self.owner,
            channel_id=self.channel_id,
            channel_name=self.channel_name,
            idempotency_key=self.idempotency_key,
            cwd=self.cwd,
        )


class ContinueExecution(_Told, frozen=True, kw_only=True, tag="continue", tag_field="type"):
    """Goes on with a run that waits, with results of its calls, and tells what remains."""

    execution_id: Annotated[_Word, Meta(description="The run.", extra_json_schema={"pattern": UUID4})]
    tool_results: Annotated[list[GivenResult], Meta(min_length=1, max_length=OPEN_BRANCHES)]
    detach: Annotated[bool, Meta(description="Whether the run goes on when the connection is closed.")] = False


class RunOrder(_Body, frozen=True, kw_only=True):
    """Asks for a run that goes on whoever watches."""

    worker: Annotated[str, Meta(min_length=1, max_length=SLUG_MOST_CHARS, description="The worker's slug.")]
    input: _Input = {}
    task: _Task = None
    owner: _Owner = None
    channel_id: _ChannelId = None
    channel_name: _ChannelName = None
    idempotency_key: _Key = None
    cwd: _Folder = None

    def asked(self) -> Asked:
        return Asked(**{name: getattr(self, name) for name in self.__struct_fields__})


class PinRequest(_Body, frozen=True, kw_only=True):
    """Whether a run is kept when old ones are pruned."""

    pinned: bool


class CancelOrder(_Body, frozen=True, kw_only=True):
    """Asks a run to end."""

    reason: Annotated[_Word | None, Meta(description="What its outcome says.")] = None


class AnswerOrder(_Body, frozen=True, kw_only=True):
    """Answers what a run waits for."""

    call_id: Annotated[_Word, Meta(description="The call that waits, as `awaits` of the run names it.")]
    answer: Annotated[Any | UnsetType, Meta(description="The answer: whatever was asked for.")] = UNSET
    error: _Failed = None

    def as_result(self) -> CallResult:
        if self.answer is UNSET and self.error is None:
            raise InvalidParameter(f"body: there is neither `answer` nor `error` for the call {self.call_id!r}")
        if self.answer is not UNSET and self.error is not None:
            raise InvalidParameter(f"body: there are both `answer` and `error` for the call {self.call_id!r}")
        return CallResult(call_id=self.call_id, result=None if self.answer is UNSET else self.answer, error=self.error)


Execution = StartExecution | ContinueExecution
BODIES = (StartExecution, ContinueExecution, RunOrder, PinRequest, CancelOrder, AnswerOrder)

_JSON = "application/json"
_HINT = "see /api/docs for what it takes"


async def body_of(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
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
