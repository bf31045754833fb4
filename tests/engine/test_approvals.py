"""Approvals of commands and tool calls: asked before the effect, decided once, kept over restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace
from tests.engine.harness import EngineHarness, RunningEngine
from tests.model_server.script import ReplyPart, Text, ToolUse, Turn
from tests.model_server.server import ModelServer
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.memory import MemoryBlobs
from shopfloor.errors import ConflictError, InvalidParameter, InvalidWorker, NotFoundError, UnsupportedOption
from shopfloor.log import ToolCall, ToolResult
from shopfloor.ports import CallResult, RunRequest
from shopfloor.views import approval_question

pytestmark = pytest.mark.anyio

CLAUDE = "anthropic/claude-sonnet-4-6"
TOOLS = """
    from pathlib import Path
    from shopfloor import tool, worker

    @tool
    def publish(word: str) -> str:
        \"\"\"Publishes a word.\"\"\"
        with open(PLACE, "a") as file:
            file.write(word + "\\n")
        return f"published {word}"

    @tool
    def look(word: str) -> str:
        \"\"\"Looks at a word.\"\"\"
        return word

    @worker(tools=[publish, look], approve=["publish"])
    async def publishes(run):
        return await run.model("anthropic/claude-sonnet-4-6", "go", tools=["publish", "look"])
"""
COMMANDS = """
    input: {FILE: {type: string}}
    steps:
      Safe: {block: command, command: "echo safe >> {{FILE}}"}
      Push: {block: command, command: "cd / && echo push >> {{FILE}}", approve: ["command(echo push*)"]}
    output: "all {{FILE}}"
