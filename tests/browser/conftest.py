"""Fixtures of the browser tests: a browser, servers with runs, and tabs whose errors fail the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, expect
from tests.browser import many_runs
from tests.browser.demo_runs import DemoRuns, write_demo_runs
from tests.browser.hostile_text import write_hostile_text, write_shapes
from tests.browser.sample_runs import SampleRuns, write_large, write_sample_runs
from tests.browser.server import Server
from tests.browser.tabs import TIMEOUT_MS, Tabs, checked_tabs, chromium
from tests.model_server.server import ModelServer, in_thread

from shopfloor.server.page_files import INDEX, PAGE_FOLDER

_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if not (PAGE_FOLDER / INDEX).is_file():
        pytest.fail("the page is not built: make page", pytrace=False)
    expect.set_options(timeout=TIMEOUT_MS)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def model() -> Iterator[ModelServer]:
    with in_thread() as server:
        yield server


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> Iterator[Server]:
    """A server shared by tests that start runs; each test uses an owner of its own."""
    with Server(tmp_path_factory.mktemp("floor"), **model.env) as server:
        yield server


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server for one test: to be killed, or to be empty."""
    with Server(tmp_path) as server:
        yield server


class RecordedRuns(msgspec.Struct, frozen=True):
    """A server over logs that were written before it started; no test changes them."""

    server: Server
    stories: SampleRuns
    hostile_text: str


@pytest.fixture(scope="package")
def recorded_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedRuns]:
    server = Server(tmp_path_factory.mktemp("recorded_runs"))
    stories, hostile_text = write_sample_runs(server.storage), write_hostile_text(server.storage)
    with server:
        server.wait_for_status(hostile_text, "failed")
        yield RecordedRuns(server, stories, hostile_text)


class Demo(msgspec.Struct, frozen=True):
    """A server with two weeks of plausible runs; no test changes them."""

    server: Server
    runs: DemoRuns


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    server = Server(tmp_path_factory.mktemp("demo"))
    runs = write_demo_runs(server.storage)
    with server:
        server.wait_for_status(runs.reviewed, "done")
        yield Demo(server, runs)


@pytest.fixture(scope="package")
def many_runs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with thousands of runs."""
    server = Server(tmp_path_factory.mktemp("many_runs"))
    many_runs.fill(server.storage)
    with server:
        yield server


class LargeRuns(msgspec.Struct, frozen=True):
    """A server with very large runs."""

    server: Server
    long: str
    large: str
    shapes: str


@pytest.fixture(scope="package")
def large_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LargeRuns]:
    server = Server(tmp_path_factory.mktemp("large_runs"))
    long, large = write_large(server.storage)
    shapes = write_shapes(server.storage)
    with server:
        for run_id in (long, large, shapes):
            server.wait_for_status(run_id, "done", seconds=180)
        yield LargeRuns(server, long, large, shapes)


@pytest.fixture
def tabs(browser: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tabs]:
    with checked_tabs(browser) as tabs:
        yield tabs
        if request.node.stash.get(_FAILED, False):
            tabs.take_screenshot(tmp_path)


@pytest.fixture
def owner(request: pytest.FixtureRequest) -> str:
    """The owner of the runs that a test starts, so that the test sees no others."""
    return request.node.name.removeprefix("test_").replace("[", "-").replace("]", "")[:80]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    report = yield
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True
    return report
