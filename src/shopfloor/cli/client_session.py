"""Logs of a server somewhere else, read as files here are: in order, as they come."""

from __future__ import annotations

import logging
import os
import signal
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import anyio

from shopfloor.cli.arguments import storage_from_args
from shopfloor.cli.main import restore_gc_thresholds
from shopfloor.cli.shutdown import receive_signals, schedule_exit, schedule_exit_if_tasks_remain
from shopfloor.errors import RunNotFound, ShopfloorError, UnexpectedError
from shopfloor.limits import OUTCOME_POLL_SECONDS
from shopfloor.log import Entry, Masking
from shopfloor.wiring import WorkerSettings, open_client

if TYPE_CHECKING:
    from shopfloor.client import Api, Client


def is_remote() -> bool:
    """Whether runs are asked for elsewhere: a server on this storage has the same files as we do."""
    return bool(os.environ.get("SHOPFLOOR_URL"))


def read_remote_log(said: str, read: Callable[[Api, str], AsyncIterator[Entry]]) -> Iterator[Entry]:
    """What `read` gives of the run that `said` means, one by one, without an event loop of the caller's."""
    import asyncio

    with asyncio.Runner() as runner:
        api = _api()
        entries = aiter(read(api, runner.run(api.find_run(said))))
        try:
            while (entry := runner.run(_next(entries))) is not None:
                yield entry
        finally:
            runner.run(api.close())


def resolve_remote_run_id(said: str) -> str:
    """The id of the run there that `said` means."""
    import asyncio

    async def ask() -> str:
        api = _api()
        try:
            return await api.find_run(said)
        finally:
            await api.close()

    return asyncio.run(ask())


def _api() -> Api:
    from shopfloor.client import Address, Api, find_server
    from shopfloor.record import Storage

    address = find_server(Storage.default()) or Address("", "")
    return Api(address.url, address.token)


async def _next(entries: AsyncIterator[Entry]) -> Entry | None:
    return await anext(entries, None)


T = TypeVar("T")
SignalHandler = Callable[[int], bool]
"""Is told of a signal; says whether to go on all the same."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Answer(NamedTuple, Generic[T]):
    given: T


def _leave(number: int) -> bool:
    del number
    return False


def run_with_client(
    args: Namespace,
    question: Callable[[Client], Awaitable[T]],
    *,
    workers: WorkerSettings | None = None,
    can_run: bool = False,
    mask: Masking | None = None,
    on_signal: SignalHandler = _leave,
) -> T:
    """What `question` gives. Its errors leave as what they are; a signal that is not for `on_signal` ends it."""
    logging.getLogger("shopfloor.engine.stacks").disabled = not args.debug
    work = partial(_asked, args, question, workers=workers, can_run=can_run, mask=mask, on_signal=on_signal)
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
    workers: WorkerSettings | None,
    can_run: bool,
    mask: Masking | None,
    on_signal: SignalHandler,
) -> _Answer[T] | ShopfloorError | int:
    """The answer, or why there is none: an error, or a signal. Nothing is raised, so that no group wraps it."""
    # What we were told to ignore, as by nohup, stays ignored.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    answer: _Answer[T] | ShopfloorError = UnexpectedError("the question was left before it was answered")
    left: list[int] = []
    async with open_client(storage_from_args(args), workers=workers, can_run=can_run, mask=mask) as client:
        restore_gc_thresholds()
        with receive_signals(heard) as signals:

            async def obey() -> None:
                async for number in signals:
                    if left or not on_signal(number):
                        schedule_exit(128 + number)
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
        schedule_exit_if_tasks_remain(_code_of(left, answer))
    return left[0] if left else answer


def _code_of(left: list[int], answer: _Answer[Any] | ShopfloorError) -> int:
    if left:
        return 128 + left[0]
    if isinstance(answer, ShopfloorError):
        return answer.exit_code
    return answer.given if isinstance(answer.given, int) else 0


async def resolve_run_id(api: Api, args: Namespace, said: str) -> str:
    """The run that somebody means: one that a server knows, queued ones too, or one of the files here."""
    try:
        return await api.find_run(said)
    except RunNotFound:
        if is_remote():
            raise
        return storage_from_args(args).find(said)


async def wait_for_outcome(client: Client, run_id: str) -> dict[str, Any]:
    """The run, once it has its outcome."""
    while True:
        detail = await client.api.run(run_id)
        if detail["completed_at"] is not None:
            return detail
        await anyio.sleep(OUTCOME_POLL_SECONDS)
