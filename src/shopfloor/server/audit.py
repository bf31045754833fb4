"""Requests in the audit log."""

from __future__ import annotations

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
    scope.setdefault("state", {})[_STATE] = caller


def get_caller(scope: Scope) -> Caller | None:
    return cast("Caller | None", scope.get("state", {}).get(_STATE))


def client_address(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


async def audit(request: Request, action: str, *, run_id: str | None = None, detail: str | None = None) -> None:
    """Note what a request has done. Call it after the deed and before the answer."""
    served: Services = request.app.state.services
    await audit_scope(served.audit, request.scope, action, run_id=run_id, detail=detail)


async def audit_scope(
    log: Audit | None,
    scope: Scope,
    action: str,
    *,
    run_id: str | None = None,
    detail: str | None = None,
    caller: Caller | None = None,
) -> None:
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
