"""Very long runs and very large results."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import LargeRuns
from tests.browser.page_elements import row, selected, task, timeline, transcript
from tests.browser.sample_runs import LONG_EVENTS, NEEDLE
from tests.browser.tabs import Tabs

MOST_IN_THE_PAGE = 400
"""The largest number of rows that a transcript may render at once."""
TIMEOUT_MS = 15_000
"""How long the page may take to react to a click on a busy machine. Rendering all rows would take minutes."""


def rendered_rows(page: Page) -> int:
    return transcript(page).locator("[data-seq]").count()


def scroll_to_middle(page: Page) -> None:
    """Scroll the transcript to its middle."""
    transcript(page).evaluate(
        """(region) => {
            const all = [region, ...region.querySelectorAll("*")];
            for (let one = region.parentElement; one; one = one.parentElement) all.push(one);
            const box = all.find((one) => one.scrollHeight > one.clientHeight + 1000 && /(auto|scroll)/.test(getComputedStyle(one).overflowY));
            box.scrollTop = box.scrollHeight / 2;
        }"""
    )


def is_responsive(page: Page) -> bool:
    """Whether the page reacts to a click in time; otherwise the wait fails."""
    page.get_by_role("button", name="Keyboard shortcuts").click(timeout=TIMEOUT_MS)
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(keys).to_be_visible(timeout=TIMEOUT_MS)
    page.keyboard.press("Escape")
    expect(keys).to_have_count(0, timeout=TIMEOUT_MS)
    return True


def test_a_run_of_100_000_events_opens_and_scrolls(tabs: Tabs, large_runs: LargeRuns) -> None:
    page = tabs.open(large_runs.server, f"/agents/long/workers?worker={large_runs.long}")
    expect(row(page, 3)).to_be_visible()
    assert rendered_rows(page) < MOST_IN_THE_PAGE
    transcript(page).click(position={"x": 5, "y": 5})
    scroll_to_middle(page)
    page.keyboard.press("j")
    at = transcript(page).locator('[data-seq][aria-current="true"]')
    expect(at).to_be_in_viewport()
    expect(at).to_contain_text(re.compile(r"(Message |module-)(1[4-9]|2[0-9])\d{3}"))
    assert rendered_rows(page) < MOST_IN_THE_PAGE
    page.keyboard.press("G")
    last = LONG_EVENTS // 3 - 1
    expect(transcript(page).get_by_text(f"Message {last} of a long run")).to_be_in_viewport()
    page.keyboard.press("g")
    page.keyboard.press("g")
    expect(row(page, 3)).to_be_in_viewport()
    assert rendered_rows(page) < MOST_IN_THE_PAGE


def test_a_word_is_found_in_100_000_events(tabs: Tabs, large_runs: LargeRuns) -> None:
    page = tabs.open(large_runs.server, f"/agents/long/workers?worker={large_runs.long}")
    expect(row(page, 3)).to_be_visible()
    page.get_by_role("searchbox", name="Search in this run").fill(NEEDLE)
    expect(page.get_by_text("1 of 1", exact=True)).to_be_visible()
    found = transcript(page).locator('[data-seq][aria-current="true"]')
    expect(found).to_contain_text(f"Here is the {NEEDLE}")
    expect(found).to_be_in_viewport()


def test_a_deep_link_into_100_000_events_arrives(tabs: Tabs, large_runs: LargeRuns) -> None:
    page = tabs.open(large_runs.server, f"/agents/long/workers?worker={large_runs.long}&event=60001")
    expect(row(page, 60_001)).to_have_attribute("aria-current", "true")
    expect(row(page, 60_001)).to_be_in_viewport()
    selected_line = timeline(page).locator("li[data-seq]").filter(has=page.locator('[aria-current="true"]')).first
    expect(selected_line).to_be_in_viewport()
    assert abs(int(selected_line.get_attribute("data-seq") or 0) - 60_001) <= 2


def test_a_run_of_100_000_events_that_a_search_found_opens_at_the_hit(tabs: Tabs, large_runs: LargeRuns) -> None:
    page = tabs.open(large_runs.server, f"/agents/long/workers?worker={large_runs.long}&find={NEEDLE}")
    found = transcript(page).locator('[data-seq][aria-current="true"]')
    expect(found).to_contain_text(f"Here is the {NEEDLE}")
    expect(found).to_be_in_viewport()


@pytest.mark.req("WT-69")
def test_the_bars_of_100_000_events_are_few_and_leave_none_out(tabs: Tabs, large_runs: LargeRuns) -> None:
    page = tabs.open(large_runs.server, f"/agents/long/workers?worker={large_runs.long}")
    bars = timeline(page).get_by_role("list", name="Where the time went").locator("[data-bar]")
    expect(bars.nth(100)).to_be_attached()
    titles = [title or "" for title in bars.evaluate_all("all => all.map((one) => one.title)")]
    assert len(titles) < MOST_IN_THE_PAGE
    counted = [re.match(r"([\d,]+) \u00d7 Bash, tool, [^,]+ in total$", title) for title in titles]
    calls = sum(int(found[1].replace(",", "")) for found in counted if found)
    assert calls + sum(title.startswith("Bash, tool") for title in titles) == LONG_EVENTS // 3 - 1


def test_a_result_of_5_megabytes_does_not_freeze_the_page(tabs: Tabs, large_runs: LargeRuns) -> None:
    page = tabs.open(large_runs.server, f"/agents/long/workers?worker={large_runs.large}")
    head = row(page, 4).get_by_role("button").first
    expect(head).to_contain_text("cat big.txt")
    head.click()
    expect(row(page, 4)).to_contain_text("yyyyyyyy")
    expect(row(page, 4)).to_contain_text("Truncated: 5.1 MB in total")
    assert is_responsive(page)
    row(page, 4).get_by_role("button", name="Load all").click()
    expect(row(page, 4)).not_to_contain_text("Truncated:")
    assert is_responsive(page)


def test_a_huge_table_and_a_huge_line_do_not_freeze_the_page(tabs: Tabs, large_runs: LargeRuns) -> None:
    page = tabs.open(large_runs.server, f"/agents/malice/workers?worker={large_runs.shapes}")
    expect(task(page)).to_have_text("Odd shapes")
    expect(row(page, 4)).to_contain_text("0")
    assert is_responsive(page)
    page.goto(f"{large_runs.server.url}/agents/malice/workers?worker={large_runs.shapes}&event=8")
    expect(selected(page).get_by_text("after the shapes").first).to_be_attached()
    assert is_responsive(page)
    for button in row(page, 4).get_by_role("button", name="Load all").all():
        button.click()
        assert is_responsive(page)
