"""Trees of runs: their maximum size, and their common end."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec
import pytest
from tests.engine.harness import TIMEOUT_SECONDS, EngineHarness

from shopfloor.engine import end_orphan, lifecycle, subruns
from shopfloor.limits import INBOX_POLL_SECONDS, SUB_RUN_DEPTH
from shopfloor.log import StepCompleted, ToolCall
from shopfloor.ports import Queue, QueuedRun
from shopfloor.wiring import StorageBackend

pytestmark = pytest.mark.anyio

FAN = """
    import asyncio
    from shopfloor import Run, worker
    from shopfloor.errors import RunFailed

    @worker
    async def fan(run: Run, WIDTH: int):
        await asyncio.gather(*(call(run, number) for number in range(WIDTH)))

    async def call(run: Run, number: int):
        try:
            await run.worker("leaf", {}, name=f"leaf-{number}")
        except RunFailed as error:
            await run.step(f"refused-{number}", str, error.code)
"""
LEAF = "steps: {Ask: {block: tool-call, tool: ask, input: {question: 'Continue?'}}}"
CALLS_ITSELF = "steps: {Again: {block: run-worker, worker: calls-itself}}"
ONE_BY_ONE = """
    steps:
      Each:
        block: for-each
        each: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
        steps:
          Call: {block: run-worker, worker: short}
"""
SHORT = "steps: {Say: {block: terminal, output: done}}"


@pytest.mark.req("SF-6")
async def test_a_tree_has_a_maximum_number_of_open_runs(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subruns, "TREE_OPEN_RUNS", 20)
    # None of the runs ends meanwhile: do not wait for room.
    monkeypatch.setattr(subruns, "TREE_FULL_TIMEOUT_SECONDS", 0.5)
    harness.add_python_worker("fan", FAN)
    harness.add_worker("leaf", LEAF)
    async with harness.open() as engine:
        root = await engine.dispatch("fan", WIDTH=30)
        refused = await engine.wait_until(lambda: _refusals(harness, root, 11), "the refusals")
        assert set(refused) == {"tree_limit"}
        assert len(harness.run_ids()) == 20
        # The whole tree ends with its root, including suspended runs.
        await engine.cancel(root)
        for run_id in harness.run_ids():
            assert (await engine.wait_for_outcome(run_id)).status == "cancelled"


@pytest.mark.storages("memory", "files")
@pytest.mark.req("SF-6")
async def test_a_tree_ends_with_its_root_and_leaves_no_message_whether_its_runs_are_in_memory_or_not(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lifecycle, "IDLE_RUNS", 4)
    monkeypatch.setattr(lifecycle, "IDLE_SETTLE_SECONDS", 0.1)
    harness.add_python_worker("fan", FAN)
    harness.add_worker("leaf", LEAF)
    async with harness.open() as engine:
        root = await engine.dispatch("fan", WIDTH=12)
        await engine.wait_until(lambda: len(_questions(harness)) == 12, "the questions")
        await engine.wait_until(lambda: len(engine.scheduler.live_runs) == 4, "the suspension of the others")
        await engine.cancel(root)
        runs = harness.run_ids()
        assert [(await engine.wait_for_outcome(run_id)).status for run_id in runs] == ["cancelled"] * 13
        await engine.wait_for_status(root, "cancelled")
        with anyio.fail_after(TIMEOUT_SECONDS):
            while await engine.backend.queue.control_messages():
                await anyio.sleep(0.01)


class SlowQueue:
    """A queue that stores every dispatch after the first two only when told to."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.dispatches = 0
        self.released = anyio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def dispatch(self, queued_run: QueuedRun, *, host: str | None = None) -> str:
        self.dispatches += 1
        if self.dispatches > 2:
            await self.released.wait()
        return await self._queue.dispatch(queued_run, host=host)


