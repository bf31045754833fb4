"""Accessibility problems that axe finds on a page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page
from tests.sample_events import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def problems(page: Page) -> list[str]:
    """Return the violations, one line each: the rule, the element and the reason."""
    if not AXE.is_file():
        pytest.fail(f"the tests of the page need axe-core in {AXE.parent}: make page", pytrace=False)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((done) => done.violations)")
    return [
        f"{violation['id']} ({violation['impact']}): {node['html'][:200]}: {node['failureSummary']}"
        for violation in found
        for node in violation["nodes"]
    ]
