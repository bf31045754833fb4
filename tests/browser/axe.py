"""What axe finds wrong with a page for people who use it in other ways than most."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page
from tests.sample_events import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


def problems(page: Page) -> list[str]:
    """Each as one line: the rule, what it is about, and how it says so."""
    if not AXE.is_file():
        pytest.fail(f"the tests of the page need axe-core in {AXE.parent}: make page", pytrace=False)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then((done) => done.violations)")
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:200]}: {node['failureSummary']}"
        for one in found
        for node in one["nodes"]
    ]
