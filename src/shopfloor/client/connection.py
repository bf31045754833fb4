"""A client: a server's address, a token, and what can be asked there."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import httpx

from shopfloor.client.api import Api
from shopfloor.client.workers import WorkersApi


class Client:
    """`async with Client("http://127.0.0.1:7420", "token") as client: …`; or call `close()` at the end."""

    def __init__(self, base_url: str, api_key: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.api = Api(base_url.rstrip("/"), api_key, transport=transport)
        self.workers = WorkersApi(self.api)

    async def close(self) -> None:
        await self.api.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
