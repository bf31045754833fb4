"""Small screens, dark ones, and people who use the page in other ways than most."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.browser.axe import grave_problems
from tests.browser.colours import rgb
from tests.browser.conftest import Archive
from tests.browser.parts import button, card, cards, chosen, result, row, run_list, search, task, timeline
from tests.browser.server import Server
from tests.browser.tabs import PHONE, Tabs


def overflow(page: Page) -> list[str]:
    """What is wider than the screen and cannot be scrolled to by itself."""
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


def test_on_a_phone_it_is_the_list_or_the_run(tabs: Tabs, archive: Archive) -> None:
    page = tabs.open(archive.server, "/agents/stories/workers", viewport=PHONE, has_touch=True, is_mobile=True)
    expect(run_list(page)).to_be_visible()
    expect(chosen(page)).not_to_be_visible()
    assert overflow(page) == []
    card(page, archive.stories.everything).tap()
    expect(task(page)).to_have_text("Find out what is wrong with the app")
    expect(run_list(page)).not_to_be_visible()
    assert overflow(page) == []
    page.get_by_role("button", name="Back to runs").or_(page.get_by_role("link", name="Back to runs")).tap()
    expect(run_list(page)).to_be_visible()
    expect(chosen(page)).not_to_be_visible()
    expect(page).not_to_have_url(re.compile("worker="))


def test_on_a_phone_nothing_of_a_transcript_hangs_over(tabs: Tabs, archive: Archive) -> None:
    page = tabs.open(archive.server, f"/agents/stories/workers?worker={archive.stories.everything}", viewport=PHONE)
    expect(row(page, 5)).to_be_attached()
    page.get_by_role("button", name="Expand all").click()
    for seq in (5, 7, 9, 11, 13, 19):
        page.goto(f"{archive.server.url}/agents/stories/workers?worker={archive.stories.everything}&event={seq}")
        expect(row(page, seq)).to_be_in_viewport()
        assert overflow(page) == []
    page.get_by_role("button", name="New run").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert overflow(page) == []


def test_the_dark_is_as_the_machine_says_and_can_be_chosen(tabs: Tabs, archive: Archive) -> None:
    def is_dark(page: Page) -> bool:
        return sum(rgb(page.locator("body"), "backgroundColor")) < 200

    page = tabs.open(archive.server, "/agents/stories/workers", color_scheme="dark")
    expect(cards(page).first).to_be_visible()
    assert is_dark(page)
    page.emulate_media(color_scheme="light")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert not is_dark(page)
    for _ in range(2):
        page.get_by_role("button", name=re.compile("^Colours: ")).click()
    expect(button(page, "Colours: dark")).to_be_visible()
    assert is_dark(page)
    page.reload()
    expect(cards(page).first).to_be_visible()
    assert is_dark(page)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_grave_in_the_list_and_in_a_run(tabs: Tabs, archive: Archive, colours: str) -> None:
    page = tabs.open(archive.server, "/agents/stories/workers", color_scheme=colours)
    expect(cards(page).first).to_be_visible()
    assert grave_problems(page) == []
    card(page, archive.stories.everything).click()
    expect(result(page)).to_be_visible()
    expect(row(page, 3)).to_be_attached()
    assert grave_problems(page) == []
    page.get_by_role("button", name="Expand all").click()
    page.get_by_role("searchbox", name="Search in this run").fill("return")
    expect(page.get_by_text(re.compile(r"^1 of \d+$"))).to_be_visible()
    assert grave_problems(page) == []
    card(page, archive.stories.failed).click()
    expect(result(page)).to_contain_text("rate_limit_error")
    assert grave_problems(page) == []


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_axe_finds_nothing_grave_in_dialogs_questions_and_on_a_phone(
    tabs: Tabs, server: Server, owner: str, colours: str
) -> None:
    run_id = server.dispatch("asker", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", color_scheme=colours)
    expect(page.get_by_role("textbox", name="Your answer")).to_be_visible()
    assert grave_problems(page) == []
    button(page, "New run").click()
    page.get_by_role("dialog").get_by_role("combobox", name="Worker").select_option(value="form")
    assert grave_problems(page) == []
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert grave_problems(page) == []
    page.keyboard.press("Escape")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(timeline(page)).to_be_attached()
    assert grave_problems(page) == []
    search_page = tabs.open(server, f"/agents/{owner}/workers?q=nothing+at+all", color_scheme=colours, viewport=PHONE)
    expect(search(search_page)).to_be_visible()
    assert grave_problems(search_page) == []
