"""The audit log of requests: who did what, from which address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import Scope

from shopfloor.ports import Audit, audit_entry
from shopfloor.server.access import Caller
from shopfloor.server.services import Services

_STATE = "caller"
ANONYMOUS = "nobody"


def set_caller(scope: Scope, caller: Caller) -> None:
    """Store the authenticated caller in the scope of a request."""
    scope.setdefault("state", {})[_STATE] = caller


def get_caller(scope: Scope) -> Caller | None:
    """Return the authenticated caller of a request, or None before authentication."""
    return cast("Caller | None", scope.get("state", {}).get(_STATE))


def client_address(scope: Scope) -> str | None:
    """Return the IP address that a request comes from, or None if it is not known."""
    client = scope.get("client")
    return client[0] if client else None


async def audit(request: Request, action: str, *, run_id: str | None = None, detail: str | None = None) -> None:
    """Write an audit entry for what a request did. Call it after the action and before the response."""
    services: Services = request.app.state.services
    await audit_scope(services.audit, request.scope, action, run_id=run_id, detail=detail)


async def audit_deleted(request: Request, run_id: str, deleted: Sequence[str]) -> None:
    """Write an audit entry for each run that was deleted with `run_id`, and for that run itself."""
    for each in deleted:
        await audit(request, "run.deleted", run_id=each, detail=None if each == run_id else f"with {run_id}")


async def audit_scope(
    log: Audit | None,
    scope: Scope,
    action: str,
    *,
    run_id: str | None = None,
    detail: str | None = None,
    caller: Caller | None = None,
) -> None:
    """Write an audit entry for the request in `scope`. Without `caller`, use the authenticated one."""
    if log is None:
        return
    caller = caller or get_caller(scope)
    entry = audit_entry(
        action,
        by=str(caller) if caller else ANONYMOUS,
        role=caller.role if caller else None,
        address=client_address(scope),
        client=Headers(scope=scope).get("user-agent"),
        run_id=run_id,
        detail=detail,
    )
    await log.write(entry)
