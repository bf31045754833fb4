"""Operations on the rules of approvals: calls that were approved for always."""

from __future__ import annotations

import msgspec

from shopfloor.client.api import Api
from shopfloor.decoding import convert


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that a worker may make without asking, because a person approved them for always."""

    id: str
    worker: str
    origin: str | None
    """Where the worker comes from."""
    folder: str | None = None
    """For an agent without a worker: the only folder in which the rule holds."""
    pattern: str
    run_id: str
    """The run in which the person approved them."""
    created_at: str


class ApprovalsApi:
    """Lists and revokes the rules."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self) -> list[ApprovalRule]:
        """Return the rules, newest first."""
        return convert(await self._api.approvals(), list[ApprovalRule])

    async def revoke(self, rule_id: str) -> ApprovalRule:
        """Revoke a rule: the worker asks again. The beginning of the id is enough. Raises `NotFoundError`."""
        return convert(await self._api.revoke_approval(rule_id), ApprovalRule)
