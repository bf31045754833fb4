"""Access to a storage on this machine, and its audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.adapters.local import LocalAudit, LocalTokens
from shopfloor.record import Storage

if TYPE_CHECKING:
    from shopfloor.server import AccessControl


def access_control(storage: Storage) -> AccessControl:
    from shopfloor.server import AccessControl

    return AccessControl(LocalTokens(storage.tokens))


def open_audit(storage: Storage) -> LocalAudit:
    return LocalAudit(storage.audit)