@pytest.mark.req("SF-6")
async def test_a_run_with_a_sub_run_that_is_not_queued_yet_is_not_suspended(
    harness: EngineHarness, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lifecycle, "IDLE_RUNS", 0)
    monkeypatch.setattr(lifecycle, "IDLE_SETTLE_SECONDS", 0.1)
    harness.add_python_worker("fan", FAN)
    harness.add_worker("leaf", LEAF)
    queues: list[SlowQueue] = []

    def wrap_adapters(backend: StorageBackend) -> StorageBackend:
        queues.append(SlowQueue(backend.queue))
        return msgspec.structs.replace(backend, queue=queues[0])

    async with harness.open(wrap_adapters=wrap_adapters) as engine:
        root = await engine.dispatch("fan", WIDTH=2)
        # The sub-run that asks is suspended; its parent is not, however often the scheduler looks.
        await engine.wait_until(lambda: len(_questions(harness)) == 1, "the first question")
        await engine.wait_until(lambda: len(engine.scheduler.live_runs) == 1, "its suspension")
        await anyio.sleep(4 * INBOX_POLL_SECONDS)
        assert engine.scheduler.live_runs == {root}
        queues[0].released.set()
        await engine.wait_until(lambda: len(_questions(harness)) == 2, "the second question")
        await engine.cancel(root)
        assert (await engine.wait_for_outcome(root)).status == "cancelled"


def _questions(harness: EngineHarness) -> list[ToolCall]:
    payloads = [event.payload for run_id in harness.run_ids() for event in harness.events(run_id)]
    return [payload for payload in payloads if isinstance(payload, ToolCall)]


def _refusals(harness: EngineHarness, run_id: str, count: int) -> list[str]:
    """Return the error codes of the refused calls when there are `count` of them, else none."""
    ends = [event.payload for event in harness.events(run_id) if event.path.startswith("refused")]
    codes = [one.result for one in ends if isinstance(one, StepCompleted)]
    return codes if len(codes) == count else []


@pytest.mark.req("SF-6")
async def test_runs_that_have_ended_make_room_for_others(harness: EngineHarness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subruns, "TREE_OPEN_RUNS", 3)
    harness.add_worker("one-by-one", ONE_BY_ONE)
    harness.add_worker("short", SHORT)
    async with harness.open() as engine:
        assert (await engine.wait_for_outcome(await engine.dispatch("one-by-one"))).status == "completed"


@pytest.mark.req("SF-6")
async def test_a_worker_that_calls_itself_fails_at_the_maximum_depth(harness: EngineHarness):
    harness.add_worker("calls-itself", CALLS_ITSELF)
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("calls-itself"))
        assert outcome.status == "failed"
        assert len(harness.run_ids()) == SUB_RUN_DEPTH + 1
        codes = [one.error.code for run_id in harness.run_ids() if (one := harness.outcome(run_id)) and one.error]
        assert codes.count("tree_limit") == 1


@pytest.mark.storages("memory", "files")
@pytest.mark.req("HO-8")
async def test_a_suspended_parent_is_resumed_although_nobody_told_it_that_its_sub_run_ended(harness: EngineHarness):
    harness.add_worker("leaf", LEAF)
    harness.add_worker("calls", "steps: {Call: {block: run-worker, worker: leaf}}")
    async with harness.open(idle_seconds=0.0) as engine:
        parent = await engine.dispatch("calls")
        child = await engine.wait_until(lambda: next((run for run in harness.run_ids() if run != parent), None))
        for run_id in (parent, child):
            await engine.wait_for_status(run_id, "waiting")
            await engine.wait_until(lambda run_id=run_id: run_id not in engine.scheduler.live_runs, "its suspension")
        # As a host that dies right after it has written the outcome.
        assert await end_orphan(engine.backend, child, cancelled="no longer needed")
        outcome = await engine.wait_for_outcome(parent)
    assert outcome.status == "failed"
    assert sum(event.type == "run.started" for event in harness.events(parent)) == 2


@pytest.mark.storages("memory", "files")
async def test_a_host_that_drains_lets_go_of_what_waits_and_resumes_it_when_it_accepts_runs_again(
    harness: EngineHarness,
):
    harness.add_worker("leaf", LEAF)
    harness.add_worker("short", SHORT)
    async with harness.open() as engine:
        asking = await engine.dispatch("leaf")
        await engine.wait_for_status(asking, "waiting")
        engine.scheduler.drain()
        await engine.wait_until(lambda: not engine.scheduler.live_runs, "its suspension")
        queued = await engine.dispatch("short")
        (call,) = [event.payload for event in harness.events(asking) if isinstance(event.payload, ToolCall)]
        await engine.answer(asking, call.call_id, "yes")
        await anyio.sleep(1.2)
        assert harness.events(queued) == []
        assert harness.outcome(asking) is None
        await engine.scheduler.undrain()
        await engine.wait_for_outcome(asking)
        await engine.wait_for_outcome(queued)
