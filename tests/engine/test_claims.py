"""A log that somebody looks at in the moment when its run is to begin."""

import fcntl
import os
from contextlib import AsyncExitStack

import anyio
import pytest
from tests.engine.floor import Floor, Shift

from shopfloor.engine import ClaimPolicy
from shopfloor.log import new_run_id
from shopfloor.ports import RunOrigin, RunRequest
from shopfloor.wiring import Workers, local_engine

pytestmark = pytest.mark.anyio


@pytest.mark.floors("files")
async def test_a_claimed_run_begins_though_somebody_was_looking_at_its_log_for_long(floor: Floor):
    floor.worker("says", "steps: {Say: {block: terminal, output: hello}}")
    run_id = new_run_id()
    path = floor.storage.log_path(run_id)
    path.parent.mkdir(parents=True)
    looking = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(looking, fcntl.LOCK_SH)
    async with floor.open() as shift:
        await shift.service.dispatch(RunRequest(worker="says", input={}), RunOrigin(run_id=run_id))
        await shift.until(lambda: shift.scheduler.busy, "the claim")
        await anyio.sleep(0.3)
        assert floor.events(run_id) == []
        os.close(looking)
        assert (await shift.ended(run_id)).result == "hello"


@pytest.mark.floors("memory", "files")
async def test_a_run_that_is_requested_before_the_scheduler_runs_is_executed_then(floor: Floor):
    floor.worker("says", "steps: {Say: {block: terminal, output: hello}}")
    workers = Workers(folders=(floor.folder,))
    async with floor.office() as office, anyio.create_task_group() as tasks, AsyncExitStack() as opened:
        host = opened.enter_context(floor.host())
        engine = await opened.enter_async_context(local_engine(office, workers, host=host, policy=ClaimPolicy.OWN))
        shift = Shift(floor, office, engine)
        run_id = await shift.dispatch("says")
        assert [claimed for claimed, _ in await office.queue.claimed()] == [run_id]
        tasks.start_soon(engine.scheduler.run)
        assert (await shift.ended(run_id)).result == "hello"
        tasks.cancel_scope.cancel()
