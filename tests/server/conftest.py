"""Fixtures for tests of the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.server.recorded_runs import RecordedRuns, record_runs
from tests.server.server import RunningServer, open_server

from shopfloor.record import Storage


@pytest.fixture(scope="session")
def recorded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, RecordedRuns]]:
    """A server with runs of every kind. Tests must not change them."""
    storage = Storage(tmp_path_factory.mktemp("recorded_server") / "storage")
    runs = record_runs(storage)
    with open_server(storage) as server:
        yield server, runs
    runs.close()


@pytest.fixture
def server(recorded_server: tuple[RunningServer, RecordedRuns]) -> RunningServer:
    return recorded_server[0]


@pytest.fixture
def runs(recorded_server: tuple[RunningServer, RecordedRuns]) -> RecordedRuns:
    return recorded_server[1]


@pytest.fixture
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def own_storage(tmp_path: Path) -> Storage:
    """A storage for one test, which may write to it."""
    return Storage(tmp_path / "storage")
