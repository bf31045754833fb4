"""What the server is given to serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from shopfloor.limits import CLIENT_WAIT_SECONDS, EXECUTE_GRACE_SECONDS
from shopfloor.ports import Audit, LogReader, ProviderInfo, RowChanges, RunService, Store, Watchers
from shopfloor.server.access import AccessControl
from shopfloor.server.limits import HEARTBEAT_SECONDS


class DeleteRun(Protocol):
    """Deletes a run that has ended, with its sub-runs; gives the ids of what is gone."""

    async def __call__(self, run_id: str, *, force: bool) -> list[str]: ...


class Services(msgspec.Struct, frozen=True, kw_only=True):
    store: Store
    logs: LogReader
    changes: RowChanges
    access: AccessControl
    watchers: Watchers
    version: str
    audit: Audit | None = None
    """Where it is None, what is done here is in no audit log."""
    delete_run: DeleteRun | None = None
    """Where it is None, runs cannot be deleted here."""
    run_service: RunService | None = None
    """Where it is None, runs can be read here and none can be made."""
    providers: Callable[[], list[ProviderInfo]] | None = None
    """Looks what this machine has of them, which takes a second or two."""
    page: Path | None = None
    """The folder of the built page; where there is none, the server says how to build it."""
    allowed_hosts: tuple[str, ...] = ()
    """Names by which the server may be asked for, beside this machine's own: `name:port`, or `name` for any port."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    execute_grace_seconds: float = EXECUTE_GRACE_SECONDS
    """How long a run goes on after the client of its `execute` hung up."""
    client_wait_seconds: float = CLIENT_WAIT_SECONDS
    """How long a run of `execute` that is not detached waits for the result of a client tool."""
