"""Few slots, many runs: whoever waits gives its place to the one that it waits for."""

import pytest
from tests.engine.floor import Floor

from shopfloor.log import RunCompleted, RunStarted

pytestmark = pytest.mark.anyio

LEAF = "input: {X: {}}\nsteps: {Do: {block: command, command: 'echo leaf {{X}}', output: Y}}\noutput: Y"


def calls(worker: str) -> str:
    return f"input: {{X: {{}}}}\nsteps: {{Call: {{block: run-worker, worker: {worker}, input: {{X: '{{{{X}}}}'}}, output: Y}}}}\noutput: Y"


@pytest.fixture
def family(floor: Floor) -> Floor:
    floor.worker("leaf", LEAF)
    floor.worker("mother", calls("leaf"))
    floor.worker("grandmother", calls("mother"))
    return floor


async def test_three_generations_on_one_slot(family: Floor):
    async with family.open(slots=1) as shift:
        assert await shift.result("grandmother", X="one") == "leaf one"


async def test_two_families_on_one_slot_at_once(family: Floor):
    async with family.open(slots=1) as shift:
        runs = [await shift.dispatch("grandmother", X=name) for name in ("a", "b")]
        assert [(await shift.ended(run_id)).result for run_id in runs] == ["leaf a", "leaf b"]


async def test_branches_with_sub_runs_on_one_slot(family: Floor):
    branches = "\n".join(
        f"      b{n}: {{Call: {{block: run-worker, worker: mother, input: {{X: n{n}}}, output: R{n}}}}}"
        for n in range(4)
    )
    family.worker(
        "wide", f"steps:\n  Wide:\n    block: parallel\n    branches:\n{branches}\noutput: '{{{{R0}}}} {{{{R3}}}}'"
    )
    async with family.open(slots=1) as shift:
        assert await shift.result("wide") == "leaf n0 leaf n3"


async def test_no_more_runs_are_worked_on_than_there_are_slots(floor: Floor):
    floor.worker("slow", "steps: {Do: {block: command, command: 'sleep 0.1'}}\noutput: all done")
    async with floor.open(slots=2) as shift:
        runs = [await shift.dispatch("slow") for _ in range(6)]
        for run_id in runs:
            await shift.ended(run_id)
    marks: list[tuple[str, int]] = []
    for run_id in runs:
        for event in floor.events(run_id):
            if isinstance(event.payload, RunStarted):
                marks.append((event.timestamp, 1))
            elif isinstance(event.payload, RunCompleted):
                marks.append((event.timestamp, -1))
    at_once, most = 0, 0
    for _, change in sorted(marks):
        at_once += change
        most = max(most, at_once)
    assert most <= 2


async def test_a_sub_run_that_waits_can_be_cancelled_with_its_whole_tree(floor: Floor):
    floor.worker(
        "asks", "steps: {Ask: {block: tool-call, tool: ask, input: {question: 'Well?'}, output: Y}}\noutput: Y"
    )
    floor.worker("mother", "steps: {Call: {block: run-worker, worker: asks, output: Y}}\noutput: Y")
    floor.worker("grandmother", "steps: {Call: {block: run-worker, worker: mother, output: Y}}\noutput: Y")
    async with floor.open(slots=1) as shift:
        run_id = await shift.dispatch("grandmother")
        await shift.until(lambda: len(floor.run_ids()) == 3, "three runs")
        runs = floor.run_ids()
        await shift.until(lambda: any(event.type == "tool.call" for one in runs for event in floor.events(one)))
        await shift.cancel(run_id, "all of it")
        ends = [await shift.ended(one) for one in runs]
    assert [end.status for end in ends] == ["cancelled"] * 3


async def test_a_branch_that_fails_ends_the_command_of_another(floor: Floor):
    floor.worker(
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
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("quarrel"))
    assert outcome.error is not None
    assert outcome.error.message == "the command failed: exit code 3"
    assert outcome.duration_ms is not None
    assert outcome.duration_ms < 30_000


async def test_a_branch_that_fails_takes_the_sub_run_of_another_with_it(floor: Floor):
    floor.worker("long", "steps: {Do: {block: command, command: 'sleep 60'}}\noutput: all done")
    floor.worker(
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
    async with floor.open() as shift:
        run_id = await shift.dispatch("quarrel")
        assert (await shift.ended(run_id)).status == "failed"
        (child,) = {event.child_run_id for event in floor.events(run_id) if event.child_run_id}
        assert (await shift.ended(child)).status == "cancelled"
