"""What the tests of the page ask for: a browser, servers with runs to look at, and tabs that are watched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, expect
from tests.browser import crowd
from tests.browser.malice import write_malice, write_shapes
from tests.browser.server import Server
from tests.browser.stories import Stories, write_large, write_stories
from tests.browser.tabs import PATIENCE_MS, Tabs, chromium, watched
from tests.model_server.server import ModelServer, in_thread

from shopfloor.server.page_files import INDEX, PAGE_FOLDER

_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if not (PAGE_FOLDER / INDEX).is_file():
        pytest.fail("the page is not built: make page", pytrace=False)
    expect.set_options(timeout=PATIENCE_MS)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def model() -> Iterator[ModelServer]:
    with in_thread() as server:
        yield server


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> Iterator[Server]:
    """A server for runs that tests make; each makes its own, under an owner of its own."""
    with Server(tmp_path_factory.mktemp("floor"), **model.env) as server:
        yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own: to be killed, or to have nothing in it."""
    with Server(tmp_path) as server:
        yield server


class Archive(msgspec.Struct, frozen=True):
    """A server over logs that were there before it; no test changes them."""

    server: Server
    stories: Stories
    malice: str


@pytest.fixture(scope="package")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    server = Server(tmp_path_factory.mktemp("archive"))
    stories, malice = write_stories(server.storage), write_malice(server.storage)
    with server:
        server.becomes(malice, "failed")
        yield Archive(server, stories, malice)


@pytest.fixture(scope="package")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with very many runs."""
    server = Server(tmp_path_factory.mktemp("crowd"))
    crowd.fill(server.storage)
    with server:
        yield server


class Shelf(msgspec.Struct, frozen=True):
    """A server with runs that are very large."""

    server: Server
    long: str
    large: str
    shapes: str


@pytest.fixture(scope="package")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    server = Server(tmp_path_factory.mktemp("shelf"))
    long, large = write_large(server.storage)
    shapes = write_shapes(server.storage)
    with server:
        for run_id in (long, large, shapes):
            server.becomes(run_id, "done", seconds=180)
        yield Shelf(server, long, large, shapes)


@pytest.fixture
def tabs(browser: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tabs]:
    with watched(browser) as tabs:
        yield tabs
        if request.node.stash.get(_FAILED, False):
            tabs.photograph(tmp_path)


@pytest.fixture
def owner(request: pytest.FixtureRequest) -> str:
    """Whose runs a test makes, so that it sees no others."""
    return request.node.name.removeprefix("test_").replace("[", "-").replace("]", "")[:80]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True
    return report
