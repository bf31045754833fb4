"""What tests of the engine can ask for."""

from pathlib import Path

import pytest
from tests.engine.floor import Floor
from tests.model_server.fixtures import model_server, model_server_thread

from shopfloor.record import Storage

__all__ = ["floor", "model_server", "model_server_thread"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def floor(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Floor:
    """An empty shop floor. Scripted models do not dawdle on it."""
    monkeypatch.setenv("SHOPFLOOR_SCRIPT_DELAY_MS", "0")
    return Floor(storage, tmp_path / "workers")
