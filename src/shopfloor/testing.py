"""Tests for workers: an engine in this process, with rows and queue in memory and a script instead of models.

    with shopfloor.testing.engine(workers=["workers"], script="replies.yaml") as engine:
        run = engine.run("find-sources", {"TOPIC": "tea"}, tools={"web-search": lambda args: ["one"]})
    assert run.status == "completed"

The same with `async with` and `await`. docs/testing.md explains scripts.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
)
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import anyio
import anyio.abc
import anyio.from_thread
import msgspec

from shopfloor.client import ToolHandlers, executed
from shopfloor.engine import ClaimPolicy, RunService
from shopfloor.limits import TEST_RUN_SECONDS
from shopfloor.log import CallStarted, Delta, Entry, Event, RunCompleted, RunError, ToolCall, ToolResult, decode
from shopfloor.ports import CallResult, RunRequest
from shopfloor.record import Storage
from shopfloor.views import ArchiveEntry, RequestedCall, archive
from shopfloor.wiring import StorageBackend, WorkerSettings, local_engine, memory_backend, subscribe_deltas

__all__ = ["AsyncEngine", "Engine", "RunResult", "SyncEngine", "engine"]

Answer = Callable[[str, list[CallResult]], Awaitable[None]]
Script = str | os.PathLike[str] | Mapping[str, Any]


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """A run as its log has it, at its end or while it waits."""

    run_id: str
    status: Literal["completed", "failed", "cancelled", "waiting"]
    output: Any
    error: RunError | None
    events: list[Event]
    """Every event of the log, in order."""
    deltas: list[Delta]
    """The deltas of messages as they were streamed."""
    waiting: list[RequestedCall]
    """The unanswered calls: questions, and tools without a handler."""
    children: list[RunResult]
    """The sub-runs in the order of their calls."""

    @property
    def transcript(self) -> list[ArchiveEntry]:
        """The archived transcript: the messages, calls and results."""
        return archive(self.events)

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls of the run, in order."""
        return [event.payload for event in self.events if isinstance(event.payload, ToolCall)]


class AsyncEngine:
    """A running engine. Created by `engine`."""

    def __init__(self, service: RunService, backend: StorageBackend) -> None:
        self._service = service
        self._backend = backend
        self._reader = backend.reader
        self._answered: set[str] = set()
        """The calls that this engine has answered, whether or not the log has the answer yet."""
        self.logs = backend.storage.transcripts
        """The folder with the logs, one `<run-id>.jsonl` per run."""

    async def run(
        self,
        worker: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the worker's own word
        *,
        tools: ToolHandlers | None = None,
        timeout_seconds: float = TEST_RUN_SECONDS,
    ) -> RunResult:
        """Run a worker to its end, or until it waits for a call without a handler in `tools`.

        `tools` has the handlers of client tools by name, for the worker and its sub-runs; `ask` answers questions. Each
        handler takes the arguments as a dict. Raises `TimeoutError`, and the error of a run that is rejected.
        """
        request = RunRequest(worker=worker, input=dict(input or {}), channel_id="testing")
        run_id = await self._service.dispatch(request)
        return await self.wait(run_id, tools=tools, timeout_seconds=timeout_seconds)

    async def wait(
        self, run_id: str, *, tools: ToolHandlers | None = None, timeout_seconds: float = TEST_RUN_SECONDS
    ) -> RunResult:
        """Wait for a run that was started, as `run` does."""
        watcher = _RunWatcher(self._service.answer, self._backend, tools or {}, self._answered)
        with anyio.move_on_after(timeout_seconds) as limit:
            await watcher.follow(run_id)
        if limit.cancelled_caught:
            raise TimeoutError(f"the run {run_id} did not end within {timeout_seconds:g} s")
        return await self._result(run_id, watcher)

    async def answer(self, run_id: str, call_id: str, result: Any = None, *, error: str | None = None) -> None:
        """Answer a call that a run waits for. Call `wait` to follow the run afterwards."""
        await self._service.answer(run_id, [CallResult(call_id=call_id, result=result, error=error)])
        self._answered.add(call_id)

    async def events(self, run_id: str) -> list[Event]:
        """Return the events that a run's log has now."""
        return [decode(entry.raw) async for batch in self._reader.batches(run_id) for entry in batch]

    async def _result(self, run_id: str, watcher: _RunWatcher) -> RunResult:
        events = await self.events(run_id)
        outcome = next((event.payload for event in events if isinstance(event.payload, RunCompleted)), None)
        child_ids = [event.child_run_id for event in events if isinstance(event.payload, CallStarted)]
        children = [await self._result(child, watcher) for child in child_ids if child in watcher.watched]
        waiting = watcher.unanswered.get(run_id, [])
        return RunResult(
            run_id=run_id,
            status="waiting" if outcome is None else outcome.status,
            output=None if outcome is None else outcome.result,
            error=None if outcome is None else outcome.error,
            events=events,
            deltas=watcher.deltas.get(run_id, []),
            waiting=[] if outcome is not None else [*waiting, *(call for child in children for call in child.waiting)],
            children=children,
        )


