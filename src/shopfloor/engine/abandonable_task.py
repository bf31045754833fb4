"""A task that is abandoned if it does not stop in time after a cancellation, so that its caller never waits forever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

import anyio

T = TypeVar("T")


class TaskAbandoned(Exception):
    """The work did not stop within the grace period. It gets no further result or exception."""


class AbandonableTask(Generic[T]):
    """A task that can be cancelled, and is abandoned if it ignores the cancellation.

    Only this one task is controlled. Tasks that the work creates itself see the cancellation, but may continue.
    """

    def __init__(self, *, grace_seconds: float) -> None:
        self.is_abandoned = False
        self.grace_seconds = grace_seconds
        """How long the work may take to stop after `cancel`."""
        self._scope: anyio.CancelScope | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[T | None] | None = None
        self._over = asyncio.Event()

    def cancel(self) -> None:
        """Cancel what the work awaits, and abandon the work after the grace period. Idempotent."""
        if self._deadline is None:
            self._scope = self._scope or anyio.CancelScope()
            self._scope.cancel()
            self._deadline = asyncio.get_running_loop().call_later(self.grace_seconds, self._abandon)

    async def run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of the work, or None if the work stopped after `cancel`.

        Raises `TaskAbandoned` if the work did not stop in time. The work runs in a separate task, so that the cancel
        scopes and task groups it leaves open when it is abandoned are not open in the caller's task.
        """
        self._task = asyncio.create_task(self._await_until_abandoned(self._run_in_scope(work)))
        self._task.add_done_callback(lambda task: self._over.set())
        await self._over.wait()
        if self._deadline is not None:
            self._deadline.cancel()
        if self.is_abandoned:
            raise TaskAbandoned
        # The work may raise another cancellation than the one it got, as `asyncio.gather` does. Our scope does not
        # catch that one, and it must not cancel our caller.
        return None if self._task.cancelled() else self._task.result()

    async def _run_in_scope(self, work: Callable[[], Awaitable[T]]) -> T | None:
        self._scope = self._scope or anyio.CancelScope()
        with self._scope:
            return await work()
        return None

    async def _await_until_abandoned(self, work: Coroutine[Any, Any, T | None]) -> T | None:
        return await _AbandonableAwaitable(self, work)

    def _abandon(self) -> None:
        self.is_abandoned = True
        self._over.set()
        if self._task is not None:
            # Wake the task: work that sleeps inside a shield would not notice otherwise.
            self._task.cancel()


class _AbandonableAwaitable(Generic[T]):
    """An awaitable that drives a coroutine until it returns or its `AbandonableTask` is abandoned."""

    def __init__(self, owner: AbandonableTask[Any], work: Coroutine[Any, Any, T | None]) -> None:
        self._owner = owner
        self._work = work

    def __await__(self) -> Generator[Any, Any, T | None]:
        advance: Callable[[], Any] = partial(self._work.send, None)
        while not self._owner.is_abandoned:
            try:
                awaited = advance()
            except StopIteration as done:
                return done.value
            try:
                advance = partial(self._work.send, (yield awaited))
            except BaseException as error:  # noqa: BLE001 - every error is passed on to the work
                advance = partial(self._work.throw, error)
        # Release the files and locks of the work, as far as that is possible without waiting.
        with suppress(BaseException):
            self._work.close()
        return None
