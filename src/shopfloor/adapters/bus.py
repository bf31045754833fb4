"""The bus of one process: a fan-out for each run with subscribers, and subscriptions to all runs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from shopfloor.adapters.limits import BUS_BYTES, BUS_EVENTS, BUS_HEARTBEATS, BUS_RUNS
from shopfloor.log import Delta, Entry
from shopfloor.record import UNKNOWN_SEQ, FanOut, Subscription, Waiter, wake_all
from shopfloor.views import FleetEvent


class InProcessBus:
    """Implements `Bus` between the writers and the subscribers of one process. Thread-safe."""

    def __init__(self) -> None:
        self._fanouts: dict[str, FanOut] = {}
        self._all_runs: tuple[RunsSubscription, ...] = ()
        self._fleet: tuple[FleetSubscription, ...] = ()
        self._lock = threading.Lock()

    def publish(self, run_id: str, entry: Entry) -> None:
        if not self._all_runs and run_id not in self._fanouts:
            return
        with self._lock:
            for subscription in self._all_runs:
                subscription.push(run_id, entry)
            fanout = self._fanouts.get(run_id)
            if fanout is not None:
                if entry.seq != fanout.last_seq + 1:
                    # The log's length was unknown, another process wrote to it, it was truncated, or entries came out
                    # of order.
                    fanout.restart(entry.seq - 1)
                fanout.publish(entry)

    def publish_delta(self, run_id: str, delta: Delta) -> None:
        if run_id in self._fanouts:
            with self._lock:
                fanout = self._fanouts.get(run_id)
                if fanout is not None:
                    fanout.publish_delta(delta)

    def notify(self, run_id: str) -> None:
        if not self._all_runs and run_id not in self._fanouts:
            return
        with self._lock:
            for subscription in self._all_runs:
                subscription.push(run_id, None)
            fanout = self._fanouts.get(run_id)
            if fanout is not None:
                fanout.notify()

    @contextmanager
    def subscribe(self, run_id: str, *, deltas: bool = False) -> Generator[Subscription]:
        with self._lock:
            fanout = self._fanouts.get(run_id)
            if fanout is None:
                fanout = self._fanouts[run_id] = FanOut(UNKNOWN_SEQ)
            subscription = fanout.subscribe(f"of run {run_id}", deltas=deltas)
        try:
            yield subscription
        finally:
            with self._lock:
                subscription.close()
                if not len(fanout):
                    del self._fanouts[run_id]

    @contextmanager
    def subscribe_all(self) -> Generator[RunsSubscription]:
        subscription = RunsSubscription(self._lock)
        with self._lock:
            self._all_runs = (*self._all_runs, subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._all_runs = tuple(other for other in self._all_runs if other is not subscription)

    def notify_fleet(self) -> None:
        for subscription in self._fleet:
            subscription.wake()

    def publish_heartbeat(self, event: FleetEvent) -> None:
        for subscription in self._fleet:
            subscription.push(event)

    @contextmanager
    def subscribe_fleet(self) -> Generator[FleetSubscription]:
        subscription = FleetSubscription()
        with self._lock:
            self._fleet = (*self._fleet, subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._fleet = tuple(other for other in self._fleet if other is not subscription)


class FleetSubscription:
    """One reader's wake-ups, and its buffer of heartbeats."""

    def __init__(self) -> None:
        self._heartbeats: deque[FleetEvent] = deque(maxlen=BUS_HEARTBEATS)
        self._is_woken = False
        self._waiters: deque[Waiter] = deque()
        self._waiter = Waiter()

    def push(self, event: FleetEvent) -> None:
        """Buffer a heartbeat."""
        self._heartbeats.append(event)
        self.wake()

    def wake(self) -> None:
        """Wake the reader."""
        self._is_woken = True
        if self._waiters:
            wake_all(self._waiters)

    def drain(self) -> list[FleetEvent]:
        # Clear the flag before reading, so that a concurrent wake-up is not lost.
        self._is_woken = False
        return [self._heartbeats.popleft() for _ in range(len(self._heartbeats))]

    async def wait(self, seconds: float) -> None:
        if not self._is_woken:
            await self._waiter.wait(seconds, self._waiters, lambda: self._is_woken)


class RunsSubscription:
    """One subscriber's buffer of entries of all runs. An empty list for a run means: read its log."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._pending: dict[str, list[Entry]] = {}
        self._events = 0
        self._bytes = 0
        self._waiters: deque[Waiter] = deque()
        self._waiter = Waiter()

    def push(self, run_id: str, entry: Entry | None) -> None:
        """Buffer an entry, or with None that the log has to be read. The caller holds the lock."""
        entries = self._pending.get(run_id)
        if entries is None:
            # With too many runs at once, the subscriber finds the rest when it polls all logs.
            if len(self._pending) < BUS_RUNS:
                self._pending[run_id] = []
                self._append(self._pending[run_id], entry)
        elif entries:
            if entry is not None and entry.seq == entries[-1].seq + 1:
                self._append(entries, entry)
            else:
                entries.clear()
        if self._waiters:
            wake_all(self._waiters)

    def _append(self, entries: list[Entry], entry: Entry | None) -> None:
        if entry is None:
            return
        self._events += 1
        self._bytes += len(entry.raw)
        if self._events > BUS_EVENTS or self._bytes > BUS_BYTES:
            entries.clear()
        else:
            entries.append(entry)

    def drain(self) -> dict[str, list[Entry]]:
        with self._lock:
            pending, self._pending = self._pending, {}
            self._events = self._bytes = 0
        return pending

    async def wait(self, seconds: float) -> None:
        if not self._pending:
            await self._waiter.wait(seconds, self._waiters, lambda: bool(self._pending))
