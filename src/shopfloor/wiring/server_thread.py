"""A server in a thread of this process."""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from shopfloor.errors import ServerUnreachable, sole_error
from shopfloor.limits import SERVER_STOP_SECONDS
from shopfloor.record import Storage
from shopfloor.wiring.server import serve_storage
from shopfloor.wiring.settings import WorkerSettings

if TYPE_CHECKING:
    from shopfloor.client import Address
    from shopfloor.engine import WorkerCatalog


class ServerThread:
    """A server in a thread of this process, on a free port and with its own event loop."""

    def __init__(self, storage: Storage, workers: WorkerSettings) -> None:
        self._storage = storage
        self._workers = workers
        self._started = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._address: Address | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="shopfloor-server", daemon=True)

    def start(self) -> Address:
        """Start the server and return its address once it listens. Raises the error that kept it from starting."""
        self._thread.start()
        self._started.wait()
        if self._address is None:
            raise self._error or ServerUnreachable("the server in this process did not start")
        # At the end of the process, let the server finish writing.
        atexit.register(self._stop_and_join)
        return self._address

    def _serve(self) -> None:
        import anyio

        try:
            anyio.run(self._until_stopped, backend_options={"use_uvloop": True})
        except BaseException as error:  # noqa: BLE001 - `start` raises it
            self._error = sole_error(error)
        finally:
            self._started.set()

    async def _until_stopped(self) -> None:
        import anyio
        import anyio.from_thread

        async with anyio.from_thread.BlockingPortal() as portal, anyio.create_task_group() as tasks:

            def store_address(address: Address, _: WorkerCatalog) -> None:
                self._address = address
                self._stop = lambda: portal.call(tasks.cancel_scope.cancel)
                self._started.set()

            await serve_storage(
                self._storage, host="127.0.0.1", port=0, workers=self._workers, on_started=store_address
            )

    def _stop_and_join(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._stop()
        self._thread.join(SERVER_STOP_SECONDS)

    async def stop(self) -> None:
        """Stop the server and wait for its thread to end."""
        import anyio.to_thread

        atexit.unregister(self._stop_and_join)
        await anyio.to_thread.run_sync(self._stop_and_join)
