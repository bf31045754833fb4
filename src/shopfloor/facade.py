"""`Shopfloor()`: a client of a running server, or of a server that it starts in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from shopfloor.client import Client, find_server, find_storage_server, parse_server_url
from shopfloor.record import Storage
from shopfloor.wiring import ServerThread, WorkerSettings


class Shopfloor(Client):
    """A client of the server at `base_url`, of the running server on this machine, or of one it starts in this process.

    `workers` are folders or modules of workers, for a server that is started here. That server ends with the process,
    or with `close()`; the next server resumes the runs that had not ended.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        storage: str | os.PathLike[str] | None = None,
        workers: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self._thread: ServerThread | None = None
        if base_url is None:
            folder = Storage(Path(storage).expanduser().absolute()) if storage is not None else Storage.default()
            address = find_server(folder) if storage is None else find_storage_server(folder)
            if address is None:
                self._thread = ServerThread(folder, WorkerSettings.from_names([os.fspath(name) for name in workers]))
                address = self._thread.start()
            base_url, api_key = address.url, api_key or address.token
        address = parse_server_url(base_url, api_key)
        super().__init__(address.url, address.token or os.environ.get("SHOPFLOOR_TOKEN"))

    async def close(self) -> None:
        """Close the client, and stop the server that it started, if any."""
        await super().close()
        if self._thread is not None:
            await self._thread.stop()
