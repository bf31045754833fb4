"""A worker that changes under a run: one in Python has it wait, one in YAML goes on as it began."""

import hashlib
import json
import textwrap
from pathlib import Path

import anyio
import pytest
from tests.engine.harness import EngineHarness, RunningEngine
from tests.engine.test_waiting_runs import ASKS, waits

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
"""Of which `asks` is another one."""
DONE = {"before": "once", "answer": "yes"}
HELPED = """
    from shopfloor import Run, worker

    def helper():
        return deeper("old")

    def deeper(said):
        return said

    def unrelated():
        return "old"

    @worker
    async def helped(run: Run):
        await run.ask("Shall we?")
        return helper()
"""


def held_calls(harness: EngineHarness, run_id: str) -> list[ToolCall]:
    """Every wait for a definition that the log tells of."""
    calls = [event.payload for event in harness.events(run_id) if isinstance(event.payload, ToolCall)]
    return [call for call in calls if call.awaits and call.awaits.kind == "definition_changed"]


async def held(engine: RunningEngine, run_id: str) -> ToolCall:
    """The wait for the definition, once the list shows it."""
    (call,) = await engine.wait_until(lambda: held_calls(engine.harness, run_id), "a wait for the definition")
    row = (await engine.row(run_id, "waiting")).row
    while not row.waits_for or row.waits_for[0] != "definition_changed":
        await anyio.sleep(0.01)
        row = (await engine.row(run_id, "waiting")).row
    return call


def attempts(harness: EngineHarness, run_id: str) -> int:
    return sum(isinstance(event.payload, RunStarted) for event in harness.events(run_id))


async def asked(harness: EngineHarness, worker: str = "asks") -> tuple[str, str]:
    """A run that waits for an answer and that no host has; and the call."""
    async with harness.open() as engine:
        run_id = await engine.dispatch(worker)
        return run_id, await waits(engine, run_id)


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
async def test_a_change_that_changes_nothing_of_what_a_worker_does_lets_its_run_go_on(harness: EngineHarness, change):
    source = textwrap.dedent(ASKS)
    harness.python("asks", source)
    run_id, call_id = await asked(harness)
    assert change(source) != source
    harness.python("asks", change(source))
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.ended(run_id)).result == DONE
    assert held_calls(harness, run_id) == []


@pytest.mark.req("TR-71")
async def test_a_run_whose_worker_has_changed_waits_and_goes_on_when_the_worker_is_back(harness: EngineHarness):
    harness.python("asks", ASKS)
    run_id, call_id = await asked(harness)
    harness.python("asks", CHANGED)
    async with harness.open(slots=1) as engine:
        await engine.answer(run_id, call_id, "yes")
        call = await held(engine, run_id)
        assert call.input["functions"] == ["asks"]
        assert "`asks`" in call.input["message"]
        # It holds no slot, and nobody is at it.
        harness.worker("other", "steps: {Do: {block: command, command: 'echo hi', output: SAID}}\noutput: SAID\n")
        assert await engine.result("other") == "hi"
        await engine.wait_until(lambda: not engine.scheduler.is_busy, "the run to be left")
        harness.python("asks", ASKS)
        assert (await engine.ended(run_id)).result == DONE
        await engine.row(run_id, "completed")
    events = harness.verified(run_id)
    results = [event.payload for event in events if isinstance(event.payload, ToolResult)]
    assert [result.call_id for result in results].count(call.call_id) == 1


@pytest.mark.req("TR-71")
async def test_an_answer_that_comes_while_the_worker_is_changed_is_kept_until_it_is_back(harness: EngineHarness):
    harness.python("asks", ASKS)
    run_id, call_id = await asked(harness)
    harness.python("asks", CHANGED)
    async with harness.open() as engine:
        await engine.service.resume(run_id)
        await held(engine, run_id)
        await engine.answer(run_id, call_id, "yes")
        await anyio.sleep(1.2)
        assert attempts(harness, run_id) == 2, "nobody goes on with it meanwhile"
        item = await engine.backend.store.get_run(run_id)
        assert item is not None
        assert call_id in item.answered
    # Also when the server is another one then.
    harness.python("asks", ASKS)
    async with harness.open() as engine:
        assert (await engine.ended(run_id)).result == DONE
    harness.verified(run_id)


