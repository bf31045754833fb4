"""Browser tabs that fail their test when the page logs an error or requests another origin."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, sync_playwright
from tests.browser.sample_runs import MISSING_RUNS
from tests.browser.server import Server
from tests.timeouts import TIMEOUT_SECONDS

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
TIMEOUT_MS = 1000 * TIMEOUT_SECONDS


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the Chromium of the system; nothing is downloaded."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("the tests of the page need Chromium: apt-get install chromium", pytrace=False)
    with sync_playwright() as playwright:
        # Without a sandbox, since tests may run as root; they open nothing but our own page.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tabs:
    """Opens tabs that are logged in with a login link."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.page_errors: list[str] = []
        self.requests: list[Request] = []
        self._allowed = [f"404.*worker_id={run_id}" for run_id in MISSING_RUNS]

    def allow_errors(self, *patterns: str) -> None:
        """Allow errors that match one of these patterns."""
        self._allowed += patterns

    def context(self, **options: Any) -> BrowserContext:
        settings = {"viewport": DESKTOP, "reduced_motion": "reduce", "locale": "en-GB", "timezone_id": "UTC", **options}
        context = self._browser.new_context(**settings)
        context.set_default_timeout(TIMEOUT_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self._contexts.append(context)
        return context

    def paused_clock_context(self, **options: Any) -> BrowserContext:
        """Return a context whose pages have a paused clock: their timers wait for the test (`page.clock.run_for`)."""
        context = self.context(**options)
        context.clock.install()
        context.clock.pause_at(time.time() + TIMEOUT_SECONDS)
        return context

    def open(self, server: Server, path: str = "/", *, context: BrowserContext | None = None, **options: Any) -> Page:
        """Open a tab at this path, logged in."""
        page = (context or self.context(**options)).new_page()
        self._watch(page, server.url)
        page.goto(f"{server.login}&next={quote(path)}")
        return page

    def _watch(self, page: Page, origin: str) -> None:
        def on_request(request: Request) -> None:
            self.requests.append(request)
            if not request.url.startswith((f"{origin}/", "data:", f"blob:{origin}/")):
                self.page_errors.append(f"request to another origin: {request.url[:200]}")

        def on_console(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                self.page_errors.append(f"console: {message.text} ({message.location.get('url', '')})")

        page.on("request", on_request)
        page.on("console", on_console)
        page.on("pageerror", lambda error: self.page_errors.append(f"error: {error}"))
        page.on("crash", lambda _: self.page_errors.append("the tab crashed"))

    def paths(self, pattern: str) -> list[str]:
        """Return the URLs requested so far that match the pattern."""
        wanted = re.compile(pattern)
        return [request.url for request in self.requests if wanted.search(request.url)]

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while events of the tabs are delivered. A plain sleep would deliver none."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        page = self._contexts[-1].pages[-1]
        while not condition():
            assert time.monotonic() < deadline, f"waited {TIMEOUT_SECONDS} s for {what}"
            page.wait_for_timeout(20)

    def step_until(self, page: Page, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while stepping a paused clock by a millisecond at a time, no further than needed."""

        def step_and_check() -> bool:
            page.clock.run_for(1)
            return condition()

        self.wait_until(step_and_check, what)

    def unexpected_errors(self) -> list[str]:
        return [error for error in self.page_errors if not any(re.search(pattern, error) for pattern in self._allowed)]

    def take_screenshot(self, folder: Path) -> None:
        """Save a screenshot of every tab."""
        for number, page in enumerate(page for context in self._contexts for page in context.pages):
            page.screenshot(path=folder / f"tab-{number}.png")

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@contextmanager
def checked_tabs(browser: Browser) -> Iterator[Tabs]:
    """Yield tabs for the block, and fail at its end if one of them had an unexpected error."""
    tabs = Tabs(browser)
    try:
        yield tabs
    finally:
        tabs.close()
    assert tabs.unexpected_errors() == [], "the page had errors:\n" + "\n".join(tabs.unexpected_errors())
