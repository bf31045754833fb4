"""Runs that wait: for a client's tool, for a person. They hold no slot, and go on after any time."""

import anyio
import pytest
from tests.engine.floor import Floor, Shift

from shopfloor.errors import ConflictError, RunEnded, UnknownCall
from shopfloor.log import RunStarted, ToolCall, ToolResult

pytestmark = pytest.mark.anyio

ASKS = """
    from shopfloor import Run, worker

    @worker
    async def asks(run: Run, TIMEOUT: float = 0):
        before = await run.step("before", lambda: "once")
        answer = await run.ask("Shall we?", options=["yes", "no"], timeout=TIMEOUT or None)
        return {"before": before, "answer": answer}
"""
SEARCHES = """
    tools: {web-search: {description: Looks up., parameters: {type: object}}}
    steps: {Look: {block: tool-call, tool: web-search, input: {query: ants}, output: FOUND}}
    output: FOUND
"""


def waiting_call(floor: Floor, run_id: str) -> str | None:
    events = floor.events(run_id)
    answered = {event.payload.call_id for event in events if isinstance(event.payload, ToolResult)}
    calls = [event.payload for event in events if isinstance(event.payload, ToolCall)]
    return next((call.call_id for call in calls if call.call_id not in answered), None)


async def waits(shift: Shift, run_id: str) -> str:
    return await shift.until(lambda: waiting_call(shift.floor, run_id), "a call that waits")


async def test_a_question_waits_for_its_answer(floor: Floor):
    floor.python("asks", ASKS)
    async with floor.open() as shift:
        run_id = await shift.dispatch("asks")
        call_id = await waits(shift, run_id)
        await shift.row(run_id, "waiting")
        await shift.answer(run_id, call_id, "yes")
        assert (await shift.ended(run_id)).result == {"before": "once", "answer": "yes"}
        await shift.row(run_id, "completed")


async def test_a_run_that_waits_survives_its_host_and_is_answered_an_hour_later(floor: Floor):
    floor.python("asks", ASKS)
    async with floor.open() as shift:
        run_id = await shift.dispatch("asks")
        call_id = await waits(shift, run_id)
    async with floor.open() as shift:
        await shift.row(run_id, "waiting")
        await anyio.sleep(0.3)
        assert sum(isinstance(event.payload, RunStarted) for event in floor.events(run_id)) == 1, "nobody need touch it"
        await shift.answer(run_id, call_id, "no")
        assert (await shift.ended(run_id)).result == {"before": "once", "answer": "no"}
    steps = [event for event in floor.events(run_id) if event.type == "step.started"]
    assert len(steps) == 1


@pytest.mark.floors("memory", "files")
async def test_a_run_that_has_waited_long_is_let_go_and_taken_up_with_its_answer(floor: Floor):
    floor.worker("searches", SEARCHES)
    # Long enough for the answer to reach the second attempt before that one has waited long, too.
    async with floor.open(idle_seconds=1.0) as shift:
        run_id = await shift.dispatch("searches")
        call_id = await waits(shift, run_id)
        await shift.until(lambda: not shift.scheduler.busy, "that it is let go")
        await shift.answer(run_id, call_id, ["an ant"])
        assert (await shift.ended(run_id)).result == ["an ant"]
    assert [event.payload.attempt for event in floor.events(run_id) if isinstance(event.payload, RunStarted)] == [1, 2]


@pytest.mark.req("SF-28")
async def test_the_same_answer_twice_is_once_and_another_one_is_refused(floor: Floor):
    floor.worker("searches", SEARCHES)
    async with floor.open() as shift:
        run_id = await shift.dispatch("searches")
        call_id = await waits(shift, run_id)
        await shift.answer(run_id, call_id, 1)
        await shift.answer(run_id, call_id, 1)
        with pytest.raises(ConflictError, match="answered already"):
            await shift.answer(run_id, call_id, 2)
        assert (await shift.ended(run_id)).result == 1
        await shift.answer(run_id, call_id, 1)
        with pytest.raises(ConflictError, match="answered already"):
            await shift.answer(run_id, call_id, 3)
    assert sum(isinstance(event.payload, ToolResult) for event in floor.events(run_id)) == 1


async def test_a_result_for_a_call_that_nobody_made_is_refused(floor: Floor):
    floor.worker("searches", SEARCHES)
    async with floor.open() as shift:
        run_id = await shift.dispatch("searches")
        await waits(shift, run_id)
        with pytest.raises(UnknownCall, match="no call 'nonsense'"):
            await shift.answer(run_id, "nonsense", 1)


