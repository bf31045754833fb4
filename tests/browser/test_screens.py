"""Small screens and the dark theme."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.browser.colors import rgb
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import button, card, cards, row, run_list, selected, task
from tests.browser.tabs import PHONE, Tabs


def overflow(page: Page) -> list[str]:
    """Return the elements that are wider than the screen and not in a scroll container."""
    return page.evaluate(
        """() => {
            const wide = document.documentElement.scrollWidth > innerWidth || document.body.scrollWidth > innerWidth;
            const scrolls = (one) => one && (/(auto|scroll|hidden|clip)/.test(getComputedStyle(one).overflowX) || scrolls(one.parentElement));
            const out = [...document.body.querySelectorAll("*")].filter((one) => {
                const box = one.getBoundingClientRect();
                return box.width > 0 && box.right > innerWidth + 1 && !scrolls(one.parentElement);
            });
            return [...(wide ? ["the page"] : []), ...out.slice(0, 5).map((one) => one.outerHTML.slice(0, 150))];
        }"""
    )


def test_a_phone_shows_either_the_list_or_the_run(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers", viewport=PHONE, has_touch=True, is_mobile=True)
    expect(run_list(page)).to_be_visible()
    expect(selected(page)).not_to_be_visible()
    assert overflow(page) == []
    card(page, recorded_runs.stories.everything).tap()
    expect(task(page)).to_have_text("Find out what is wrong with the app")
    expect(run_list(page)).not_to_be_visible()
    assert overflow(page) == []
    page.get_by_role("button", name="Back to runs").or_(page.get_by_role("link", name="Back to runs")).tap()
    expect(run_list(page)).to_be_visible()
    expect(selected(page)).not_to_be_visible()
    expect(page).not_to_have_url(re.compile("worker="))


def test_on_a_phone_no_part_of_a_transcript_overflows(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(
        recorded_runs.server, f"/agents/stories/workers?worker={recorded_runs.stories.everything}", viewport=PHONE
    )
    expect(row(page, 5)).to_be_attached()
    page.get_by_role("button", name="Expand all").click()
    for seq in (5, 7, 9, 11, 13, 19):
        page.goto(
            f"{recorded_runs.server.url}/agents/stories/workers?worker={recorded_runs.stories.everything}&event={seq}"
        )
        expect(row(page, seq)).to_be_in_viewport()
        assert overflow(page) == []
    page.get_by_role("button", name="New run").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert overflow(page) == []


def test_the_theme_follows_the_system_and_can_be_changed(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    def is_dark(page: Page) -> bool:
        return sum(rgb(page.locator("body"), "backgroundColor")) < 200

    page = tabs.open(recorded_runs.server, "/agents/stories/workers", color_scheme="dark")
    expect(cards(page).first).to_be_visible()
    assert is_dark(page)
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert not is_dark(page)
    for _ in range(2):
        page.get_by_role("button", name=re.compile("^Theme: ")).click()
    expect(button(page, "Theme: dark")).to_be_visible()
    assert is_dark(page)
    page.reload()
    expect(cards(page).first).to_be_visible()
    assert is_dark(page)


def test_on_a_phone_a_run_that_a_search_found_opens_at_the_hit(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers?q=quetzalcoatl", viewport=PHONE)
    card(page, recorded_runs.stories.everything).click()
    expect(row(page, 21)).to_have_attribute("aria-current", "true")
    expect(row(page, 21)).to_be_in_viewport()
