"""The scripted model server, for those who ask models; storages, for those who write and read logs."""

from pathlib import Path

import pytest
from tests.contract.storages import STORAGES, StorageUnderTest
from tests.model_server.fixtures import model_server, model_server_thread

from shopfloor.ports import LogFeed, LogReader, Logs

__all__ = ["model_server", "model_server_thread"]


@pytest.fixture(params=STORAGES)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> StorageUnderTest:
    """An empty storage of each kind."""
    return STORAGES[request.param](tmp_path)


@pytest.fixture
def logs(kept: StorageUnderTest) -> Logs:
    return kept.logs()


@pytest.fixture
def reader(kept: StorageUnderTest) -> LogReader:
    return kept.reader


@pytest.fixture
def feed(kept: StorageUnderTest) -> LogFeed:
    return kept.feed
