"""Sub-runs: runs that a step of another run dispatches and waits for, and the limit of open runs per tree."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.registry import RunRegistry
from shopfloor.engine.replay_state import outcome_of
from shopfloor.engine.run_service import RunService
from shopfloor.errors import StepFailed, StorageError, StoreError, TreeLimit
from shopfloor.limits import (
    STORAGE_FULL_TIMEOUT_SECONDS,
    STORAGE_RETRY_SECONDS,
    SUB_RUN_CHECK_SECONDS,
    SUB_RUN_DEPTH,
    TREE_CHECK_SECONDS,
    TREE_COUNTS_CACHED,
    TREE_FULL_TIMEOUT_SECONDS,
    TREE_OPEN_RUNS,
)
from shopfloor.log import RunCompleted, Usage, new_run_id
from shopfloor.ports import RunOrigin, RunRequest
from shopfloor.views import add_costs, add_usage


class _Tree(msgspec.Struct):
    """The count of open runs of a tree."""

    open_runs: int
    """An upper bound: the open runs at the last count, and all that were admitted since."""
    starting: int = 0
    """Admitted runs that may have no row yet."""
    full_since: float | None = None


class TreeLimiter:
    """The admission of sub-runs to trees. `count` returns the open runs of a tree; their rows may lag behind."""

    def __init__(self, count: Callable[[str], Awaitable[int]], *, limit: int) -> None:
        self._count = count
        self._limit = limit
        self._trees: OrderedDict[str, _Tree] = OrderedDict()
        self._count_lock = anyio.Lock()

    @asynccontextmanager
    async def admitted(self, root_run_id: str) -> AsyncGenerator[None]:
        """Admit a sub-run while it is dispatched. Waits while the tree is full; then raises `TreeLimit`."""
        tree = await self._tree(root_run_id)
        while tree.open_runs >= self._limit:
            await self._wait_for_room(root_run_id, tree)
        tree.open_runs += 1
        tree.starting += 1
        try:
            yield
        finally:
            tree.starting -= 1

    async def _tree(self, root_run_id: str) -> _Tree:
        if root_run_id not in self._trees:
            counted = await self._count(root_run_id)
            self._trees.setdefault(root_run_id, _Tree(counted))
            while len(self._trees) > TREE_COUNTS_CACHED:
                self._trees.popitem(last=False)
        return self._trees.setdefault(root_run_id, _Tree(0))

    async def _wait_for_room(self, root_run_id: str, tree: _Tree) -> None:
        """Count the open runs again, since some may have ended. One waiting task counts at a time."""
        async with self._count_lock:
            if tree.open_runs < self._limit:
                return
            tree.open_runs = await self._count(root_run_id) + tree.starting
            if tree.open_runs < self._limit:
                tree.full_since = None
                return
            now = time.monotonic()
            tree.full_since = tree.full_since or now
            if now - tree.full_since < TREE_FULL_TIMEOUT_SECONDS:
                await anyio.sleep(TREE_CHECK_SECONDS)
                return
        raise TreeLimit(
            f"the tree of the run {root_run_id} has {tree.open_runs:,} open runs, but the maximum is {self._limit:,}",
            hint="check whether a worker calls itself without end, or call fewer workers at once",
        )


_log = logging.getLogger("shopfloor.engine")


class SubRuns:
    """The dispatch, wait and cancellation of sub-runs."""

    def __init__(self, registry: RunRegistry, ports: StoragePorts, service: RunService) -> None:
        self._registry = registry
        self._reader = ports.reader
        self._service = service
        self._limiter = TreeLimiter(ports.store.count_open_in_tree, limit=TREE_OPEN_RUNS)

    async def call(self, attempt: Attempt, step_try: StepTry, worker: str, worker_input: dict[str, Any]) -> StepResult:
        """Run a worker as a sub-run of this step and return its output and cost. Raises `StepFailed` if it fails.

        A resumed step waits for the sub-run that the log already has.
        """
        first = attempt.replay_state.first
        record = attempt.replay_state.steps.get(step_try.step_key)
        child = record.child_run_id if step_try.resumed and record else None
        depth = int((first.parent or {}).get("depth", 0) if first else 0) + 1
        if depth > SUB_RUN_DEPTH:
            raise TreeLimit(
                f"{worker!r} would be nested {depth} runs deep, but the maximum is {SUB_RUN_DEPTH}",
                hint="check whether the worker calls itself",
            )
        request = RunRequest(
            worker=worker,
            input=worker_input,
            owner=first.agent_id if first else None,
            channel_id=first.channel_id if first else None,
            channel_name=first.channel_name if first else None,
            cwd=first.cwd if first else None,
            approve=(first.approve if first else None) or [],
            approve_timeout=first.approve_timeout if first else None,
            priority=first.priority if first else 0,
        )
        origin = RunOrigin(
            parent_run_id=attempt.run_id,
            root_run_id=(first.root_run_id if first else None) or attempt.run_id,
            depth=depth,
            run_id=child or new_run_id(),
            client_wait_seconds=first.client_wait_seconds if first else None,
        )
        outcome = await self._wait_for_child(attempt, step_try, request, origin, known=child is not None)
        usage = add_usage(outcome.usage or Usage(), outcome.sub_usage)
        cost = add_costs(outcome.cost, outcome.sub_cost)
        result = StepResult(outcome.result, None if usage == Usage() else usage, cost)
        if outcome.status == "completed":
            return result
        message, hint = (outcome.error.message, outcome.error.hint or None) if outcome.error else (outcome.status, None)
        step_try.result = result
        raise StepFailed(f"the sub-run of {worker!r} {outcome.status}: {message}", hint=hint)

    async def _wait_for_child(
        self, attempt: Attempt, step_try: StepTry, request: RunRequest, origin: RunOrigin, *, known: bool
    ) -> RunCompleted:
        """Dispatch the sub-run unless the log has it already (`known`), and wait for its outcome."""
        child = origin.run_id or ""
        try:
            # Inside the `try`: a step that is cancelled while the log is read must cancel its sub-run too.
            if known and (outcome := await outcome_of(self._reader, child)) is not None:
                return outcome
            with attempt.notification(child) as ended:
                # Other branches may wait already: a run suspended now would wait for a sub-run that is not queued.
                with attempt.slot_usage.prevent_suspension():
                    if not known or not await self._reader.page(child, limit=1):
                        await self._dispatch_child(attempt, step_try, request, origin, known=known)
                    elif self._registry.is_caller_process:
                        self._registry.resume(child)
                async with attempt.yield_slot():
                    while (outcome := await outcome_of(self._reader, child)) is None:
                        if ended.is_set():
                            # The outcome is not readable yet.
                            await anyio.sleep(STORAGE_RETRY_SECONDS)
                        # The process that ends the sub-run may be another one, which cannot set the event.
                        with anyio.move_on_after(SUB_RUN_CHECK_SECONDS):
                            await ended.wait()
            return outcome
        except anyio.get_cancelled_exc_class():
            if attempt.interruption not in ("suspended", "stopped"):
                reason = attempt.stop_reason(step_try.step_key) or "the parent run stopped waiting"
                try:
                    await _await_uncancelled(self._cancel(child, reason))
                except (StorageError, StoreError) as error:
                    _log.warning("run %s cannot be cancelled: %s", child, error.message)
            raise

    async def _dispatch_child(
        self, attempt: Attempt, step_try: StepTry, request: RunRequest, origin: RunOrigin, *, known: bool
    ) -> None:
        queued = self._service.build_queued_run(request, origin)
        if known:
            await self._service.enqueue_if_missing(queued)
            return
        async with self._limiter.admitted(queued.root_run_id):
            await attempt.append_call_started(step_try, queued.run_id, request.worker, request.input)
            # Recorded first, so that a crash cannot hide it: after a power cut the parent must know its sub-run.
            await attempt.make_durable()
            await self._service.enqueue(queued)

    async def _cancel(self, run_id: str, reason: str) -> None:
        """Store a cancel of a run. Retries for a while if the database cannot be written."""
        deadline = anyio.current_time() + STORAGE_FULL_TIMEOUT_SECONDS
        while True:
            try:
                return await self._service.request_cancel(run_id, reason)
            except (StorageError, StoreError):
                if anyio.current_time() > deadline:
                    raise
            await anyio.sleep(STORAGE_RETRY_SECONDS)

    async def cancel_open(self, attempt: Attempt) -> None:
        """Cancel the sub-runs that are still open when this run ends."""
        open_steps = [(step_key, step.child_run_id) for step_key, step in attempt.replay_state.open_steps()]
        called = [(step_key, child) for step_key, child in open_steps if child is not None]
        if not called:
            return
        # Concurrently, so that the database stores many of them in one transaction.
        async with anyio.create_task_group() as tasks:
            for step_key, child in called:
                tasks.start_soon(self._cancel, child, attempt.stop_reason(step_key) or "the parent run has ended")

    async def cancel_tree(self, attempt: Attempt, reason: str) -> None:
        """Cancel the root of the tree of this run, which cancels all runs below it."""
        first = attempt.replay_state.first
        await self._cancel((first.root_run_id if first else None) or attempt.run_id, reason)


async def _await_uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Complete work in a task that is being cancelled, possibly more than once.

    A shield is not enough: `asyncio.gather` cancels the tasks of a worker directly, and again each time it is cancelled
    itself. If the cancel of a sub-run were lost that way, the sub-run would wait forever.
    """
    task = asyncio.create_task(work)
    with anyio.CancelScope(shield=True):
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
    task.result()
