"""Links to the page of a run, if a server is up."""

from __future__ import annotations

import os
import sys

from shopfloor.record import Storage, is_locked


def run_link(storage: Storage, run_id: str) -> str | None:
    """Return the link to a run on the page of the running server; None without a server. Quick without one."""
    if not os.environ.get("SHOPFLOOR_URL") and not is_locked(storage.server_lock):
        return None
    from shopfloor.client import find_server

    address = find_server(storage)
    return address.run_link(run_id[:8]) if address is not None else None


def print_link(storage: Storage, run_id: str) -> None:
    """Print the link to the page of a run to stderr, if a server is running."""
    link = run_link(storage, run_id)
    if link is not None:
        print(f"shopfloor: {link}", file=sys.stderr)
