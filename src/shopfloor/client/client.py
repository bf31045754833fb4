"""The client: a server's address, a token, and the operations on workers and runs."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from shopfloor.client.address import parse_server_url
from shopfloor.client.api import Api
from shopfloor.client.transport import Transport
from shopfloor.client.workers import WorkersApi


class Client:
    """A client of a server: `async with Client("http://127.0.0.1:7420", "token") as client: …`.

    Without `async with`, call `close()` at the end. `http://127.0.0.1:7420/login?token=…` is URL and token in one.
    """

    def __init__(self, base_url: str, api_key: str | None = None, *, transport: Transport | None = None) -> None:
        address = parse_server_url(base_url, api_key)
        self.api = Api(address.url, address.token, transport=transport)
        self.workers = WorkersApi(self.api)

    async def close(self) -> None:
        """Close the connections to the server."""
        await self.api.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
