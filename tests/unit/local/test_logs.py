"""Local logs as the engine writes them: a sync is always awaited, even if the task is cancelled."""

import asyncio
from pathlib import Path

import pytest

from shopfloor.adapters.local import LocalLogs
from shopfloor.log import RunStarted, StepStarted, new_run_id
from shopfloor.record import Storage

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_task_cancelled_during_a_sync_ends_after_the_sync(tmp_path: Path):
    async with LocalLogs(Storage(tmp_path)).open(new_run_id()) as log:
        await log.append(RunStarted(name="w", kind="agent", attempt=1, host="here"))

        async def write_and_wait(number: int) -> None:
            await log.append(StepStarted(name="s", kind="step", try_=1), path=f"s{number}")
            await asyncio.sleep(60)

        for number in range(50):
            task = asyncio.create_task(write_and_wait(number))
            await asyncio.sleep(0)
            # As `gather` does with its tasks: no anyio shield delays that.
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert log.seq == number + 2


async def test_a_timeout_during_a_sync_is_still_raised(tmp_path: Path):
    async with LocalLogs(Storage(tmp_path)).open(new_run_id()) as log:
        await log.append(RunStarted(name="w", kind="agent", attempt=1, host="here"))

        async def write_and_wait() -> None:
            async with asyncio.timeout(0):
                await log.append(StepStarted(name="s", kind="step", try_=1), path="s")
                await asyncio.sleep(60)

        with pytest.raises(TimeoutError):
            await write_and_wait()
        assert log.seq == 2
