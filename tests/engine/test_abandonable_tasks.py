"""Workers that ignore their cancellation: the run ends, or stays open, without them."""

import gc
import logging
import time

import anyio
import pytest
from tests.engine.harness import EngineHarness

from shopfloor.engine.abandonable_task import AbandonableTask, TaskAbandoned
from shopfloor.log import RunStarted, StepCompleted

pytestmark = pytest.mark.anyio

CLINGS = """
    import asyncio
    from pathlib import Path
    from shopfloor import Run, worker

    async def cling(go):
        Path(go).with_name("clings").touch()
        while not Path(go).exists():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                Path(go).with_name("cancelled").touch()

    @worker
    async def clings(run: Run, GO: str):
        before = await run.step("before", lambda: "once")
        await run.step("cling", cling, GO, safe=True)
        return before

    @worker
    async def gathers(run: Run, GO: str):
        async def continue_late():
            await cling(GO)
            Path(GO).with_name("continued").touch()
            await run.step("after", lambda: "too late")

        await asyncio.gather(continue_late())

    @worker
    async def cancels_itself(run: Run):
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task
"""


GRACE_SECONDS = 0.3
"""How long a worker may take to stop."""


async def test_a_cancelled_run_ends_even_if_its_worker_does_not(harness: EngineHarness, tmp_path, caplog):
    harness.add_python_worker("clings", CLINGS)
    go = tmp_path / "go"
    async with harness.open(interrupt_grace_seconds=GRACE_SECONDS) as engine:
        run_id = await engine.dispatch("clings", GO=str(go))
        await engine.wait_until((tmp_path / "clings").exists)
        await engine.cancel(run_id, "enough")
        outcome = await engine.wait_for_outcome(run_id)
        await engine.wait_for_status(run_id, "cancelled")
        assert (tmp_path / "cancelled").exists()
        # The abandoned worker is not resumed, even when the file that it waits for appears.
        go.touch()
        await anyio.sleep(0.2)
        assert not engine.scheduler.is_busy
    assert outcome.error is not None
    assert outcome.error.message == "enough"
    ended = [event.payload for event in harness.events(run_id) if isinstance(event.payload, StepCompleted)]
    assert [(step.name, step.error) for step in ended] == [("before", None), ("cling", "enough")]
    assert f"run {run_id}: the worker did not stop in time" in caplog.text


@pytest.mark.storages("memory", "files")
async def test_a_stopped_host_leaves_such_a_run_open_and_the_next_host_resumes_it(
    harness: EngineHarness, tmp_path, caplog
):
    harness.add_python_worker("clings", CLINGS)
    go = tmp_path / "go"
    async with harness.open(interrupt_grace_seconds=GRACE_SECONDS) as engine:
        run_id = await engine.dispatch("clings", GO=str(go))
        await engine.wait_until((tmp_path / "clings").exists)
        stopped = time.monotonic()
    assert time.monotonic() - stopped < 10
    assert harness.outcome(run_id) is None
    assert f"run {run_id}: the worker did not stop in time" in caplog.text
    go.touch()
    async with harness.open(interrupt_grace_seconds=GRACE_SECONDS) as engine:
        assert (await engine.wait_for_outcome(run_id)).result == "once"
    events = harness.events(run_id)
    assert [event.payload.attempt for event in events if isinstance(event.payload, RunStarted)] == [1, 2]


async def test_tasks_that_a_worker_left_running_write_nothing_after_the_outcome(
    harness: EngineHarness, tmp_path, caplog
):
    caplog.set_level(logging.CRITICAL, "asyncio")
    harness.add_python_worker("gathers", CLINGS)
    go = tmp_path / "go"
    async with harness.open(interrupt_grace_seconds=GRACE_SECONDS) as engine:
        run_id = await engine.dispatch("gathers", GO=str(go))
        await engine.wait_until((tmp_path / "clings").exists)
        await engine.cancel(run_id, "enough")
        assert (await engine.wait_for_outcome(run_id)).status == "cancelled"
        count = len(harness.events(run_id))
        go.touch()
        await engine.wait_until((tmp_path / "continued").exists)
        await anyio.sleep(0.1)
        assert len(harness.events(run_id)) == count


async def test_a_worker_that_cancels_its_own_task_fails_its_run(harness: EngineHarness):
    harness.add_python_worker("cancels-itself", CLINGS)
    async with harness.open(interrupt_grace_seconds=GRACE_SECONDS) as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("cancels-itself"))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert "CancelledError" in outcome.error.message


async def test_work_that_sleeps_inside_a_shield_is_abandoned_too_and_its_files_are_closed():
    closed: list[str] = []

    async def sleep() -> None:
        try:
            with anyio.CancelScope(shield=True):
                await anyio.sleep_forever()
        finally:
            closed.append("file")

    abandonable_task: AbandonableTask[None] = AbandonableTask(grace_seconds=0.05)
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            with pytest.raises(TaskAbandoned):
                await abandonable_task.run(sleep)

        tasks.start_soon(run)
        await anyio.sleep(0.02)
        abandonable_task.cancel()
    await anyio.sleep(0.02)
    assert abandonable_task.is_abandoned
    assert closed == ["file"]


async def test_work_that_stops_in_time_can_clean_up():
    done: list[str] = []

    async def work() -> str:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            done.append("cleaned up")
        return "never"

    abandonable_task: AbandonableTask[str] = AbandonableTask(grace_seconds=5)
    results: list[str | None] = []
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            results.append(await abandonable_task.run(work))

        tasks.start_soon(run)
        await anyio.sleep(0.02)
        abandonable_task.cancel()
    assert (results, done, abandonable_task.is_abandoned) == ([None], ["cleaned up"], False)


GATHERS = """
    import asyncio
    from shopfloor import Run, worker

    async def pause():
        await asyncio.sleep(0.002)

    @worker
    async def gathers(run: Run):
        async def branch(number):
            for step in range(40):
                await run.step(f"s{number}-{step}", pause, safe=True)
            return number
        return await asyncio.gather(*(branch(number) for number in range(8)))
"""


@pytest.mark.storages("memory", "files")
async def test_tasks_of_a_worker_are_stopped_with_the_run_and_resumed(
    harness: EngineHarness, caplog: pytest.LogCaptureFixture
):
    harness.add_python_worker("gathers", GATHERS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("gathers")
        await engine.wait_until(lambda: len(harness.events(run_id)) > 60, "some steps")
    async with harness.open() as engine:
        assert (await engine.wait_for_outcome(run_id)).result == list(range(8))
    # asyncio logs the exceptions of tasks and futures that were never retrieved when these are collected.
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    steps = [event.path for event in harness.events(run_id) if isinstance(event.payload, StepCompleted)]
    assert len(steps) == len(set(steps)) == 8 * 40