async def test_a_timeout_is_a_timeout_and_not_a_no(floor: Floor):
    floor.python("asks", ASKS)
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("asks", TIMEOUT=0.2))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "answer_timeout"


@pytest.mark.floors("memory", "files")
async def test_a_timeout_passes_while_no_host_is_there(floor: Floor):
    floor.python("asks", ASKS)
    async with floor.open() as shift:
        run_id = await shift.dispatch("asks", TIMEOUT=0.5)
        await waits(shift, run_id)
    await anyio.sleep(0.6)
    async with floor.open() as shift:
        outcome = await shift.ended(run_id)
    assert outcome.error is not None
    assert outcome.error.code == "answer_timeout"


async def test_many_runs_wait_without_a_slot(floor: Floor):
    floor.worker("searches", SEARCHES)
    async with floor.open(slots=1) as shift:
        runs = [await shift.dispatch("searches") for _ in range(5)]
        calls = [await waits(shift, run_id) for run_id in runs]
        for run_id, call_id in zip(reversed(runs), reversed(calls), strict=True):
            await shift.answer(run_id, call_id, run_id)
        for run_id in runs:
            assert (await shift.ended(run_id)).result == run_id


@pytest.mark.parametrize("state", ["waiting", "let go", "its host is gone"])
async def test_a_run_that_waits_can_be_cancelled(floor: Floor, state: str):
    floor.worker("searches", SEARCHES)
    async with floor.open(idle_seconds=0.0 if state == "let go" else 300.0) as shift:
        run_id = await shift.dispatch("searches")
        await waits(shift, run_id)
        await shift.row(run_id, "waiting")
        if state != "its host is gone":
            if state == "let go":
                await shift.until(lambda: not shift.scheduler.busy)
            await shift.cancel(run_id, "enough")
            assert (await shift.ended(run_id)).status == "cancelled"
    async with floor.open() as shift:
        if state == "its host is gone":
            await shift.cancel(run_id, "enough")
        outcome = await shift.ended(run_id)
        assert outcome.status == "cancelled"
        assert outcome.error is not None
        assert outcome.error.message == "enough"
        await shift.row(run_id, "cancelled")
        with pytest.raises(RunEnded):
            await shift.cancel(run_id)


async def test_nobody_can_answer_a_call_that_the_host_executes_itself(floor: Floor):
    (floor.folder / "slow").mkdir(parents=True)
    (floor.folder / "slow" / "tools.py").write_text(
        "import time\ndef slow(given):\n    time.sleep(1)\n    return 'real'\n"
    )
    floor.worker(
        "slow",
        """
        tools: {slow: {description: Takes a while., handler: 'tools.py:slow'}}
        steps: {Call: {block: tool-call, tool: slow, output: GOT}}
        output: GOT
        """,
    )
    async with floor.open() as shift:
        run_id = await shift.dispatch("slow")
        call_id = await waits(shift, run_id)
        with pytest.raises(UnknownCall):
            await shift.answer(run_id, call_id, "forged")
        assert (await shift.ended(run_id)).result == "real"


async def test_a_branch_that_was_cut_off_goes_on_while_another_waits(floor: Floor, tmp_path):
    floor.worker(
        "two-ways",
        f"""
        tools: {{look: {{description: Looks.}}}}
        steps:
          Both:
            block: parallel
            branches:
              waits: {{Look: {{block: tool-call, tool: look, output: SEEN}}}}
              works:
                Work:
                  block: command
                  command: 'echo x >> {tmp_path}/tries; test $(wc -l < {tmp_path}/tries) -ge 2 || sleep 60'
                  retry: {{limit: 3, delay: 0, always: true}}
                  output: DONE
        output: SEEN
        """,
    )
    async with floor.open() as shift:
        run_id = await shift.dispatch("two-ways")
        call_id = await waits(shift, run_id)
        await shift.until((tmp_path / "tries").exists, "the other branch's work")
    async with floor.open() as shift:
        await shift.until(lambda: (tmp_path / "tries").read_text() == "x\nx\n", "that it is tried again")
        await shift.answer(run_id, call_id, "seen")
        assert (await shift.ended(run_id)).result == "seen"


async def test_a_worker_that_calls_itself_comes_to_an_end(floor: Floor):
    floor.worker("again", "steps: {Call: {block: run-worker, worker: again}}")
    async with floor.open() as shift:
        outcome = await shift.ended(await shift.dispatch("again"))
    assert outcome.error is not None
    assert "is the most" in outcome.error.message
