"""Links to the page of a run, if a server is up."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from shopfloor.cli.arguments import storage_from_args
from shopfloor.record import Storage, is_locked


def run_link(storage: Storage, run_id: str) -> str | None:
    """Return the link to a run on the page of the running server; None without a server. Quick without one."""
    if not os.environ.get("SHOPFLOOR_URL") and not is_locked(storage.server_lock):
        return None
    from shopfloor.client import find_server

    address = find_server(storage)
    return address.run_link(run_id[:8]) if address is not None else None


def print_link(args: Namespace, run_id: str | None) -> None:
    """Print the link to a run on stderr, unless there is no run, no server, or `--quiet`."""
    link = None if args.quiet or run_id is None else run_link(storage_from_args(args), run_id)
    if link is not None:
        print(f"shopfloor: {link}", file=sys.stderr)