class SyncEngine:
    """A running engine for synchronous code: each call blocks until it is done."""

    def __init__(self, engine: AsyncEngine, portal: anyio.from_thread.BlockingPortal) -> None:
        self._engine = engine
        self._portal = portal
        self.logs = engine.logs

    def run(
        self,
        worker: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the worker's own word
        *,
        tools: ToolHandlers | None = None,
        timeout_seconds: float = TEST_RUN_SECONDS,
    ) -> RunResult:
        """See `AsyncEngine.run`."""
        return self._portal.call(partial(self._engine.run, worker, input, tools=tools, timeout_seconds=timeout_seconds))

    def wait(
        self, run_id: str, *, tools: ToolHandlers | None = None, timeout_seconds: float = TEST_RUN_SECONDS
    ) -> RunResult:
        """See `AsyncEngine.wait`."""
        return self._portal.call(partial(self._engine.wait, run_id, tools=tools, timeout_seconds=timeout_seconds))

    def answer(self, run_id: str, call_id: str, result: Any = None, *, error: str | None = None) -> None:
        """See `AsyncEngine.answer`."""
        self._portal.call(partial(self._engine.answer, run_id, call_id, result, error=error))

    def events(self, run_id: str) -> list[Event]:
        """See `AsyncEngine.events`."""
        return self._portal.call(self._engine.events, run_id)


class Engine(AbstractContextManager[SyncEngine], AbstractAsyncContextManager[AsyncEngine]):
    """An engine that runs inside a `with` or `async with` block."""

    def __init__(self, workers: WorkerSettings, script: Script | None, logs: Path | None) -> None:
        self._open = partial(_open_engine, workers, script, logs)
        self._sync = ExitStack()
        self._async = AsyncExitStack()

    def __enter__(self) -> SyncEngine:
        with ExitStack() as stack:
            portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
            engine = stack.enter_context(portal.wrap_async_context_manager(self._open()))
            self._sync = stack.pop_all()
        return SyncEngine(engine, portal)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sync.close()

    async def __aenter__(self) -> AsyncEngine:
        return await self._async.enter_async_context(self._open())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._async.aclose()


def engine(
    *,
    workers: Sequence[str | os.PathLike[str]] = (),
    script: Script | None = None,
    logs: str | os.PathLike[str] | None = None,
) -> Engine:
    """Return an engine for tests.

    `workers` are folders of workers, Python files or modules; workers in `./workers` are found, too. `script` is a file
    or its content: with it, the script answers instead of every model; without it, the workers' models are called.
    `logs` is the folder for the logs; by default a temporary folder that is deleted at the end.
    """
    return Engine(
        WorkerSettings.from_names([os.fspath(path) for path in workers]), script, None if logs is None else Path(logs)
    )


