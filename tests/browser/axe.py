"""Accessibility problems that axe finds on a page."""

from __future__ import annotations

import os

import pytest
from playwright.sync_api import Page
from tests.sample_events import ROOT

COLORS = ["light", "dark"] if os.environ.get("SHOPFLOOR_TEST_LONG") == "1" else ["light"]
"""The colors with which a test opens a page. `problems` checks contrast in both, whichever the page was opened with."""
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


_COLOR_RULES = ["color-contrast", "link-in-text-block"]
"""The rules whose result depends on the colors. All others give the same result in light and in dark."""
_RUN = "(rules) => axe.run(document, {resultTypes: ['violations'], ...rules}).then((done) => done.violations)"
_NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def problems(page: Page) -> list[str]:
    """Return the violations in light and in dark, one line each: the rule, the element and the reason."""
    if not AXE.is_file():
        pytest.fail(f"the tests of the page need axe-core in {AXE.parent}: make page", pytrace=False)
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(_RUN, {})
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    page.emulate_media(color_scheme="light" if is_dark else "dark")
    page.evaluate(_NEXT_FRAME)
    found += page.evaluate(_RUN, {"runOnly": _COLOR_RULES})
    page.emulate_media(color_scheme="dark" if is_dark else "light")
    page.evaluate(_NEXT_FRAME)
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:200]}: {node['failureSummary']}"
        for violation in found
        for node in violation["nodes"]
    ]
