"""Real agents, a scripted model, and no account: see `agent_runner.py`."""

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
    """An agent that is told a scenario: `agent_runner("codex", "bash")`."""
    made: list[AgentRunner] = []

    def drive(provider: str, scenario: str) -> AgentRunner:
        made.append(AgentRunner(provider, scenario, model_server_thread, tmp_path))
        return made[-1]

    yield drive
    for one in made:
        one.kill_remaining()
