"""The transport over HTTP, with httpx. Imported only for a server in another process, since httpx loads slowly."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

import httpx

from shopfloor.client.transport import ConnectError, Response, TransportError
from shopfloor.limits import REQUEST_SECONDS


class HttpTransport:
    """Sends requests over HTTP."""

    def __init__(self, url: str, token: str) -> None:
        self._http = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=REQUEST_SECONDS,
            # No limit: each stream holds a connection, and a request to cancel must never wait for one.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    @asynccontextmanager
    async def send(self, method: str, target: str, body: bytes | None = None) -> AsyncGenerator[Response]:
        """Send a request. Leaving the context disconnects. Raises `TransportError`."""
        headers = None if body is None else {"Content-Type": "application/json"}
        with _transport_errors():
            async with self._http.stream(method, target, content=body, headers=headers) as response:
                content_type = response.headers.get("content-type", "")
                yield Response(str(response.url), response.status_code, content_type, _chunks(response))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()


async def _chunks(response: httpx.Response) -> AsyncGenerator[bytes]:
    with _transport_errors():
        async for chunk in response.aiter_bytes():
            yield chunk


@contextmanager
def _transport_errors() -> Generator[None]:
    """Raise the errors of httpx as `TransportError`."""
    try:
        yield
    except httpx.HTTPError as error:
        kind = ConnectError if isinstance(error, httpx.ConnectError) else TransportError
        raise kind(str(error) or type(error).__name__) from error
