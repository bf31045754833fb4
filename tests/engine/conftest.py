"""Fixtures for the tests of the engine."""

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
    """Run tests on storages in memory, and on files if `@pytest.mark.storages` names them.

    In `make test-long` every test runs on both, except the tests that are only about files.
    """
    if "harness" not in metafunc.fixturenames:
        return
    mark = metafunc.definition.get_closest_marker("storages")
    storages = mark.args if mark else ("memory",)
    if "memory" in storages and os.environ.get("SHOPFLOOR_TEST_LONG") == "1":
        storages = tuple(HARNESSES)
    metafunc.parametrize("harness", storages, indirect=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def load_models(request: pytest.FixtureRequest) -> None:
    """Import the libraries of model providers before a test waits for an answer: the import may take long."""
    if "model_server" in request.fixturenames:
        importlib.import_module("shopfloor.adapters.models.pydantic_ai_models")


@pytest.fixture
def harness(
    request: pytest.FixtureRequest, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> EngineHarness:
    """An empty harness. Scripted models answer without a delay."""
    monkeypatch.setenv("SHOPFLOOR_SCRIPT_DELAY_MS", "0")
    return HARNESSES[request.param](storage, tmp_path / "workers")
