"""A list of very many runs."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from tests.browser.crowd import CROWD
from tests.browser.parts import cards, pill, run_list, search
from tests.browser.server import Server
from tests.browser.tabs import Tabs

MOST_IN_THE_PAGE = 150
"""How many cards there may be at once: those that are seen, and a few around them."""


@pytest.mark.req("WT-41", "WT-42")
def test_a_list_of_very_many_runs_scrolls_and_keeps_only_what_is_seen(tabs: Tabs, crowded: Server) -> None:
    page = tabs.open(crowded)
    expect(page.get_by_text(re.compile(rf"^{CROWD:,} runs$"))).to_be_visible()
    expect(cards(page).first).to_be_visible()
    run_list(page).hover()
    seen: set[str] = set()
    for _ in range(40):
        page.mouse.wheel(0, 2_000)
        expect(cards(page).first).to_be_visible()
        seen |= set(cards(page).evaluate_all("cards => cards.map((card) => card.dataset.run)"))
        assert cards(page).count() < MOST_IN_THE_PAGE
    assert len(seen) > 300
    expect(cards(page).filter(has_text=re.compile(r"Task number ([3-9]\d\d|\d{4}):")).first).to_be_visible()
    page.mouse.wheel(0, -10_000_000)
    expect(cards(page).filter(has_text="Task number 1:")).to_be_visible()


def test_a_list_of_very_many_runs_is_searched_and_filtered_on_the_server(tabs: Tabs, crowded: Server) -> None:
    page = tabs.open(crowded)
    search(page).fill("9876")
    expect(cards(page)).to_have_count(1)
    expect(cards(page).first).to_contain_text("Task number 9876")
    search(page).fill("")
    pill(page, "Failed").click()
    expect(page.get_by_text(re.compile(rf"^{CROWD // 5:,} runs$"))).to_be_visible()
