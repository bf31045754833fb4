"""The HTTP API as a Python object: errors come back as the errors they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Any, Final, cast

import httpx
import msgspec

from shopfloor.client.sse import Frame, frames
from shopfloor.errors import (
    BodyTooLarge,
    InvalidInput,
    RunNotFound,
    ServerUnreachable,
    ShopfloorError,
    ambiguous_run,
    error_of,
)
from shopfloor.limits import REQUEST_BYTES, REQUEST_SECONDS
from shopfloor.log import Delta, Entry, is_run_id
from shopfloor.views import CallsBelow

_PAGE: Final = 1_000
_NEWEST: Final = 500
_SHOWN: Final = 100
"""How much of what cannot be sent is said."""
_JSON: Final = {"Content-Type": "application/json"}


class Opened(msgspec.Struct, frozen=True):
    """The server has answered; the log follows."""


class LostEnd(msgspec.Struct, frozen=True):
    """The log has lost its end, in a power cut: what was told after `last` is told anew."""

    last: int


class Api:
    """Answers as plain data, in the shapes of the API. `transport` lets it talk to an app in this process."""

    def __init__(self, url: str, token: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            transport=transport,
            timeout=REQUEST_SECONDS,
            # Each stream holds a connection; a cancel must never have to wait for one of them.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        given = {name: value for name, value in params.items() if value is not None}
        return await self._send("GET", path, params=given)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._send("POST", path, content=_encoded(body), headers=_JSON)

    async def delete(self, path: str) -> dict[str, Any]:
        return await self._send("DELETE", path)

    async def _send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = await self._answer(method, path, **options)
        return cast("dict[str, Any]", answer.json()) if answer.content else {}

    async def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            answer = await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        except UnicodeEncodeError as error:
            raise no_text(error) from error
        as_json = answer.headers.get("content-type", "").startswith("application/json")
        if answer.is_error or not (as_json or answer.status_code == HTTPStatus.NO_CONTENT):
            raise problem_of(answer)
        return answer

    def _unreachable(self, error: httpx.HTTPError) -> ServerUnreachable:
        return ServerUnreachable(
            f"there is no answer from {self._url}: {error or type(error).__name__}",
            hint="start it with `shopfloor up`, or unset SHOPFLOOR_URL",
        )

    async def log(self, run_id: str, *, after: int = 0, limit: int = _PAGE) -> tuple[list[Entry], bool]:
        """A page of a run's log, as it was written, and whether there is more."""
        answer = await self._answer("GET", f"/api/runs/{run_id}/log", params={"after": after, "limit": limit})
        page = msgspec.json.decode(answer.content, type=_LogPage)
        return [_entry(bytes(raw)) for raw in page.events], page.more

    async def whole_log(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Entry]:
        more = True
        while more:
            entries, more = await self.log(run_id, after=after)
            for entry in entries:
                yield entry
                after = entry.seq

    async def stream(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Entry]:
        """The log and then what comes, until the outcome, or until nobody writes it any more."""
        async with self._following(run_id, after) as received:
            async for frame in received:
                if frame.event == "message" and frame.data is not None:
                    yield _entry(frame.data.encode())

    async def live(
        self, run_id: str, *, after: int = 0, attach: bool = False
    ) -> AsyncGenerator[Opened | Entry | Delta | CallsBelow | LostEnd]:
        """The same with deltas and with the client tools that runs below wait for.

        With `attach` the connection is that of the client which executes the run: closing it cancels the run. Raises
        `ServerUnreachable` where the stream breaks off.
        """
        async with self._following(run_id, after, attach=attach) as received:
            yield Opened()
            async for frame in received:
                if frame.event == "end":
                    return
                if frame.data is not None and (one := _live(frame.event, frame.data.encode())) is not None:
                    yield one
        raise ServerUnreachable(f"the stream of run {run_id} broke off", hint="ask for it again")

    @asynccontextmanager
    async def _following(
        self, run_id: str, after: int, *, attach: bool = False
    ) -> AsyncGenerator[AsyncIterator[Frame]]:
        method, path = ("POST", "attach") if attach else ("GET", "stream")
        async with self.opened(method, f"/api/runs/{run_id}/{path}", params={"after": after}) as answer:
            if answer.is_error:
                await answer.aread()
                raise problem_of(answer)
            async with aclosing(frames(answer.aiter_bytes())) as received:
                yield received

    async def run(self, run_id: str) -> dict[str, Any]:
        """What is known of a run, whether it has a log yet or not."""
        return await self.get("/api/agents/workers/detail", worker_id=run_id)

    @asynccontextmanager
    async def opened(self, method: str, path: str, **options: Any) -> AsyncGenerator[httpx.Response]:
        """An answer whose body is still to come. Raises `ServerUnreachable` wherever the connection fails."""
        try:
            async with self._http.stream(method, path, **options) as answer:
                yield answer
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    @asynccontextmanager
    async def posted(self, path: str, body: Any) -> AsyncGenerator[httpx.Response]:
        """The answer to a body, still to come."""
        content = _encoded(body)
        if len(content) > REQUEST_BYTES:
            # Refused there before it is read, and a connection that breaks off in the middle says nothing.
            raise BodyTooLarge(
                f"what is sent has {len(content):,} bytes, and {REQUEST_BYTES:,} is the most",
                hint="hand over a file's name instead of what is in it",
            )
        async with self.opened("POST", path, content=content, headers=_JSON) as answer:
            yield answer

    async def find_run(self, said: str) -> str:
        """The run that somebody means: an id, the first characters of one of the newest, or `last`."""
        if is_run_id(said):
            return said
        newest = cast("list[dict[str, Any]]", (await self.get("/api/agents/workers", limit=_NEWEST))["workers"])
        if said.lower() == "last":
            fitting = [run["id"] for run in newest if run["parent_run_id"] is None][:1]
        else:
            fitting = [run["id"] for run in newest if run["id"].startswith(said.lower())]
        if not fitting:
            raise RunNotFound(f"{said!r} names none of the newest {_NEWEST} runs", hint="give the whole id")
        if len(fitting) > 1:
            raise ambiguous_run(said, fitting)
        return fitting[0]

    async def close(self) -> None:
        await self._http.aclose()


