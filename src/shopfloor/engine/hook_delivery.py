"""Delivery of notifications to hooks: durable, at least once, retried with backoff, apart from runs (ADR 32)."""

from __future__ import annotations

import logging
from itertools import groupby

import anyio
from anyio.abc import TaskGroup

from shopfloor.engine.error_mapping import tolerate_temporary_errors
from shopfloor.limits import (
    HOOK_BACKOFF_MAX_SECONDS,
    HOOK_BACKOFF_SECONDS,
    HOOK_BATCH,
    HOOK_CONCURRENCY,
    HOOK_POLL_SECONDS,
)
from shopfloor.log import now
from shopfloor.ports import Delivery, Hooks, SendNotification

_log = logging.getLogger("shopfloor.engine")


def backoff_seconds(tries: int, first_seconds: float = HOOK_BACKOFF_SECONDS) -> float:
    """Return the pause after this many failed tries."""
    return min(first_seconds * 2 ** min(tries - 1, 32), HOOK_BACKOFF_MAX_SECONDS)


class HookDelivery:
    """Delivers what is due. Each hook has one delivery at a time, so one that hangs delays no other."""

    def __init__(
        self,
        hooks: Hooks,
        send: SendNotification,
        *,
        first_backoff_seconds: float = HOOK_BACKOFF_SECONDS,
        poll_seconds: float = HOOK_POLL_SECONDS,
    ) -> None:
        self._hooks = hooks
        self._send = send
        self._first_backoff_seconds = first_backoff_seconds
        self._poll_seconds = poll_seconds
        self._busy: set[str] = set()
        """The hooks that are delivered to at the moment."""

    async def run(self) -> None:
        """Deliver until cancelled. A delivery that is cut off is repeated by the next process."""
        async with anyio.create_task_group() as tasks:
            while True:
                with tolerate_temporary_errors("cannot read the deliveries of hooks"):
                    await self._start_due(tasks)
                await anyio.sleep(self._poll_seconds)

    async def _start_due(self, tasks: TaskGroup) -> None:
        if len(self._busy) >= HOOK_CONCURRENCY:
            return
        due = await self._hooks.due(now(), limit=HOOK_BATCH, exclude=self._busy)
        due.sort(key=_hook_id)
        for hook_id, deliveries in groupby(due, _hook_id):
            if len(self._busy) < HOOK_CONCURRENCY:
                self._busy.add(hook_id)
                tasks.start_soon(self._deliver_all, hook_id, sorted(deliveries, key=lambda one: one.number))

    async def _deliver_all(self, hook_id: str, deliveries: list[Delivery]) -> None:
        try:
            with tolerate_temporary_errors("cannot store a delivery"):
                for delivery in deliveries:
                    if not await self._deliver(delivery):
                        # The receiver is down: the others of this hook are tried when they are read again.
                        break
        finally:
            self._busy.discard(hook_id)

    async def _deliver(self, delivery: Delivery) -> bool:
        """Try once, store how it went, and return whether the receiver got it."""
        problem = await self._send(delivery.hook, delivery.event_id, delivery.body)
        at = now()
        until = now(backoff_seconds(delivery.tries + 1, self._first_backoff_seconds))
        is_final = delivery.hook.command is not None or until > delivery.expires_at
        if problem is None or is_final:
            await self._hooks.complete(delivery, at=at, error=problem)
        else:
            await self._hooks.postpone(delivery, at=at, until=until, error=problem)
        if problem is not None and is_final:
            _log.warning("hook %s: gave up event %s: %s", delivery.hook.id, delivery.event_id, problem)
        return problem is None


def _hook_id(delivery: Delivery) -> str:
    return delivery.hook.id
