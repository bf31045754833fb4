"""Runs that wait: for a client's tool, for a person. They hold no slot, and go on after any time."""

import anyio
import pytest
from tests.engine.harness import EngineHarness, RunningEngine

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


def waiting_call(harness: EngineHarness, run_id: str) -> str | None:
    events = harness.events(run_id)
    answered = {event.payload.call_id for event in events if isinstance(event.payload, ToolResult)}
    calls = [event.payload for event in events if isinstance(event.payload, ToolCall)]
    return next((call.call_id for call in calls if call.call_id not in answered), None)


async def waits(engine: RunningEngine, run_id: str) -> str:
    return await engine.wait_until(lambda: waiting_call(engine.harness, run_id), "a call that waits")


async def test_a_question_waits_for_its_answer(harness: EngineHarness):
    harness.python("asks", ASKS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        call_id = await waits(engine, run_id)
        await engine.row(run_id, "waiting")
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.ended(run_id)).result == {"before": "once", "answer": "yes"}
        await engine.row(run_id, "completed")


async def test_a_run_that_waits_survives_its_host_and_is_answered_an_hour_later(harness: EngineHarness):
    harness.python("asks", ASKS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        call_id = await waits(engine, run_id)
    async with harness.open() as engine:
        await engine.row(run_id, "waiting")
        await anyio.sleep(0.3)
        assert sum(isinstance(event.payload, RunStarted) for event in harness.events(run_id)) == 1, (
            "nobody need touch it"
        )
        await engine.answer(run_id, call_id, "no")
        assert (await engine.ended(run_id)).result == {"before": "once", "answer": "no"}
    steps = [event for event in harness.events(run_id) if event.type == "step.started"]
    assert len(steps) == 1


@pytest.mark.storages("memory", "files")
async def test_a_run_that_has_waited_long_is_let_go_and_taken_up_with_its_answer(harness: EngineHarness):
    harness.worker("searches", SEARCHES)
    # Long enough for the answer to reach the second attempt before that one has waited long, too.
    async with harness.open(idle_seconds=1.0) as engine:
        run_id = await engine.dispatch("searches")
        call_id = await waits(engine, run_id)
        await engine.wait_until(lambda: not engine.scheduler.is_busy, "that it is let go")
        await engine.answer(run_id, call_id, ["an ant"])
        assert (await engine.ended(run_id)).result == ["an ant"]
    assert [event.payload.attempt for event in harness.events(run_id) if isinstance(event.payload, RunStarted)] == [
        1,
        2,
    ]


@pytest.mark.req("SF-28")
async def test_the_same_answer_twice_is_once_and_another_one_is_refused(harness: EngineHarness):
    harness.worker("searches", SEARCHES)
    async with harness.open() as engine:
        run_id = await engine.dispatch("searches")
        call_id = await waits(engine, run_id)
        await engine.answer(run_id, call_id, 1)
        await engine.answer(run_id, call_id, 1)
        with pytest.raises(ConflictError, match="answered already"):
            await engine.answer(run_id, call_id, 2)
        assert (await engine.ended(run_id)).result == 1
        await engine.answer(run_id, call_id, 1)
        with pytest.raises(ConflictError, match="answered already"):
            await engine.answer(run_id, call_id, 3)
    assert sum(isinstance(event.payload, ToolResult) for event in harness.events(run_id)) == 1


async def test_a_result_for_a_call_that_nobody_made_is_refused(harness: EngineHarness):
    harness.worker("searches", SEARCHES)
    async with harness.open() as engine:
        run_id = await engine.dispatch("searches")
        await waits(engine, run_id)
        with pytest.raises(UnknownCall, match="no call 'nonsense'"):
            await engine.answer(run_id, "nonsense", 1)


async def test_a_timeout_is_a_timeout_and_not_a_no(harness: EngineHarness):
    harness.python("asks", ASKS)
    async with harness.open() as engine:
        outcome = await engine.ended(await engine.dispatch("asks", TIMEOUT=0.2))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "answer_timeout"


@pytest.mark.storages("memory", "files")
async def test_a_timeout_passes_while_no_host_is_there(harness: EngineHarness):
    harness.python("asks", ASKS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks", TIMEOUT=0.5)
        await waits(engine, run_id)
    await anyio.sleep(0.6)
    async with harness.open() as engine:
        outcome = await engine.ended(run_id)
    assert outcome.error is not None
    assert outcome.error.code == "answer_timeout"


async def test_many_runs_wait_without_a_slot(harness: EngineHarness):
    harness.worker("searches", SEARCHES)
    async with harness.open(slots=1) as engine:
        runs = [await engine.dispatch("searches") for _ in range(5)]
        calls = [await waits(engine, run_id) for run_id in runs]
        for run_id, call_id in zip(reversed(runs), reversed(calls), strict=True):
            await engine.answer(run_id, call_id, run_id)
        for run_id in runs:
            assert (await engine.ended(run_id)).result == run_id


@pytest.mark.parametrize("state", ["waiting", "let go", "its host is gone"])
async def test_a_run_that_waits_can_be_cancelled(harness: EngineHarness, state: str):
    harness.worker("searches", SEARCHES)
    async with harness.open(idle_seconds=0.0 if state == "let go" else 300.0) as engine:
        run_id = await engine.dispatch("searches")
        await waits(engine, run_id)
        await engine.row(run_id, "waiting")
        if state != "its host is gone":
            if state == "let go":
                await engine.wait_until(lambda: not engine.scheduler.is_busy)
            await engine.cancel(run_id, "enough")
            assert (await engine.ended(run_id)).status == "cancelled"
    async with harness.open() as engine:
        if state == "its host is gone":
            await engine.cancel(run_id, "enough")
        outcome = await engine.ended(run_id)
        assert outcome.status == "cancelled"
        assert outcome.error is not None
        assert outcome.error.message == "enough"
        await engine.row(run_id, "cancelled")
        with pytest.raises(RunEnded):
            await engine.cancel(run_id)


async def test_nobody_can_answer_a_call_that_the_host_executes_itself(harness: EngineHarness):
    (harness.folder / "slow").mkdir(parents=True)
    (harness.folder / "slow" / "tools.py").write_text(
        "import time\ndef slow(given):\n    time.sleep(1)\n    return 'real'\n"
    )
    harness.worker(
        "slow",
        """
        tools: {slow: {description: Takes a while., handler: 'tools.py:slow'}}
        steps: {Call: {block: tool-call, tool: slow, output: GOT}}
        output: GOT
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("slow")
        call_id = await waits(engine, run_id)
        with pytest.raises(UnknownCall):
            await engine.answer(run_id, call_id, "forged")
        assert (await engine.ended(run_id)).result == "real"


async def test_a_branch_that_was_cut_off_goes_on_while_another_waits(harness: EngineHarness, tmp_path):
    harness.worker(
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
    async with harness.open() as engine:
        run_id = await engine.dispatch("two-ways")
        call_id = await waits(engine, run_id)
        await engine.wait_until((tmp_path / "tries").exists, "the other branch's work")
    async with harness.open() as engine:
        await engine.wait_until(lambda: (tmp_path / "tries").read_text() == "x\nx\n", "that it is tried again")
        await engine.answer(run_id, call_id, "seen")
        assert (await engine.ended(run_id)).result == "seen"


async def test_a_worker_that_calls_itself_comes_to_an_end(harness: EngineHarness):
    harness.worker("again", "steps: {Call: {block: run-worker, worker: again}}")
    async with harness.open() as engine:
        outcome = await engine.ended(await engine.dispatch("again"))
    assert outcome.error is not None
    assert "the maximum is" in outcome.error.message
