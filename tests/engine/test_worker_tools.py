"""The tools that every worker has: decisions, memories, results with artifacts. Models answer over real HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.harness import EngineHarness, RunningEngine
from tests.model_server.script import Failure, Text, ToolUse, Turn
from tests.model_server.server import ModelServer

from shopfloor.adapters.memory import MemoryBlobs
from shopfloor.engine import delete_run
from shopfloor.engine.worker_memory import COMPACT_PROMPT, PROMPT_CHARS, WorkerMemory, compactable
from shopfloor.errors import ToolFailed
from shopfloor.limits import ARTIFACT_BYTES, MEMORY_KEYS, RUN_ARTIFACTS
from shopfloor.log import Masking, StepCompleted, ToolCall, ToolResult, UserMessage
from shopfloor.ports import Blobs, artifacts_folder, memory_folder
from shopfloor.views import Decision

pytestmark = pytest.mark.anyio

CLAUDE = "anthropic/claude-sonnet-4-6"
DECISION = {"question": "Which year?", "decision": "2026", "reasoning": "It is the newest."}
TOOLS = "[record_decision, store_memory, submit_result]"
RESEARCHES = f"""
    memory: true
    steps:
      Start: {{block: start-thread, model: {CLAUDE}, tools: {TOOLS}, system: role}}
      Say: {{block: add-message, text: begin}}
      Answer: {{block: next-message, output: SAID, retry: {{limit: 0}}}}
    output: SAID
"""
ROLE = "You are a researcher."


@pytest.fixture(autouse=True)
def provider(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """Let every provider be the scripted server."""
    for name, value in model_server.env.items():
        monkeypatch.setenv(name, value)
    return model_server


def memories_of(harness: EngineHarness, slug: str = "researches") -> str:
    """Return the folder of the memories of a worker of the harness."""
    return memory_folder(slug, str(harness.folder / slug))


async def read_all(blobs: Blobs, folder: str) -> dict[str, str]:
    return {info.name: (await blobs.get(f"{folder}/{info.name}") or b"").decode() for info in await blobs.list(folder)}


def results_of(harness: EngineHarness, run_id: str) -> dict[str, tuple[Any, str | None]]:
    results = [event.payload for event in harness.verified_events(run_id) if isinstance(event.payload, ToolResult)]
    assert {result.fidelity for result in results} == {"router"}
    return {result.name: (result.output, result.error) for result in results}


def system_prompt(provider: ModelServer, number: int) -> str:
    return str(provider.requests()[number].body["system"])


@pytest.mark.req("SF-43")
@pytest.mark.storages("memory", "files")
async def test_a_model_records_decisions_stores_memories_and_submits_its_result(
    harness: EngineHarness, provider: ModelServer
) -> None:
    harness.add_worker("researches", RESEARCHES, role=ROLE)
    artifacts = [{"name": "table.csv", "content": "a,b\n"}, {"name": "notes.md", "content": "# Ä"}]
    provider.say(
        Turn(say=[ToolUse(name="record_decision", input=DECISION)]),
        Turn(say=[ToolUse(name="store_memory", input={"key": "tea", "content": "Assam is strong."})]),
        Turn(say=[ToolUse(name="submit_result", input={"text": "The whole report.", "artifacts": artifacts})]),
        Turn(say=[Text(text="done")]),
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("researches")
        outcome = await engine.wait_for_outcome(run_id)
        assert (outcome.status, outcome.result) == ("completed", "The whole report.")
        item = await engine.wait_for_status(run_id, "completed")
        assert item.row.notes.decisions == (Decision(**DECISION),)
        assert await read_all(engine.backend.blobs, artifacts_folder(run_id)) == {
            "table.csv": "a,b\n",
            "notes.md": "# Ä",
        }
        assert await read_all(engine.backend.blobs, memories_of(harness)) == {"tea": "Assam is strong."}
    assert results_of(harness, run_id) == {
        "record_decision": ({"noted": True}, None),
        "store_memory": ({"stored": "tea"}, None),
        "submit_result": ({"submitted": True}, None),
    }


@pytest.mark.req("SF-43")
async def test_workers_in_python_have_the_same_tools(harness: EngineHarness) -> None:
    harness.add_python_worker(
        "notes",
        """
        from shopfloor import Run, worker

        @worker
        async def notes(run: Run):
            await run.record_decision("Which year?", "2026", "It is the newest.")
            await run.store_memory("tea", "Assam is strong.")
            await run.submit_result("first", {"a.txt": "one", "b.txt": "two"})
            await run.submit_result("second", {"a.txt": "three"})
            return "done"
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("notes")
        assert (await engine.wait_for_outcome(run_id)).result == "second"
        stored = await read_all(engine.backend.blobs, artifacts_folder(run_id))
        memories = await read_all(engine.backend.blobs, memories_of(harness, "notes"))
        row = (await engine.wait_for_status(run_id, "completed")).row
    assert stored == {"a.txt": "three", "b.txt": "two"}
    assert memories == {"tea": "Assam is strong."}
    assert row.notes.decisions == (Decision(**DECISION),)


