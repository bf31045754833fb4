"""Branches that go on at the same time: one fails, and the others are stopped for that and for nothing else."""

from collections import Counter

import anyio
import pytest
from tests.cli.test_run import processes_with
from tests.engine.harness import EngineHarness, RunningEngine
from tests.engine.test_waiting_runs import ASKS

from shopfloor.log import CallCompleted, RunCompleted, StepCompleted

pytestmark = pytest.mark.anyio

MIDDLE = "steps: {Call: {block: run-worker, worker: asks}}\n"
FAILS = (
    "input: {GO: {}}\nsteps: {Do: {block: command, command: 'while [ ! -e {{GO}} ]; do sleep 0.02; done; exit 3'}}\n"
)
PARALLEL = """
    input: {GO: {}}
    steps:
      Both:
        block: parallel
        branches:
          good: {Call: {block: run-worker, worker: middle}}
          idle: {Sleep: {block: command, command: 'sleep 61.25'}}
          bad: {Inner: {block: parallel, branches: {deep: {Fail: {block: run-worker, worker: fails, input: {GO: '{{GO}}'}}}}}}
"""
GATHER = """
    import asyncio
    from shopfloor import Run, worker

    @worker
    async def gathers(run: Run, GO: str):
        async def fails():
            await run.worker("fails", {"GO": GO}, name="bad")
        await asyncio.gather(run.worker("middle"), run.command("sleep 61.25", name="idle"), fails())
"""
GROUP = """
    import asyncio
    from shopfloor import Run, worker

    @worker
    async def groups(run: Run, GO: str):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(run.worker("middle"))
            tasks.create_task(run.command("sleep 61.25", name="idle"))
            tasks.create_task(run.worker("fails", {"GO": GO}, name="bad"))
"""
WITHOUT_STEP = """
    import asyncio, pathlib
    from shopfloor import Run, worker

    @worker
    async def raises(run: Run, GO: str):
        async def fails():
            while not pathlib.Path(GO).exists():
                await asyncio.sleep(0.02)
            raise ValueError("of the sibling alone")
        await asyncio.gather(run.worker("middle"), fails())
"""
SIBLING = {"parallel": "both.bad.inner.deep.fail", "gathers": "bad", "groups": "bad"}


@pytest.fixture
def family(harness: EngineHarness) -> EngineHarness:
    harness.python("asks", ASKS)
    harness.worker("middle", MIDDLE)
    harness.worker("fails", FAILS)
    harness.worker("parallel", PARALLEL)
    harness.python("gathers", GATHER)
    harness.python("groups", GROUP)
    harness.python("raises", WITHOUT_STEP)
    return harness


def runs(harness: EngineHarness) -> dict[str, str]:
    """The runs that there are, by their workers."""
    begun = {run_id: events for run_id in harness.run_ids() if (events := harness.events(run_id))}
    return {events[0].payload.name: run_id for run_id, events in begun.items()}  # pyright: ignore[reportAttributeAccessIssue]


def ends(harness: EngineHarness, run_id: str) -> dict[str, StepCompleted | CallCompleted]:
    """How each step ended, which is to be once; the log is whole."""
    ended = [event for event in harness.verified(run_id) if isinstance(event.payload, StepCompleted | CallCompleted)]
    assert [place for place, count in Counter((one.path, one.iteration) for one in ended).items() if count > 1] == []
    return {one.path: one.payload for one in ended if isinstance(one.payload, StepCompleted | CallCompleted)}


async def fail(engine: RunningEngine, worker: str) -> dict[str, str]:
    """Runs a worker whose sub-runs all wait, and has one of them fail."""
    harness = engine.harness
    run_id = await engine.dispatch(worker, GO=str(harness.folder / "go"))
    await engine.wait_until(
        lambda: "asks" in runs(harness) and ("fails" in runs(harness) or worker == "raises"), "the sub-runs"
    )
    await engine.row(runs(harness)["asks"], "waiting")
    (harness.folder / "go").touch()
    await engine.ended(run_id)
    family = runs(harness)
    for one in family.values():
        await engine.ended(one)
    return family


