"""Claude through its Agent SDK, under the installed `shopfloor`, with a model that follows a script."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.agent_environment import agent_environment
from tests.agents.agent_runner import PROMPT, AgentRunner, Log
from tests.model_server.scenarios import SUB_TASK
from tests.model_server.script import Text, ToolUse, Turn
from tests.model_server.server import ModelServer

CALL_USD = 0.00636
"""What one call of the script costs by Claude Code's own prices."""
TOOLS = """
import os


def add(arguments):
    print("not for the stream")
    return {"sum": arguments["a"] + arguments["b"], "session": os.getppid() != 0}


async def shout(arguments):
    return arguments["word"].upper() + "!"


def boom(arguments):
    raise RuntimeError("the tool broke")


def leave(arguments):
    raise SystemExit
"""
WORKER = """
tools:
  add:
    description: Adds two numbers.
    parameters: {type: object, properties: {a: {type: number}, b: {type: number}}, required: [a, b]}
    handler: "their_tools:add"
  shout: {description: Says it louder., parameters: {type: object}, handler: "their_tools:shout"}
  boom: {description: Breaks., parameters: {type: object}, handler: "their_tools:boom"}
  leave: {description: Leaves., parameters: {type: object}, handler: "their_tools:leave"}
steps:
  Ask:
    block: agent
    provider: claude-sdk
    text: "Please use your tools."
    ownTools: [OWN]
    OPTIONS
    output: SAID
output: SAID
"""


class Sdk(AgentRunner):
    """Runner of the SDK, which brings its own Claude Code, in the environment of Claude Code."""

    def set_scenario(self, scenario: str) -> None:
        self._at(self._server.scenario("claude", scenario, uuid.uuid4().hex[:8]))

    def set_turns(self, *turns: Turn) -> None:
        self._server.say(Turn(say=[Text(text="A title")], tools=False, times=0), *turns)
        self._at(self._server)

    def _at(self, model: ModelServer) -> None:
        self.model = model
        env = agent_environment("claude-code", model.url, self._folder / "home")
        modules = self._folder / "modules"
        self.env = {
            **env,
            "SHOPFLOOR_STORAGE": str(self._storage),
            "DRIVEN": self._marker,
            "PYTHONPATH": str(modules),
        }

    def work(self, *own: str, options: str = "") -> tuple[Log, str]:
        """Run a worker whose agent may call these own tools."""
        modules = self._folder / "modules"
        modules.mkdir(exist_ok=True)
        (modules / "their_tools.py").write_text(TOOLS)
        folder = self._folder / "workers" / "with-tools"
        (folder / "prompts").mkdir(parents=True)
        (folder / "prompts" / "Latin.md").write_text("Speak only Latin.")
        (folder / "worker.yaml").write_text(WORKER.replace("OWN", ", ".join(own)).replace("OPTIONS", options))
        ran = self.shopfloor("run", "with-tools", "--workers", str(folder.parent), "--cwd", str(self.cwd))
        paths = self._paths()
        assert len(paths) == 1, ran.stdout + ran.stderr
        return Log(paths[0]), ran.stdout + ran.stderr


@pytest.fixture
def claude(model_server_thread: ModelServer, tmp_path: Path) -> Iterator[Callable[[str], Sdk]]:
    made: list[Sdk] = []

    def drive(scenario: str) -> Sdk:
        made.append(Sdk("claude-sdk", scenario, model_server_thread, tmp_path))
        return made[-1]

    yield drive
    for one in made:
        one.kill_remaining()
    model_server_thread.say()


def completed(log: Log, calls: int) -> bool:
    """Return whether a run completed with the usage and the cost of this many model calls."""
    outcome = log.outcome
    assert outcome["status"] == "completed", outcome
    assert outcome["usage"]["output"] == 45 * calls
    assert outcome["cost"] == {"usd": pytest.approx(CALL_USD * calls), "source": "agent"}
    return True


def offered(agent: Sdk) -> set[str]:
    """Return the tools that requests offered to the model, without a placeholder for tools that may come later."""
    names = {tool["name"] for requests in agent.model.requests() for tool in requests.body.get("tools", [])}
    return names - {"DeferredToolPlaceholder"}


def used(name: str, **arguments: Any) -> ToolUse:
    return ToolUse(name=f"mcp__shopfloor__{name}", input=arguments)


# What it says and does


def test_its_messages_are_on_record_in_a_session_with_our_id(claude):
    ran = claude("text").run()
    assert ran.code == 0, ran.err
    assert completed(ran.log, calls=1)
    assert ran.log.texts == ["Hello from the script. ", "Snowman ☃, emoji 😀, <b>html</b>,\nend."]
    assert ran.log.outcome["result"] == ran.log.texts[-1]
    ready, _ = [note["ready"] for note in ran.log.notes("ready")]
    session = ran.log.session
    assert (session["provider"], session["access_mode"]) == ("claude-sdk", "api")
    assert session["session_id"] == ready["session_id"] == ran.log.session_id
    assert PROMPT not in " ".join(session["process"]["args"])


