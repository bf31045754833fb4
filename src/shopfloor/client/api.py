"""The HTTP API as a Python object, with its errors raised as the matching exceptions."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, cast
from urllib.parse import quote, urlencode

import msgspec

from shopfloor.client.sse import Frame, frames
from shopfloor.client.transport import Response, Transport, TransportError
from shopfloor.decoding import decode_json, json_decoder
from shopfloor.error_factories import ambiguous_run
from shopfloor.errors import (
    BodyTooLarge,
    InvalidInput,
    RunFailed,
    RunNotFound,
    ServerUnreachable,
    ShopfloorError,
    error_class,
)
from shopfloor.limits import REQUEST_BYTES
from shopfloor.log import Delta, Entry, is_run_id
from shopfloor.views import ErrorEvent, SubRunCalls

_PAGE: Final = 1_000
_CANDIDATES: Final = 500
"""How many runs an ambiguous beginning of an id is checked for; an error names some of them."""
_is_id_prefix = re.compile(r"[0-9a-f-]{1,36}").fullmatch
_SHOWN: Final = 100
"""How many characters of a text that cannot be sent are shown in the error."""
_NO_CONTENT: Final = 204
_FIRST_ERROR: Final = 400


class StreamOpened(msgspec.Struct, frozen=True):
    """The server has responded; the log follows."""


class LogTruncated(msgspec.Struct, frozen=True):
    """The log has lost its end in a power cut: the events after `last` are no longer valid."""

    last: int


class Api:
    """Sends requests and returns response bodies as plain data. `transport` may call an app in this process.

    All methods raise the ShopfloorError that the server responded with, or ServerUnreachable.
    """

    def __init__(self, url: str, token: str = "", *, transport: Transport | None = None) -> None:
        self._url = url
        if transport is None:
            from shopfloor.client.http_transport import HttpTransport

            transport = HttpTransport(url, token)
        self._transport = transport

    async def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Send a GET request and return the JSON of the response."""
        return await self._send("GET", path, **params)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a POST request with a JSON body and return the JSON of the response."""
        return await self._send("POST", path, _encode_json(body))

    async def delete(self, path: str) -> dict[str, Any]:
        """Send a DELETE request and return the JSON of the response."""
        return await self._send("DELETE", path)

    async def _send(self, method: str, path: str, body: bytes | None = None, **params: Any) -> dict[str, Any]:
        content = await self._content(method, path, body, **params)
        return cast("dict[str, Any]", json.loads(content)) if content else {}

    async def _content(self, method: str, path: str, body: bytes | None = None, **params: Any) -> bytes:
        async with self.open_response(method, path, body, **params) as response:
            content = await read_body(response)
        is_json = response.content_type.startswith("application/json")
        if response.status >= _FIRST_ERROR or not (is_json or response.status == _NO_CONTENT):
            raise error_from_response(response, content)
        return content

    async def content(self, path: str, **params: Any) -> bytes:
        """Send a GET request and return the body of the response, which is JSON."""
        return await self._content("GET", path, **params)

    async def artifact(self, run_id: str, name: str) -> bytes:
        """Return the content of an artifact of a run."""
        return await self._file(f"/api/runs/{run_id}/artifacts/{quote(name)}")

    async def export(self, run_id: str, document_format: str) -> bytes:
        """Return a run as a document to share, `md` or `html`."""
        return await self._file(f"/api/runs/{run_id}/export", format=document_format)

    async def _file(self, path: str, **params: Any) -> bytes:
        async with self.open_response("GET", path, **params) as response:
            content = await read_body(response)
        if response.status >= _FIRST_ERROR:
            raise error_from_response(response, content)
        return content

    async def log(self, run_id: str, *, after: int = 0, limit: int = _PAGE) -> tuple[list[Entry], bool]:
        """Return a page of a run's log, as it was written, and whether there is more."""
        content = await self._content("GET", f"/api/runs/{run_id}/log", after=after, limit=limit)
        page = decode_json(content, _LogPage)
        return [_entry(bytes(raw)) for raw in page.events], page.more

    async def read_log(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Entry]:
        """Yield the entries of a run's log up to its current end."""
        more = True
        while more:
            entries, more = await self.log(run_id, after=after)
            for entry in entries:
                yield entry
                after = entry.seq

    async def stream(self, run_id: str, *, after: int = 0) -> AsyncGenerator[Entry]:
        """Yield the entries of a run's log and new ones as they are written, until the outcome or the writer's end."""
        async with aclosing(self.stream_frames(f"/api/runs/{run_id}/stream", after=after)) as received:
            async for frame in received:
                if frame.event == "message" and frame.data is not None:
                    yield _entry(frame.data.encode())

    async def stream_updates(
        self, run_id: str, *, after: int = 0, attach: bool = False
    ) -> AsyncGenerator[StreamOpened | Entry | Delta | SubRunCalls | LogTruncated]:
        """Yield what `stream` yields, with deltas and the client tools that sub-runs wait for.

        With `attach` this client counts as the one that executes the run: closing the stream cancels the run. Raises
        `ServerUnreachable` if the stream breaks off.
        """
        method, path = ("POST", "attach") if attach else ("GET", "stream")
        async with self._open_stream(method, f"/api/runs/{run_id}/{path}", after=after) as received:
            yield StreamOpened()
            async for frame in received:
                if frame.event == "end":
                    return
                if frame.data is not None and (update := _decode_update(frame.event, frame.data.encode())) is not None:
                    yield update
        raise ServerUnreachable(f"the stream of run {run_id} broke off", hint="open it again")

    async def stream_frames(self, path: str, **params: Any) -> AsyncGenerator[Frame]:
        """Yield the server-sent events of a stream."""
        async with self._open_stream("GET", path, **params) as received:
            async for frame in received:
                yield frame

    @asynccontextmanager
    async def _open_stream(self, method: str, path: str, **params: Any) -> AsyncGenerator[AsyncIterator[Frame]]:
        async with self.open_response(method, path, **params) as response:
            if response.status >= _FIRST_ERROR:
                raise error_from_response(response, await read_body(response))
            async with aclosing(frames(response.chunks)) as received:
                yield received

    async def run(self, run_id: str) -> dict[str, Any]:
        """Return the detail of a run, whether it has a log yet or not."""
        return await self.get("/api/agents/workers/detail", worker_id=run_id)

    async def rerun(
        self,
        run_id: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - the field of the API
        *,
        idempotency_key: str | None = None,
    ) -> str:
        """Run the worker of a run again, with these inputs changed; return the id of the new run."""
        return await self._start_based_on(run_id, "rerun", {"input": input, "idempotency_key": idempotency_key})

    async def dismiss(self, run_id: str) -> None:
        """Record that a failed run no longer waits for a person."""
        await self.post(f"/api/runs/{require_run_id(run_id)}/dismiss", {})

    async def reply(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> str:
        """Continue the session of an agent with a new prompt; return the id of the new run."""
        return await self._start_based_on(run_id, "reply", {"text": text, "idempotency_key": idempotency_key})

    async def fork(self, run_id: str, at: int, *, idempotency_key: str | None = None) -> str:
        """Start a run with the events of a run up to the `seq` `at`; return the id of the new run."""
        return await self._start_based_on(run_id, "fork", {"at": at, "idempotency_key": idempotency_key})

    async def approvals(self) -> list[dict[str, Any]]:
        """Return the calls that workers may make without asking, newest first."""
        return cast("list[dict[str, Any]]", (await self.get("/api/approvals"))["approvals"])

    async def revoke_approval(self, rule_id: str) -> dict[str, Any]:
        """Revoke a rule by the beginning of its id; return the rule."""
        return await self.delete(f"/api/approvals/{quote(rule_id, safe='')}")

    async def _start_based_on(self, run_id: str, action: str, body: dict[str, Any]) -> str:
        return str((await self.post(f"/api/runs/{require_run_id(run_id)}/{action}", body))["run_id"])

    @asynccontextmanager
    async def open_response(
        self, method: str, path: str, body: bytes | None = None, **params: Any
    ) -> AsyncGenerator[Response]:
        """Send a request and yield the response before its body is read.

        Raises `ServerUnreachable` if the connection fails, also while the body is read.
        """
        try:
            async with self._transport.send(method, _target(path, params), body) as response:
                yield response
        except TransportError as error:
            raise ServerUnreachable(
                f"no response from {self._url}: {error}",
                hint="start the server with `shopfloor up`, or unset SHOPFLOOR_URL",
            ) from error

    @asynccontextmanager
    async def open_post(self, path: str, body: Any) -> AsyncGenerator[Response]:
        """Send a POST request and yield the response before its body is read. Raises `BodyTooLarge`."""
        content = _encode_json(body)
        if len(content) > REQUEST_BYTES:
            # The server would refuse the body before reading it, and the connection would break off without a reason.
            raise BodyTooLarge(
                f"the request has {len(content):,} bytes, and at most {REQUEST_BYTES:,} can be sent",
                hint="send the name of a file instead of its content",
            )
        async with self.open_response("POST", path, content) as response:
            yield response

    async def find_run(self, reference: str) -> str:
        """Return the id of a run from its id, the first characters of it, or `last`.

        Raises `RunNotFound`, or an error that lists the candidates if several runs match.
        """
        if is_run_id(reference):
            return reference
        prefix = reference.lower()
        if prefix == "last":
            matches = await self._run_ids(1, roots=True)
        else:
            # Any other text, such as the empty one of an unset variable, is the beginning of no id.
            matches = await self._run_ids(_CANDIDATES, id_prefix=prefix) if _is_id_prefix(prefix) else []
        if not matches:
            raise RunNotFound(
                f"{reference!r} matches none of the runs", hint="use the full id; `shopfloor list` lists the runs"
            )
        if len(matches) > 1:
            raise ambiguous_run(reference, matches)
        return matches[0]

    async def _run_ids(self, limit: int, **filters: Any) -> list[str]:
        page = await self.get("/api/agents/workers", limit=limit, **filters)
        return [run["id"] for run in page["workers"]]

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._transport.close()


def _target(path: str, params: dict[str, Any]) -> str:
    """Return the path with its query, without parameters that are None."""
    query = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in params.items()
        if value is not None
    }
    try:
        return f"{path}?{urlencode(query, doseq=True)}" if query else path
    except UnicodeEncodeError as error:
        raise encoding_error(error) from error