def no_text(error: UnicodeEncodeError) -> InvalidInput:
    """The error where half a character, or a byte of a name that is no UTF-8, is to be sent."""
    return InvalidInput(
        f"{error.object[:_SHOWN]!r} cannot be sent: it is no text in UTF-8", hint="leave out what is no whole character"
    )


def _encoded(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise no_text(error) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"what is given cannot be sent as JSON: {error}",
            hint="give text, numbers, booleans, None, and lists and dicts of these",
        ) from error


class _LogPage(msgspec.Struct):
    events: list[msgspec.Raw]
    more: bool


class _Head(msgspec.Struct):
    seq: int
    type: str


def _entry(raw: bytes) -> Entry:
    head = msgspec.json.decode(raw, type=_Head)
    return Entry(head.seq, head.type, raw)


def _live(event: str, raw: bytes) -> Entry | Delta | CallsBelow | LostEnd | None:
    match event:
        case "message":
            return _entry(raw)
        case "delta" | "requests":
            try:
                return msgspec.json.decode(raw, type=Delta if event == "delta" else CallsBelow)
            except msgspec.ValidationError:
                # Of a later version; the log will have the whole.
                return None
        case "reset":
            return msgspec.json.decode(raw, type=LostEnd)
        case _:
            return None


class _Said(msgspec.Struct):
    code: str
    message: str
    hint: str | None = None


class _Problem(msgspec.Struct):
    """In one of two shapes: where a worker was to be executed, `error` is the message, and the rest is beside it."""

    error: _Said | str
    code: str | None = None
    hint: str | None = None


def problem_of(answer: httpx.Response) -> ShopfloorError:
    """The error that an answer tells of, as the error it is."""
    try:
        problem = msgspec.json.decode(answer.content, type=_Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _no_answer_of_ours(answer)
    if isinstance(problem.error, _Said):
        said = problem.error
    elif problem.code is not None:
        said = _Said(problem.code, problem.error, problem.hint)
    else:
        return _no_answer_of_ours(answer)
    return error_of(said.code)(said.message, hint=said.hint)


def _no_answer_of_ours(answer: httpx.Response) -> ServerUnreachable:
    return ServerUnreachable(f"{answer.url} does not answer as a Shopfloor server does ({answer.status_code})")
