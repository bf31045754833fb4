"""Screenshots of the main states; saved to docs/images/ with `SHOPFLOOR_SCREENSHOTS=1`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import Demo
from tests.browser.fleet_states import answer_fleet
from tests.browser.page_elements import button, card, cards, region, result, transcript
from tests.browser.tabs import PHONE, Tabs
from tests.sample_events import ROOT

IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1440, "height": 900}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return IMAGES if os.environ.get("SHOPFLOOR_SCREENSHOTS") == "1" else tmp_path


def take_screenshot(page: Page, folder: Path, name: str) -> None:
    page.mouse.move(0, 0)
    path = folder / f"page-{name}.png"
    page.screenshot(path=path, animations="disabled", caret="hide")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("colors", ["light", "dark"])
def test_a_run_that_has_ended(tabs: Tabs, demo: Demo, folder: Path, colors: str) -> None:
    page = tabs.open(
        demo.server, f"/agents/all/workers?worker={demo.runs.repaired}", color_scheme=colors, viewport=SIZE
    )
    expect(result(page)).to_be_visible()
    expect(card(page, demo.runs.reviewed)).to_be_visible()
    button(page, "Show sub-runs").first.click()
    expect(button(page, "Hide sub-runs")).to_be_visible()
    # With Markdown: its renderer is loaded later.
    expect(transcript(page).locator("code", has_text="src/stream/client.py").last).to_be_attached()
    transcript(page).get_by_role("button", name=re.compile("Edit")).click()
    take_screenshot(page, folder, colors)


@pytest.mark.parametrize("colors", ["light", "dark"])
def test_the_overview(tabs: Tabs, demo: Demo, folder: Path, colors: str) -> None:
    page = tabs.open(demo.server, "/", color_scheme=colors, viewport=SIZE)
    expect(page.get_by_role("region", name="Tools")).to_contain_text("Bash")
    expect(cards(page).first).to_be_visible()
    take_screenshot(page, folder, f"overview-{colors}")


def test_the_fleet(tabs: Tabs, demo: Demo, folder: Path) -> None:
    context = tabs.context(viewport=SIZE)
    answer_fleet(context)
    page = tabs.open(demo.server, "/fleet", context=context)
    expect(region(page, "Hosts")).to_contain_text("build-2")
    expect(region(page, "Queue")).to_contain_text("no host has the label gpu=yes", ignore_case=True)
    take_screenshot(page, folder, "fleet")


def test_a_phone(tabs: Tabs, demo: Demo, folder: Path) -> None:
    context = tabs.context(viewport=PHONE, device_scale_factor=2, has_touch=True, is_mobile=True)
    page = tabs.open(demo.server, "/agents/all/workers", context=context)
    expect(button(page, "Rerun")).to_be_visible()
    take_screenshot(page, folder, "phone-list")
    card(page, demo.runs.repaired).click()
    expect(transcript(page)).to_contain_text("test_resumes_after_half_open_socket")
    take_screenshot(page, folder, "phone-run")