@pytest.mark.req("TR-71")
async def test_a_run_that_waits_for_its_definition_can_be_cancelled_and_not_answered(harness: EngineHarness):
    harness.python("asks", ASKS)
    run_id, call_id = await asked(harness)
    harness.python("asks", CHANGED)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        call = await held(engine, run_id)
        with pytest.raises(ConflictError, match="definition"):
            await engine.answer(run_id, call.call_id, "nonsense")
        await engine.cancel(run_id, "not needed")
        outcome = await engine.ended(run_id)
        assert (outcome.status, outcome.error and outcome.error.message) == ("cancelled", "not needed")
        # The worker coming back is nothing to it any more.
        harness.python("asks", ASKS)
        await anyio.sleep(0.7)
    harness.verified(run_id)


@pytest.mark.req("TR-72")
async def test_a_server_that_starts_again_logs_the_wait_no_second_time(harness: EngineHarness):
    harness.python("asks", ASKS)
    run_id, call_id = await asked(harness)
    harness.python("asks", CHANGED)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        await held(engine, run_id)
    before = len(harness.events(run_id))
    for _ in range(2):
        async with harness.open() as engine:
            # Longer than it takes to see to runs that have no host.
            await anyio.sleep(1.3)
            await engine.row(run_id, "waiting")
    assert len(harness.events(run_id)) == before
    (harness.folder / "asks" / "worker.py").write_text("this is no Python")
    async with harness.open() as engine:
        await anyio.sleep(1.3)
        assert len(harness.events(run_id)) == before
        harness.python("asks", ASKS)
        assert (await engine.ended(run_id)).result == DONE


@pytest.mark.req("TR-71")
@pytest.mark.parametrize(
    ("change", "said"),
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
async def test_a_worker_that_is_gone_is_waited_for_too(harness: EngineHarness, change, said):
    harness.python("asks", ASKS)
    run_id, call_id = await asked(harness)
    file = harness.folder / "asks" / "worker.py"
    change(file)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        assert said in (await held(engine, run_id)).input["message"]
        file.with_name("worker.yaml").unlink(missing_ok=True)
        harness.python("asks", ASKS)
        assert (await engine.ended(run_id)).result == DONE


@pytest.mark.req("TR-71")
async def test_a_sub_run_waits_for_its_definition_and_its_parent_for_it(harness: EngineHarness):
    harness.python("asks", ASKS)
    harness.worker("calls", "steps: {Call: {block: run-worker, worker: asks, output: SAID}}\noutput: SAID\n")
    async with harness.open() as engine:
        parent = await engine.dispatch("calls")
        child = await engine.wait_until(
            lambda: next((one for one in harness.run_ids() if one != parent), None), "a sub-run"
        )
        call_id = await waits(engine, child)
    harness.python("asks", CHANGED)
    async with harness.open() as engine:
        await engine.answer(child, call_id, "yes")
        await held(engine, child)
        await engine.row(parent, "waiting")
        harness.python("asks", ASKS)
        assert (await engine.ended(parent)).result == DONE


@pytest.mark.req("TR-71")
async def test_a_sub_run_that_waits_for_its_definition_is_cancelled_with_its_parent(harness: EngineHarness):
    harness.python("asks", ASKS)
    harness.worker("calls", "steps: {Call: {block: run-worker, worker: asks, output: SAID}}\noutput: SAID\n")
    async with harness.open() as engine:
        parent = await engine.dispatch("calls")
        child = await engine.wait_until(
            lambda: next((one for one in harness.run_ids() if one != parent), None), "a sub-run"
        )
        call_id = await waits(engine, child)
    harness.python("asks", CHANGED)
    async with harness.open() as engine:
        await engine.answer(child, call_id, "yes")
        await held(engine, child)
        await engine.cancel(parent, "told to")
        for run_id in (parent, child):
            outcome = await engine.ended(run_id)
            assert (outcome.status, outcome.error and outcome.error.message) == ("cancelled", "told to")


@pytest.mark.req("TR-71")
async def test_a_worker_that_changes_before_its_queued_run_begins_is_waited_for(harness: EngineHarness):
    harness.python("asks", ASKS)
    harness.worker(
        "busy",
        "input: {GO: {}}\nsteps: {Do: {block: command, command: 'while [ ! -e {{GO}} ]; do sleep 0.05; done'}}\n",
    )
    go = harness.folder / "go"
    async with harness.open(slots=1) as engine:
        busy = await engine.dispatch("busy", GO=str(go))
        run_id = await engine.dispatch("asks")
        harness.python("asks", CHANGED)
        # Asked for anew, so that the host has the changed one at hand.
        other = await engine.dispatch("asks")
        go.touch()
        await engine.ended(busy)
        await held(engine, run_id)
        await waits(engine, other)
        harness.python("asks", ASKS)
        await engine.answer(run_id, await _question(engine, run_id), "yes")
        assert (await engine.ended(run_id)).result == DONE


async def _question(engine: RunningEngine, run_id: str) -> str:
    def call() -> str | None:
        calls = [event.payload for event in engine.harness.events(run_id) if isinstance(event.payload, ToolCall)]
        return next((one.call_id for one in calls if one.name == "ask"), None)

    return await engine.wait_until(call, "a question")


@pytest.mark.storages("memory", "files")
async def test_a_worker_in_yaml_that_has_changed_goes_on_as_the_run_began(harness: EngineHarness):
    harness.worker("asks", YAML % ("old", "old"))
    async with harness.open() as engine:
        run_id = await engine.dispatch("asks")
        call_id = await waits(engine, run_id)
    harness.worker("asks", YAML % ("new", "new"))
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "and")
        assert (await engine.ended(run_id)).result == "old and old"
        fresh = await engine.dispatch("asks")
        await engine.answer(fresh, await waits(engine, fresh), "and")
        assert (await engine.ended(fresh)).result == "new and new"
    hashes = {
        event.payload.definition_hash for event in harness.events(run_id) if isinstance(event.payload, RunStarted)
    }
    assert len(hashes - {None}) == 1


