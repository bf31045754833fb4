"""Screenshots of the main states; saved to docs/images/ with `SHOPFLOOR_SCREENSHOTS=1`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import Demo, RecordedRuns
from tests.browser.page_elements import button, card, cards, result, row, timeline, transcript
from tests.browser.server import Server
from tests.browser.tabs import PHONE, Tabs
from tests.model_server.script import Text, Turn
from tests.model_server.server import ModelServer
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


def test_a_transcript_with_tools(tabs: Tabs, recorded_runs: RecordedRuns, folder: Path) -> None:
    page = tabs.open(
        recorded_runs.server,
        f"/agents/stories/workers?worker={recorded_runs.stories.everything}&event=11",
        viewport=SIZE,
    )
    expect(row(page, 11)).to_be_in_viewport()
    expect(row(page, 5).locator("strong")).to_be_attached()
    take_screenshot(page, folder, "transcript")


def test_an_active_run(tabs: Tabs, server: Server, model: ModelServer, folder: Path) -> None:
    model.say(Turn(say=[Text(text="Tea was first drunk as a medicine. " * 20)], chunk=12, pause=0.1))
    run_id = server.dispatch("speaker", owner="research", TOPIC="tea", task="Tell me of tea")
    page = tabs.open(server, f"/agents/research/workers?worker={run_id}", viewport=SIZE)
    expect(transcript(page)).to_contain_text("as a medicine")
    take_screenshot(page, folder, "running")


def test_the_timeline(tabs: Tabs, recorded_runs: RecordedRuns, folder: Path) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.no_messages}")
    expect(timeline(page).locator("li[data-seq]").first).to_be_visible()
    take_screenshot(page, folder, "timeline")


def test_the_form(tabs: Tabs, server: Server, folder: Path) -> None:
    page = tabs.open(server, "/agents/research/workers")
    button(page, "New run").click()
    page.get_by_role("dialog").get_by_role("combobox", name="Worker").select_option(value="form")
    take_screenshot(page, folder, "dispatch")


def test_a_phone(tabs: Tabs, recorded_runs: RecordedRuns, folder: Path) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers", viewport=PHONE, device_scale_factor=2)
    expect(cards(page).first).to_be_visible()
    take_screenshot(page, folder, "phone-list")
    card(page, recorded_runs.stories.everything).click()
    expect(row(page, 5).locator("strong")).to_be_visible()
    take_screenshot(page, folder, "phone-run")