async def read_body(response: Response) -> bytes:
    """Return the whole body of a response."""
    return b"".join([chunk async for chunk in response.chunks])


def encoding_error(error: UnicodeEncodeError) -> InvalidInput:
    """Return the error for text that cannot be encoded as UTF-8: half a character, or an undecodable byte of a path."""
    return InvalidInput(
        f"{error.object[:_SHOWN]!r} cannot be sent: it is not valid UTF-8 text", hint="remove the invalid characters"
    )


def _encode_json(body: Any) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise encoding_error(error) from error
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(
            f"the input cannot be sent as JSON: {error}",
            hint="use text, numbers, booleans, None, and lists and dicts of these",
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


def _decode_update(event: str, raw: bytes) -> Entry | Delta | SubRunCalls | LogTruncated | None:
    match event:
        case "message":
            return _entry(raw)
        case "delta" | "requests":
            try:
                return _decode_delta(raw) if event == "delta" else decode_json(raw, SubRunCalls)
            except msgspec.ValidationError:
                # From a later version of the server. The log will have the complete message.
                return None
        case "reset":
            return decode_json(raw, LogTruncated)
        case _:
            return None


class _ErrorFields(msgspec.Struct):
    code: str
    message: str
    hint: str | None = None


class _ErrorBody(msgspec.Struct):
    """The body of an error in one of two formats: in the flat one of `execute`, `error` is the message."""

    error: _ErrorFields | str
    code: str | None = None
    hint: str | None = None


def error_from_response(response: Response, content: bytes) -> ShopfloorError:
    """Return the error in a response as the matching exception; `ServerUnreachable` if Shopfloor did not send it."""
    try:
        body = decode_json(content, _ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _unknown_response(response)
    if isinstance(body.error, _ErrorFields):
        fields = body.error
    elif body.code is not None:
        fields = _ErrorFields(body.code, body.error, body.hint)
    else:
        return _unknown_response(response)
    return error_class(fields.code)(fields.message, hint=fields.hint)


def _unknown_response(response: Response) -> ServerUnreachable:
    return ServerUnreachable(f"{response.url} is not a Shopfloor server: its response has status {response.status}")


def failure_of(event: ErrorEvent) -> ShopfloorError:
    """Return the error in an event as the matching exception; `RunFailed` for an error that a worker defined."""
    kind = error_class(event.code)
    if issubclass(kind, RunFailed):
        return kind(event.message, hint=event.hint, retry_after=event.retry_after)
    if kind is ShopfloorError:
        return RunFailed(event.message, hint=event.hint, retry_after=event.retry_after)
    return kind(event.message, hint=event.hint)


def run_not_found(run_id: object) -> RunNotFound:
    """Return the error for an invalid run id: the same as for an id that no run has."""
    return RunNotFound(f"there is no run {run_id!r}", hint="a run id is a UUID v4 in lower case")


def require_run_id(run_id: str) -> str:
    """Return the id if it is a valid run id. Raises `RunNotFound` otherwise."""
    if not is_run_id(run_id):
        raise run_not_found(run_id)
    return run_id