"""


@pytest.fixture
def provider(model_server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
    """Let every provider be the scripted server."""
    for name, value in model_server.env.items():
        monkeypatch.setenv(name, value)
    return model_server


async def wait_for_calls(engine: RunningEngine, run_id: str, count: int = 1) -> list[str]:
    """Wait until the run waits for this many calls, and return their ids."""
    while True:
        item = await engine.wait_for_status(run_id, "waiting")
        if len(item.row.awaits) == count:
            return list(item.row.awaits)


async def decide(engine: RunningEngine, run_id: str, answer: Any) -> None:
    (call_id,) = await wait_for_calls(engine, run_id)
    await engine.answer(run_id, call_id, answer)


def results_of(harness: EngineHarness, run_id: str, name: str) -> list[tuple[Any, str | None]]:
    payloads = [event.payload for event in harness.verified_events(run_id)]
    return [(each.output, each.error) for each in payloads if isinstance(each, ToolResult) and each.name == name]


@pytest.mark.req("SF-57")
@pytest.mark.storages("memory", "files")
async def test_a_command_waits_for_its_approval_over_a_restart(harness: EngineHarness, tmp_path: Path) -> None:
    harness.add_worker("pushes", COMMANDS)
    file = tmp_path / "written"
    async with harness.open() as engine:
        run_id = await engine.dispatch("pushes", FILE=str(file))
        (call_id,) = await wait_for_calls(engine, run_id)
        item = await engine.wait_for_status(run_id, "waiting")
        assert item.row.waits_for == ["approval"]
        assert item.pending_requests == [
            f'approval of command: cd / && echo push >> "${{VALUE_FILE}}" with VALUE_FILE={file}'
        ]
    assert file.read_text() == "safe\n"
    async with harness.open() as engine:
        await engine.answer(run_id, call_id, "approve")
        await engine.answer(run_id, call_id, {"decision": "approve", "scope": "once"})
        assert (await engine.wait_for_outcome(run_id)).result == f"all {file}"
        with pytest.raises(ConflictError, match="answered already"):
            await engine.answer(run_id, call_id, "deny")
    assert file.read_text() == "safe\npush\n"
    asked = [event.payload for event in harness.events(run_id) if isinstance(event.payload, ToolCall)]
    assert len(asked) == 1
    assert asked[0].input["input"]["variables"] == {"VALUE_FILE": str(file)}


async def test_a_denied_command_fails_the_run_and_is_not_retried(harness: EngineHarness, tmp_path: Path) -> None:
    harness.add_worker("pushes", COMMANDS.replace('push*)"]', 'push*)"], retry: {limit: 3}'))
    file = tmp_path / "written"
    async with harness.open() as engine:
        run_id = await engine.dispatch("pushes", FILE=str(file))
        with pytest.raises(InvalidParameter, match="asks for an approval, and this is no answer to it: perhaps"):
            await decide(engine, run_id, "perhaps")
        await decide(engine, run_id, "deny: not today")
        outcome = await engine.wait_for_outcome(run_id)
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.message) == ("approval_denied", "the command was denied: not today")
    assert results_of(harness, run_id, "approval") == [(None, "denied: not today")]
    assert file.read_text() == "safe\n"


async def test_what_nobody_approves_in_time_is_denied(harness: EngineHarness, tmp_path: Path) -> None:
    harness.add_worker("pushes", COMMANDS.replace("    steps:", "    approveTimeout: 0.3\n    steps:"))
    async with harness.open() as engine:
        outcome = await engine.wait_for_outcome(await engine.dispatch("pushes", FILE=str(tmp_path / "written")))
    assert outcome.error is not None
    assert outcome.error.code == "approval_denied"
    assert "no answer to 'approval' by" in outcome.error.message


async def test_a_model_gets_the_reason_of_a_denial_and_goes_on(
    harness: EngineHarness, provider: ModelServer, tmp_path: Path
) -> None:
    place = tmp_path / "published"
    harness.add_python_worker("publishes", TOOLS.replace("PLACE", repr(str(place))))
    both: list[ReplyPart] = [ToolUse(name=name, id=f"call_{name}_{word}", input={"word": word}) for name, word in CALLS]
    provider.say(Turn(say=both), Turn(say=[Text(text="one of them")]))
    async with harness.open() as engine:
        run_id = await engine.dispatch("publishes")
        first, second = await wait_for_calls(engine, run_id, 2)
        await engine.service.answer(run_id, [CallResult(call_id=first, error="not this one")])
        await engine.answer(run_id, second, True)
        assert (await engine.wait_for_outcome(run_id)).result == "one of them"
    assert place.read_text() == "b\n"
    assert results_of(harness, run_id, "publish") == [(None, "denied: not this one"), ("published b", None)]
    assert results_of(harness, run_id, "look") == [("c", None)]
    sent = str(provider.requests()[-1].body["messages"])
    assert "denied: not this one" in sent
    assert "approval_" not in sent


CALLS = [("publish", "a"), ("publish", "b"), ("look", "c")]


async def test_an_approval_for_the_run_and_one_for_always_hold_that_long(
    harness: EngineHarness, provider: ModelServer, tmp_path: Path
) -> None:
    place = tmp_path / "published"
    harness.add_python_worker("publishes", TOOLS.replace("PLACE", repr(str(place))))

    def script() -> None:
        turns = [Turn(say=[ToolUse(name="publish", id=f"call_{word}", input={"word": word})]) for word in "ab"]
        provider.say(*turns, Turn(say=[Text(text="done")]))

    async with harness.open() as engine:
        script()
        first = await engine.dispatch("publishes")
        await decide(engine, first, "approve for this run")
        await engine.wait_for_outcome(first)
        assert place.read_text() == "a\nb\n"
        script()
        second = await engine.dispatch("publishes")
        await decide(engine, second, "always")
        await engine.wait_for_outcome(second)
        script()
        assert (await engine.wait_for_outcome(await engine.dispatch("publishes"))).result == "done"
        (rule,) = await engine.service.approval_rules()
        assert (rule.worker, rule.pattern, rule.run_id) == ("publishes", "publish", second)
        with pytest.raises(NotFoundError):
            await engine.service.revoke_approval("ffffffffffffffff0")
        assert await engine.service.revoke_approval(rule.id[:6]) == rule
        script()
        await wait_for_calls(engine, await engine.dispatch("publishes"))


class StuckBlobs(MemoryBlobs):
    """Blobs of a host that is lost while it stores one."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck = anyio.Event()

    async def put(self, key: str, content: bytes) -> None:
        self.is_stuck.set()
        await anyio.sleep_forever()


