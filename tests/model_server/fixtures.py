"""The server as a fixture: `from tests.model_server.fixtures import model_server, model_server_thread` in a conftest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.model_server.server import ModelServer, in_thread


@pytest.fixture(scope="session")
def model_server_thread() -> Iterator[ModelServer]:
    with in_thread() as server:
        yield server


@pytest.fixture
def model_server(model_server_thread: ModelServer) -> Iterator[ModelServer]:
    """A server without a script and without requests so far."""
    model_server_thread.say()
    yield model_server_thread
    model_server_thread.say()
