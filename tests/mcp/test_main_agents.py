"""The real Claude Code and Codex as main agents: a scripted model calls our tools, and the work outlives the session."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.agents.agent_environment import agent_environment
from tests.cli.conftest import SHOPFLOOR
from tests.mcp.installation import Installation
from tests.model_server.fixtures import model_server, model_server_thread
from tests.model_server.script import RecordedRequest, Text, ToolUse, Turn
from tests.model_server.server import ModelServer
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.limits import CHARS_PER_TOKEN
from shopfloor.mcp.limits import INSTRUCTIONS_CHARS, MCP_TOOLS_TOKENS
from shopfloor.mcp.tools import TOOLS

__all__ = ["model_server", "model_server_thread"]

PROMPT = "Let the worker look into the sky."


class MainAgent:
    """An agent with an empty home, our MCP server installed by our own command, and a scripted model."""

    def __init__(self, provider: str, installation: Installation, model: ModelServer) -> None:
        self.provider = provider
        self.installation = installation
        self.model = model
        home = installation.folder / "home"
        self.env = agent_environment(provider, model.url, home)
        self._install(home)

    def _install(self, home: Path) -> None:
        """Add our server to the agent's empty home, by our own command."""
        storage = self.installation.env["SHOPFLOOR_STORAGE"]
        self.run_command(SHOPFLOOR, "mcp", "install", self.provider, "--storage", storage)
        port = self.installation.env["SHOPFLOOR_PORT"]
        self.env["SHOPFLOOR_PORT"] = port
        if self.provider == "codex":
            # Codex does not pass its environment to MCP servers.
            with (home / ".codex" / "config.toml").open("a") as config:
                config.write(f'\n[mcp_servers.shopfloor.env]\nSHOPFLOOR_PORT = "{port}"\n')

    def run_command(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def use(self, tool: str, **arguments: Any) -> ToolUse:
        """Return a call of our tool, under the name that the agent gives it."""
        if self.provider == "codex":
            return ToolUse(name=tool, namespace="mcp__shopfloor", input=arguments)
        return ToolUse(name=f"mcp__shopfloor__{tool}", input=arguments)

    def start(self) -> subprocess.Popen[str]:
        command = self._codex() if self.provider == "codex" else self._claude()
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=self.env, cwd=self.installation.project, text=True, **pipes)

    def run(self) -> str:
        """Run a session to its end and return its output."""
        process = self.start()
        out, err = process.communicate(timeout=2 * TIMEOUT_SECONDS)
        assert process.returncode == 0, out + err
        return out

    def _claude(self) -> list[str]:
        return ["claude", "-p", PROMPT, "--dangerously-skip-permissions"]

    def _codex(self) -> list[str]:
        words = [word for line in self.env["SHOPFLOOR_CODEX_CONFIG"].splitlines() for word in ("-c", line)]
        options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "scripted-model"]
        return ["codex", "exec", *options, *words, PROMPT]

    def first_request(self) -> RecordedRequest:
        """Return the first request that offers our tools."""
        return next(request for request in self.model.requests() if "worker_dispatch" in json.dumps(request.body))


@pytest.fixture(params=["claude-code", "codex"])
def agent(request: pytest.FixtureRequest, installation: Installation, model_server: ModelServer) -> MainAgent:
    return MainAgent(request.param, installation, model_server)


def ended(agent: MainAgent, text: str) -> list[Turn]:
    """The turns after the run has ended: fetch the result, then say it."""
    return [
        Turn(match=text, say=[Text(text=f"The worker says: {text}.")], times=0),
        Turn(match='next_step\\":\\"worker_result', say=[agent.use("worker_result", run_id="last")]),
    ]


