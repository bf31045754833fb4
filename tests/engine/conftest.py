"""What tests of the engine can ask for."""

import importlib
import os
from pathlib import Path
from typing import Final

import pytest
from tests.engine.floor import FileFloor, Floor, MemoryFloor
from tests.model_server.fixtures import model_server, model_server_thread

from shopfloor.record import Storage

__all__ = ["floor", "model_server", "model_server_thread"]

FLOORS: Final = {"memory": MemoryFloor, "files": FileFloor}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is recorded is kept in memory, and where `@pytest.mark.floors` says so, in files.

    In `make test-long` every test runs on both, but for those that are about files.
    """
    if "floor" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("floors")
    named = mark.args if mark else ("memory",)
    if "memory" in named and os.environ.get("SHOPFLOOR_TEST_LONG") == "1":
        named = tuple(FLOORS)
    metafunc.parametrize("floor", named, indirect=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def load_models(request: pytest.FixtureRequest) -> None:
    """Load the libraries of model providers before a test waits for an answer: a busy machine takes long for it."""
    if "model_server" in request.fixturenames:
        importlib.import_module("shopfloor.adapters.models.remote")


@pytest.fixture
def floor(request: pytest.FixtureRequest, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Floor:
    """An empty shop floor. Scripted models do not dawdle on it."""
    monkeypatch.setenv("SHOPFLOOR_SCRIPT_DELAY_MS", "0")
    return FLOORS[request.param](storage, tmp_path / "workers")
