"""More runs than slots: a run that waits releases its slot for the run that it waits for."""

import pytest
from tests.engine.harness import EngineHarness

from shopfloor.log import RunCompleted, RunStarted

pytestmark = pytest.mark.anyio

LEAF = "input: {X: {}}\nsteps: {Do: {block: command, command: 'echo leaf {{X}}', output: Y}}\noutput: Y"


def calls(worker: str) -> str:
    return f"input: {{X: {{}}}}\nsteps: {{Call: {{block: run-worker, worker: {worker}, input: {{X: '{{{{X}}}}'}}, output: Y}}}}\noutput: Y"


@pytest.fixture
def tree(harness: EngineHarness) -> EngineHarness:
    harness.add_worker("leaf", LEAF)
    harness.add_worker("mother", calls("leaf"))
    harness.add_worker("grandmother", calls("mother"))
    return harness


async def test_three_generations_on_one_slot(tree: EngineHarness):
    async with tree.open(slots=1) as engine:
        assert await engine.run_worker("grandmother", X="one") == "leaf one"


async def test_two_trees_on_one_slot_at_once(tree: EngineHarness):
    async with tree.open(slots=1) as engine:
        runs = [await engine.dispatch("grandmother", X=name) for name in ("a", "b")]
        assert [(await engine.wait_for_outcome(run_id)).result for run_id in runs] == ["leaf a", "leaf b"]


async def test_branches_with_sub_runs_on_one_slot(tree: EngineHarness):
    branches = "\n".join(
        f"      b{n}: {{Call: {{block: run-worker, worker: mother, input: {{X: n{n}}}, output: R{n}}}}}"
        for n in range(4)
    )
    tree.add_worker(
        "wide", f"steps:\n  Wide:\n    block: parallel\n    branches:\n{branches}\noutput: '{{{{R0}}}} {{{{R3}}}}'"
    )
    async with tree.open(slots=1) as engine:
        assert await engine.run_worker("wide") == "leaf n0 leaf n3"


async def test_no_more_runs_are_worked_on_than_there_are_slots(harness: EngineHarness):
    harness.add_worker("slow", "steps: {Do: {block: command, command: 'sleep 0.1'}}\noutput: all done")
    async with harness.open(slots=2) as engine:
        runs = [await engine.dispatch("slow") for _ in range(6)]
        for run_id in runs:
            await engine.wait_for_outcome(run_id)
    marks: list[tuple[str, int]] = []
    for run_id in runs:
        for event in harness.events(run_id):
            if isinstance(event.payload, RunStarted):
                marks.append((event.timestamp, 1))
            elif isinstance(event.payload, RunCompleted):
                marks.append((event.timestamp, -1))
    concurrent, most = 0, 0
    for _, change in sorted(marks):
        concurrent += change
        most = max(most, concurrent)
    assert most <= 2


async def test_a_sub_run_that_waits_can_be_cancelled_with_its_whole_tree(harness: EngineHarness):
    harness.add_worker(
        "asks", "steps: {Ask: {block: tool-call, tool: ask, input: {question: 'Well?'}, output: Y}}\noutput: Y"
    )
    harness.add_worker("mother", "steps: {Call: {block: run-worker, worker: asks, output: Y}}\noutput: Y")
    harness.add_worker("grandmother", "steps: {Call: {block: run-worker, worker: mother, output: Y}}\noutput: Y")
    async with harness.open(slots=1) as engine:
        run_id = await engine.dispatch("grandmother")
        await engine.wait_until(lambda: len(harness.run_ids()) == 3, "three runs")
        runs = harness.run_ids()
        await engine.wait_until(lambda: any(event.type == "tool.call" for one in runs for event in harness.events(one)))
        await engine.cancel(run_id, "all of it")
        ends = [await engine.wait_for_outcome(one) for one in runs]
    assert [end.status for end in ends] == ["cancelled"] * 3


async def test_a_branch_that_fails_ends_the_command_of_another(harness: EngineHarness):
    harness.add_worker(
        "quarrel",
        """
        steps:
          Both:
            block: parallel
            branches:
              long: {Do: {block: command, command: 'sleep 60'}}
              bad: {Do: {block: command, command: 'sleep 0.2; exit 3'}}
        output: well done
        """,
    )
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("quarrel"))
    assert outcome.error is not None
    assert outcome.error.message == "step Do: command `sleep 0.2; exit 3` failed: exit code 3"
    assert outcome.duration_ms is not None
    assert outcome.duration_ms < 30_000


async def test_a_branch_that_fails_cancels_the_sub_run_of_another(harness: EngineHarness):
    harness.add_worker("long", "steps: {Do: {block: command, command: 'sleep 60'}}\noutput: all done")
    harness.add_worker(
        "quarrel",
        """
        steps:
          Both:
            block: parallel
            branches:
              long: {Call: {block: run-worker, worker: long}}
              bad: {Do: {block: command, command: 'sleep 0.5; exit 3'}}
        output: well done
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("quarrel")
        assert (await engine.wait_for_outcome(run_id)).status == "failed"
        (child,) = {event.child_run_id for event in harness.events(run_id) if event.child_run_id}
        assert (await engine.wait_for_outcome(child)).status == "cancelled"
