"""Forks: a new run starts with the steps and messages of another run up to an event, and continues from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.engine.harness import EngineHarness, RunningEngine
from tests.model_server.script import Failure, Text, ToolUse, Turn
from tests.model_server.server import ModelServer
from tests.sample_events import line_of

from shopfloor.errors import ConflictError, DefinitionChanged, InvalidParameter, ProviderDisabled
from shopfloor.log import (
    AssistantMessage,
    Event,
    Note,
    RunCompleted,
    RunStarted,
    StepCompleted,
    ToolCall,
    ToolResult,
    Usage,
    decode,
    encode,
)
from shopfloor.ports import DisabledBy, ProviderRecord

pytestmark = pytest.mark.anyio

CLAUDE = "anthropic/claude-sonnet-4-6"
TALKS = f"""
    tools:
      look-up: {{description: Looks a word up., parameters: {{type: object, properties: {{}}}}}}
    steps:
      Start: {{block: start-thread, model: {CLAUDE}, tools: [look-up]}}
      Say: {{block: add-message, text: hello}}
      Answer: {{block: next-message, output: SAID, retry: {{limit: 0}}}}
    output: SAID
"""
WRITES = """
    input: {FILE: {type: string}}
    steps:
      First: {block: command, command: "echo first >> {{FILE}}; echo one", output: ONE}
      Both:
        block: parallel
        branches:
          Left:
            Write: {block: command, command: "echo left >> {{FILE}}"}
          Right:
            Call: {block: run-worker, worker: child, input: {FILE: "{{FILE}}"}, output: CHILD}
      Last: {block: command, command: "echo last >> {{FILE}}; test -e {{FILE}}.ready"}
    output: "{{ONE}} {{CHILD}}"
"""
CHILD = """
    input: {FILE: {type: string}}
    steps:
      Write: {block: command, command: "echo child >> {{FILE}}"}
    output: from the child
