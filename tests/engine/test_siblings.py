"""Concurrent branches: if one fails, the others are stopped with that reason and no other."""

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
def tree(harness: EngineHarness) -> EngineHarness:
    harness.add_python_worker("asks", ASKS)
    harness.add_worker("middle", MIDDLE)
    harness.add_worker("fails", FAILS)
    harness.add_worker("parallel", PARALLEL)
    harness.add_python_worker("gathers", GATHER)
    harness.add_python_worker("groups", GROUP)
    harness.add_python_worker("raises", WITHOUT_STEP)
    return harness


def runs(harness: EngineHarness) -> dict[str, str]:
    """Return the started runs by the name of their worker."""
    started = {run_id: events for run_id in harness.run_ids() if (events := harness.events(run_id))}
    return {events[0].payload.name: run_id for run_id, events in started.items()}  # pyright: ignore[reportAttributeAccessIssue]


def ends(harness: EngineHarness, run_id: str) -> dict[str, StepCompleted | CallCompleted]:
    """Return the end of each step. Checks that each step ended once, and that the log is valid."""
    ended = [
        event for event in harness.verified_events(run_id) if isinstance(event.payload, StepCompleted | CallCompleted)
    ]
    assert [key for key, count in Counter((event.path, event.iteration) for event in ended).items() if count > 1] == []
    return {event.path: event.payload for event in ended if isinstance(event.payload, StepCompleted | CallCompleted)}


async def fail(engine: RunningEngine, worker: str) -> dict[str, str]:
    """Run a worker whose sub-runs all wait, let one of them fail, and return all runs when they have ended."""
    harness = engine.harness
    run_id = await engine.dispatch(worker, GO=str(harness.folder / "go"))
    await engine.wait_until(
        lambda: "asks" in runs(harness) and ("fails" in runs(harness) or worker == "raises"), "the sub-runs"
    )
    await engine.wait_for_status(runs(harness)["asks"], "waiting")
    (harness.folder / "go").touch()
    await engine.wait_for_outcome(run_id)
    run_ids = runs(harness)
    for child in run_ids.values():
        await engine.wait_for_outcome(child)
    return run_ids


@pytest.mark.req("TR-74")
@pytest.mark.parametrize("worker", SIBLING)
async def test_runs_stopped_by_a_failed_sibling_are_cancelled_with_that_reason(tree: EngineHarness, worker: str):
    async with tree.open(slots=8) as engine:
        ids = await fail(engine, worker)
        reason = f"stopped because the sibling `{SIBLING[worker]}` (run {ids['fails']}) failed"
        for slug in ("middle", "asks"):
            outcome = await engine.wait_for_outcome(ids[slug])
            assert (outcome.status, outcome.error and outcome.error.code) == ("cancelled", "cancelled")
            assert outcome.error is not None
            assert outcome.error.message == reason
            assert {end.error for end in ends(tree, ids[slug]).values()} <= {None, reason}
        assert (await engine.wait_for_outcome(ids["fails"])).status == "failed"
        top = await engine.wait_for_outcome(ids[worker])
        assert top.status == "failed"
        assert top.error is not None
        assert "exit code 3" in top.error.message
        steps = ends(tree, ids[worker])
        stopped = [step for path, step in steps.items() if path.endswith(("idle", "sleep", "middle", "good.call"))]
        assert [(step.error, step.error_code) for step in stopped] == [(reason, "cancelled")] * 2
        # Their processes are stopped too.
        await engine.wait_until(lambda: not processes_with("sleep 61.25"), "the command to be stopped")


@pytest.mark.req("TR-74")
async def test_the_error_of_a_worker_is_not_the_error_of_its_sub_runs(tree: EngineHarness):
    async with tree.open() as engine:
        ids = await fail(engine, "raises")
        reason = "stopped because the run failed: ValueError: of the sibling alone (worker.py:10)"
        for slug in ("middle", "asks"):
            outcome = await engine.wait_for_outcome(ids[slug])
            assert (outcome.status, outcome.error and outcome.error.message) == ("cancelled", reason)
        (call,) = ends(tree, ids["raises"]).values()
        assert (call.error, call.error_code) == (reason, "cancelled")
        top = await engine.wait_for_outcome(ids["raises"])
        assert top.error is not None
        assert "of the sibling alone" in top.error.message


@pytest.mark.storages("memory", "files")
@pytest.mark.req("TR-74")
@pytest.mark.parametrize("worker", SIBLING)
async def test_a_run_cut_off_after_its_branches_were_stopped_fails_with_the_same_error(
    tree: EngineHarness, worker: str
):
    async with tree.open(slots=8) as engine:
        ids = await fail(engine, worker)
    before = tree.outcome(ids[worker])
    lines = tree.lines(ids[worker])
    cut = len(lines) - 1
    while b'"error_code":"cancelled"' not in lines[cut - 1]:
        cut -= 1
    tree.replace_log(ids[worker], lines[:cut])
    # As after a crash: no row has the outcome.
    tree.drop_database()
    async with tree.open(slots=8) as engine:
        again = await engine.wait_for_outcome(ids[worker])
    assert before is not None
    # The frames of the worker differ: the failed step is not executed again.
    assert before.error is not None
    assert again.error is not None
    assert again.status == "failed"
    assert (again.error.code, again.error.message) == (before.error.code, before.error.message)
    ends(tree, ids[worker])


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
    harness.add_python_worker("branches", BRANCHES)
    async with harness.open() as engine:
        run_ids = [await engine.dispatch("branches", FAIL=fails) for _ in range(5)]
        if not fails:
            for run_id in run_ids:
                await engine.wait_until(lambda run_id=run_id: len(harness.events(run_id)) > 80, "some branches to end")
                await engine.cancel(run_id)
        for run_id in run_ids:
            assert (await engine.wait_for_outcome(run_id)).status == ("failed" if fails else "cancelled")
        # Remaining branches would have written their events by now.
        await anyio.sleep(0.3)
    for run_id in run_ids:
        started = {event.path for event in harness.events(run_id) if event.type == "step.started"}
        assert set(ends(harness, run_id)) == started
        assert isinstance(harness.events(run_id)[-1].payload, RunCompleted)
