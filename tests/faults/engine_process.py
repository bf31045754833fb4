"""A host in a separate process that dies after a given number of log events."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.connection
import os
import resource
import signal
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx  # noqa: F401 - loaded once, for all processes that are forked from here
import msgspec
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters import sqlite  # noqa: F401 - as above
from shopfloor.adapters.models import pydantic_ai_models  # noqa: F401 - as above
from shopfloor.engine import RunEngine
from shopfloor.engine.maintenance import requeue_abandoned, resume_or_end_orphans, run_maintenance
from shopfloor.errors import RunEnded, RunNotFound
from shopfloor.log import Delta, Entry, Masking, Payload, RunCompleted, ToolCall, ToolResult, decode
from shopfloor.ports import CallResult, Log, Logs, RunOrigin, RunRequest
from shopfloor.record import Storage, last_entry, read
from shopfloor.views import DEFINITION_CHANGED
from shopfloor.wiring import StorageBackend, WorkerSettings, local_backend, local_engine

DONE, TOO_LONG, STOPPED = 0, 3, 4


class HostPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a host from its start to its end."""

    storage: Path
    workers: Path
    run_id: str
    slots: int = 4
    dispatch: tuple[str, dict[str, Any]] | None = None
    """A worker and its input; None if the run already exists."""
    act: Literal["kill", "stop", "cancel", "starve"] | None = None
    at: int = 0
    """The event, counted over all logs that this host writes, at which the action happens; 0 for the start."""
    before: bool = False
    """True if the action happens before that event is written."""
    answers: bool = True
    """True if questions are answered."""
    hold_seconds: float | None = None
    """Seconds after the run starts to wait for its definition when the host ends, instead of at the run's end."""
    env: dict[str, str] = {}
    timeout_seconds: float = TIMEOUT_SECONDS


class FaultPoint:
    """A counter of written events that executes an action at one of them."""

    def __init__(self, plan: HostPlan) -> None:
        self._plan = plan
        self._count = 0
        self.act: Callable[[], None] = lambda: None

    async def around(self, write: Callable[[], Awaitable[Entry]]) -> Entry:
        self._count += 1
        here = self._count == self._plan.at
        if here and self._plan.before:
            self.act()
        entry = await write()
        if here and not self._plan.before:
            self.act()
        return entry


class FaultPointLog:
    """A log of the engine with a fault point."""

    def __init__(self, log: Log, fault_point: FaultPoint) -> None:
        self._log = log
        self._trap = fault_point

    @property
    def run_id(self) -> str:
        return self._log.run_id

    @property
    def seq(self) -> int:
        return self._log.seq

    @property
    def mask(self) -> Masking | None:
        return self._log.mask

    @property
    def is_durable(self) -> bool:
        return self._log.is_durable

    async def make_durable(self) -> None:
        await self._log.make_durable()

    def append_now(self, payload: Payload) -> Entry:
        return self._log.append_now(payload)

    def publish_delta(self, delta: Delta) -> None:
        self._log.publish_delta(delta)

    async def append(
        self,
        payload: Payload,
        *,
        path: str = "",
        iteration: int = 0,
        child_run_id: str | None = None,
        at: str | None = None,
    ) -> Entry:
        write = functools.partial(
            self._log.append, payload, path=path, iteration=iteration, child_run_id=child_run_id, at=at
        )
        return await self._trap.around(write)


class FaultPointLogs:
    """The logs of a host with a fault point."""

    def __init__(self, logs: Logs, fault_point: FaultPoint) -> None:
        self._logs = logs
        self._trap = fault_point

    @contextlib.asynccontextmanager
    async def open(self, run_id: str, *, parent_run_id: str | None = None) -> AsyncGenerator[FaultPointLog]:
        async with self._logs.open(run_id, parent_run_id=parent_run_id) as log:
            yield FaultPointLog(log, self._trap)

    @property
    def masks(self) -> bool:
        return self._logs.masks

    async def delete(self, run_id: str) -> None:
        await self._logs.delete(run_id)

    async def announce_deletion(self, run_id: str) -> None:
        await self._logs.announce_deletion(run_id)

    def headroom_bytes(self) -> int:
        return self._logs.headroom_bytes()


def host_main(plan: HostPlan) -> None:
    os.environ.update(plan.env)
    # Restore the defaults of a new process: pytest turns warnings into errors.
    warnings.resetwarnings()
    sys.exit(anyio.run(_run_plan, plan))


