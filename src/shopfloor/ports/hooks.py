"""Hooks: who is notified of runs, and the deliveries that are due. Durable: they survive restarts (ADR 32)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

import msgspec

from shopfloor.limits import HOOK_RETRY_SECONDS
from shopfloor.views import DEFAULT_NOTIFICATION_KINDS, Notification, NotificationKind

HookOrigin = Literal["api", "settings", "run", "desktop"]


class Hook(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A receiver of notifications: a URL, or a command of this machine."""

    id: str
    origin: HookOrigin
    """Who made it: a request, the settings file, one run (`--on-outcome`), or `shopfloor up` in a terminal."""
    created_at: str
    """Events before this time are not delivered."""
    url: str | None = None
    command: str | None = None
    cwd: str | None = None
    secret: str = ""
    """The key of the signatures, in base64. Shown once, when the hook is added."""
    kinds: tuple[NotificationKind, ...] = DEFAULT_NOTIFICATION_KINDS
    run_id: str | None = None
    """Only notifications of this run; None for all runs."""
    min_seconds: float = 0
    """Only outcomes of runs that took at least this long."""
    retry_seconds: float = HOOK_RETRY_SECONDS
    """How long after the event its delivery is tried."""

    def matches(self, notification: Notification) -> bool:
        """Return whether the hook is notified of a notification."""
        took_ms: int = notification.data.get("duration_ms") or 0
        return (
            notification.kind in self.kinds
            and self.run_id in (None, notification.run_id)
            and (self.run_id is not None or notification.at >= self.created_at)
            and (notification.kind != "outcome" or took_ms >= self.min_seconds * 1000)
        )


class HookStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A hook and how its deliveries went."""

    hook: Hook
    pending: int
    delivered: int
    dropped: int
    """Deliveries that were given up."""
    last_error: str | None
    """The problem of the newest try; None if it succeeded."""
    last_at: str | None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A notification for one hook. It stays stored until it is delivered or its time is over."""

    number: int
    hook: Hook
    event_id: str
    body: bytes
    """The CloudEvent, the same bytes at each try."""
    tries: int
    expires_at: str


class Hooks(Protocol):
    """The stored hooks and deliveries. `Store.apply` stores deliveries in the transaction that stores the rows."""

    async def add(self, hook: Hook) -> None:
        """Store a hook, or replace the hook with this id. Its deliveries and its `created_at` stay."""
        ...

    async def remove(self, hook_id: str) -> bool:
        """Remove a hook with its deliveries. Return False if there is none."""
        ...

    async def all(self) -> list[HookStatus]:
        """Return all hooks, oldest first."""
        ...

    async def enqueue(self, hook_id: str, notifications: Sequence[Notification]) -> None:
        """Store deliveries of these notifications to a hook, as far as it has not got them and they match.

        A notification that is too old is not delivered; the hook of one run is removed then, as nothing follows.
        """
        ...

    async def due(self, now: str, *, limit: int, exclude: Collection[str] = ()) -> list[Delivery]:
        """Return the deliveries of hooks whose oldest delivery is due at `now`, oldest first, without excluded hooks.

        Deliveries wait for earlier ones of their hook, so that each receiver gets its events in order.
        """
        ...

    async def complete(self, delivery: Delivery, *, at: str, error: str | None = None) -> None:
        """Remove a delivery that succeeded, or was given up because of `error`.

        Also removes the hook if it belongs to one run.
        """
        ...

    async def drop_expired(self, hook: Hook, before: str) -> None:
        """Give up the deliveries of a hook that expire before a time.

        Also removes the hook if it belongs to one run and lost its delivery.
        """
        ...

    async def postpone(self, delivery: Delivery, *, at: str, until: str, error: str) -> None:
        """Store that a try failed at `at`, and when the next is due."""
        ...


class SendNotification(Protocol):
    """Delivers to a receiver, within a time limit. Returns the problem, or None for success. Raises nothing."""

    async def __call__(self, hook: Hook, event_id: str, body: bytes) -> str | None: ...