@pytest.mark.req("SF-57")
async def test_a_rule_for_always_is_stored_although_the_host_is_lost_after_the_answer(
    harness: EngineHarness, tmp_path: Path
) -> None:
    harness.add_worker("pushes", COMMANDS)
    blobs = StuckBlobs()
    async with harness.open(wrap_adapters=lambda backend: replace(backend, blobs=blobs)) as engine:
        run_id = await engine.dispatch("pushes", FILE=str(tmp_path / "written"))
        await decide(engine, run_id, "always")
        with anyio.fail_after(TIMEOUT_SECONDS):
            await blobs.is_stuck.wait()
        assert results_of(harness, run_id, "approval") == [], "the answer would not be delivered again"
    async with harness.open() as engine:
        await engine.wait_for_outcome(run_id)
        assert [rule.run_id for rule in await engine.service.approval_rules()] == [run_id]


@pytest.mark.req("SF-56")
async def test_a_call_that_matches_an_approved_pattern_is_asked_for_because_of_another(
    harness: EngineHarness, tmp_path: Path
) -> None:
    harness.add_worker(
        "mixes",
        """
        approve: ["command(echo*)", "command(touch *)"]
        input: {FILE: {type: string}}
        steps:
          First: {block: command, command: "echo first"}
          Second: {block: command, command: "echo second"}
          Third: {block: command, command: "echo third && touch {{FILE}}"}
          Fourth: {block: command, command: "touch {{FILE}} && echo fourth"}
        """,
    )
    file = tmp_path / "touched"
    async with harness.open() as engine:
        run_id = await engine.dispatch("mixes", FILE=str(file))
        await decide(engine, run_id, "approve for this run")
        (call_id,) = await engine.wait_until(
            lambda: [
                event.payload.call_id
                for event in harness.events(run_id)
                if isinstance(event.payload, ToolCall) and event.path == "third"
            ]
        )
        assert not file.exists()
        await engine.answer(run_id, call_id, "approve for this run")
        assert (await engine.wait_for_outcome(run_id)).status == "completed"
    asked = [event.payload for event in harness.events(run_id) if isinstance(event.payload, ToolCall)]
    assert [call.input["pattern"] for call in asked] == ["command(echo*)", "command(touch *)"]


@pytest.mark.req("SF-56")
async def test_a_call_that_matches_two_patterns_is_asked_for_once(harness: EngineHarness, tmp_path: Path) -> None:
    harness.add_worker(
        "both",
        """
        approve: ["command(echo*)", "command(touch *)"]
        input: {FILE: {type: string}}
        steps:
          First: {block: command, command: "echo first && touch {{FILE}}"}
          Second: {block: command, command: "touch {{FILE}} && echo second"}
        """,
    )
    async with harness.open() as engine:
        run_id = await engine.dispatch("both", FILE=str(tmp_path / "touched"))

        def asked() -> list[ToolCall]:
            payloads = [event.payload for event in harness.events(run_id)]
            return [each for each in payloads if isinstance(each, ToolCall)]

        await decide(engine, run_id, "approve")
        # The log has the second call before the row no longer has the first.
        await engine.wait_until(lambda: len(asked()) == 2)
        await engine.answer(run_id, asked()[1].call_id, "approve")
        assert (await engine.wait_for_outcome(run_id)).status == "completed"
    assert [call.input["input"]["command"].partition(" ")[0] for call in asked()] == ["echo", "touch"]


