"""Real agents, a scripted model, and no account: see `driven.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.agents.driven import Driven
from tests.model_server.fixtures import model_server_thread
from tests.model_server.server import ModelServer

__all__ = ["driven", "model_server_thread"]

Drive = Callable[[str, str], Driven]


@pytest.fixture
def driven(model_server_thread: ModelServer, tmp_path: Path) -> Iterator[Drive]:
    """An agent that is told a scenario: `driven("codex", "bash")`."""
    made: list[Driven] = []

    def drive(provider: str, scenario: str) -> Driven:
        made.append(Driven(provider, scenario, model_server_thread, tmp_path))
        return made[-1]

    yield drive
    for one in made:
        one.sweep()
