"""The dependencies of the server: ports and settings that the composition root passes to `create_app`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from shopfloor.fleet import HostDirectory, ProviderMonitor
from shopfloor.limits import CLIENT_WAIT_SECONDS, EXECUTE_GRACE_SECONDS
from shopfloor.ports import (
    Audit,
    Blobs,
    Hooks,
    LogReader,
    Offers,
    PluginInfo,
    Queue,
    RowChanges,
    RunService,
    SendNotification,
    Store,
    Watchers,
)
from shopfloor.server.access import AccessControl
from shopfloor.server.fleet_feed import FleetFeed
from shopfloor.server.limits import HEARTBEAT_SECONDS


class DeleteRun(Protocol):
    """Deletes a run that has ended, with its sub-runs, and returns the ids of the deleted runs."""

    async def __call__(self, run_id: str, *, force: bool) -> list[str]: ...


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The ports and settings that the server uses."""

    store: Store
    logs: LogReader
    changes: RowChanges
    access: AccessControl
    watchers: Watchers
    version: str
    audit: Audit | None = None
    """None: the server writes no audit log."""
    blobs: Blobs | None = None
    """None: the server has no artifacts."""
    delete_run: DeleteRun | None = None
    """None: the server cannot delete runs."""
    run_service: RunService | None = None
    """None: the server is read-only."""
    queue: Queue | None = None
    """None: the server does not say why runs are queued."""
    offers: Offers = tuple
    """Returns what each live host offers to runs."""
    providers: ProviderMonitor | None = None
    """Checks the providers of this machine. None: the server knows no providers."""
    plugins: Callable[[], Sequence[PluginInfo]] | None = None
    """Lists the plugins, with the state of their processes."""
    fleet: FleetFeed | None = None
    """Delivers fleet events. None: the server has no fleet events."""
    hooks: Hooks | None = None
    """Who is notified of runs. None: the server has no hooks."""
    send_notification: SendNotification | None = None
    hosts: HostDirectory | None = None
    """Lists and drains hosts. None: the server has none."""
    page_folder: Path | None = None
    """The folder of the built page. Without it, the server shows how to build the page."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may use besides this machine's own: `name:port`, or `name` for any port."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    execute_grace_seconds: float = EXECUTE_GRACE_SECONDS
    """How long a run continues after the client of its `execute` has disconnected."""
    client_wait_seconds: float = CLIENT_WAIT_SECONDS
    """How long a run of `execute` that is not detached waits for the result of a client tool."""
