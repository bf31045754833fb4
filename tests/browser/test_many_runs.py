"""A list of thousands of runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.browser.logs import agent_run, write_log
from tests.browser.many_runs import MANY_RUNS
from tests.browser.page_elements import button, card, cards, pill, run_list, search, task
from tests.browser.sample_runs import CALL_STARTED
from tests.browser.server import Server
from tests.browser.tabs import TIMEOUT_MS, Tabs, checked_tabs

from shopfloor.log import CallCompleted, new_run_id

MOST_IN_THE_PAGE = 150
"""The largest number of cards that may be rendered at once: those in sight, and a few around them."""


@pytest.mark.req("WT-41", "WT-42")
def test_a_list_of_very_many_runs_scrolls_and_keeps_only_what_is_seen(tabs: Tabs, many_runs_server: Server) -> None:
    page = tabs.open(many_runs_server, "/agents/all/workers")
    expect(page.get_by_text(re.compile(rf"^{MANY_RUNS:,} runs$"))).to_be_visible()
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


def test_a_list_of_very_many_runs_is_searched_and_filtered_on_the_server(tabs: Tabs, many_runs_server: Server) -> None:
    page = tabs.open(many_runs_server, "/agents/all/workers")
    # Together with a word: a number alone may match the id of another run.
    search(page).fill("number 9876")
    expect(cards(page)).to_have_count(1)
    expect(cards(page).first).to_contain_text("Task number 9876")
    search(page).fill("")
    pill(page, "Failed").click()
    expect(page.get_by_text(re.compile(rf"^{MANY_RUNS // 5:,} runs$"))).to_be_visible()


def card_of_task(page: Page, number: int) -> Locator:
    return cards(page).filter(has_text=re.compile(rf"Task number {number}:"))


def expect_selected(page: Page, number: int) -> None:
    """Expect that the run is selected, in the list and in the detail pane."""
    expect(task(page)).to_contain_text(f"Task number {number}:")
    # All pages above the run are loaded first.
    expect(card_of_task(page, number)).to_be_in_viewport(timeout=3 * TIMEOUT_MS)
    expect(card_of_task(page, number)).to_have_attribute("aria-current", "true")
    assert cards(page).count() < MOST_IN_THE_PAGE


@pytest.mark.req("WT-67")
@pytest.mark.parametrize(
    ("selected", "last"),
    [("", MANY_RUNS), ("?status=failed", MANY_RUNS - 2), ("?flat=true", MANY_RUNS), ("?q=repaired", 1)],
)
def test_capital_g_goes_to_the_last_of_very_many_runs(
    tabs: Tabs, many_runs_server: Server, selected: str, last: int
) -> None:
    tabs.allow_errors("404")
    page = tabs.open(many_runs_server, f"/agents/all/workers{selected}")
    expect(cards(page).first).to_be_visible()
    page.keyboard.press("G")
    expect_selected(page, last)
    page.keyboard.press("k")
    expect(card_of_task(page, last)).not_to_have_attribute("aria-current", "true")
    page.keyboard.press("g")
    page.keyboard.press("g")
    expect(cards(page).first).to_have_attribute("aria-current", "true")
    expect(cards(page).first).to_be_in_viewport()


@pytest.mark.req("WT-67")
@pytest.mark.parametrize("number", [50, 150, 7_000])
def test_a_deep_link_reveals_the_run_in_a_list_of_very_many(tabs: Tabs, many_runs_server: Server, number: int) -> None:
    tabs.allow_errors("404")
    (run,) = many_runs_server.runs(offset=number - 1, limit=1)
    page = tabs.open(many_runs_server, f"/agents/all/workers?worker={run['id']}")
    expect_selected(page, number)


def test_a_run_outside_of_the_filter_does_not_load_the_whole_list(tabs: Tabs, many_runs_server: Server) -> None:
    tabs.allow_errors("404")
    (run,) = many_runs_server.runs(offset=6_999, limit=1)
    page = tabs.open(many_runs_server, f"/agents/all/workers?status=cancelled&worker={run['id']}")
    expect(task(page)).to_contain_text("Task number 7000:")
    page.wait_for_timeout(500)
    assert len(tabs.paths(r"/api/agents/workers\?")) <= 3


def test_scrolling_stops_the_jump_to_the_selected_run(tabs: Tabs, many_runs_server: Server) -> None:
    tabs.allow_errors("404")
    (run,) = many_runs_server.runs(offset=MANY_RUNS - 1, limit=1)
    context = tabs.context()
    page = tabs.open(many_runs_server, "/agents/all/workers", context=context)
    expect(cards(page).first).to_be_visible()
    # Delay each page, so that there is time to scroll.
    context.route("**/api/agents/workers?*", lambda route: (page.wait_for_timeout(300), route.continue_()))
    page.keyboard.press("G")
    expect(task(page)).to_contain_text(f"Task number {MANY_RUNS}:")
    run_list(page).hover()
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(1_500)
    expect(card(page, run["id"])).to_have_count(0)
    assert run_list(page).evaluate("one => one.scrollTop") < 1_000


@pytest.mark.req("WT-67")
def test_a_deep_link_to_a_sub_run_expands_the_tree_also_far_down_the_list(browser: Browser, tmp_path: Path) -> None:
    server = Server(tmp_path)
    parent, child = new_run_id(), new_run_id()
    done = CallCompleted(name="call", kind="call_workflow", try_=1, result="?")
    write_log(server.storage, agent_run("Call somebody", CALL_STARTED, done), run_id=parent, child_run_id=child)
    write_log(server.storage, agent_run("Be called"), run_id=child, parent_run_id=parent)
    others = [write_log(server.storage, agent_run(f"Another task {number}")) for number in range(130)]
    with server, checked_tabs(browser) as tabs:
        server.wait_for_status(others[-1], "done")
        page = tabs.open(server, f"/agents/all/workers?worker={child}&event=3")
        expect(task(page)).to_have_text("Be called")
        expect(card(page, child)).to_be_in_viewport()
        expect(card(page, child)).to_have_attribute("aria-current", "true")
        expect(button(page, "Hide sub-runs")).to_have_count(1)
