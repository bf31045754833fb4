"""The HTTP API as a Python object: errors come back as the errors they are."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, cast
from urllib.parse import urlencode

import msgspec

from shopfloor.client.sse import Frame, frames
from shopfloor.client.transport import Response, Transport, TransportError
from shopfloor.decoding import decode_json, json_decoder
from shopfloor.errors import (
    BodyTooLarge,
    InvalidInput,
    RunNotFound,
    ServerUnreachable,
    ShopfloorError,
    ambiguous_run,
    error_class,
)
from shopfloor.limits import REQUEST_BYTES
from shopfloor.log import Delta, Entry, is_run_id
from shopfloor.views import SubRunCalls

_PAGE: Final = 1_000
_NEWEST: Final = 500
_SHOWN: Final = 100
"""How much of what cannot be sent is said."""
_NO_CONTENT: Final = 204
_FIRST_ERROR: Final = 400


class StreamOpened(msgspec.Struct, frozen=True):
    """The server has answered; the log follows."""


class LogTruncated(msgspec.Struct, frozen=True):
    """The log has lost its end, in a power cut: what was told after `last` is told anew."""

    last: int


class Api:
    """Answers as plain data, in the shapes of the API. `transport` lets it talk to an app in this process."""

    def __init__(self, url: str, token: str = "", *, transport: Transport | None = None) -> None:
        self._url = url
        if transport is None:
            from shopfloor.client.http_transport import HttpTransport

            transport = HttpTransport(url, token)
        self._transport = transport

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        return await self._send("GET", path, **params)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self._send("POST", path, _encoded(body))

    async def delete(self, path: str) -> dict[str, Any]:
        return await self._send("DELETE", path)

    async def _send(self, method: str, path: str, body: bytes | None = None, **params: Any) -> dict[str, Any]:
        content = await self._content(method, path, body, **params)
        return cast("dict[str, Any]", json.loads(content)) if content else {}

    async def _content(self, method: str, path: str, body: bytes | None = None, **params: Any) -> bytes:
        async with self.open_response(method, path, body, **params) as answer:
            content = await read_body(answer)
        is_json = answer.content_type.startswith("application/json")
        if answer.status >= _FIRST_ERROR or not (is_json or answer.status == _NO_CONTENT):
            raise error_from_response(answer, content)
        return content

    async def log(self, run_id: str, *, after: int = 0, limit: int = _PAGE) -> tuple[list[Entry], bool]:
        """A page of a run's log, as it was written, and whether there is more."""
        content = await self._content("GET", f"/api/runs/{run_id}/log", after=after, limit=limit)
        page = decode_json(content, _LogPage)
        return [_entry(bytes(raw)) for raw in page.events], page.more

    async def read_log(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Entry]:
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

    async def stream_updates(
        self, run_id: str, *, after: int = 0, attach: bool = False
    ) -> AsyncGenerator[StreamOpened | Entry | Delta | SubRunCalls | LogTruncated]:
        """The same with deltas and with the client tools that runs below wait for.

        With `attach` the connection is that of the client which executes the run: closing it cancels the run. Raises
        `ServerUnreachable` where the stream breaks off.
        """
        async with self._following(run_id, after, attach=attach) as received:
            yield StreamOpened()
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
        async with self.open_response(method, f"/api/runs/{run_id}/{path}", after=after) as answer:
            if answer.status >= _FIRST_ERROR:
                raise error_from_response(answer, await read_body(answer))
            async with aclosing(frames(answer.chunks)) as received:
                yield received

    async def run(self, run_id: str) -> dict[str, Any]:
        """What is known of a run, whether it has a log yet or not."""
        return await self.get("/api/agents/workers/detail", worker_id=run_id)

    @asynccontextmanager
    async def open_response(
        self, method: str, path: str, body: bytes | None = None, **params: Any
    ) -> AsyncGenerator[Response]:
        """An answer whose body is still to come. Raises `ServerUnreachable` wherever the connection fails."""
        try:
            async with self._transport.send(method, _target(path, params), body) as answer:
                yield answer
        except TransportError as error:
            raise ServerUnreachable(
                f"there is no answer from {self._url}: {error}",
                hint="start it with `shopfloor up`, or unset SHOPFLOOR_URL",
            ) from error

    @asynccontextmanager
    async def open_post(self, path: str, body: Any) -> AsyncGenerator[Response]:
        """The answer to a body, still to come."""
        content = _encoded(body)
        if len(content) > REQUEST_BYTES:
            # Refused there before it is read, and a connection that breaks off in the middle says nothing.
            raise BodyTooLarge(
                f"what is sent has {len(content):,} bytes, and {REQUEST_BYTES:,} is the most",
                hint="hand over a file's name instead of what is in it",
            )
        async with self.open_response("POST", path, content) as answer:
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
        await self._transport.close()


def _target(path: str, params: dict[str, Any]) -> str:
    """The path with its query; what is None is left out."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in params.items()
        if value is not None
    }
    try:
        return f"{path}?{urlencode(given, doseq=True)}" if given else path
    except UnicodeEncodeError as error:
        raise encoding_error(error) from error


async def read_body(answer: Response) -> bytes:
    return b"".join([piece async for piece in answer.chunks])


def encoding_error(error: UnicodeEncodeError) -> InvalidInput:
    """The error where half a character, or a byte of a name that is no UTF-8, is to be sent."""
    return InvalidInput(
        f"{error.object[:_SHOWN]!r} cannot be sent: it is no text in UTF-8", hint="leave out what is no whole character"
    )


def _encoded(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise encoding_error(error) from error
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


_decode_head = json_decoder(_Head).decode
_decode_delta = json_decoder(Delta).decode


def _entry(raw: bytes) -> Entry:
    head = _decode_head(raw)
    return Entry(head.seq, head.type, raw)


def _live(event: str, raw: bytes) -> Entry | Delta | SubRunCalls | LogTruncated | None:
    match event:
        case "message":
            return _entry(raw)
        case "delta" | "requests":
            try:
                return _decode_delta(raw) if event == "delta" else decode_json(raw, SubRunCalls)
            except msgspec.ValidationError:
                # Of a later version; the log will have the whole.
                return None
        case "reset":
            return decode_json(raw, LogTruncated)
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


def error_from_response(answer: Response, content: bytes) -> ShopfloorError:
    """The error that an answer tells of, as the error it is."""
    try:
        problem = decode_json(content, _Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _no_answer_of_ours(answer)
    if isinstance(problem.error, _Said):
        said = problem.error
    elif problem.code is not None:
        said = _Said(problem.code, problem.error, problem.hint)
    else:
        return _no_answer_of_ours(answer)
    return error_class(said.code)(said.message, hint=said.hint)


def _no_answer_of_ours(answer: Response) -> ServerUnreachable:
    return ServerUnreachable(f"{answer.url} does not answer as a Shopfloor server does ({answer.status})")