async def test_yaml_workers_call_them_without_a_model(harness: EngineHarness) -> None:
    harness.add_worker(
        "notes",
        """
        input: {TOPIC: {type: string}}
        steps:
          Decide: {block: tool-call, tool: record_decision, input: {question: a, decision: b, reasoning: c}}
          Remember: {block: tool-call, tool: store_memory, input: {key: topic, content: "about {{TOPIC}}"}}
          Submit: {block: tool-call, tool: submit_result, input: {text: "all of {{TOPIC}}"}}
          End: {block: terminal, output: done}
        """,
    )
    async with harness.open() as engine:
        assert await engine.run_worker("notes", TOPIC="tea") == "all of tea"
        assert await read_all(engine.backend.blobs, memories_of(harness, "notes")) == {"topic": "about tea"}


@pytest.mark.req("SF-43")
@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("record_decision", {"question": "a", "decision": "b"}, "'reasoning' is a required property"),
        ("record_decision", {**DECISION, "decision": " "}, "decision"),
        ("store_memory", {"key": "../escape", "content": "x"}, "the key '../escape' is not valid"),
        ("store_memory", {"key": "a/b", "content": "x"}, "the key 'a/b' is not valid"),
        ("store_memory", {"key": "k", "content": "x" * (PROMPT_CHARS + 1)}, "characters"),
        ("submit_result", {"text": "t", "artifacts": [{"name": "ok", "content": "x"}, {"name": ".x", "content": "x"}]},
         "the artifact name '.x' is not valid"),
        ("submit_result", {"text": "t", "artifacts": [{"name": "a"}]}, "'content' is a required property"),
        ("submit_result", {"text": "t", "artifacts": [{"name": "a", "content": "x" * (ARTIFACT_BYTES + 1)}]}, "larger"),
        ("submit_result", {"text": "t", "artifacts": [{"name": f"{n}", "content": ""} for n in range(RUN_ARTIFACTS + 1)]},
         "at most"),
        ("submit_result", "text", "is not of type 'object'"),
    ],
)  # fmt: skip
async def test_a_model_reads_why_a_call_is_refused_and_nothing_is_stored(
    harness: EngineHarness, tool: str, arguments: Any, reason: str
) -> None:
    harness.add_python_worker(
        "tries",
        f"""
        from shopfloor import Run, worker
        from shopfloor.errors import ToolFailed

        @worker
        async def tries(run: Run, ARGUMENTS: object):
            try:
                await run.tool("{tool}", ARGUMENTS)
            except ToolFailed as error:
                return error.message
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("tries", ARGUMENTS=arguments)
        outcome = await engine.wait_for_outcome(run_id)
        assert reason in str(outcome.result)
        assert await read_all(engine.backend.blobs, artifacts_folder(run_id)) == {}
        assert await read_all(engine.backend.blobs, memories_of(harness, "tries")) == {}
    assert len(str(outcome.result)) < 2_000


@pytest.mark.req("SF-44")
@pytest.mark.storages("memory", "files")
async def test_the_next_run_of_the_worker_remembers_the_newest_first(
    harness: EngineHarness, provider: ModelServer
) -> None:
    harness.add_worker("researches", RESEARCHES, role=ROLE)
    harness.add_worker("forgets", RESEARCHES.replace("memory: true", "memory: false"), role=ROLE)
    provider.say(Turn(say=[Text(text="done")], times=0))
    async with harness.open() as engine:
        blobs, folder = engine.backend.blobs, memories_of(harness)
        await engine.run_worker("researches")
        # Three memories of which two fit, and the middle one is overwritten, so it is the newest.
        for key, text in (("one", "1" * 100), ("two", "2" * 100), ("three", "3" * 20_000), ("two", "2" * 10_000)):
            await blobs.put(f"{folder}/{key}", text.encode())
        await blobs.put(f"{memories_of(harness, 'forgets')}/key", b"never shown")
    async with harness.open() as engine:
        run_id = await engine.dispatch("researches")
        await engine.wait_for_outcome(run_id)
        await engine.run_worker("forgets")
    first, second, third = (system_prompt(provider, n) for n in range(3))
    assert "remember" not in first
    assert second.index(ROLE) < second.index("2" * 10_000) < second.index("3" * 20_000)
    assert "1" * 100 in second
    assert "never shown" not in third
    recorded = [event.payload for event in harness.events(run_id) if isinstance(event.payload, UserMessage)]
    assert "2" * 10_000 in (recorded[0].system_prompt or "")


@pytest.mark.req("SF-44")
async def test_the_oldest_memories_are_left_out_of_the_prompt(harness: EngineHarness, provider: ModelServer) -> None:
    harness.add_worker("researches", RESEARCHES, role=ROLE)
    provider.say(Turn(say=[Text(text="done")], times=0))
    async with harness.open() as engine:
        for key, size in (("old", 10), ("middle", 20_000), ("new", 13_000)):
            await engine.backend.blobs.put(f"{memories_of(harness)}/{key}", key[0].encode() * size)
        await engine.run_worker("researches")
    prompt = system_prompt(provider, 0)
    assert "## new" in prompt
    assert "## middle" not in prompt
    assert "## old" not in prompt


@pytest.mark.req("SF-44")
async def test_a_run_that_is_resumed_keeps_the_system_prompt_it_began_with(
    harness: EngineHarness, provider: ModelServer
) -> None:
    harness.add_worker("researches", RESEARCHES.replace(TOOLS, "[ask]"), role=ROLE)
    provider.say(Turn(say=[ToolUse(name="ask", input={"question": "Which?"})]), Turn(say=[Text(text="done")]))
    async with harness.open() as engine:
        await engine.backend.blobs.put(f"{memories_of(harness)}/tea", b"before")
        run_id = await engine.dispatch("researches")
        await engine.wait_for_status(run_id, "waiting")
    async with harness.open() as engine:
        await engine.backend.blobs.put(f"{memories_of(harness)}/tea", b"after")
        (call_id,) = (await engine.wait_for_status(run_id, "waiting")).row.awaits
        await engine.answer(run_id, call_id, "this one")
        assert (await engine.wait_for_outcome(run_id)).result == "done"
    assert "before" in system_prompt(provider, 1)
    assert "after" not in system_prompt(provider, 1)


async def fill_memory(engine: RunningEngine, folder: str, count: int = 4) -> None:
    for number in range(count):
        await engine.backend.blobs.put(f"{folder}/key-{number}", f"fact {number} ".encode() * 3_000)


@pytest.mark.req("SF-44")
@pytest.mark.storages("memory", "files")
async def test_memories_above_the_limit_are_condensed_by_the_workers_model(
    harness: EngineHarness, provider: ModelServer
) -> None:
    harness.add_worker("researches", RESEARCHES, role=ROLE)
    provider.say(
        Turn(say=[Text(text="all facts, in short")], match=COMPACT_PROMPT[:40]), Turn(say=[Text(text="done")], times=0)
    )
    async with harness.open() as engine:
        await fill_memory(engine, memories_of(harness))
        run_id = await engine.dispatch("researches")
        assert (await engine.wait_for_outcome(run_id)).result == "done"
        assert await read_all(engine.backend.blobs, memories_of(harness)) == {"compacted": "all facts, in short"}
        row = (await engine.wait_for_status(run_id, "completed")).row
        await engine.run_worker("researches")
    assert "fact 0" in str(provider.requests()[0].body)
    assert "all facts, in short" in system_prompt(provider, 1)
    assert len(provider.requests()) == 3
    ended = [event.payload for event in harness.events(run_id) if isinstance(event.payload, StepCompleted)]
    assert [step.name for step in ended] == ["compact-memory", "Start", "Say", "Answer"]
    assert row.spending.own.usage.input == 200


@pytest.mark.req("SF-44")
async def test_memories_that_cannot_be_condensed_stay(harness: EngineHarness, provider: ModelServer) -> None:
    harness.add_worker("researches", RESEARCHES, role=ROLE)
    rejected = Failure(status=400, type="invalid_request_error")
    provider.say(Turn(fail=rejected, match=COMPACT_PROMPT[:40]), Turn(say=[Text(text="done")], times=0))
    async with harness.open() as engine:
        await fill_memory(engine, memories_of(harness))
        assert await engine.run_worker("researches") == "done"
        assert set(await read_all(engine.backend.blobs, memories_of(harness))) == {f"key-{n}" for n in range(4)}
    assert "fact 3" in system_prompt(provider, 1)


@pytest.mark.req("SF-44")
@pytest.mark.parametrize(
    "text", ["short", "", " ", "x" * (PROMPT_CHARS + 1)], ids=["changed", "empty", "blank", "long"]
)
async def test_memories_are_replaced_only_by_a_usable_text_and_if_none_has_changed(text: str) -> None:
    blobs = MemoryBlobs()
    memory = WorkerMemory(blobs, "memory/w")
    await memory.store("one", "1")
    await memory.store("two", "2")
    condensed = await memory.load()
    if text == "short":
        await memory.store("two", "newer")
    before = await read_all(blobs, "memory/w")
    assert not await memory.replace(condensed, text)
    assert await read_all(blobs, "memory/w") == before
    assert await memory.replace(await memory.load(), "short")
    assert await read_all(blobs, "memory/w") == {"compacted": "short"}


@pytest.mark.req("SF-44")
async def test_a_condensed_memory_is_part_of_the_next_one_however_old_it_is() -> None:
    blobs = MemoryBlobs()
    memory = WorkerMemory(blobs, "memory/w")
    await memory.store("one", "the oldest fact")
    assert await memory.replace(await memory.load(), "condensed: the oldest fact")
    for number in range(6):
        await memory.store(f"key-{number}", "x" * PROMPT_CHARS)
    chosen = compactable(await memory.load())
    assert chosen[0].content == "condensed: the oldest fact"
    assert len(chosen) < 7
    with pytest.raises(ToolFailed, match="reserved"):
        await memory.store("compacted", "would be overwritten")


async def test_a_worker_has_a_limited_number_of_memories(harness: EngineHarness) -> None:
    harness.add_worker(
        "notes",
        """
        input: {KEY: {type: string}}
        steps:
          Remember: {block: tool-call, tool: store_memory, input: {key: "{{KEY}}", content: x}}
        """,
    )
    async with harness.open() as engine:
        for number in range(MEMORY_KEYS):
            await engine.backend.blobs.put(f"{memories_of(harness, 'notes')}/key-{number}", b"x")
        await engine.run_worker("notes", KEY="key-1")
        outcome = await engine.wait_for_outcome(await engine.dispatch("notes", KEY="another"))
    assert outcome.error is not None
    assert "overwrite one" in outcome.error.message


@pytest.mark.req("SF-45")
@pytest.mark.storages("memory", "files")
async def test_the_artifacts_of_a_run_are_deleted_with_it_and_memories_stay(harness: EngineHarness) -> None:
    harness.add_python_worker(
        "leaves",
        """
        from shopfloor import Run, worker

        @worker
        async def leaves(run: Run):
            await run.store_memory("tea", "Assam is strong.")
            await run.submit_result("text", {"a.txt": "one"})
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("leaves")
        await engine.wait_for_status(run_id, "completed")
        blobs = engine.backend.blobs
        assert await read_all(blobs, artifacts_folder(run_id)) == {"a.txt": "one"}
        await delete_run(engine.backend, run_id)
        assert await read_all(blobs, artifacts_folder(run_id)) == {}
        assert await read_all(blobs, memories_of(harness, "leaves")) == {"tea": "Assam is strong."}


async def test_secrets_are_masked_in_artifacts_and_memories(harness: EngineHarness) -> None:
    harness.add_python_worker(
        "leaks",
        """
        from shopfloor import Run, worker

        @worker
        async def leaks(run: Run):
            await run.store_memory("key", "it is hunter2-hunter2")
            await run.submit_result("it is hunter2-hunter2", {"a.txt": "it is hunter2-hunter2"})
        """,
    )
    async with harness.open(mask=Masking(["hunter2-hunter2"])) as engine:
        run_id = await engine.dispatch("leaks")
        assert (await engine.wait_for_outcome(run_id)).result == "it is [masked]"
        assert await read_all(engine.backend.blobs, artifacts_folder(run_id)) == {"a.txt": "it is [masked]"}
        assert await read_all(engine.backend.blobs, memories_of(harness, "leaks")) == {"key": "it is [masked]"}


async def test_a_result_that_was_submitted_before_a_restart_is_the_result(harness: EngineHarness) -> None:
    harness.add_python_worker(
        "waits",
        """
        from shopfloor import Run, worker

        @worker
        async def waits(run: Run):
            await run.submit_result("the report")
            return await run.ask("Is it good?")
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("waits")
        await engine.wait_for_status(run_id, "waiting")
    async with harness.open() as engine:
        (call_id,) = (await engine.wait_for_status(run_id, "waiting")).row.awaits
        await engine.answer(run_id, call_id, "yes")
        assert (await engine.wait_for_outcome(run_id)).result == "the report"
    calls = [event.payload.name for event in harness.events(run_id) if isinstance(event.payload, ToolCall)]
    assert calls == ["submit_result", "ask"]


async def test_a_tool_of_the_worker_with_the_same_name_is_its_own(harness: EngineHarness) -> None:
    harness.add_python_worker(
        "own",
        """
        from shopfloor import Run, tool, worker

        @tool(name="submit_result")
        def submit_result(text: str) -> str:
            return text.upper()

        @worker(tools=[submit_result])
        async def own(run: Run):
            return await run.tool("submit_result", {"text": "mine"})
        """,
    )
    async with harness.open() as engine:
        assert await engine.run_worker("own") == "MINE"
