"""The live bus of one process: a fan-out for each run that somebody watches."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager

from shopfloor.limits import BUS_BYTES, BUS_EVENTS, BUS_RUNS
from shopfloor.log import Delta, Entry
from shopfloor.record import UNKNOWN_SEQ, FanOut, Subscription, Waiter, wake_all


class InProcessBus:
    """Between the writers and the subscribers of one process, in whatever threads they are."""

    def __init__(self) -> None:
        self._fanouts: dict[str, FanOut] = {}
        self._runs: tuple[RunsSubscription, ...] = ()
        self._lock = threading.Lock()

    def publish(self, run_id: str, entry: Entry) -> None:
        if not self._runs and run_id not in self._fanouts:
            return
        with self._lock:
            for runs in self._runs:
                runs.push(run_id, entry)
            fanout = self._fanouts.get(run_id)
            if fanout is not None:
                if entry.seq != fanout.last_seq + 1:
                    # Unknown so far, written by another process in between, cut, or passed on out of order.
                    fanout.restart(entry.seq - 1)
                fanout.publish(entry)

    def publish_delta(self, run_id: str, delta: Delta) -> None:
        if run_id in self._fanouts:
            with self._lock:
                fanout = self._fanouts.get(run_id)
                if fanout is not None:
                    fanout.publish_delta(delta)

    def notify(self, run_id: str) -> None:
        if not self._runs and run_id not in self._fanouts:
            return
        with self._lock:
            for runs in self._runs:
                runs.push(run_id, None)
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
            self._runs = (*self._runs, subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._runs = tuple(one for one in self._runs if one is not subscription)


class RunsSubscription:
    """What one subscriber has not read yet of all runs."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self._runs: dict[str, list[Entry]] = {}
        self._events = 0
        self._bytes = 0
        self._sleepers: deque[Waiter] = deque()
        self._sleeper = Waiter()

    def push(self, run_id: str, entry: Entry | None) -> None:
        """Keep an event, or that the log has to be looked at. The caller holds the lock."""
        entries = self._runs.get(run_id)
        if entries is None:
            # Who writes so many runs at once is left to the next look at all logs.
            if len(self._runs) < BUS_RUNS:
                self._runs[run_id] = []
                self._keep(self._runs[run_id], entry)
        elif entries:
            if entry is not None and entry.seq == entries[-1].seq + 1:
                self._keep(entries, entry)
            else:
                entries.clear()
        if self._sleepers:
            wake_all(self._sleepers)

    def _keep(self, entries: list[Entry], entry: Entry | None) -> None:
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
            runs, self._runs = self._runs, {}
            self._events = self._bytes = 0
        return runs

    async def wait(self, seconds: float) -> None:
        if not self._runs:
            await self._sleeper.wait(seconds, self._sleepers, lambda: bool(self._runs))