@asynccontextmanager
async def _open_engine(
    workers: WorkerSettings, script: Script | None, logs: Path | None
) -> AsyncGenerator[AsyncEngine]:
    with tempfile.TemporaryDirectory(prefix="shopfloor-") as folder:
        storage = Storage(Path(folder) / "storage" if logs is None else logs.expanduser().absolute())
        backend = memory_backend(storage)
        script_file = None if script is None else _script_file(script, Path(folder))
        async with (
            local_engine(backend, workers, policy=ClaimPolicy.OWN, script=script_file) as engine,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(engine.scheduler.run)
            tasks.start_soon(backend.ingest.run)
            yield AsyncEngine(engine.service, backend)
            tasks.cancel_scope.cancel()


def _script_file(script: Script, folder: Path) -> Path:
    if not isinstance(script, Mapping):
        return Path(script).expanduser().absolute()
    file = folder / "script.json"
    file.write_text(json.dumps(script), encoding="utf-8")
    return file


class _RunWatcher:
    """Follows a run and its sub-runs, executes the calls that have a handler, and records the others."""

    def __init__(self, answer: Answer, backend: StorageBackend, tools: ToolHandlers, answered: set[str]) -> None:
        self._answer = answer
        self._backend = backend
        self._reader = backend.reader
        self._tools = tools
        self._answered = answered
        self._announced_calls: dict[str, int] = {}
        self.watched: set[str] = set()
        self.deltas: dict[str, list[Delta]] = {}
        self.unanswered: dict[str, list[RequestedCall]] = {}

    async def follow(self, run_id: str) -> None:
        """Follow the run until its outcome, or until it waits for a call without a handler."""
        # Two task groups, so that a started handler runs to its end even if another call has no handler.
        async with anyio.create_task_group() as handlers, anyio.create_task_group() as followers:
            await self._follow_run(run_id, followers, handlers)
            followers.cancel_scope.cancel()

    async def _follow_run(self, run_id: str, followers: anyio.abc.TaskGroup, handlers: anyio.abc.TaskGroup) -> None:
        self.watched.add(run_id)
        deltas = self.deltas.setdefault(run_id, [])
        with subscribe_deltas(self._backend, run_id) as new_deltas:
            async for batch in self._reader.follow(run_id, wait_for_writer=True):
                deltas += new_deltas()
                for item in batch:
                    if isinstance(item, Entry):
                        self._handle_event(run_id, decode(item.raw), followers, handlers)
                if self._is_waiting(run_id):
                    followers.cancel_scope.cancel()
                    return

    def _handle_event(
        self, run_id: str, event: Event, followers: anyio.abc.TaskGroup, handlers: anyio.abc.TaskGroup
    ) -> None:
        match event.payload:
            case CallStarted() if event.child_run_id is not None and event.child_run_id not in self.watched:
                followers.start_soon(self._follow_run, event.child_run_id, followers, handlers)
            case ToolResult(call_id=call_id):
                open_calls = self.unanswered.get(run_id, [])
                self.unanswered[run_id] = [call for call in open_calls if call.tool_call_id != call_id]
            case ToolCall(awaits=awaits) as call if awaits is not None and awaits.kind in ("client_tool", "question"):
                self._announced_calls[run_id] = awaits.more
                requested = RequestedCall(tool_call_id=call.call_id, tool_name=call.name, args=call.input)
                if call.call_id in self._answered:
                    return
                if call.name in self._tools:
                    self._answered.add(call.call_id)
                    handlers.start_soon(self._execute, run_id, requested)
                else:
                    self.unanswered.setdefault(run_id, []).append(requested)
            case _:
                pass

    def _is_waiting(self, run_id: str) -> bool:
        """Return True if the run has an unanswered call, and no further calls of the same message are to come."""
        return bool(self.unanswered.get(run_id)) and not self._announced_calls.get(run_id)

    async def _execute(self, run_id: str, call: RequestedCall) -> None:
        (done,) = await executed(self._tools, [call])
        result = None if done.result is msgspec.UNSET else done.result
        await self._answer(run_id, [CallResult(call_id=call.tool_call_id, result=result, error=done.error)])
