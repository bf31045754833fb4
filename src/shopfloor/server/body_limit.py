"""A size limit for request bodies."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shopfloor.errors import BodyTooLarge
from shopfloor.limits import REQUEST_BYTES
from shopfloor.server.error_handlers import response_for_error

_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimitMiddleware:
    """ASGI middleware that reads the whole body, and refuses a too large one before the app sees the request."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int = REQUEST_BYTES) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        try:
            body = None if self._declares_too_much(scope) else await self._read(receive)
        except ClientDisconnect:
            # Never act on a partial body, even if the part happens to be valid JSON.
            return
        if body is None:
            refusal = response_for_error(BodyTooLarge(f"a body has at most {self._limit_bytes:,} bytes"), scope)
            refusal.headers["Connection"] = "close"  # otherwise the server would have to read the rest of the body
            await refusal(scope, receive, send)
            return
        await self._app(scope, _receive_from(body, receive), send)

    def _declares_too_much(self, scope: Scope) -> bool:
        length = Headers(scope=scope).get("content-length", "0")
        return length.isdecimal() and int(length) > self._limit_bytes

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body, or None if it is too large. Raises ClientDisconnect if the client closes before its end."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self._limit_bytes:
                return None
            more = message.get("more_body", False)
        return bytes(body)


def _receive_from(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that first returns the body, then what the given `receive` returns."""
    is_delivered = False

    async def receive_body_first() -> Message:
        nonlocal is_delivered
        if is_delivered:
            return await receive()
        is_delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body_first
