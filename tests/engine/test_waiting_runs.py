"""Runs that wait for the tool of a client or for a person: they hold no slot and can continue at any time."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import pytest
from tests.engine.harness import EngineHarness, RunningEngine

from shopfloor.errors import ConflictError, RunEnded, UnknownCall
from shopfloor.log import Entry, RunStarted, ToolCall, ToolResult
from shopfloor.ports import LogReader
from shopfloor.wiring import StorageBackend

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


def find_pending_call(harness: EngineHarness, run_id: str) -> str | None:
    events = harness.events(run_id)
    answered = {event.payload.call_id for event in events if isinstance(event.payload, ToolResult)}
    calls = [event.payload for event in events if isinstance(event.payload, ToolCall)]
    return next((call.call_id for call in calls if call.call_id not in answered), None)


async def wait_for_pending_call(engine: RunningEngine, run_id: str) -> str:
    return await engine.wait_until(lambda: find_pending_call(engine.harness, run_id), "a call that waits")


async def test_a_question_waits_for_its_answer(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        call_id = await wait_for_pending_call(engine, run_id)
        await engine.wait_for_status(run_id, "waiting")
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.wait_for_outcome(run_id)).result == {"before": "once", "answer": "yes"}
        await engine.wait_for_status(run_id, "completed")


async def test_a_run_that_waits_survives_its_host_and_is_answered_an_hour_later(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        call_id = await wait_for_pending_call(engine, run_id)
    async with harness.open() as engine:
        await engine.wait_for_status(run_id, "waiting")
        await anyio.sleep(0.3)
        assert sum(isinstance(event.payload, RunStarted) for event in harness.events(run_id)) == 1, (
            "no host needs to resume the run"
        )
        await engine.answer(run_id, call_id, "no")
        assert (await engine.wait_for_outcome(run_id)).result == {"before": "once", "answer": "no"}
    steps = [event for event in harness.events(run_id) if event.type == "step.started"]
    assert len(steps) == 1


@pytest.mark.storages("memory", "files")
async def test_a_run_that_is_idle_for_long_is_suspended_and_resumed_with_its_answer(harness: EngineHarness):
    harness.add_worker("searches", SEARCHES)
    # Long enough for the answer to reach the second attempt before that one is suspended too.
    async with harness.open(idle_seconds=1.0) as engine:
        run_id = await engine.dispatch("searches")
        call_id = await wait_for_pending_call(engine, run_id)
        await engine.wait_until(lambda: not engine.scheduler.is_busy, "the suspension")
        await engine.answer(run_id, call_id, ["an ant"])
        assert (await engine.wait_for_outcome(run_id)).result == ["an ant"]
    assert [event.payload.attempt for event in harness.events(run_id) if isinstance(event.payload, RunStarted)] == [
        1,
        2,
    ]


@pytest.mark.req("SF-28")
async def test_repeating_an_answer_is_allowed_and_another_answer_is_refused(harness: EngineHarness):
    harness.add_worker("searches", SEARCHES)
    async with harness.open() as engine:
        run_id = await engine.dispatch("searches")
        call_id = await wait_for_pending_call(engine, run_id)
        await engine.answer(run_id, call_id, 1)
        await engine.answer(run_id, call_id, 1)
        with pytest.raises(ConflictError, match="answered already"):
            await engine.answer(run_id, call_id, 2)
        assert (await engine.wait_for_outcome(run_id)).result == 1
        await engine.answer(run_id, call_id, 1)
        with pytest.raises(ConflictError, match="answered already"):
            await engine.answer(run_id, call_id, 3)
    assert sum(isinstance(event.payload, ToolResult) for event in harness.events(run_id)) == 1


async def test_a_result_for_an_unknown_call_is_refused(harness: EngineHarness):
    harness.add_worker("searches", SEARCHES)
    async with harness.open() as engine:
        run_id = await engine.dispatch("searches")
        await wait_for_pending_call(engine, run_id)
        with pytest.raises(UnknownCall, match="no call 'nonsense'"):
            await engine.answer(run_id, "nonsense", 1)


async def test_a_timeout_is_an_error_and_not_an_answer(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("asks", TIMEOUT=0.2))
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.code == "answer_timeout"


@pytest.mark.storages("memory", "files")
async def test_a_timeout_passes_while_no_host_is_running(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks", TIMEOUT=0.5)
        await wait_for_pending_call(engine, run_id)
    await anyio.sleep(0.6)
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(run_id)
    assert outcome.error is not None
    assert outcome.error.code == "answer_timeout"


async def test_many_runs_wait_without_a_slot(harness: EngineHarness):
    harness.add_worker("searches", SEARCHES)
    async with harness.open(slots=1) as engine:
        runs = [await engine.dispatch("searches") for _ in range(5)]
        calls = [await wait_for_pending_call(engine, run_id) for run_id in runs]
        for run_id, call_id in zip(reversed(runs), reversed(calls), strict=True):
            await engine.answer(run_id, call_id, run_id)
        for run_id in runs:
            assert (await engine.wait_for_outcome(run_id)).result == run_id


@pytest.mark.parametrize("state", ["waiting", "suspended", "host lost"])
async def test_a_run_that_waits_can_be_cancelled(harness: EngineHarness, state: str):
    harness.add_worker("searches", SEARCHES)
    async with harness.open(idle_seconds=0.0 if state == "suspended" else 300.0) as engine:
        run_id = await engine.dispatch("searches")
        await wait_for_pending_call(engine, run_id)
        await engine.wait_for_status(run_id, "waiting")
        if state != "host lost":
            if state == "suspended":
                await engine.wait_until(lambda: not engine.scheduler.is_busy)
            await engine.cancel(run_id, "enough")
            assert (await engine.wait_for_outcome(run_id)).status == "cancelled"
    async with harness.open() as engine:
        if state == "host lost":
            await engine.cancel(run_id, "enough")
        outcome = await engine.wait_for_outcome(run_id)
        assert outcome.status == "cancelled"
        assert outcome.error is not None
        assert outcome.error.message == "enough"
        await engine.wait_for_status(run_id, "cancelled")
        with pytest.raises(RunEnded):
            await engine.cancel(run_id)


async def test_a_call_that_the_host_executes_itself_cannot_be_answered(harness: EngineHarness):
    (harness.folder / "slow").mkdir(parents=True)
    (harness.folder / "slow" / "tools.py").write_text(
        "import time\ndef slow(given):\n    time.sleep(1)\n    return 'real'\n"
    )
    harness.add_worker(
        "slow",
        """
        tools: {slow: {description: Takes a while., handler: 'tools.py:slow'}}
        steps: {Call: {block: tool-call, tool: slow, output: GOT}}
        output: GOT
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("slow")
        call_id = await wait_for_pending_call(engine, run_id)
        with pytest.raises(UnknownCall):
            await engine.answer(run_id, call_id, "forged")
        assert (await engine.wait_for_outcome(run_id)).result == "real"


