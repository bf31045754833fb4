"""Access to a server that a test has started."""

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
    """The methods of a storage's `AccessControl` for synchronous tests, as another process would call them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cookie = AccessControl(LocalTokens(path)).cookie

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # New for each call: threads of a test may share this object, and each thread has its own event loop.
        method = getattr(AccessControl(LocalTokens(self._path)), name)

        def call(*args: Any, **options: Any) -> Any:
            # In a new thread, because the test's thread may have a running event loop.
            with ThreadPoolExecutor(1) as thread:
                return thread.submit(anyio.run, partial(method, *args, **options)).result()

        return call


def token_of(storage: Storage) -> str:
    """Return the admin token, as the command line on the same machine reads it."""
    return StorageAccess(storage.tokens).admin_token()


def url_of(line: str) -> str:
    """Return the server's URL from the first line that `shopfloor up` prints."""
    return line.rsplit(maxsplit=1)[-1].partition("/login")[0]
