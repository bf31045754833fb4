"""The body of a request, with a limit."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shopfloor.errors import BodyTooLarge
from shopfloor.limits import REQUEST_BYTES
from shopfloor.server.error_handlers import response_for_error

_WITHOUT_BODY = frozenset({"GET", "HEAD", "OPTIONS"})


class BodyLimitMiddleware:
    """ASGI middleware that takes a body in whole, and refuses one that is too large before anybody works on it."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int = REQUEST_BYTES) -> None:
        self._app = app
        self._most = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _WITHOUT_BODY:
            await self._app(scope, receive, send)
            return
        try:
            body = None if self._says_too_much(scope) else await self._read(receive)
        except ClientDisconnect:
            # Half a body must never be acted upon, not even where it happens to be whole JSON.
            return
        if body is None:
            refusal = response_for_error(BodyTooLarge(f"a body has at most {self._most:,} bytes"), scope)
            refusal.headers["Connection"] = "close"  # else the rest of it would have to be read
            await refusal(scope, receive, send)
            return
        await self._app(scope, _replayed(body, receive), send)

    def _says_too_much(self, scope: Scope) -> bool:
        said = Headers(scope=scope).get("content-length", "0")
        return said.isdecimal() and int(said) > self._most

    async def _read(self, receive: Receive) -> bytes | None:
        """The body, or None where it is too large. Raises ClientDisconnect where the client closes before its end."""
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            body += message.get("body", b"")
            if len(body) > self._most:
                return None
            more = message.get("more_body", False)
        return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
