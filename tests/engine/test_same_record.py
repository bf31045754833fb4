"""Plain commands, YAML workers and Python workers share one implementation: the same step has the same record."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.harness import EngineHarness
from tests.engine.test_waiting_runs import wait_for_pending_call

from shopfloor.adapters.local import LocalProcesses
from shopfloor.engine import Cancellation, CommandRequest, StepCommand, run_command, shell_argv
from shopfloor.log import StepCompleted, UserMessage, new_run_id
from shopfloor.ports import RunRequest

pytestmark = pytest.mark.anyio

# Each script uses one stream: the order of events between two streams is undefined.
SCRIPTS = {"well": "echo out", "stderr": "echo err >&2", "badly": "echo before; exit 3", "killed": "kill -KILL $$"}


def command_steps(harness: EngineHarness, run_id: str) -> list[dict[str, Any]]:
    """Return all events of the steps of a run, without the fields that differ from run to run."""
    events: list[dict[str, Any]] = []
    for event in harness.events(run_id):
        payload = msgspec.to_builtins(event.payload)
        payload.pop("duration_ms", None)
        if "process" in payload:
            payload["process"].pop("pid")
        if event.path:
            events.append({"type": event.type, "path": event.path, "iteration": event.iteration, "payload": payload})
    return events


def end_of_step(harness: EngineHarness, run_id: str, name: str) -> StepCompleted:
    (ended,) = (
        event.payload
        for event in harness.events(run_id)
        if isinstance(event.payload, StepCompleted) and event.payload.name == name
    )
    return ended


@pytest.mark.storages("memory", "files")
@pytest.mark.req("SF-35")
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
async def test_a_command_has_the_same_record_in_every_kind_of_run(harness: EngineHarness, script: str) -> None:
    yaml = harness.add_worker("in-yaml", f"steps: {{command: {{block: command, command: '{script}'}}}}")
    python = harness.add_python_worker(
        "in-python",
        f"""
        from shopfloor import Run, worker

        @worker(slug="in-python")
        async def in_python(run: Run):
            await run.command({script!r})
        """,
    )
    async with harness.open() as engine:
        by_workers = [await engine.dispatch(slug) for slug in (yaml, python)]
        for run_id in by_workers:
            await engine.wait_for_outcome(run_id)
    plain = new_run_id()
    async with harness.backend() as backend:
        with harness.host() as host:
            command = StepCommand(argv=shell_argv(script), cwd=str(Path.cwd()))
            request = CommandRequest(run_id=plain, command=command, host=host.id)
            await run_command(request, logs=backend.logs, processes=LocalProcesses(host), cancellation=Cancellation())
    records = [command_steps(harness, run_id) for run_id in (plain, *by_workers)]
    assert [event["type"] for event in records[0]][:2] == ["step.started", "message.user"]
    assert records[0] == records[1] == records[2]


@pytest.mark.storages("memory", "files")
async def test_a_worker_gets_the_same_failure_of_a_command_when_the_run_is_resumed(harness: EngineHarness) -> None:
    harness.add_python_worker(
        "stubborn",
        """
        from shopfloor import Run, worker
        from shopfloor.errors import StepFailed

        @worker
        async def stubborn(run: Run):
            try:
                await run.command("exit 3")
            except StepFailed as failed:
                message = failed.message
            await run.ask("Shall we continue?")
            return message
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("stubborn")
        call_id = await wait_for_pending_call(engine, run_id)
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.wait_for_outcome(run_id)).result == "step command: command `exit 3` failed: exit code 3"


async def test_the_exit_of_a_stopped_command_is_recorded(harness: EngineHarness) -> None:
    harness.add_worker("late", "steps: {Do: {block: command, command: exec sleep 60, timeout: 0.2}}")
    harness.add_worker("cancelled", "steps: {Do: {block: command, command: echo ready; exec sleep 60}}")
    async with harness.open() as engine:
        late = await engine.dispatch("late")
        await engine.wait_for_outcome(late)
        cancelled = await engine.dispatch("cancelled")
        await engine.wait_until(lambda: len(harness.events(cancelled)) == 4, "its output")
        await engine.cancel(cancelled, "enough")
        await engine.wait_for_outcome(cancelled)
    for run_id, error in ((late, "the step 'Do' took longer than its time limit of 0.2 s"), (cancelled, "enough")):
        ended = end_of_step(harness, run_id, "Do")
        assert (ended.error, ended.result) == (error, {"exit_code": 143, "signal": "SIGTERM"})


@pytest.mark.req("SF-36")
async def test_workers_in_python_have_the_options_that_yaml_has(harness: EngineHarness, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    harness.add_worker(
        "second-time",
        """
        steps: {Do: {block: command, command: 'echo x >> tries; echo well; [ $(wc -l < tries) = 2 ]', output: OUT}}
        output: OUT
        """,
    )
    harness.add_python_worker(
        "asks-for-much",
        """
        from shopfloor import Retry, Run, worker
        from shopfloor.errors import StepFailed

        @worker(slug="asks-for-much")
        async def much(run: Run):
            shown = await run.command('pwd; echo "$WORD"', cwd="sub", variables={"WORD": "said"})
            noted = await run.tool("log_question", lambda: {"question": "why?"}, name="Note it")
            again = await run.worker("second-time", retry=Retry(limit=1, delay=0))
            try:
                await run.agent("codex", "hi", max_turns=0)
            except StepFailed as failed:
                return [shown.stdout, noted, again, failed.message]
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.service.dispatch(RunRequest(worker="asks-for-much", cwd=str(folder)))
        outcome = await engine.wait_for_outcome(run_id)
    assert outcome.error is None, outcome.error
    shown, noted, again, refused = outcome.result
    assert (shown, noted, again) == (f"{folder}/sub\nsaid\n", {"noted": True}, "well")
    assert refused.startswith("invalid options for the agent step 'codex'")
    (line,) = [event.payload for event in harness.events(run_id) if isinstance(event.payload, UserMessage)]
    assert msgspec.to_builtins(line.blocks[0])["variables"] == {"WORD": "said"}
    assert end_of_step(harness, run_id, "Note it").kind == "tool-call"
