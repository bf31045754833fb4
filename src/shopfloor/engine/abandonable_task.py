"""A leash: work that is told to leave and does not is left behind, so that nobody waits for it for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import anyio

T = TypeVar("T")


class TaskAbandoned(Exception):
    """The work did not leave in time. Nothing that it waits for is told to it any more."""


class AbandonableTask(Generic[T]):
    """Holds work by the one task that it is done in.

    Tasks that the work makes of its own are not held: they see a cancellation, and may go on for all that.
    """

    def __init__(self, *, grace_seconds: float) -> None:
        self.is_abandoned = False
        """Whether it was left behind."""
        self.grace_seconds = grace_seconds
        self._scope: anyio.CancelScope | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[T | None] | None = None
        self._over = asyncio.Event()

    def cancel(self) -> None:
        """Tells the work to leave: whatever it waits for is cancelled. Twice is once."""
        if self._deadline is None:
            self._scope = self._scope or anyio.CancelScope()
            self._scope.cancel()
            self._deadline = asyncio.get_running_loop().call_later(self.grace_seconds, self._let_go)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """What the work gives; None where it left since it was told to. Raises `TaskAbandoned` where it did not.

        The work has a task of its own: what it leaves open when it is left behind is open there, and not here.
        """
        self._task = asyncio.create_task(self._held(self._within(work)))
        self._task.add_done_callback(lambda task: self._over.set())
        await self._over.wait()
        if self._deadline is not None:
            self._deadline.cancel()
        if self.is_abandoned:
            raise TaskAbandoned
        # A cancellation may come out of the work that is not the one that went in, as `asyncio.gather` makes one of its
        # own: our scope does not know it, and whoever awaits us is not the one that is cancelled.
        return None if self._task.cancelled() else self._task.result()

    async def _within(self, work: Callable[[], Awaitable[T]]) -> T | None:
        self._scope = self._scope or anyio.CancelScope()
        with self._scope:
            return await work()
        return None

    async def _held(self, work: Coroutine[Any, Any, T | None]) -> T | None:
        return await _Held(self, work)

    def _let_go(self) -> None:
        self.is_abandoned = True
        self._over.set()
        if self._task is not None:
            # Where it sleeps behind a shield, it would not even notice.
            self._task.cancel()


class _Held(Generic[T]):
    """Awaits work for as long as it is held."""

    def __init__(self, abandonable_task: AbandonableTask[Any], work: Coroutine[Any, Any, T | None]) -> None:
        self._leash = abandonable_task
        self._work = work

    def __await__(self) -> Generator[Any, Any, T | None]:
        go_on: Callable[[], Any] = partial(self._work.send, None)
        while not self._leash.is_abandoned:
            try:
                awaited = go_on()
            except StopIteration as done:
                return done.value
            try:
                go_on = partial(self._work.send, (yield awaited))
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the work
                go_on = partial(self._work.throw, error)
        # Files and locks that the work holds are let go of, as far as that can be done without waiting.
        with suppress(BaseException):
            self._work.close()
        return None