async def test_a_request_adds_patterns_for_the_run_its_sub_runs_and_its_reruns(
    harness: EngineHarness, tmp_path: Path
) -> None:
    harness.add_worker("pushes", COMMANDS.replace(', approve: ["command(echo push*)"]', ""))
    harness.add_worker("calls", "steps: {Call: {block: run-worker, worker: pushes, input: {FILE: /dev/null}}}")
    async with harness.open() as engine:
        request = RunRequest(worker="calls", approve=["command(*push*)"], approve_timeout=60)
        run_id = await engine.service.dispatch(request)
        (call,) = await engine.wait_until(
            lambda: [
                (found, event.payload.call_id)
                for found in harness.run_ids()
                for event in harness.events(found)
                if isinstance(event.payload, ToolCall)
            ]
        )
        await engine.answer(call[0], call[1], "yes")
        await engine.wait_for_outcome(run_id)
        again = await engine.service.rerun(run_id)
        started = (await engine.wait_for_status(again, "waiting")).row
        assert started.based_on is not None
        await engine.cancel(again)
        await engine.wait_for_outcome(again)


async def test_an_agent_that_cannot_ask_and_a_wrong_pattern_are_refused_at_dispatch(harness: EngineHarness) -> None:
    harness.add_worker("asks-codex", "approve: [Bash]\nsteps: {Ask: {block: agent, provider: codex, text: hi}}")
    harness.add_worker("plain-codex", "approve: [command]\nsteps: {Ask: {block: agent, provider: codex, text: hi}}")
    harness.add_worker("wrong", 'approve: ["Bash("]\nsteps: {Do: {block: command, command: "true"}}')
    async with harness.open() as engine:
        with pytest.raises(UnsupportedOption, match="codex cannot ask for an approval"):
            await engine.dispatch("asks-codex")
        with pytest.raises(UnsupportedOption, match="codex cannot ask for an approval"):
            await engine.service.dispatch(RunRequest(worker="plain-codex", approve=["Bash"]))
        with pytest.raises(InvalidWorker):
            await engine.dispatch("wrong")


@pytest.mark.req("SF-56")
def test_a_request_shows_the_values_in_a_command_and_every_field_that_changes_the_call() -> None:
    command = {"command": 'git "${VALUE_X}"', "cwd": "/srv", "variables": {"VALUE_X": "push"}}
    assert approval_question({"tool": "command", "input": command}) == (
        'approval of command: git "${VALUE_X}" with VALUE_X=push'
    )
    write = {"file_path": "/srv/a", "content": "rm -rf /"}
    assert approval_question({"tool": "Write", "input": write}) == "approval of Write: /srv/a\ncontent: rm -rf /"
    edit = {"file_path": "/srv/a", "old_string": "a", "new_string": "b"}
    assert approval_question({"tool": "Edit", "input": edit, "diff": "-a\n+b"}) == "approval of Edit: /srv/a\n-a\n+b"


READS_ITS_COMMAND = '''
from pathlib import Path

from shopfloor import worker


@worker(slug="reads-its-command", approve=["command"])
async def reads_its_command(run, FILE: str) -> str:
    """Executes the command in a file."""
    return (await run.command(Path(FILE).read_text())).stdout
'''


@pytest.mark.req("SF-56", "SF-57")
async def test_an_approval_holds_only_for_the_call_that_the_person_saw(harness: EngineHarness, tmp_path: Path) -> None:
    harness.add_python_worker("reads-its-command", READS_ITS_COMMAND)
    file = tmp_path / "command"
    file.write_text("echo first")
    async with harness.open() as engine:
        run_id = await engine.dispatch("reads-its-command", FILE=str(file))
        (first,) = await wait_for_calls(engine, run_id)
    file.write_text("echo second")
    async with harness.open() as engine:
        await engine.answer(run_id, first, "approve")
        with anyio.fail_after(TIMEOUT_SECONDS):
            while (second := (await wait_for_calls(engine, run_id))[0]) == first:
                await anyio.sleep(0.01)
        item = await engine.wait_for_status(run_id, "waiting")
        assert item.pending_requests == ["approval of command: echo second"]
    # The same call as before a restart is not asked again.
    async with harness.open() as engine:
        await engine.answer(run_id, second, "approve")
        await engine.wait_for_status(run_id, "completed")
    payloads = [event.payload for event in harness.verified_events(run_id)]
    assert [each.call_id for each in payloads if isinstance(each, ToolCall)] == [first, second]
