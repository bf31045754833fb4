"""A worker that changes under a run: one in Python ends it, one in YAML goes on as it began."""

import pytest
from tests.engine.floor import Floor
from tests.engine.test_waiting import ASKS, waits

from shopfloor.log import RunStarted

pytestmark = pytest.mark.anyio

YAML = """
    steps:
      First: {block: command, command: 'echo %s', output: ONE}
      Ask: {block: tool-call, tool: ask, input: {question: 'Well?'}, output: SAID}
      Last: {block: command, command: 'echo %s', output: TWO}
    output: '{{ONE}} {{SAID}} {{TWO}}'
"""


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_worker_in_python_that_has_changed_does_not_go_on_with_a_run(floor: Floor, restarted: bool):
    floor.python("asks", ASKS)
    async with floor.open(idle_seconds=0.0) as shift:
        run_id = await shift.dispatch("asks")
        call_id = await waits(shift, run_id)
        await shift.until(lambda: not shift.host.busy, "the run to be let go")
        floor.python("asks", ASKS.replace('"once"', '"twice"'))
        if not restarted:
            await shift.answer(run_id, call_id, "yes")
            await shift.ended(run_id)
    async with floor.open() as shift:
        if restarted:
            await shift.answer(run_id, call_id, "yes")
        outcome = await shift.ended(run_id)
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "definition_changed"
    assert "asks" in outcome.error.message


async def test_a_worker_in_python_that_is_put_back_goes_on(floor: Floor):
    floor.python("asks", ASKS)
    async with floor.open() as shift:
        run_id = await shift.dispatch("asks")
        call_id = await waits(shift, run_id)
    floor.python("asks", ASKS.replace('"once"', '"twice"'))
    floor.python("asks", ASKS)
    async with floor.open() as shift:
        await shift.answer(run_id, call_id, "yes")
        assert (await shift.ended(run_id)).result == {"before": "once", "answer": "yes"}


async def test_a_worker_in_yaml_that_has_changed_goes_on_as_the_run_began(floor: Floor):
    floor.worker("asks", YAML % ("old", "old"))
    async with floor.open() as shift:
        run_id = await shift.dispatch("asks")
        call_id = await waits(shift, run_id)
    floor.worker("asks", YAML % ("new", "new"))
    async with floor.open() as shift:
        await shift.answer(run_id, call_id, "and")
        assert (await shift.ended(run_id)).result == "old and old"
        fresh = await shift.dispatch("asks")
        await shift.answer(fresh, await waits(shift, fresh), "and")
        assert (await shift.ended(fresh)).result == "new and new"
    hashes = {event.payload.definition_hash for event in floor.events(run_id) if isinstance(event.payload, RunStarted)}
    assert len(hashes - {None}) == 1


async def test_a_worker_in_python_whose_helper_has_changed_does_not_go_on_with_a_run(floor: Floor):
    source = """
        from shopfloor import Run, worker

        def helper():
            return "old"

        @worker
        async def helped(run: Run):
            await run.ask("Shall we?")
            return helper()
    """
    floor.python("helped", source)
    async with floor.open() as shift:
        run_id = await shift.dispatch("helped")
        call_id = await waits(shift, run_id)
    floor.python("helped", source.replace('"old"', '"new"'))
    async with floor.open() as shift:
        await shift.answer(run_id, call_id, "yes")
        outcome = await shift.ended(run_id)
    assert outcome.error is not None
    assert outcome.error.code == "definition_changed"