@pytest.mark.req("TR-74")
@pytest.mark.parametrize("worker", SIBLING)
async def test_what_a_sibling_that_failed_stops_is_cancelled_with_that_reason(family: EngineHarness, worker: str):
    async with family.open(slots=8) as engine:
        ids = await fail(engine, worker)
        reason = f"stopped because the sibling `{SIBLING[worker]}` (run {ids['fails']}) failed"
        for slug in ("middle", "asks"):
            outcome = await engine.ended(ids[slug])
            assert (outcome.status, outcome.error and outcome.error.code) == ("cancelled", "cancelled")
            assert outcome.error is not None
            assert outcome.error.message == reason
            assert {end.error for end in ends(family, ids[slug]).values()} <= {None, reason}
        assert (await engine.ended(ids["fails"])).status == "failed"
        top = await engine.ended(ids[worker])
        assert top.status == "failed"
        assert top.error is not None
        assert "exit code 3" in top.error.message
        steps = ends(family, ids[worker])
        stopped = [one for path, one in steps.items() if path.endswith(("idle", "sleep", "middle", "good.call"))]
        assert [(one.error, one.error_code) for one in stopped] == [(reason, "cancelled")] * 2
        # Nor does what they started go on.
        await engine.wait_until(lambda: not processes_with("sleep 61.25"), "the command to be stopped")


@pytest.mark.req("TR-74")
async def test_what_the_worker_itself_fails_with_is_not_the_error_of_its_sub_runs(family: EngineHarness):
    async with family.open() as engine:
        ids = await fail(engine, "raises")
        reason = "stopped because the run failed: ValueError: of the sibling alone (worker.py:10)"
        for slug in ("middle", "asks"):
            outcome = await engine.ended(ids[slug])
            assert (outcome.status, outcome.error and outcome.error.message) == ("cancelled", reason)
        (call,) = ends(family, ids["raises"]).values()
        assert (call.error, call.error_code) == (reason, "cancelled")
        top = await engine.ended(ids["raises"])
        assert top.error is not None
        assert "of the sibling alone" in top.error.message


@pytest.mark.storages("memory", "files")
@pytest.mark.req("TR-74")
@pytest.mark.parametrize("worker", SIBLING)
async def test_a_run_cut_off_after_its_branches_were_stopped_fails_with_the_same_error(
    family: EngineHarness, worker: str
):
    async with family.open(slots=8) as engine:
        ids = await fail(engine, worker)
    before = family.outcome(ids[worker])
    lines = family.lines(ids[worker])
    cut = len(lines) - 1
    while b'"error_code":"cancelled"' not in lines[cut - 1]:
        cut -= 1
    family.replace(ids[worker], lines[:cut])
    # As after a crash: no row tells of the outcome.
    family.drop_database()
    async with family.open(slots=8) as engine:
        again = await engine.ended(ids[worker])
    assert before is not None
    assert (again.status, again.error) == ("failed", before.error)
    ends(family, ids[worker])


BRANCHES = """
    import asyncio
    from shopfloor import Run, worker

    async def nap(seconds):
        await asyncio.sleep(seconds)
        return seconds

    async def fall():
        await asyncio.sleep(0.05)
        raise ValueError("fell")

    @worker
    async def branches(run: Run, FAIL: bool):
        naps = [run.step(f"nap {n}", nap, 0.03 + n * 0.001) for n in range(60)]
        await asyncio.gather(*naps, *([run.step("fall", fall)] if FAIL else [run.ask("Well?")]))
"""


@pytest.mark.parametrize("fails", [True, False])
async def test_each_branch_of_a_gather_has_one_end_whether_one_fails_or_the_run_is_cancelled(
    harness: EngineHarness, fails: bool
):
    harness.python("branches", BRANCHES)
    async with harness.open() as engine:
        run_ids = [await engine.dispatch("branches", FAIL=fails) for _ in range(5)]
        if not fails:
            for run_id in run_ids:
                await engine.wait_until(lambda run_id=run_id: len(harness.events(run_id)) > 80, "some branches to end")
                await engine.cancel(run_id)
        for run_id in run_ids:
            assert (await engine.ended(run_id)).status == ("failed" if fails else "cancelled")
        # What is left of the branches would be written by now.
        await anyio.sleep(0.3)
    for run_id in run_ids:
        started = {event.path for event in harness.events(run_id) if event.type == "step.started"}
        assert set(ends(harness, run_id)) == started
        assert isinstance(harness.events(run_id)[-1].payload, RunCompleted)
