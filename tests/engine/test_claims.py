"""Claims of runs whose log is locked by a reader, or that were made before the scheduler runs."""

import fcntl
import os
from contextlib import AsyncExitStack

import anyio
import pytest
from tests.engine.harness import EngineHarness, RunningEngine

from shopfloor.engine import ClaimPolicy
from shopfloor.log import new_run_id
from shopfloor.ports import RunOrigin, RunRequest
from shopfloor.wiring import WorkerSettings, local_engine

pytestmark = pytest.mark.anyio


@pytest.mark.storages("files")
async def test_a_claimed_run_starts_after_a_reader_has_locked_its_log_for_long(harness: EngineHarness):
    harness.add_worker("says", "steps: {Say: {block: terminal, output: hello}}")
    run_id = new_run_id()
    path = harness.storage.log_path(run_id)
    path.parent.mkdir(parents=True)
    reader = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(reader, fcntl.LOCK_SH)
    async with harness.open() as running_engine:
        await running_engine.service.dispatch(RunRequest(worker="says", input={}), RunOrigin(run_id=run_id))
        await running_engine.wait_until(lambda: running_engine.scheduler.is_busy, "the claim")
        await anyio.sleep(0.3)
        assert harness.events(run_id) == []
        os.close(reader)
        assert (await running_engine.wait_for_outcome(run_id)).result == "hello"


@pytest.mark.storages("memory", "files")
async def test_a_run_that_is_requested_before_the_scheduler_runs_is_executed_then(harness: EngineHarness):
    harness.add_worker("says", "steps: {Say: {block: terminal, output: hello}}")
    workers = WorkerSettings(folders=(harness.folder,))
    async with harness.backend() as backend, anyio.create_task_group() as tasks, AsyncExitStack() as opened:
        host = opened.enter_context(harness.host())
        engine = await opened.enter_async_context(local_engine(backend, workers, host=host, policy=ClaimPolicy.OWN))
        running_engine = RunningEngine(harness, backend, engine)
        run_id = await running_engine.dispatch("says")
        assert [claimed for claimed, _ in await backend.queue.claimed()] == [run_id]
        tasks.start_soon(engine.scheduler.run)
        assert (await running_engine.wait_for_outcome(run_id)).result == "hello"
        tasks.cancel_scope.cancel()