async def test_an_interrupted_branch_is_resumed_while_another_waits(harness: EngineHarness, tmp_path):
    harness.add_worker(
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
        call_id = await wait_for_pending_call(engine, run_id)
        await engine.wait_until((tmp_path / "tries").exists, "the other branch's work")
    async with harness.open() as engine:
        await engine.wait_until(lambda: (tmp_path / "tries").read_text() == "x\nx\n", "the second try")
        await engine.answer(run_id, call_id, "seen")
        assert (await engine.wait_for_outcome(run_id)).result == "seen"


async def test_a_worker_that_calls_itself_ends(harness: EngineHarness):
    harness.add_worker("again", "steps: {Call: {block: run-worker, worker: again}}")
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("again"))
    assert outcome.error is not None
    assert "the maximum is" in outcome.error.message


class CountingReader:
    """A reader that counts how often a whole log is read."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self.whole: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def batches(self, run_id: str, *, after: int = 0) -> AsyncIterator[list[Entry]]:
        self.whole += [run_id] if after == 0 else []
        return self._reader.batches(run_id, after=after)


@pytest.mark.req("SF-67")
async def test_asking_whether_a_run_may_be_resumed_reads_its_log_once(harness: EngineHarness):
    readers: list[CountingReader] = []

    def count_reads(backend: StorageBackend) -> StorageBackend:
        readers.append(CountingReader(backend.reader))
        return msgspec.structs.replace(backend, reader=readers[-1])

    harness.add_python_worker("asks", ASKS)
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        call_id = await wait_for_pending_call(engine, run_id)
    async with harness.open(wrap_adapters=count_reads) as engine:
        await engine.wait_for_status(run_id, "waiting")
        assert await engine.service.resume_refusal(run_id) is None
        before = readers[0].whole.count(run_id)
        for _ in range(3):
            assert await engine.service.resume_refusal(run_id) is None
        assert readers[0].whole.count(run_id) == before
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.wait_for_outcome(run_id)).result == {"before": "once", "answer": "yes"}
