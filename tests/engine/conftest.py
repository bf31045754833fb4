"""What tests of the engine can ask for."""

import importlib
import os
from pathlib import Path
from typing import Final

import pytest
from tests.engine.harness import EngineHarness, FileEngineHarness, MemoryEngineHarness
from tests.model_server.fixtures import model_server, model_server_thread

from shopfloor.record import Storage

__all__ = ["harness", "model_server", "model_server_thread"]

HARNESSES: Final = {"memory": MemoryEngineHarness, "files": FileEngineHarness}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is recorded is kept in memory, and where `@pytest.mark.storages` says so, in files.

    In `make test-long` every test runs on both, but for those that are about files.
    """
    if "harness" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("storages")
    named = mark.args if mark else ("memory",)
    if "memory" in named and os.environ.get("SHOPFLOOR_TEST_LONG") == "1":
        named = tuple(HARNESSES)
    metafunc.parametrize("harness", named, indirect=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def load_models(request: pytest.FixtureRequest) -> None:
    """Load the libraries of model providers before a test waits for an answer: a busy machine takes long for it."""
    if "model_server" in request.fixturenames:
        importlib.import_module("shopfloor.adapters.models.pydantic_ai_models")


@pytest.fixture
def harness(
    request: pytest.FixtureRequest, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> EngineHarness:
    """An empty shop floor. Scripted models do not dawdle on it."""
    monkeypatch.setenv("SHOPFLOOR_SCRIPT_DELAY_MS", "0")
    return HARNESSES[request.param](storage, tmp_path / "workers")