@pytest.mark.req("TR-71")
@pytest.mark.parametrize(
    ("change", "functions"),
    [
        (('deeper("old")', 'deeper("new")'), ["helper"]),
        (("return said", "return said.upper()"), ["deeper"]),
        (("def deeper", "def renamed"), ["deeper"]),
        (("return helper()", "return helper(), unrelated()"), ["helped"]),
    ],
)
async def test_the_wait_names_the_functions_that_changed(harness: EngineHarness, change, functions):
    harness.python("helped", HELPED)
    run_id, call_id = await asked(harness, "helped")
    harness.python("helped", HELPED.replace(*change))
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        call = await held(engine, run_id)
        assert call.input["functions"] == functions
        assert all(f"`{name}`" in call.input["message"] for name in functions)


def _rewrite_definition(harness: EngineHarness, run_id: str, change) -> None:
    """Writes the first event of a log anew, as another version of Shopfloor would have written it."""
    first, *rest = harness.lines(run_id)
    event = json.loads(first)
    change(event["payload"])
    harness.replace(run_id, [json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n", *rest])


def _as_first_versions(file: Path):
    def change(payload: dict) -> None:
        del payload["definition"]["functions"]
        payload["definition"]["sourceHash"] = hashlib.sha256(file.read_bytes()).hexdigest()
        payload["definition_hash"] = "00"

    return change


@pytest.mark.storages("memory", "files")
@pytest.mark.req("TR-73")
async def test_a_log_of_the_first_versions_goes_on_where_the_file_is_the_same_and_waits_where_it_is_not(
    harness: EngineHarness,
):
    harness.python("asks", ASKS)
    run_id, call_id = await asked(harness)
    _rewrite_definition(harness, run_id, _as_first_versions(harness.folder / "asks" / "worker.py"))
    # That hash is of the whole file: whether a comment alone differs, nobody can know.
    harness.python("asks", f"# A comment.\n{textwrap.dedent(ASKS)}")
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        call = await held(engine, run_id)
        assert call.input["functions"] == ["asks"]
        assert "file" in call.input["message"]
        harness.python("asks", ASKS)
        assert (await engine.ended(run_id)).result == DONE


@pytest.mark.req("TR-73")
async def test_a_log_whose_hashes_are_of_an_unknown_algorithm_waits_and_says_so(harness: EngineHarness):
    harness.python("asks", ASKS)
    run_id, call_id = await asked(harness)

    def change(payload: dict) -> None:
        payload["definition"]["functions"] = {"asks": "tokens99:00"}

    _rewrite_definition(harness, run_id, change)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        assert "tokens99" in (await held(engine, run_id)).input["message"]
        await engine.cancel(run_id)
        assert (await engine.ended(run_id)).status == "cancelled"
