"""Logs of a server somewhere else, read as files here are: in order, as they come."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from shopfloor.log import Entry

if TYPE_CHECKING:
    from shopfloor.client import Api


def is_remote() -> bool:
    """Whether runs are asked for elsewhere: a server on this storage has the same files as we do."""
    return bool(os.environ.get("SHOPFLOOR_URL"))


def entries_of(said: str, read: Callable[[Api, str], AsyncIterator[Entry]]) -> Iterator[Entry]:
    """What `read` gives of the run that `said` means, one by one, without an event loop of the caller's."""
    import asyncio

    with asyncio.Runner() as runner:
        api = _api()
        entries = aiter(read(api, runner.run(api.find_run(said))))
        try:
            while (entry := runner.run(_next(entries))) is not None:
                yield entry
        finally:
            runner.run(api.close())


def run_meant(said: str) -> str:
    """The id of the run there that `said` means."""
    import asyncio

    async def ask() -> str:
        api = _api()
        try:
            return await api.find_run(said)
        finally:
            await api.close()

    return asyncio.run(ask())


def _api() -> Api:
    from shopfloor.client import Address, Api, find_server
    from shopfloor.record import Storage

    address = find_server(Storage.default()) or Address("", "")
    return Api(address.url, address.token)


async def _next(entries: AsyncIterator[Entry]) -> Entry | None:
    return await anext(entries, None)
