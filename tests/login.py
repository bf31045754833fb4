"""Getting into a server that a test has started."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from shopfloor.adapters.local import LocalTokens
from shopfloor.record import Storage
from shopfloor.server import AccessControl


class StorageAccess:
    """The methods of `AccessControl` of a storage, for tests that are not async: as a process beside the server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cookie = AccessControl(LocalTokens(path)).cookie

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # New for each call, since threads of a test may share this, and each has a loop of its own.
        method = getattr(AccessControl(LocalTokens(self._path)), name)

        def call(*args: Any, **options: Any) -> Any:
            # In a thread of its own: the test's may have a loop that runs.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(anyio.run, partial(method, *args, **options)).result()

        return call


def token_of(storage: Storage) -> str:
    """The owner's token, as the command line of the same machine reads it."""
    return StorageAccess(storage.tokens).admin_token()


def url_of(line: str) -> str:
    """The server's address, from the first line that `shopfloor up` prints."""
    return line.rsplit(maxsplit=1)[-1].partition("/login")[0]
