"""What the tests of the server ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.server.runs import Runs, record_runs
from tests.server.shop import Shop, opened

from shopfloor.record import Storage


@pytest.fixture(scope="session")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, Runs]]:
    """A server over runs of every kind, which no test changes."""
    storage = Storage(tmp_path_factory.mktemp("kept") / "storage")
    runs = record_runs(storage)
    with opened(storage) as shop:
        yield shop, runs
    runs.close()


@pytest.fixture
def shop(kept: tuple[Shop, Runs]) -> Shop:
    return kept[0]


@pytest.fixture
def runs(kept: tuple[Shop, Runs]) -> Runs:
    return kept[1]


@pytest.fixture
def client(shop: Shop) -> Iterator[httpx.Client]:
    with shop.client() as client:
        yield client


@pytest.fixture
def own_storage(tmp_path: Path) -> Storage:
    """A storage of a test's own, for runs that go on while it looks."""
    return Storage(tmp_path / "storage")
