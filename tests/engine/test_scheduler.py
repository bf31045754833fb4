"""The scheduler when an attempt fails because of a defect, the database, or before its start."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest
from tests.engine.harness import EngineHarness, RunningEngine

from shopfloor.engine import ClaimPolicy
from shopfloor.errors import DatabaseBusy, LogBusy
from shopfloor.limits import ABANDON_SECONDS, CANCEL_KILL_SECONDS, STORAGE_FULL_TIMEOUT_SECONDS
from shopfloor.log import Masking, RunStarted, StepCompleted, ToolCall
from shopfloor.ports import ControlMessage, Log, Logs, Queue
from shopfloor.wiring import StorageBackend

pytestmark = pytest.mark.anyio

ASKS = """
from shopfloor import Run, worker

@worker
async def asks(run: Run):
    return await run.ask("well?")
"""
CALLS_ASKS = "steps: {Call: {block: run-worker, worker: asks}, Then: {block: command, command: 'true'}}"
DOES = "steps: {Do: {block: command, command: 'true'}}"


class DefectiveLogs:
    """Logs that raise an unexpected error: when the log of the first run is opened, or when a step of a worker starts."""

    def __init__(self, logs: Logs, *, worker: str | None = None, times: int = 1) -> None:
        self._logs = logs
        self._worker = worker
        self._remaining = times
        self._first: str | None = None

    @asynccontextmanager
    async def open(self, run_id: str, *, parent_run_id: str | None = None) -> AsyncGenerator[Any]:
        self._first = self._first or run_id
        if self._worker is None and run_id == self._first:
            self._raise()
        async with self._logs.open(run_id, parent_run_id=parent_run_id) as log:
            yield _DefectiveLog(log, self)

    @property
    def masks(self) -> bool:
        return self._logs.masks

    async def delete(self, run_id: str) -> None:
        await self._logs.delete(run_id)

    async def announce_deletion(self, run_id: str) -> None:
        await self._logs.announce_deletion(run_id)

    def headroom_bytes(self) -> int:
        return self._logs.headroom_bytes()

    def check(self, payload: Any) -> None:
        if isinstance(payload, RunStarted):
            self._armed = payload.name == self._worker
        elif self._worker is not None and self._armed:
            self._raise()

    def _raise(self) -> None:
        if self._remaining:
            self._remaining -= 1
            raise KeyError("a defect")


class _DefectiveLog:
    def __init__(self, log: Log, logs: DefectiveLogs) -> None:
        self._log = log
        self._logs = logs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, payload: Any, **where: Any) -> Any:
        self._logs.check(payload)
        return await self._log.append(payload, **where)


class TakenOverLogs:
    """Logs that another host takes over at the end of a step with this name: from then on, appends are refused."""

    def __init__(self, logs: Logs, step: str) -> None:
        self._logs = logs
        self._step = step
        self.taken_over: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._logs, name)

    @asynccontextmanager
    async def open(self, run_id: str, *, parent_run_id: str | None = None) -> AsyncGenerator[Any]:
        async with self._logs.open(run_id, parent_run_id=parent_run_id) as log:
            yield _TakenOverLog(log, self)

    def check(self, run_id: str, payload: Any) -> None:
        if isinstance(payload, StepCompleted) and payload.name == self._step:
            self.taken_over.add(run_id)
        if run_id in self.taken_over:
            raise LogBusy(f"another host has the log of {run_id}")


class _TakenOverLog:
    def __init__(self, log: Log, logs: TakenOverLogs) -> None:
        self._log = log
        self._logs = logs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def append(self, payload: Any, **where: Any) -> Any:
        self._logs.check(self._log.run_id, payload)
        return await self._log.append(payload, **where)


class BusyQueue:
    """A queue whose database is locked by another process during some of its calls."""

    def __init__(self, queue: Queue, *, puts: Sequence[int] = (), deletions: Sequence[int] = ()) -> None:
        self._queue = queue
        self._busy = {"put": set(puts), "started": set(deletions)}
        self._calls = {"put": 0, "started": 0}

    def _count(self, method: str) -> None:
        self._calls[method] += 1
        if self._calls[method] in self._busy[method]:
            raise DatabaseBusy("the database is locked by another process")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def put(self, message: ControlMessage) -> bool:
        self._count("put")
        return await self._queue.put_control_message(message)

    async def mark_started(self, run_ids: Sequence[str]) -> None:
        if run_ids:
            self._count("started")
        await self._queue.mark_started(run_ids)


def with_busy_queue(**when: Sequence[int]):
    def wrap_adapters(backend: StorageBackend) -> StorageBackend:
        return msgspec.structs.replace(backend, queue=BusyQueue(backend.queue, **when))

    return wrap_adapters


def with_defective_logs(**where: Any):
    def wrap_adapters(backend: StorageBackend) -> StorageBackend:
        return msgspec.structs.replace(backend, logs=DefectiveLogs(backend.logs, **where))

    return wrap_adapters


async def wait_for_asking_child(harness: EngineHarness, engine: RunningEngine, parent: str) -> str:
    """Wait until the sub-run of `parent` waits for an answer; return its id."""

    def find() -> str | None:
        children = [event.child_run_id for event in harness.events(parent) if event.child_run_id]
        has_asked = children and any(isinstance(event.payload, ToolCall) for event in harness.events(children[0]))
        return children[0] if has_asked else None

    return await engine.wait_until(find, "the question")


async def test_a_defect_in_a_sub_run_ends_it_and_its_parent_continues(harness: EngineHarness):
    harness.add_worker("does", DOES)
    harness.add_worker("calls", "steps: {Call: {block: run-worker, worker: does}}")
    async with harness.open(wrap_adapters=with_defective_logs(worker="does")) as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("calls"))
    assert outcome.error is not None
    assert "a defect of Shopfloor: KeyError" in outcome.error.message


async def test_a_host_whose_run_was_taken_over_leaves_its_sub_runs_alone(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    go = harness.folder / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    both = (
        f"{{Ask: {{Call: {{block: run-worker, worker: asks}}}}, Wait: {{Last: {{block: command, command: '{wait}'}}}}}}"
    )
    harness.add_worker("calls", f"steps: {{Both: {{block: parallel, branches: {both}}}}}")
    taken: list[TakenOverLogs] = []

    def wrap_adapters(backend: StorageBackend) -> StorageBackend:
        taken.append(TakenOverLogs(backend.logs, "Last"))
        return msgspec.structs.replace(backend, logs=taken[0])

    async with harness.open(wrap_adapters=wrap_adapters) as engine:
        run_id = await engine.dispatch("calls")
        child = await wait_for_asking_child(harness, engine, run_id)
        go.touch()
        await engine.wait_until(lambda: taken[0].taken_over, "the refused append")
        await anyio.sleep(0.5)
        assert (harness.outcome(run_id), harness.outcome(child)) == (None, None)


@pytest.mark.parametrize("times", [1, 3])
async def test_a_defect_before_a_run_has_a_log_fails_the_run_and_no_other(harness: EngineHarness, times: int):
    harness.add_worker("does", DOES)
    # The second defect prevents the recording of the failure, the third one the next attempt.
    async with harness.open(wrap_adapters=with_defective_logs(times=times)) as engine:
        first, second = await engine.dispatch("does"), await engine.dispatch("does")
        outcomes = [await engine.wait_for_outcome(first), await engine.wait_for_outcome(second)]
        await engine.wait_until(lambda: not engine.scheduler.is_busy, "the end")
        assert await engine.backend.queue.claimed() == []
    assert sorted(one.status for one in outcomes) == ["completed", "failed"]
    (failed,) = [one for one in outcomes if one.error is not None]
    assert failed.error is not None
    assert failed.error.code == "unexpected"


@pytest.mark.storages("memory", "files")
@pytest.mark.parametrize("busy_at", [2, 3])
async def test_a_database_that_is_busy_for_a_moment_does_not_keep_a_tree_from_being_cancelled(
    harness: EngineHarness, busy_at: int
):
    harness.add_python_worker("asks", ASKS)
    harness.add_worker("calls", CALLS_ASKS)
    async with harness.open(wrap_adapters=with_busy_queue(puts=[busy_at]), idle_seconds=0.1) as engine:
        parent = await engine.dispatch("calls")
        child = await wait_for_asking_child(harness, engine, parent)
        await engine.wait_until(lambda: not engine.scheduler.is_busy, "both to be suspended")
        await engine.cancel(parent, "enough")
        assert (await engine.wait_for_outcome(parent)).status == "cancelled"
        assert (await engine.wait_for_outcome(child)).status == "cancelled"


@pytest.mark.parametrize("policy", [ClaimPolicy.QUEUED, ClaimPolicy.CANCELLED])
async def test_cancelling_a_sub_run_does_not_resume_a_parent_that_must_not_be_resumed(
    harness: EngineHarness, policy: ClaimPolicy
):
    harness.add_python_worker("asks", ASKS)
    harness.add_worker("calls", CALLS_ASKS)
    async with harness.open(policy=ClaimPolicy.OWN, mask=Masking(["hunter2hunter2"])) as engine:
        parent = await engine.dispatch("calls")
        child = await wait_for_asking_child(harness, engine, parent)
    before = harness.events(parent)
    async with harness.open(policy=policy) as engine:
        await engine.cancel(child, "only this one")
        assert (await engine.wait_for_outcome(child)).status == "cancelled"
        await engine.wait_until(lambda: not engine.scheduler.is_busy, "the end")
        await anyio.sleep(0.5)
    assert harness.events(parent) == before


@pytest.mark.storages("memory", "files")
async def test_a_run_starts_although_a_word_of_its_first_event_is_masked(harness: EngineHarness):
    harness.add_worker("does", DOES)
    async with harness.open(policy=ClaimPolicy.OWN, mask=Masking(["caller"])) as engine:
        assert (await engine.wait_for_outcome(await engine.dispatch("does"))).status == "completed"


def test_a_host_is_not_killed_while_a_worker_may_still_stop():
    assert CANCEL_KILL_SECONDS > ABANDON_SECONDS + STORAGE_FULL_TIMEOUT_SECONDS


@pytest.mark.storages("memory", "files")
async def test_started_runs_that_the_queue_could_not_delete_are_deleted_later(harness: EngineHarness):
    harness.add_worker("does", DOES)
    async with harness.open(wrap_adapters=with_busy_queue(deletions=[1])) as engine:
        await engine.wait_for_outcome(await engine.dispatch("does"))
        with anyio.fail_after(30):
            while await engine.backend.queue.claimed():
                await anyio.sleep(0.05)
