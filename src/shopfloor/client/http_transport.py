"""Requests to a server elsewhere, by httpx: loaded only where there is one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import httpx

from shopfloor.client.transport import ConnectError, Response, TransportError
from shopfloor.limits import REQUEST_SECONDS


class HttpTransport:
    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=REQUEST_SECONDS,
            # Each stream holds a connection; a cancel must never have to wait for one of them.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    @asynccontextmanager
    async def send(self, method: str, target: str, body: bytes | None = None) -> AsyncGenerator[Response]:
        headers = None if body is None else {"Content-Type": "application/json"}
        with _transport_errors():
            async with self._http.stream(method, target, content=body, headers=headers) as answer:
                kind = answer.headers.get("content-type", "")
                yield Response(str(answer.url), answer.status_code, kind, _pieces(answer))

    async def close(self) -> None:
        await self._http.aclose()


async def _pieces(answer: httpx.Response) -> AsyncGenerator[bytes]:
    with _transport_errors():
        async for piece in answer.aiter_bytes():
            yield piece


@contextmanager
def _transport_errors() -> Generator[None]:
    """Raise the errors of httpx as `TransportError`."""
    try:
        yield
    except httpx.HTTPError as error:
        kind = ConnectError if isinstance(error, httpx.ConnectError) else TransportError
        raise kind(str(error) or type(error).__name__) from error
