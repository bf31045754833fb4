"""Trees of runs: how large they may become, and that they end together."""

from __future__ import annotations

import anyio
import pytest
from tests.engine.floor import PATIENCE, Floor

from shopfloor.engine import lifecycle, subruns, tree_limit
from shopfloor.limits import SUB_RUN_DEPTH
from shopfloor.log import StepCompleted, ToolCall

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
LEAF = "steps: {Ask: {block: tool-call, tool: ask, input: {question: 'Go on?'}}}"
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
async def test_a_tree_has_so_many_open_runs_and_no_more(floor: Floor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subruns, "TREE_OPEN_RUNS", 20)
    # None of the runs ends meanwhile, so waiting for room is of no use.
    monkeypatch.setattr(tree_limit, "TREE_PATIENCE_SECONDS", 0.5)
    floor.python("fan", FAN)
    floor.worker("leaf", LEAF)
    async with floor.open() as shift:
        root = await shift.dispatch("fan", WIDTH=30)
        refused = await shift.until(lambda: _refusals(floor, root, 11), "the refusals")
        assert set(refused) == {"tree_limit"}
        assert len(floor.run_ids()) == 20
        # The whole tree ends with its root, also those runs that are in no process's memory.
        await shift.cancel(root)
        for run_id in floor.run_ids():
            assert (await shift.ended(run_id)).status == "cancelled"


@pytest.mark.floors("memory", "files")
@pytest.mark.req("SF-6")
async def test_a_tree_ends_with_its_root_and_leaves_no_message_whether_its_runs_are_in_memory_or_not(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(lifecycle, "IDLE_RUNS", 4)
    floor.python("fan", FAN)
    floor.worker("leaf", LEAF)
    async with floor.open() as shift:
        root = await shift.dispatch("fan", WIDTH=12)
        await shift.until(lambda: len(_questions(floor)) == 12, "the questions")
        await shift.cancel(root)
        runs = floor.run_ids()
        assert [(await shift.ended(run_id)).status for run_id in runs] == ["cancelled"] * 13
        await shift.row(root, "cancelled")
        with anyio.fail_after(PATIENCE):
            while await shift.office.queue.orders():
                await anyio.sleep(0.01)


def _questions(floor: Floor) -> list[ToolCall]:
    payloads = [event.payload for run_id in floor.run_ids() for event in floor.events(run_id)]
    return [payload for payload in payloads if isinstance(payload, ToolCall)]


def _refusals(floor: Floor, run_id: str, count: int) -> list[str]:
    """The codes that the calls were refused with, when there are so many."""
    ends = [event.payload for event in floor.events(run_id) if event.path.startswith("refused")]
    codes = [one.result for one in ends if isinstance(one, StepCompleted)]
    return codes if len(codes) == count else []


@pytest.mark.req("SF-6")
async def test_runs_that_have_ended_make_room_for_others(floor: Floor, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(subruns, "TREE_OPEN_RUNS", 3)
    floor.worker("one-by-one", ONE_BY_ONE)
    floor.worker("short", SHORT)
    async with floor.open() as shift:
        assert (await shift.ended(await shift.dispatch("one-by-one"))).status == "completed"


@pytest.mark.req("SF-6")
async def test_a_worker_that_calls_itself_is_told_that_it_is_too_deep(floor: Floor):
    floor.worker("calls-itself", CALLS_ITSELF)
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("calls-itself"))
        assert outcome.status == "failed"
        assert len(floor.run_ids()) == SUB_RUN_DEPTH + 1
        codes = [one.error.code for run_id in floor.run_ids() if (one := floor.outcome(run_id)) and one.error]
        assert codes.count("tree_limit") == 1
