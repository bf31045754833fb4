"""Workers that change during a run: a Python worker makes the run wait, a YAML worker continues as it started."""

import hashlib
import json
import textwrap
from pathlib import Path

import anyio
import pytest
from tests.engine.harness import EngineHarness, RunningEngine
from tests.engine.test_waiting_runs import ASKS, wait_for_pending_call

from shopfloor.errors import ConflictError
from shopfloor.log import RunStarted, ToolCall, ToolResult

pytestmark = pytest.mark.anyio

YAML = """
    steps:
      First: {block: command, command: 'echo %s', output: ONE}
      Ask: {block: tool-call, tool: ask, input: {question: 'Well?'}, output: SAID}
      Last: {block: command, command: 'echo %s', output: TWO}
    output: '{{ONE}} {{SAID}} {{TWO}}'
"""
CHANGED = ASKS.replace('"once"', '"twice"')
"""The same worker with another definition of `asks`."""
DONE = {"before": "once", "answer": "yes"}
HELPED = """
    from shopfloor import Run, worker

    def helper():
        return deeper("old")

    def deeper(text):
        return text

    def unrelated():
        return "old"

    @worker
    async def helped(run: Run):
        await run.ask("Shall we?")
        return helper()
"""


def definition_wait_calls(harness: EngineHarness, run_id: str) -> list[ToolCall]:
    """Return every wait for a definition in the log."""
    calls = [event.payload for event in harness.events(run_id) if isinstance(event.payload, ToolCall)]
    return [call for call in calls if call.awaits and call.awaits.kind == "definition_changed"]


async def wait_for_definition_wait(engine: RunningEngine, run_id: str) -> ToolCall:
    """Wait until the row shows that the run waits for its definition; return the call."""
    (call,) = await engine.wait_until(
        lambda: definition_wait_calls(engine.harness, run_id), "a wait for the definition"
    )
    row = (await engine.wait_for_status(run_id, "waiting")).row
    while not row.waits_for or row.waits_for[0] != "definition_changed":
        await anyio.sleep(0.01)
        row = (await engine.wait_for_status(run_id, "waiting")).row
    return call


def attempts(harness: EngineHarness, run_id: str) -> int:
    return sum(isinstance(event.payload, RunStarted) for event in harness.events(run_id))


async def start_and_stop_at_question(harness: EngineHarness, worker: str = "asks") -> tuple[str, str]:
    """Return a run without a host that waits for an answer, and the call."""
    async with harness.open() as engine:
        run_id = await engine.dispatch(worker)
        return run_id, await wait_for_pending_call(engine, run_id)


@pytest.mark.req("TR-70")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda source: f"# A comment.\n{source}", id="a comment"),
        pytest.param(lambda source: source.replace("    before =", "\n\n    # Why.\n    before ="), id="layout"),
        pytest.param(
            lambda source: source.replace(
                "(run: Run, TIMEOUT: float = 0)", "(\n    run: Run,\n    TIMEOUT: float = 0,\n)"
            ),
            id="line breaks",
        ),
        pytest.param(lambda source: source.replace("    before =", '    """Asks."""\n    before ='), id="a docstring"),
        pytest.param(lambda source: f"{source}\ndef unrelated():\n    return 1\n", id="a function it does not use"),
        pytest.param(lambda source: source.replace("Run, worker", "worker, Run, tool"), id="an import it does not use"),
    ],
)
async def test_a_run_continues_after_a_change_that_does_not_affect_its_worker(harness: EngineHarness, change):
    source = textwrap.dedent(ASKS)
    harness.add_python_worker("asks", source)
    run_id, call_id = await start_and_stop_at_question(harness)
    assert change(source) != source
    harness.add_python_worker("asks", change(source))
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.wait_for_outcome(run_id)).result == DONE
    assert definition_wait_calls(harness, run_id) == []