"""


@pytest.fixture
def provider(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """Let every provider be the scripted server."""
    for name, value in model_server.env.items():
        monkeypatch.setenv(name, value)
    return model_server


def seq_of(events: list[Event], kind: type, path: str) -> int:
    """Return the `seq` of the last event of this kind of a step."""
    return [event.seq for event in events if isinstance(event.payload, kind) and event.path == path][-1]


async def fork(engine: RunningEngine, run_id: str, seq: int) -> str:
    before = engine.harness.lines(run_id)
    forked = await engine.service.fork(run_id, seq)
    await engine.wait_for_outcome(forked)
    assert engine.harness.lines(run_id) == before, "the old log was written to"
    return forked


@pytest.mark.req("SF-55")
@pytest.mark.storages("memory", "files")
async def test_completed_steps_are_taken_over_and_a_failed_step_is_executed_again(
    harness: EngineHarness, tmp_path: Path
) -> None:
    harness.add_worker("child", CHILD)
    harness.add_worker("writes", WRITES)
    file = tmp_path / "written"
    async with harness.open() as engine:
        run_id = await engine.dispatch("writes", FILE=str(file))
        assert (await engine.wait_for_outcome(run_id)).status == "failed"
        assert sorted(file.read_text().split()) == ["child", "first", "last", "left"]
        (tmp_path / "written.ready").touch()
        events = harness.events(run_id)
        forked = await fork(engine, run_id, seq_of(events, StepCompleted, "last"))
        assert harness.outcome(forked).result == "one from the child"  # type: ignore[union-attr]
        assert sorted(file.read_text().split()) == ["child", "first", "last", "last", "left"]
        # Before the end of the parallel step only what was completed by then is taken over.
        earlier = await fork(engine, run_id, seq_of(events, StepCompleted, "first"))
        assert sorted(file.read_text().split()) == [*["child"] * 2, "first", *["last"] * 3, *["left"] * 2]
        assert harness.outcome(earlier).result == "one from the child"  # type: ignore[union-attr]
    copied = harness.verified_events(forked)
    first = copied[0].payload
    assert isinstance(first, RunStarted)
    assert first.based_on is not None
    assert (first.based_on.run_id, first.based_on.kind, first.root_run_id) == (run_id, "fork", forked)
    assert [event.child_run_id for event in copied] == [None] * len(copied), "a sub-run has one parent"


async def test_a_conversation_goes_on_after_its_last_message_and_costs_only_what_is_new(
    harness: EngineHarness, provider: ModelServer
) -> None:
    harness.add_worker("talks", TALKS)
    provider.say(Turn(say=[ToolUse(name="look-up", id="call_1")]), Turn(say=[Text(text="the moon")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("talks")
        await engine.wait_for_status(run_id, "waiting")
        await engine.answer(run_id, "call_1", "moon")
        await engine.wait_for_outcome(run_id)
        events = harness.events(run_id)
        asked = seq_of(events, ToolCall, "answer")
        provider.say(Turn(say=[Text(text="the sun")], fill=True))
        again = await engine.service.fork(run_id, asked)
        await engine.wait_for_status(again, "waiting")
        await engine.answer(again, "call_1", "sun")
        outcome = await engine.wait_for_outcome(again)
        assert outcome.result == "the sun"
        (request,) = provider.requests()
        assert "sun" in str(request.body["messages"])
        assert "moon" not in str(request.body["messages"])
        one_answer = events[-1].payload.usage.input // 2  # type: ignore[union-attr]
        assert outcome.usage is not None
        assert outcome.usage.input == one_answer
        # After the result of the tool, the model is asked at once.
        provider.say(Turn(say=[Text(text="the moon, again")]))
        later = await fork(engine, run_id, seq_of(events, ToolResult, "answer"))
        assert harness.outcome(later).result == "the moon, again"  # type: ignore[union-attr]
        assert "moon" in str(provider.requests()[0].body["messages"])
    replies = [event.payload for event in harness.verified_events(later) if isinstance(event.payload, AssistantMessage)]
    assert next(reply.usage or Usage() for reply in replies) == Usage()


async def test_a_model_that_failed_is_asked_again_with_all_its_retries(
    harness: EngineHarness, provider: ModelServer
) -> None:
    harness.add_worker("talks", TALKS.replace("limit: 0", "limit: 1, delay: 0.01"))
    provider.say(Turn(fail=Failure(status=500), times=0))
    async with harness.open() as engine:
        run_id = await engine.dispatch("talks")
        assert (await engine.wait_for_outcome(run_id)).status == "failed"
        provider.say(Turn(fail=Failure(status=500)), Turn(say=[Text(text="at last")]))
        forked = await fork(engine, run_id, seq_of(harness.events(run_id), StepCompleted, "answer"))
        assert harness.outcome(forked).result == "at last"  # type: ignore[union-attr]


@pytest.mark.req("SF-55")
async def test_a_fork_that_needs_a_disabled_provider_is_refused(harness: EngineHarness, provider: ModelServer) -> None:
    harness.add_worker("talks", TALKS)
    provider.say(Turn(say=[Text(text="the moon")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("talks")
        await engine.wait_for_outcome(run_id)
        disabled = ProviderRecord(name="anthropic", disabled=DisabledBy(by="ada", at="2026-02-23T10:30:00.000Z"))
        await engine.backend.provider_health.update(lambda _: ([disabled], []))
        with pytest.raises(ProviderDisabled):
            await engine.service.fork(run_id, seq_of(harness.events(run_id), StepCompleted, "say"))


PYTHON = """
    from shopfloor import worker

    @worker
    async def counts(run, FILE: str):
        async def note(word):
            with open(FILE, "a") as file:
                file.write(word + "\\n")
            return word

        one = await run.step("one", note, "one")
        answer = await run.ask("Which?")
        two = await run.step("two", note, answer)
        return [one, two]
