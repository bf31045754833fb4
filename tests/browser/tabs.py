"""Tabs of a browser that are watched: a page that complains, or asks for anything elsewhere, fails its test."""

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
from tests.browser.server import Server
from tests.timeouts import TIMEOUT_SECONDS

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
TIMEOUT_MS = 1000 * TIMEOUT_SECONDS


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's own; nothing is downloaded."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("the tests of the page need Chromium: apt-get install chromium", pytrace=False)
    with sync_playwright() as playwright:
        # Without a sandbox only because tests may run as root, and look at nothing but our own page.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Tabs:
    """Opens tabs, each as somebody who logs in with the link that `shopfloor up` prints."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.page_errors: list[str] = []
        self.requests: list[Request] = []
        self._borne: list[str] = []

    def allow_errors(self, *patterns: str) -> None:
        """Complaints with this in them are what the test is about."""
        self._borne += patterns

    def context(self, **options: Any) -> BrowserContext:
        given = {"viewport": DESKTOP, "reduced_motion": "reduce", "locale": "en-GB", "timezone_id": "UTC", **options}
        context = self._browser.new_context(**given)
        context.set_default_timeout(TIMEOUT_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self._contexts.append(context)
        return context

    def paused_clock_context(self, **options: Any) -> BrowserContext:
        """A context whose pages have a clock that stands: their timers wait for the test (`page.clock.run_for`)."""
        context = self.context(**options)
        context.clock.install()
        context.clock.pause_at(time.time() + TIMEOUT_SECONDS)
        return context

    def open(self, server: Server, path: str = "/", *, context: BrowserContext | None = None, **options: Any) -> Page:
        """A tab with the page at that address."""
        page = (context or self.context(**options)).new_page()
        self._watch(page, server.url)
        page.goto(f"{server.login}&next={quote(path)}")
        return page

    def _watch(self, page: Page, origin: str) -> None:
        def request(requests: Request) -> None:
            self.requests.append(requests)
            if not requests.url.startswith((f"{origin}/", "data:", f"blob:{origin}/")):
                self.page_errors.append(f"it asked for {requests.url[:200]}")

        def console(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                self.page_errors.append(f"console: {message.text} ({message.location.get('url', '')})")

        page.on("request", request)
        page.on("console", console)
        page.on("pageerror", lambda error: self.page_errors.append(f"error: {error}"))
        page.on("crash", lambda _: self.page_errors.append("the tab crashed"))

    def paths(self, pattern: str) -> list[str]:
        """What was asked of the server so far, where it is like this."""
        wanted = re.compile(pattern)
        return [requests.url for requests in self.requests if wanted.search(requests.url)]

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Waits for something that tabs tell of. They tell nothing to a test that sleeps otherwise."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        page = self._contexts[-1].pages[-1]
        while not condition():
            assert time.monotonic() < deadline, f"waited {TIMEOUT_SECONDS} s for {what}"
            page.wait_for_timeout(20)

    def step_until(self, page: Page, condition: Callable[[], bool], what: str) -> None:
        """The same where the page's clock stands: it goes on by a millisecond at a time, and no further than needed."""

        def is_so_now() -> bool:
            page.clock.run_for(1)
            return condition()

        self.wait_until(is_so_now, what)

    def unexpected_errors(self) -> list[str]:
        return [one for one in self.page_errors if not any(re.search(pattern, one) for pattern in self._borne)]

    def take_screenshot(self, folder: Path) -> None:
        """What was to be seen when a test failed."""
        for number, page in enumerate(page for context in self._contexts for page in context.pages):
            page.screenshot(path=folder / f"tab-{number}.png")

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@contextmanager
def checked_tabs(browser: Browser) -> Iterator[Tabs]:
    """Tabs for as long as the block lasts; whatever they complained of is said at its end."""
    tabs = Tabs(browser)
    try:
        yield tabs
    finally:
        tabs.close()
    assert tabs.unexpected_errors() == [], "the page complained:\n" + "\n".join(tabs.unexpected_errors())
