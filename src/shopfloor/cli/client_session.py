"""Sessions with a server, or with the engine in this process, for the length of one command."""

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
from shopfloor.views import INTERRUPTED
from shopfloor.wiring import WorkerSettings, open_client

if TYPE_CHECKING:
    from shopfloor.client import Api, Client


API_COMPLETED = "done"
"""The API's word for the status `completed`."""


def is_remote() -> bool:
    """Return whether SHOPFLOOR_URL names a server. A server on this storage has the same files as this process."""
    return bool(os.environ.get("SHOPFLOOR_URL"))


def read_remote_log(run_ref: str, read: Callable[[Api, str], AsyncIterator[Entry]]) -> Iterator[Entry]:
    """Yield the entries that `read` returns for a run of the server, for callers without an event loop."""
    import asyncio

    with asyncio.Runner() as runner:
        api = _api()
        entries = aiter(read(api, runner.run(api.find_run(run_ref))))
        try:
            while (entry := runner.run(_next(entries))) is not None:
                yield entry
        finally:
            runner.run(api.close())


def resolve_remote_run_id(run_ref: str) -> str:
    """Return the id of the run of the server that an id, a prefix or `last` names."""
    import asyncio

    async def find() -> str:
        api = _api()
        try:
            return await api.find_run(run_ref)
        finally:
            await api.close()

    return asyncio.run(find())


def _api() -> Api:
    from shopfloor.client import Address, Api, find_server
    from shopfloor.record import Storage

    address = find_server(Storage.default()) or Address("", "")
    return Api(address.url, address.token)


async def _next(entries: AsyncIterator[Entry]) -> Entry | None:
    return await anext(entries, None)


T = TypeVar("T")
SignalHandler = Callable[[int], bool]
"""Receives the number of a signal; returns whether the command goes on."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Success(NamedTuple, Generic[T]):
    value: T


def _exit_on_signal(number: int) -> bool:
    del number
    return False


def run_with_client(
    args: Namespace,
    action: Callable[[Client], Awaitable[T]],
    *,
    workers: WorkerSettings | None = None,
    can_run: bool = False,
    mask: Masking | None = None,
    on_signal: SignalHandler = _exit_on_signal,
) -> T:
    """Call `action` with a client and return its result.

    Raises the `ShopfloorError` of `action` unwrapped. A signal for which `on_signal` returns False raises `SystemExit`.
    """
    logging.getLogger("shopfloor.engine.stacks").disabled = not args.debug
    work = partial(_run_action, args, action, workers=workers, can_run=can_run, mask=mask, on_signal=on_signal)
    outcome = anyio.run(work, backend_options={"use_uvloop": True})
    if isinstance(outcome, int):
        raise SystemExit(128 + outcome)
    if isinstance(outcome, ShopfloorError):
        raise outcome
    return outcome.value


async def _run_action(
    args: Namespace,
    action: Callable[[Client], Awaitable[T]],
    *,
    workers: WorkerSettings | None,
    can_run: bool,
    mask: Masking | None,
    on_signal: SignalHandler,
) -> _Success[T] | ShopfloorError | int:
    """Return the result, the error or the number of a signal. Errors are returned, so that no task group wraps them."""
    # A signal that is ignored at start, as by nohup, stays ignored.
    handled = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    outcome: _Success[T] | ShopfloorError = UnexpectedError("the command was cancelled before it had a result")
    exit_signals: list[int] = []
    async with open_client(storage_from_args(args), workers=workers, can_run=can_run, mask=mask) as client:
        restore_gc_thresholds()
        with receive_signals(handled) as signals:

            async def handle_signals() -> None:
                async for number in signals:
                    if exit_signals or not on_signal(number):
                        schedule_exit(128 + number)
                        exit_signals.append(number)
                        tasks.cancel_scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(handle_signals)
                try:
                    outcome = _Success(await action(client))
                except ShopfloorError as error:
                    outcome = error
                tasks.cancel_scope.cancel()
    if can_run:
        schedule_exit_if_tasks_remain(_exit_code(exit_signals, outcome))
    return exit_signals[0] if exit_signals else outcome


def _exit_code(exit_signals: list[int], outcome: _Success[Any] | ShopfloorError) -> int:
    if exit_signals:
        return 128 + exit_signals[0]
    if isinstance(outcome, ShopfloorError):
        return outcome.exit_code
    return outcome.value if isinstance(outcome.value, int) else 0


async def resolve_run_id(api: Api, args: Namespace, run_ref: str) -> str:
    """Return the id that an id, a prefix or `last` names: of a run of the server, or of a transcript in the storage."""
    try:
        return await api.find_run(run_ref)
    except RunNotFound:
        if is_remote():
            raise
        return storage_from_args(args).find(run_ref)


def run_status(run: dict[str, Any]) -> str:
    """Return the status to show: `interrupted` for a run with status `running` that no process works on."""
    if run.get("interrupted"):
        return INTERRUPTED
    return "completed" if run["status"] == API_COMPLETED else str(run["status"])


async def wait_for_outcome(client: Client, run_id: str) -> dict[str, Any]:
    """Poll the run until it has its outcome; return its detail."""
    while True:
        detail = await client.api.run(run_id)
        if detail["completed_at"] is not None:
            return detail
        await anyio.sleep(OUTCOME_POLL_SECONDS)