"""


async def test_a_python_worker_is_forked_before_a_question_and_after_its_answer(
    harness: EngineHarness, tmp_path: Path
) -> None:
    harness.add_python_worker("counts", PYTHON)
    file = tmp_path / "written"
    async with harness.open() as engine:

        async def answered(run_id: str, value: str) -> Any:
            item = await engine.wait_for_status(run_id, "waiting")
            await engine.answer(run_id, item.row.awaits[0], value)
            return (await engine.wait_for_outcome(run_id)).result

        run_id = await engine.dispatch("counts", FILE=str(file))
        assert await answered(run_id, "a") == ["one", "a"]
        events = harness.events(run_id)
        before = await engine.service.fork(run_id, seq_of(events, ToolCall, "ask"))
        assert await answered(before, "b") == ["one", "b"]
        after = await fork(engine, run_id, seq_of(events, ToolResult, "ask"))
        assert harness.outcome(after).result == ["one", "a"]  # type: ignore[union-attr]
        assert file.read_text().split() == ["one", "a", "b", "a"]
        harness.add_python_worker("counts", PYTHON.replace('"two", note', '"second", note'))
        with pytest.raises(DefinitionChanged, match="changed since this run began"):
            await engine.service.fork(run_id, 2)


@pytest.mark.parametrize("has_note", [False, True])
async def test_copying_that_a_crash_interrupted_is_continued(
    harness: EngineHarness, tmp_path: Path, has_note: bool
) -> None:
    harness.add_worker("child", CHILD)
    harness.add_worker("writes", WRITES)
    file = tmp_path / "written"
    (tmp_path / "written.ready").touch()
    async with harness.open() as engine:
        run_id = await engine.dispatch("writes", FILE=str(file))
        await engine.wait_for_outcome(run_id)
        forked = await fork(engine, run_id, seq_of(harness.events(run_id), StepCompleted, "both"))
    whole = harness.lines(forked)
    effects = file.read_text()
    kept = whole[:5]
    if has_note:
        # The host wrote it while events were copied.
        note = AssistantMessage(note=Note(kind="warning", message="slow"), synthetic=True, blocks=[])
        kept.append(encode(line_of(note, 6, run_id=forked, path="", timestamp=decode(kept[-1]).timestamp)) + b"\n")
    harness.replace_log(forked, kept)
    harness.drop_database()
    async with harness.open() as engine:
        await engine.backend.ingest.catch_up(everything=True)
        await engine.service.resume(forked)
        await engine.wait_for_outcome(forked)
    again = [
        event for event in harness.verified_events(forked) if event.path or isinstance(event.payload, RunCompleted)
    ]
    first = [line for line in whole if b'"run.started"' not in line]
    assert [(event.type, event.path) for event in again] == [(event.type, event.path) for event in map(decode, first)]
    assert file.read_text() == f"{effects}last\n"


async def test_a_fork_of_a_run_that_was_deleted_before_its_start_fails_with_the_reason(
    harness: EngineHarness, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    harness.add_worker("plain", 'steps: {One: {block: command, command: "true"}}')
    harness.add_worker(
        "waits", f'steps: {{One: {{block: command, command: "until test -e {gate}; do sleep 0.05; done"}}}}'
    )
    async with harness.open(slots=1) as engine:
        run_id = await engine.dispatch("plain")
        await engine.wait_for_outcome(run_id)
        await engine.wait_for_status(await engine.dispatch("waits"), "running")
        forked = await engine.service.fork(run_id, 4)
        harness.delete_log(run_id)
        gate.touch()
        outcome = await engine.wait_for_outcome(forked)
        assert outcome.error is not None
        assert outcome.error.message == f"the run {run_id} was deleted before its events were copied"


async def test_an_event_that_does_not_exist_and_the_end_of_a_run_are_refused(harness: EngineHarness) -> None:
    harness.add_worker("plain", 'steps: {One: {block: command, command: "true"}}')
    async with harness.open() as engine:
        run_id = await engine.dispatch("plain")
        await engine.wait_for_outcome(run_id)
        with pytest.raises(InvalidParameter, match="has no event 99"):
            await engine.service.fork(run_id, 99)
        with pytest.raises(ConflictError, match="is the end of the run"):
            await engine.service.fork(run_id, len(harness.lines(run_id)))