@pytest.mark.more_agents
def test_its_system_prompt_is_claude_codes_with_ours_added(claude):
    agent = claude("text")
    log, printed = agent.work(options="system: Latin")
    assert completed(log, calls=1), printed
    system = str(agent.model.requests()[-1].body["system"])
    assert "Speak only Latin." in system
    assert len(system) > 2000


@pytest.mark.more_agents
def test_a_command_and_its_result_are_on_record(claude):
    agent = claude("bash")
    ran = agent.run()
    assert completed(ran.log, calls=2)
    (call,), (result,) = ran.log.calls, ran.log.results
    assert (call["name"], call["input"]["command"]) == ("Bash", "echo hello-from-tool && pwd")
    assert result["output"] == f"hello-from-tool\n{agent.cwd}"


@pytest.mark.more_agents
def test_files_that_it_changes_are_on_record(claude):
    agent = claude("files")
    ran = agent.run()
    assert completed(ran.log, calls=3)
    (made,), (changed,) = [result["files"] for result in ran.log.results]
    assert (made["action"], changed["action"]) == ("create", "modify")
    assert "-line two\n+line 2" in changed["diff"]


@pytest.mark.more_agents
def test_a_sub_agent_is_a_run_of_its_own(claude):
    ran = claude("agents").run()
    assert ran.log.outcome["result"] == "The sub-agent reported."
    (child,) = ran.children
    assert (child.first["name"], child.first["task"]) == ("general-purpose", SUB_TASK)
    assert (child.outcome["status"], child.outcome["result"]) == ("completed", "The sub-agent's report.")
    assert child.result_of("echo in-sub-agent")["output"] == "in-sub-agent"


@pytest.mark.more_agents
def test_a_session_is_resumed(claude):
    agent = claude("echo")
    first = agent.run()
    second = agent.run("--resume", first.log.run_id, prompt="And now the rest.")
    assert completed(second.log, calls=1)
    assert second.log.texts == [f"You said: {PROMPT} | And now the rest."]
    assert second.log.session_id == first.log.session_id


# Tools of a worker's own


def test_its_own_tools_are_called_in_its_own_process(claude):
    agent = claude("text")
    uses = [used("add", a=2, b=40), used("shout", word="hey")]
    agent.set_turns(Turn(say=[Text(text="I add."), *uses]), Turn(say=[Text(text="It is 42.")]))
    log, printed = agent.work("add", "shout")
    assert log.outcome["result"] == "It is 42.", printed
    assert [call["name"] for call in log.calls] == ["mcp__shopfloor__add", "mcp__shopfloor__shout"]
    assert log.result_of('"a"')["output"] == '{"sum":42,"session":true}'
    assert log.result_of("hey")["output"] == "HEY!"
    assert log.unparsed_lines == []
    assert {"mcp__shopfloor__add", "mcp__shopfloor__shout"} <= offered(agent)
    assert "mcp__shopfloor__boom" not in offered(agent)


@pytest.mark.req("SF-56")
@pytest.mark.parametrize(
    "pattern",
    [
        "add",
        "mcp__*(*40*)",
        *(pytest.param(pattern, marks=pytest.mark.more_agents) for pattern in ("a*", "m*(*40*)", "[m]cp__?*_add")),
    ],
)
def test_an_own_tool_is_called_once_it_is_approved(claude, pattern):
    agent = claude("text")
    uses = [used("shout", word="hey"), used("add", a=2, b=40)]
    agent.set_turns(Turn(say=[*uses]))
    log, printed = agent.work("add", "shout", options=f'approve: ["{pattern}"]')
    (asked,) = [call for call in log.calls if call["name"] == "approval"]
    assert asked["input"]["tool"] == ("add" if pattern[0] == "a" else "mcp__shopfloor__add"), printed
    answered = agent.shopfloor("answer", "last", "approve")
    assert answered.returncode == 0, answered.stderr
    agent.set_turns(Turn(say=[uses[1]]), Turn(say=[Text(text="It is 42.")]))
    assert agent.shopfloor("resume", "last").returncode == 0
    (log,) = agent.logs()
    assert [result["output"] for result in log.results if "sum" in str(result["output"])] == [
        '{"sum":42,"session":true}'
    ]
    assert len([call for call in log.calls if call["name"] == "approval"]) == 1


@pytest.mark.more_agents
@pytest.mark.parametrize(("name", "error"), [("boom", "RuntimeError: the tool broke"), ("leave", "SystemExit")])
def test_an_own_tool_that_raises_is_a_tool_that_failed(claude, name, error):
    agent = claude("text")
    agent.set_turns(Turn(say=[used(name)]), Turn(say=[Text(text="It broke.")]))
    log, printed = agent.work(name)
    assert log.outcome["status"] == "completed", printed
    (result,) = log.results
    assert result["error"] == error