@pytest.mark.req("REQ-WD-39")
def test_an_agent_dispatches_relays_a_question_and_brings_back_the_result(agent: MainAgent) -> None:
    agent.model.say(
        *ended(agent, "The sky is green"),
        Turn(match="Which color?", say=[agent.use("worker_answer", run_id="last", answer="green")]),
        Turn(match=PROMPT, say=[agent.use("worker_dispatch", worker="asks", task="The sky")]),
        Turn(match=PROMPT, say=[agent.use("worker_wait", run_ids=["last"])], times=0),
        Turn(say=[Text(text="A title")], times=0),
    )
    assert "The worker says: The sky is green." in agent.run()
    (run,) = json.loads(agent.installation.shopfloor("list", "--json").stdout)["workers"]
    assert (run["name"], run["status"], run["channel_id"]) == ("asks", "done", "mcp")
    client = run["client"]
    expected = {"claude-code": ("claude-code", "2.1.325"), "codex": ("codex-mcp-client", "0.166.0")}
    assert (client["name"], client["version"]) == expected[agent.provider]
    assert len(client["session_id"]) == 36


def test_work_outlives_a_killed_agent_and_a_new_session_fetches_it(agent: MainAgent) -> None:
    agent.model.say(
        Turn(match=PROMPT, say=[agent.use("worker_dispatch", worker="sleeps", input={"SECONDS": "1"})]),
        Turn(match=PROMPT, say=[Text(text="I will wait for it.")], hang_after=1, times=0),
        Turn(say=[Text(text="A title")], times=0),
    )
    process = agent.start()
    wait_until(lambda: _find_runs(agent), "the run", 2 * TIMEOUT_SECONDS)
    process.kill()
    process.communicate()
    assert agent.installation.address is not None
    wait_until(lambda: [run["status"] for run in _find_runs(agent)] == ["done"], "the end of the run")
    agent.model.say(
        Turn(match="slept", say=[Text(text="The worker says: slept.")], times=0),
        Turn(match=PROMPT, say=[agent.use("worker_result", run_id="last")]),
        Turn(say=[Text(text="A title")], times=0),
    )
    assert "The worker says: slept." in agent.run()


def _find_runs(agent: MainAgent) -> list[dict[str, Any]]:
    return json.loads(agent.installation.shopfloor("list", "--json").stdout)["workers"]


@pytest.mark.req("REQ-WD-39")
def test_the_model_gets_our_instructions_and_tools_and_they_are_small(agent: MainAgent) -> None:
    agent.model.say(Turn(say=[Text(text="Nothing to do.")], times=0))
    agent.run()
    body = agent.first_request().body
    text = json.dumps(body)
    assert "Shopfloor runs workers" in text
    assert "- greet: Greets somebody by name." in text
    tools = _our_tools(agent, body)
    assert sorted(tools) == sorted(TOOLS)
    size = sum(len(json.dumps(tool)) for tool in tools.values())
    assert size / CHARS_PER_TOKEN < MCP_TOOLS_TOKENS
    assert (size + INSTRUCTIONS_CHARS) / CHARS_PER_TOKEN < MCP_TOOLS_TOKENS


def _our_tools(agent: MainAgent, body: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if agent.provider == "codex":
        (group,) = [tool for tool in body["tools"] if tool.get("name") == "mcp__shopfloor"]
        return {tool["name"]: tool for tool in group["tools"]}
    prefix = "mcp__shopfloor__"
    return {tool["name"].removeprefix(prefix): tool for tool in body["tools"] if tool["name"].startswith(prefix)}


def test_a_server_that_an_agent_started_knows_nothing_of_its_session(agent: MainAgent) -> None:
    agent.model.say(Turn(say=[Text(text="Nothing to do.")], times=0))
    agent.run()
    address = agent.installation.address
    assert address is not None
    environment = Path(f"/proc/{address.pid}/environ").read_bytes().decode().split("\0")
    names = {entry.partition("=")[0] for entry in environment}
    assert "HOME" in names
    assert not {name for name in names if name.startswith(("CLAUDE_CODE_SESSION", "CLAUDE_CODE_MESSAGING"))}
    assert names.isdisjoint({"CLAUDECODE", "AI_AGENT", "CLAUDE_CODE_ENTRYPOINT"})
