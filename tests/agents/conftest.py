"""Real agents with a scripted model and no account: see `agent_runner.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agents.agent_runner import AgentRunner
from tests.model_server.fixtures import model_server_thread
from tests.model_server.server import ModelServer

__all__ = ["agent_runner", "model_server_thread"]

MakeAgentRunner = Callable[[str, str], AgentRunner]


@pytest.fixture
def agent_runner(model_server_thread: ModelServer, tmp_path: Path) -> Iterator[MakeAgentRunner]:
    """Create the runner of an agent with a scenario: `agent_runner("codex", "bash")`."""
    runners: list[AgentRunner] = []

    def create(provider: str, scenario: str) -> AgentRunner:
        runners.append(AgentRunner(provider, scenario, model_server_thread, tmp_path))
        return runners[-1]

    yield create
    for runner in runners:
        runner.kill_remaining()