@pytest.mark.more_agents
def test_an_own_tool_is_not_called_with_invalid_input(claude):
    agent = claude("text")
    agent.set_turns(Turn(say=[used("add", a="two")]), Turn(say=[Text(text="It broke.")]))
    log, _ = agent.work("add")
    (result,) = log.results
    assert "validation" in result["error"].lower()


@pytest.mark.more_agents
@pytest.mark.parametrize(("options", "unrestricted"), [("readOnly: true", False), ("tools: [Read, Glob, Grep]", True)])
def test_own_tools_are_available_beside_read_only_tools(claude, options, unrestricted):
    agent = claude("text")
    agent.set_turns(Turn(say=[used("shout", word="hey")]), Turn(say=[Text(text="Heard.")]))
    if not unrestricted:
        del agent.env["IS_SANDBOX"]
    log, printed = agent.work("shout", options=options)
    assert log.outcome["status"] == "completed", printed
    assert [result["output"] for result in log.results] == ["HEY!"]
    assert offered(agent) == {"Read", "Glob", "Grep", "mcp__shopfloor__shout"}


# What it may do


@pytest.mark.more_agents
def test_modules_in_its_folder_are_not_taken_for_our_own(claude):
    agent = claude("text")
    for name in ("anyio", "json", "mcp", "msgspec"):
        (agent.cwd / f"{name}.py").write_text("raise SystemExit('taken')")
    assert completed(agent.run().log, calls=1)


@pytest.mark.more_agents
@pytest.mark.parametrize("scenario", ["bash", "files"])
def test_without_a_sandbox_it_works_with_the_permissions_it_gets(claude, scenario):
    agent = claude(scenario)
    del agent.env["IS_SANDBOX"]
    ran = agent.run()
    assert ran.log.outcome["status"] == "completed"
    assert [result.get("error") for result in ran.log.results] == [None] * len(ran.log.calls)


def test_a_read_only_agent_changes_nothing(claude):
    agent = claude("touch")
    ran = agent.run("--read-only")
    assert completed(ran.log, calls=2)
    assert ran.log.results[0]["error"]
    assert offered(agent) == {"Read", "Glob", "Grep"}
    assert not (agent.cwd / "touched").exists()


def test_a_sandbox_that_cannot_start_lets_nothing_run(claude):
    agent = claude("touch")
    # A PATH without the programs of a sandbox, even if this machine has them.
    programs = agent.cwd.parent / "programs"
    programs.mkdir()
    for name in ("bash", "sh", "env", "git"):
        found = next((one for one in (Path("/usr/bin") / name, Path("/bin") / name) if one.exists()), None)
        if found is not None:
            (programs / name).symlink_to(found)
    agent.env["PATH"] = str(programs)
    ran = agent.run("--sandbox")
    assert ran.code not in (0, 130)
    assert ran.log.error["code"] == "agent_error"
    assert "sandbox required but unavailable" in ran.log.error["message"].lower()
    assert (agent.model.requests(), ran.log.calls) == ([], [])
    assert not (agent.cwd / "touched").exists()


@pytest.mark.more_agents
def test_a_budget_ends_it(claude):
    agent = claude("loop")
    ran = agent.run("--max-budget", "0.01")
    assert ran.log.error["code"] == "budget_exceeded"
    assert ran.log.outcome["cost"]["usd"] >= 0.01
    assert len(agent.model.requests()) <= 4


@pytest.mark.more_agents
def test_a_limit_of_turns_ends_it(claude):
    agent = claude("loop")
    ran = agent.run("--max-turns", "2")
    assert ran.log.error["code"] == "max_turns_exceeded"
    assert len(agent.model.requests()) == 2
    assert "Traceback" not in ran.err


# What goes wrong


@pytest.mark.more_agents
def test_a_model_that_never_answers_fails_the_run_by_its_name(claude):
    ran = claude("rl_forever").run()
    assert (ran.log.error["code"], ran.log.error["retryable"]) == ("rate_limit_error", True)
    assert [(note["status"], note["try"]) for note in ran.log.notes("retry")] == [(429, 1), (429, 2)]


def test_a_cancel_ends_the_session_and_its_commands(claude):
    agent = claude("long")
    process = agent.start()
    log = agent.wait_for_tool(process)
    cancelled = agent.shopfloor("cancel", log.run_id, "--reason", "wrong task")
    assert cancelled.returncode == 0, cancelled.stderr
    ran = agent.end(process)
    assert (ran.log.outcome["status"], ran.log.error["message"]) == ("cancelled", "wrong task")
    assert ran.log.texts == ["Sleeping."]
    assert not (agent.cwd / "ended").exists()


@pytest.mark.more_agents
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_session_whose_process_alone_is_ended_leaves_nothing(claude, number):
    agent = claude("long")
    process = agent.start()
    log = agent.wait_for_tool(process)
    os.kill(log.session["process"]["pid"], number)
    ran = agent.end(process)
    assert ran.log.error["code"] == "agent_error"
    assert signal.Signals(number).name in ran.log.error["message"]
    assert not (agent.cwd / "ended").exists()