async def _run_plan(plan: HostPlan) -> int:
    storage = Storage(plan.storage)
    code, runner, fault_point = DONE, None, FaultPoint(plan)
    async with contextlib.AsyncExitStack() as opened:
        backend = await opened.enter_async_context(local_backend(storage))
        backend = msgspec.structs.replace(backend, logs=FaultPointLogs(backend.logs, fault_point))
        workers = WorkerSettings(folders=(plan.workers,), slots=plan.slots)
        engine = await opened.enter_async_context(local_engine(backend, workers))
        await backend.ingest.catch_up(everything=True)
        await requeue_abandoned(engine.ports)
        async with anyio.create_task_group() as tasks:
            runner = _PlanRunner(plan, storage, backend, engine, tasks.cancel_scope)
            fault_point.act = runner.act

            async def maintenance() -> None:
                await run_maintenance(engine.ports, backend.ingest, engine.resumption, engine.plugins)

            tasks.start_soon(engine.scheduler.run)
            tasks.start_soon(maintenance)
            with anyio.move_on_after(plan.timeout_seconds) as timeout:
                await runner.until_the_end()
                tasks.cancel_scope.cancel()
            if timeout.cancelled_caught:
                code = TOO_LONG
                tasks.cancel_scope.cancel()
        await backend.ingest.catch_up()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    (plan.storage / "peak").write_text(str(peak))
    return STOPPED if runner is not None and runner.stopped else code


class _PlanRunner:
    def __init__(
        self, plan: HostPlan, storage: Storage, backend: StorageBackend, engine: RunEngine, scope: anyio.CancelScope
    ) -> None:
        self._plan = plan
        self._storage = storage
        self._backend = backend
        self._engine = engine
        self._scope = scope
        self._loop: Any = None
        self._cancel = anyio.Event()
        self.stopped = False

    def act(self) -> None:
        match self._plan.act:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop":
                self.stopped = True
                self._loop.call_soon_threadsafe(self._scope.cancel)
            case "cancel":
                self._loop.call_soon_threadsafe(self._cancel.set)
            case "starve":
                # Raised to the writer of the event.
                raise MemoryError
            case None:
                pass

    async def until_the_end(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        if self._plan.dispatch is not None:
            worker, arguments = self._plan.dispatch
            await self._engine.service.dispatch(
                RunRequest(worker=worker, input=arguments), RunOrigin(run_id=self._plan.run_id)
            )
        elif self._plan.act == "cancel" and not self._plan.at:
            self._cancel.set()
        await resume_or_end_orphans(self._engine.ports, self._engine.resumption)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_on_signal)
            answered = set[str]()
            while not self._over():
                if self._plan.answers:
                    await self._answer_all(answered)
                await anyio.sleep(0.01)
            await anyio.sleep(self._plan.hold_seconds or 0)
            tasks.cancel_scope.cancel()

    async def _cancel_on_signal(self) -> None:
        await self._cancel.wait()
        with contextlib.suppress(RunEnded):
            await self._engine.service.cancel(self._plan.run_id, reason="told to")

    def _over(self) -> bool:
        if self._plan.hold_seconds is not None:
            payloads = [event.payload for event in _events(self._storage.log_path(self._plan.run_id))]
            return any(isinstance(one, ToolCall) and one.name == DEFINITION_CHANGED for one in payloads)
        logs = list(self._storage.transcripts.glob("*.jsonl"))
        return self._storage.log_path(self._plan.run_id) in logs and all(map(_has_outcome, logs))

    async def _answer_all(self, answered: set[str]) -> None:
        for path in self._storage.transcripts.glob("*.jsonl"):
            payloads = [event.payload for event in _events(path)]
            done = {one.call_id for one in payloads if isinstance(one, ToolResult)}
            for call in payloads:
                if not isinstance(call, ToolCall) or not call.awaits or call.awaits.kind == DEFINITION_CHANGED:
                    continue
                if call.call_id not in done | answered:
                    answered.add(call.call_id)
                    with contextlib.suppress(RunEnded, RunNotFound):
                        await self._engine.service.answer(path.stem, [CallResult(call_id=call.call_id, result="yes")])


def _has_outcome(path: Path) -> bool:
    last = last_entry(path)
    return last is not None and last.type == RunCompleted.event_type


def _events(path: Path) -> list[Any]:
    return [decode(entry.raw) for entry in read(path, on_problem=lambda problem: None)]


fork_context = multiprocessing.get_context("forkserver")
"""Return a context for processes in which the imports of this module are already loaded."""
fork_context.set_forkserver_preload([__name__])
_start_lock = threading.Lock()


def run_host(plan: HostPlan) -> int:
    """Run a host in a separate process and return its exit code, which is negative after a signal."""
    process = fork_context.Process(target=host_main, args=(plan,))
    # Starting a process collects the exit codes of all children. If two threads collect one at the same time, one of
    # them gets the code and the other sets it to 255.
    with _start_lock:
        process.start()
    # On a busy machine the process may take long to start and to exit.
    hangs = not multiprocessing.connection.wait([process.sentinel], 2 * plan.timeout_seconds)
    with _start_lock:
        if hangs:
            process.kill()
        process.join()
        code = process.exitcode
        process.close()
    # Fail here, so that this is not mistaken for the planned death.
    assert not hangs, f"it did not end in {2 * plan.timeout_seconds:g} s"
    assert code is not None
    return code
