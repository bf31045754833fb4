"""The client: a server's address, a token, and the operations on workers and runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Literal, Self

from shopfloor.client.address import parse_server_url
from shopfloor.client.api import Api
from shopfloor.client.approvals import ApprovalsApi
from shopfloor.client.fleet import FleetUpdate, follow_events
from shopfloor.client.hooks import HooksApi
from shopfloor.client.runs import RunsApi
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
        self.runs = RunsApi(self.api, self.workers)
        self.approvals = ApprovalsApi(self.api)
        self.hooks = HooksApi(self.api)

    def events(
        self,
        *,
        provider: str | None = None,
        run: str | None = None,
        tree: bool = False,
        stream: Literal["agent", "worker", "provider"] | None = None,
        type: str | None = None,  # noqa: A002 - the field of the API
        after: str | int | None = None,
    ) -> AsyncGenerator[FleetUpdate]:
        """Iterate over the events of agents, hosts and providers as they happen: `async for event in client.events()`.

        `run` is a run's id; with `tree`, the events of its sub-runs are included. `after` is the id of an event to
        continue after, and 0 begins with the oldest event that is stored. Reconnects by itself without loss or
        repetition; an event of the type `gap` says that events before it are no longer stored.
        """
        return follow_events(self.api, provider=provider, run=run, tree=tree, stream=stream, type=type, after=after)

    async def close(self) -> None:
        """Close the connections to the server."""
        await self.api.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
