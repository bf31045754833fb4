"""The real agents read what `shopfloor mcp install` writes into an empty home."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.agents.agent_environment import PROGRAMS, agent_environment
from tests.agents.agent_runner import SECONDS
from tests.cli.conftest import SHOPFLOOR

pytestmark = pytest.mark.req("SF-47")


class InstalledAgent:
    """An agent with a home of its own, for which the server is installed."""

    def __init__(self, provider: str, tmp_path: Path) -> None:
        self.provider = provider
        self._project = tmp_path / "project"
        self._project.mkdir()
        self._env = {
            **agent_environment(provider, "http://127.0.0.1:9", tmp_path / "home"),
            "SHOPFLOOR_STORAGE": str(tmp_path / "storage"),
        }

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self._env, cwd=self._project, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def list_servers(self) -> str:
        return self.run(PROGRAMS[self.provider], "mcp", "list")

    def stop_server(self) -> None:
        """Stop the server that the MCP server has started, if the agent has started the MCP server."""
        subprocess.run([SHOPFLOOR, "down"], env=self._env, capture_output=True, timeout=SECONDS, check=False)


def check(provider: str, tmp_path: Path, shown: Sequence[str]) -> None:
    agent = InstalledAgent(provider, tmp_path)
    try:
        assert "shopfloor" not in agent.list_servers()
        agent.run(SHOPFLOOR, "mcp", "install", provider)
        listed = agent.list_servers()
        for part in ("shopfloor", *shown):
            assert part in listed
        agent.run(SHOPFLOOR, "mcp", "uninstall", provider)
        assert "shopfloor" not in agent.list_servers()
    finally:
        agent.stop_server()


def test_claude_code_connects_to_the_installed_server(tmp_path: Path) -> None:
    check("claude-code", tmp_path, [f"{SHOPFLOOR} mcp", "Connected"])


def test_codex_lists_the_installed_server(tmp_path: Path) -> None:
    check("codex", tmp_path, [SHOPFLOOR, "enabled"])


@pytest.mark.more_agents
@pytest.mark.parametrize("provider", ["gemini", "copilot", "opencode"])
def test_other_agents_list_the_installed_server(tmp_path: Path, provider: str) -> None:
    check(provider, tmp_path, [])
