"""Fixtures: the scripted model server for the suite of models, a storage of each kind for all others."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.storages import STORAGES, StorageUnderTest
from tests.model_server.fixtures import model_server, model_server_thread

from shopfloor.ports import LogFeed, LogReader, Logs, Queue, Store

__all__ = ["model_server", "model_server_thread"]


@pytest.fixture(params=STORAGES)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def storage_under_test(kind: str, tmp_path: Path) -> StorageUnderTest:
    """Return an empty storage of each kind."""
    return STORAGES[kind](tmp_path)


@pytest.fixture
def other(kind: str, tmp_path: Path) -> StorageUnderTest:
    """Return another storage of the same kind as `storage_under_test`."""
    return STORAGES[kind](tmp_path / "other")


@pytest.fixture
async def rows(storage_under_test: StorageUnderTest) -> AsyncIterator[tuple[Store, Queue]]:
    async with storage_under_test.rows() as opened:
        yield opened


@pytest.fixture
def store(rows: tuple[Store, Queue]) -> Store:
    return rows[0]


@pytest.fixture
def queue(rows: tuple[Store, Queue]) -> Queue:
    return rows[1]


@pytest.fixture
def logs(storage_under_test: StorageUnderTest) -> Logs:
    return storage_under_test.logs()


@pytest.fixture
def reader(storage_under_test: StorageUnderTest) -> LogReader:
    return storage_under_test.reader


@pytest.fixture
def feed(storage_under_test: StorageUnderTest) -> LogFeed:
    return storage_under_test.feed