@pytest.mark.req("TR-71")
async def test_a_run_whose_worker_has_changed_waits_and_continues_when_the_worker_is_back(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    run_id, call_id = await start_and_stop_at_question(harness)
    harness.add_python_worker("asks", CHANGED)
    async with harness.open(slots=1) as engine:
        await engine.answer(run_id, call_id, "yes")
        call = await wait_for_definition_wait(engine, run_id)
        assert call.input["functions"] == ["asks"]
        assert "`asks`" in call.input["message"]
        # The run holds no slot and is not being executed.
        harness.add_worker("other", "steps: {Do: {block: command, command: 'echo hi', output: SAID}}\noutput: SAID\n")
        assert await engine.run_worker("other") == "hi"
        await engine.wait_until(lambda: not engine.scheduler.is_busy, "the run to be suspended")
        harness.add_python_worker("asks", ASKS)
        assert (await engine.wait_for_outcome(run_id)).result == DONE
        await engine.wait_for_status(run_id, "completed")
    events = harness.verified_events(run_id)
    results = [event.payload for event in events if isinstance(event.payload, ToolResult)]
    assert [result.call_id for result in results].count(call.call_id) == 1


@pytest.mark.req("TR-71")
async def test_an_answer_that_comes_while_the_worker_is_changed_is_kept_until_it_is_back(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    run_id, call_id = await start_and_stop_at_question(harness)
    harness.add_python_worker("asks", CHANGED)
    async with harness.open() as engine:
        await engine.service.resume(run_id)
        await wait_for_definition_wait(engine, run_id)
        await engine.answer(run_id, call_id, "yes")
        await anyio.sleep(1.2)
        assert attempts(harness, run_id) == 2, "the run is not resumed meanwhile"
        item = await engine.backend.store.get_run(run_id)
        assert item is not None
        assert call_id in item.answered
    # Also by another server.
    harness.add_python_worker("asks", ASKS)
    async with harness.open() as engine:
        assert (await engine.wait_for_outcome(run_id)).result == DONE
    harness.verified_events(run_id)


@pytest.mark.req("TR-71")
async def test_a_run_that_waits_for_its_definition_can_be_cancelled_and_not_answered(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    run_id, call_id = await start_and_stop_at_question(harness)
    harness.add_python_worker("asks", CHANGED)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        call = await wait_for_definition_wait(engine, run_id)
        with pytest.raises(ConflictError, match="waits until its worker is restored"):
            await engine.answer(run_id, call.call_id, "nonsense")
        await engine.cancel(run_id, "not needed")
        outcome = await engine.wait_for_outcome(run_id)
        assert (outcome.status, outcome.error and outcome.error.message) == ("cancelled", "not needed")
        # Restoring the worker has no effect any more.
        harness.add_python_worker("asks", ASKS)
        await anyio.sleep(0.7)
    harness.verified_events(run_id)


@pytest.mark.req("TR-72")
async def test_a_server_that_starts_again_logs_the_wait_no_second_time(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    run_id, call_id = await start_and_stop_at_question(harness)
    harness.add_python_worker("asks", CHANGED)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        await wait_for_definition_wait(engine, run_id)
    before = len(harness.events(run_id))
    for _ in range(2):
        async with harness.open() as engine:
            # Longer than the interval of the check for runs without a host.
            await anyio.sleep(1.3)
            await engine.wait_for_status(run_id, "waiting")
    assert len(harness.events(run_id)) == before
    (harness.folder / "asks" / "worker.py").write_text("this is no Python")
    async with harness.open() as engine:
        await anyio.sleep(1.3)
        assert len(harness.events(run_id)) == before
        harness.add_python_worker("asks", ASKS)
        assert (await engine.wait_for_outcome(run_id)).result == DONE


@pytest.mark.req("TR-71")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda file: file.unlink(), "there is no worker `asks` any more", id="deleted"),
        pytest.param(lambda file: file.write_text("import no_such_module_"), "cannot be loaded", id="not importable"),
        pytest.param(
            lambda file: (
                file.with_name("worker.yaml").write_text("steps: {Do: {block: command, command: ls}}\n"),
                file.unlink(),
            ),
            "no longer written in Python",
            id="in YAML now",
        ),
    ],
)
async def test_a_run_waits_for_a_missing_worker_too(harness: EngineHarness, change, message):
    harness.add_python_worker("asks", ASKS)
    run_id, call_id = await start_and_stop_at_question(harness)
    file = harness.folder / "asks" / "worker.py"
    change(file)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        assert message in (await wait_for_definition_wait(engine, run_id)).input["message"]
        file.with_name("worker.yaml").unlink(missing_ok=True)
        harness.add_python_worker("asks", ASKS)
        assert (await engine.wait_for_outcome(run_id)).result == DONE


@pytest.mark.req("TR-71")
async def test_a_sub_run_waits_for_its_definition_and_its_parent_for_it(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    harness.add_worker("calls", "steps: {Call: {block: run-worker, worker: asks, output: SAID}}\noutput: SAID\n")
    async with harness.open() as engine:
        parent = await engine.dispatch("calls")
        child = await engine.wait_until(
            lambda: next((run_id for run_id in harness.run_ids() if run_id != parent), None), "a sub-run"
        )
        call_id = await wait_for_pending_call(engine, child)
    harness.add_python_worker("asks", CHANGED)
    async with harness.open() as engine:
        await engine.answer(child, call_id, "yes")
        await wait_for_definition_wait(engine, child)
        await engine.wait_for_status(parent, "waiting")
        harness.add_python_worker("asks", ASKS)
        assert (await engine.wait_for_outcome(parent)).result == DONE


@pytest.mark.req("TR-71")
async def test_a_sub_run_that_waits_for_its_definition_is_cancelled_with_its_parent(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    harness.add_worker("calls", "steps: {Call: {block: run-worker, worker: asks, output: SAID}}\noutput: SAID\n")
    async with harness.open() as engine:
        parent = await engine.dispatch("calls")
        child = await engine.wait_until(
            lambda: next((run_id for run_id in harness.run_ids() if run_id != parent), None), "a sub-run"
        )
        call_id = await wait_for_pending_call(engine, child)
    harness.add_python_worker("asks", CHANGED)
    async with harness.open() as engine:
        await engine.answer(child, call_id, "yes")
        await wait_for_definition_wait(engine, child)
        await engine.cancel(parent, "not needed")
        for run_id in (parent, child):
            outcome = await engine.wait_for_outcome(run_id)
            assert (outcome.status, outcome.error and outcome.error.message) == ("cancelled", "not needed")


@pytest.mark.req("TR-71")
async def test_a_queued_run_waits_for_a_worker_that_changed_before_its_start(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    harness.add_worker(
        "busy",
        "input: {GO: {}}\nsteps: {Do: {block: command, command: 'while [ ! -e {{GO}} ]; do sleep 0.05; done'}}\n",
    )
    go = harness.folder / "go"
    async with harness.open(slots=1) as engine:
        busy = await engine.dispatch("busy", GO=str(go))
        run_id = await engine.dispatch("asks")
        harness.add_python_worker("asks", CHANGED)
        # Dispatched again, so that the host has loaded the changed worker.
        other = await engine.dispatch("asks")
        go.touch()
        await engine.wait_for_outcome(busy)
        await wait_for_definition_wait(engine, run_id)
        await wait_for_pending_call(engine, other)
        harness.add_python_worker("asks", ASKS)
        await engine.answer(run_id, await _question(engine, run_id), "yes")
        assert (await engine.wait_for_outcome(run_id)).result == DONE


async def _question(engine: RunningEngine, run_id: str) -> str:
    def call() -> str | None:
        calls = [event.payload for event in engine.harness.events(run_id) if isinstance(event.payload, ToolCall)]
        return next((one.call_id for one in calls if one.name == "ask"), None)

    return await engine.wait_until(call, "a question")


@pytest.mark.storages("memory", "files")
async def test_a_run_of_a_changed_yaml_worker_continues_as_it_started(harness: EngineHarness):
    harness.add_worker("asks", YAML % ("old", "old"))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        call_id = await wait_for_pending_call(engine, run_id)
    harness.add_worker("asks", YAML % ("new", "new"))
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "and")
        assert (await engine.wait_for_outcome(run_id)).result == "old and old"
        fresh = await engine.dispatch("asks")
        await engine.answer(fresh, await wait_for_pending_call(engine, fresh), "and")
        assert (await engine.wait_for_outcome(fresh)).result == "new and new"
    hashes = {
        event.payload.definition_hash for event in harness.events(run_id) if isinstance(event.payload, RunStarted)
    }
    assert len(hashes - {None}) == 1


@pytest.mark.req("TR-71")
@pytest.mark.parametrize(
    ("change", "functions"),
    [
        (('deeper("old")', 'deeper("new")'), ["helper"]),
        (("return text", "return text.upper()"), ["deeper"]),
        (("def deeper", "def renamed"), ["deeper"]),
        (("return helper()", "return helper(), unrelated()"), ["helped"]),
    ],
)
async def test_the_wait_names_the_functions_that_changed(harness: EngineHarness, change, functions):
    harness.add_python_worker("helped", HELPED)
    run_id, call_id = await start_and_stop_at_question(harness, "helped")
    harness.add_python_worker("helped", HELPED.replace(*change))
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        call = await wait_for_definition_wait(engine, run_id)
        assert call.input["functions"] == functions
        assert all(f"`{name}`" in call.input["message"] for name in functions)


def _rewrite_definition(harness: EngineHarness, run_id: str, change) -> None:
    """Rewrite the first event of a log, as another version of Shopfloor would have written it."""
    first, *rest = harness.lines(run_id)
    event = json.loads(first)
    change(event["payload"])
    harness.replace_log(run_id, [json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n", *rest])


def _as_first_versions(file: Path):
    def change(payload: dict) -> None:
        del payload["definition"]["functions"]
        payload["definition"]["sourceHash"] = hashlib.sha256(file.read_bytes()).hexdigest()
        payload["definition_hash"] = "00"

    return change


@pytest.mark.storages("memory", "files")
@pytest.mark.req("TR-73")
async def test_a_log_of_the_first_versions_continues_with_the_same_file_and_waits_with_another(
    harness: EngineHarness,
):
    harness.add_python_worker("asks", ASKS)
    run_id, call_id = await start_and_stop_at_question(harness)
    _rewrite_definition(harness, run_id, _as_first_versions(harness.folder / "asks" / "worker.py"))
    # The hash is of the whole file: a changed comment cannot be told from changed code.
    harness.add_python_worker("asks", f"# A comment.\n{textwrap.dedent(ASKS)}")
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        call = await wait_for_definition_wait(engine, run_id)
        assert call.input["functions"] == ["asks"]
        assert "file" in call.input["message"]
        harness.add_python_worker("asks", ASKS)
        assert (await engine.wait_for_outcome(run_id)).result == DONE


@pytest.mark.req("TR-73")
async def test_a_log_with_hashes_of_an_unknown_algorithm_waits_and_names_the_algorithm(harness: EngineHarness):
    harness.add_python_worker("asks", ASKS)
    run_id, call_id = await start_and_stop_at_question(harness)

    def change(payload: dict) -> None:
        payload["definition"]["functions"] = {"asks": "tokens99:00"}

    _rewrite_definition(harness, run_id, change)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        assert "tokens99" in (await wait_for_definition_wait(engine, run_id)).input["message"]
        await engine.cancel(run_id)
        assert (await engine.wait_for_outcome(run_id)).status == "cancelled"
