"""Asking a server, or one in this process, and leaving when a signal says so."""

from __future__ import annotations

import logging
import signal
from argparse import Namespace
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import anyio

from shopfloor.cli.arguments import storage_of
from shopfloor.cli.leaving import leave_soon, leave_tasks
from shopfloor.cli.main import collect_as_usual
from shopfloor.cli.remote import is_remote
from shopfloor.cli.signals import receive_signals
from shopfloor.errors import RunNotFound, ShopfloorError, UnexpectedError
from shopfloor.limits import OUTCOME_PAUSE_SECONDS
from shopfloor.log import Masking
from shopfloor.wiring import Workers, open_client

if TYPE_CHECKING:
    from shopfloor.client import Api, Client

T = TypeVar("T")
Hear = Callable[[int], bool]
"""Is told of a signal; says whether to go on all the same."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Answer(NamedTuple, Generic[T]):
    given: T


def _leave(number: int) -> bool:
    del number
    return False


def ask(
    args: Namespace,
    question: Callable[[Client], Awaitable[T]],
    *,
    workers: Workers | None = None,
    can_run: bool = False,
    mask: Masking | None = None,
    hear: Hear = _leave,
) -> T:
    """What `question` gives. Its errors leave as what they are; a signal that is not for `hear` ends it."""
    logging.getLogger("shopfloor.engine.stacks").disabled = not args.debug
    work = partial(_asked, args, question, workers=workers, can_run=can_run, mask=mask, hear=hear)
    answer = anyio.run(work, backend_options={"use_uvloop": True})
    if isinstance(answer, int):
        raise SystemExit(128 + answer)
    if isinstance(answer, ShopfloorError):
        raise answer
    return answer.given


async def _asked(
    args: Namespace,
    question: Callable[[Client], Awaitable[T]],
    *,
    workers: Workers | None,
    can_run: bool,
    mask: Masking | None,
    hear: Hear,
) -> _Answer[T] | ShopfloorError | int:
    """The answer, or why there is none: an error, or a signal. Nothing is raised, so that no group wraps it."""
    # What we were told to ignore, as by nohup, stays ignored.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    answer: _Answer[T] | ShopfloorError = UnexpectedError("the question was left before it was answered")
    left: list[int] = []
    async with open_client(storage_of(args), workers=workers, can_run=can_run, mask=mask) as client:
        collect_as_usual()
        with receive_signals(heard) as signals:

            async def obey() -> None:
                async for number in signals:
                    if left or not hear(number):
                        leave_soon(128 + number)
                        left.append(number)
                        tasks.cancel_scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(obey)
                try:
                    answer = _Answer(await question(client))
                except ShopfloorError as error:
                    answer = error
                tasks.cancel_scope.cancel()
    if can_run:
        leave_tasks(_code_of(left, answer))
    return left[0] if left else answer


def _code_of(left: list[int], answer: _Answer[Any] | ShopfloorError) -> int:
    if left:
        return 128 + left[0]
    if isinstance(answer, ShopfloorError):
        return answer.exit_code
    return answer.given if isinstance(answer.given, int) else 0


async def named_run(api: Api, args: Namespace, said: str) -> str:
    """The run that somebody means: one that a server knows, queued ones too, or one of the files here."""
    try:
        return await api.find_run(said)
    except RunNotFound:
        if is_remote():
            raise
        return storage_of(args).find(said)


async def ended(client: Client, run_id: str) -> dict[str, Any]:
    """The run, once it has its outcome."""
    while True:
        detail = await client.api.run(run_id)
        if detail["completed_at"] is not None:
            return detail
        await anyio.sleep(OUTCOME_PAUSE_SECONDS)
