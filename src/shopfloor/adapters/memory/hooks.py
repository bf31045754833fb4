"""Hooks and their deliveries in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from shopfloor.adapters.limits import HOOK_PENDING_MAX
from shopfloor.log import now as timestamp
from shopfloor.ports import Delivery, Hook, HookStatus
from shopfloor.views import Notification, encode_cloud_event


class _StoredDelivery(msgspec.Struct):
    delivery: Delivery
    next_at: str


class MemoryHooks:
    """Implements `Hooks`. A `MemoryStore` calls `insert` with the notifications of its changes."""

    def __init__(self) -> None:
        self._hooks: dict[str, HookStatus] = {}
        self._deliveries: dict[int, _StoredDelivery] = {}
        self._last = 0

    async def add(self, hook: Hook) -> None:
        if (known := self._hooks.get(hook.id)) is not None:
            kept = msgspec.structs.replace(hook, created_at=known.hook.created_at)
            self._hooks[hook.id] = msgspec.structs.replace(known, hook=kept)
        else:
            self._hooks[hook.id] = HookStatus(
                hook=hook, pending=0, delivered=0, dropped=0, last_error=None, last_at=None
            )

    async def remove(self, hook_id: str) -> bool:
        return self._remove(hook_id)

    def _remove(self, hook_id: str) -> bool:
        for stored in self._of(hook_id):
            del self._deliveries[stored.delivery.number]
        return self._hooks.pop(hook_id, None) is not None

    def _of(self, hook_id: str) -> list[_StoredDelivery]:
        return [stored for stored in self._deliveries.values() if stored.delivery.hook.id == hook_id]

    async def all(self) -> list[HookStatus]:
        return [
            msgspec.structs.replace(status, pending=len(self._of(hook_id))) for hook_id, status in self._hooks.items()
        ]

    def delete_run(self, run_id: str) -> None:
        """Delete the hooks of one run, and the deliveries about it of all hooks."""
        for hook_id in [hook_id for hook_id, status in self._hooks.items() if status.hook.run_id == run_id]:
            self._remove(hook_id)
        for stored in [*self._deliveries.values()]:
            if stored.delivery.event_id.startswith(f"{run_id}."):
                del self._deliveries[stored.delivery.number]

    def insert(self, notifications: Sequence[Notification]) -> None:
        """Store a delivery for each hook that wants a notification."""
        for status in [*self._hooks.values()]:
            self._enqueue(status.hook, notifications)

    async def enqueue(self, hook_id: str, notifications: Sequence[Notification]) -> None:
        if (status := self._hooks.get(hook_id)) is not None:
            self._enqueue(status.hook, notifications)

    def _enqueue(self, hook: Hook, notifications: Sequence[Notification]) -> None:
        at, oldest_at, expires_at = timestamp(), timestamp(-hook.retry_seconds), timestamp(hook.retry_seconds)
        for notification in notifications:
            known = any(stored.delivery.event_id == notification.id for stored in self._of(hook.id))
            if known or not hook.matches(notification):
                continue
            if notification.at < oldest_at:
                if hook.origin == "run":
                    self._remove(hook.id)
                continue
            self._last += 1
            body = encode_cloud_event(notification)
            self._deliveries[self._last] = _StoredDelivery(
                Delivery(
                    number=self._last,
                    hook=hook,
                    event_id=notification.id,
                    body=body,
                    tries=0,
                    expires_at=expires_at,
                ),
                at,
            )
            for oldest in self._of(hook.id)[:-HOOK_PENDING_MAX]:
                self._finish(oldest.delivery, dropped=1)

    def _finish(self, delivery: Delivery, *, dropped: int = 0, delivered: int = 0) -> None:
        self._deliveries.pop(delivery.number, None)
        if (status := self._hooks.get(delivery.hook.id)) is not None:
            self._hooks[delivery.hook.id] = msgspec.structs.replace(
                status, delivered=status.delivered + delivered, dropped=status.dropped + dropped
            )

    async def due(self, now: str, *, limit: int, exclude: Collection[str] = ()) -> list[Delivery]:
        hooks = self._hooks
        waiting = {hook_id for hook_id in hooks if any(stored.next_at > now for stored in self._of(hook_id)[:1])}
        skipped = waiting.union(exclude)
        due = [stored for stored in self._deliveries.values() if stored.delivery.hook.id not in skipped]
        return [
            msgspec.structs.replace(stored.delivery, hook=hooks[stored.delivery.hook.id].hook) for stored in due[:limit]
        ]

    async def complete(self, delivery: Delivery, *, at: str, error: str | None = None) -> None:
        self._finish(delivery, delivered=error is None, dropped=error is not None)
        self._note(delivery, at, error)
        if delivery.hook.origin == "run":
            self._remove(delivery.hook.id)

    async def drop_expired(self, hook: Hook, before: str) -> None:
        expired = [stored.delivery for stored in self._of(hook.id) if stored.delivery.expires_at < before]
        for delivery in expired:
            self._finish(delivery, dropped=1)
        if expired and hook.origin == "run":
            self._remove(hook.id)

    async def postpone(self, delivery: Delivery, *, at: str, until: str, error: str) -> None:
        if (stored := self._deliveries.get(delivery.number)) is not None:
            stored.next_at = until
            stored.delivery = msgspec.structs.replace(stored.delivery, tries=stored.delivery.tries + 1)
        self._note(delivery, at, error)

    def _note(self, delivery: Delivery, at: str, error: str | None) -> None:
        if (status := self._hooks.get(delivery.hook.id)) is not None:
            self._hooks[delivery.hook.id] = msgspec.structs.replace(status, last_error=error, last_at=at)
