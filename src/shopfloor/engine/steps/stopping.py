"""Ending what a step has started when the step is left: not by a cancellation, which it does not see, but in stages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.cancel import Cancellation

LEFT = "left"


@asynccontextmanager
async def stopped_when_left(
    attempt: Attempt, cancellation: Cancellation, *, seconds: float | None = None, late: str = ""
) -> AsyncGenerator[None]:
    """What is inside goes on to its end; that it is to end soon it hears by `cancellation`, also after `seconds`."""
    over = anyio.Event()
    async with anyio.create_task_group() as outside:
        # Not only the run as a whole may be left: another branch may fail, or a time limit pass.
        outside.start_soon(_stop_when_cancelled, cancellation, over)
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stop_when_left, attempt, cancellation)
                tasks.start_soon(_kill_when_forced, attempt, cancellation)
                if seconds is not None:
                    tasks.start_soon(_stop_after, cancellation, seconds, late)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        over.set()
        outside.cancel_scope.cancel()


def stop_once(cancellation: Cancellation, reason: str) -> None:
    """Asked twice it would be killed at once; several of us may ask for the same reason."""
    if cancellation.reason is None:
        cancellation.request(reason)


async def _stop_when_left(attempt: Attempt, cancellation: Cancellation) -> None:
    await attempt.left.wait()
    stop_once(cancellation, LEFT)


async def _kill_when_forced(attempt: Attempt, cancellation: Cancellation) -> None:
    """Pass on a second request to cancel the run: the step is not waited for any longer."""
    await attempt.cancellation.forced.wait()
    stop_once(cancellation, LEFT)
    cancellation.request(LEFT)


async def _stop_when_cancelled(cancellation: Cancellation, over: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        if not over.is_set():
            stop_once(cancellation, LEFT)


async def _stop_after(cancellation: Cancellation, seconds: float, late: str) -> None:
    await anyio.sleep(seconds)
    stop_once(cancellation, late)
