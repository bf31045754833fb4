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
    """Delivers what is due, to each hook in order and one at a time, so one that hangs delays no other.

    After a failure the receiver gets nothing until its backoff is over, however many deliveries are pending. No
    receiver gets an expired delivery: expired ones are dropped before a try, and with a delivery that is given up
    also those that expire before the next try.
    """

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
        self._failures: dict[str, tuple[int, str]] = {}
        """The hooks whose receiver is down: the number of failed tries in a row, and when the next may be made."""

    async def run(self) -> None:
        """Deliver until cancelled. A delivery that is cut off is repeated by the next process."""
        async with anyio.create_task_group() as tasks:
            while True:
                with tolerate_temporary_errors("cannot read the deliveries of hooks"):
                    await self._start_due(tasks)
                await anyio.sleep(self._poll_seconds)

    async def _start_due(self, tasks: TaskGroup) -> None:
        started: set[str] = set()
        # Read on without the hooks that were started: one that has many due deliveries must not hide the others.
        while len(self._busy) < HOOK_CONCURRENCY:
            at = now()
            paused = {hook_id for hook_id, (_, until) in self._failures.items() if until > at}
            due = await self._hooks.due(at, limit=HOOK_BATCH, exclude=self._busy | started | paused)
            if not due:
                return
            # Stable: the deliveries of each hook stay in order.
            due.sort(key=_hook_id)
            for hook_id, deliveries in groupby(due, _hook_id):
                if len(self._busy) < HOOK_CONCURRENCY:
                    self._busy.add(hook_id)
                    started.add(hook_id)
                    tasks.start_soon(self._deliver_all, hook_id, [*deliveries])

    async def _deliver_all(self, hook_id: str, deliveries: list[Delivery]) -> None:
        try:
            with tolerate_temporary_errors("cannot store a delivery"):
                for delivery in deliveries:
                    if not await self._deliver(delivery):
                        # The others of this hook are tried when they are read again.
                        break
        finally:
            self._busy.discard(hook_id)

    async def _deliver(self, delivery: Delivery) -> bool:
        """Try once, store how it went, and return whether the receiver got it. Drop an expired delivery instead."""
        hook = delivery.hook
        if delivery.expires_at < (at := now()):
            # It expired while no server was running.
            await self._hooks.drop_expired(hook, at)
            return False
        problem = await self._send(hook, delivery.event_id, delivery.body)
        tries = max(delivery.tries, self._failures.pop(hook.id, (0, ""))[0]) + 1
        at = now()
        until = now(backoff_seconds(tries, self._first_backoff_seconds))
        is_final = hook.command is not None or until > delivery.expires_at
        is_down = problem is not None and hook.command is None
        if is_down:
            self._failures[hook.id] = (tries, until)
        if problem is None or is_final:
            await self._hooks.complete(delivery, at=at, error=problem)
            if is_down:
                await self._hooks.drop_expired(hook, until)
        else:
            await self._hooks.postpone(delivery, at=at, until=until, error=problem)
        if problem is not None and is_final:
            _log.warning("hook %s: gave up event %s: %s", hook.id, delivery.event_id, problem)
        return problem is None


def _hook_id(delivery: Delivery) -> str:
    return delivery.hook.id
