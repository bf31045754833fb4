"""Using the page with the keyboard alone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import button, card, cards, row, search, selected, task, transcript
from tests.browser.server import Server
from tests.browser.tabs import Tabs
from tests.timeouts import wait_until


def focused_card(page: Page) -> str | None:
    """Return the card that has the focus."""
    return page.evaluate("document.activeElement?.closest('[data-run]')?.dataset.run ?? null")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_keys_move_through_runs_and_open_them(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    expect(cards(page).first).to_be_visible()
    order = [run["id"] for run in recorded_runs.server.runs(agent_id="stories", roots=True)]
    press(page, "j", "j")
    press(page, "Enter")
    expect(page).to_have_url(re.compile("worker="))
    second = page.url.split("worker=")[1].split("&")[0]
    assert second in order[:2]
    press(page, "Escape", "G", "Enter")
    expect(page).to_have_url(re.compile(f"worker={order[-1]}"))
    press(page, "Escape", "k", "Enter")
    expect(page).to_have_url(re.compile(f"worker={order[-2]}"))
    press(page, "Escape", "g", "g", "Enter")
    expect(page).to_have_url(re.compile(f"worker={order[0]}"))
    expect(card(page, order[0])).to_have_attribute("aria-current", "true")


def test_keys_move_through_a_transcript(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/stories/workers?worker={recorded_runs.stories.everything}")
    expect(row(page, 3)).to_be_visible()
    transcript(page).click(position={"x": 5, "y": 5})
    press(page, "g", "g")
    at = transcript(page).locator('[data-seq][aria-current="true"]')
    expect(at).to_have_count(1)
    first = int(at.get_attribute("data-seq") or 0)
    press(page, "j", "j")
    expect(at).not_to_have_attribute("data-seq", str(first))
    press(page, "k", "k")
    expect(at).to_have_attribute("data-seq", str(first))
    press(page, "G")
    expect(row(page, 21)).to_be_in_viewport()
    press(page, "g", "g")
    expect(at).to_have_attribute("data-seq", str(first))


def test_enter_opens_and_closes_an_event_and_e_all_of_them(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/stories/workers?worker={recorded_runs.stories.everything}&event=7")
    expect(row(page, 7)).to_have_attribute("aria-current", "true")
    head = row(page, 7).get_by_role("button").first
    expect(head).to_have_attribute("aria-expanded", "true")
    transcript(page).click(position={"x": 5, "y": 5})
    press(page, "Enter")
    expect(head).to_have_attribute("aria-expanded", "false")
    press(page, "Enter")
    expect(head).to_have_attribute("aria-expanded", "true")
    press(page, "e")
    expect(button(page, "Collapse all")).to_be_visible()
    press(page, "e")
    expect(button(page, "Expand all")).to_be_visible()
    expect(head).to_have_attribute("aria-expanded", "false")


def test_slash_searches_runs_and_in_a_transcript_the_transcript(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    expect(cards(page).first).to_be_visible()
    press(page, "/")
    expect(search(page)).to_be_focused()
    page.keyboard.type("jkG?")
    expect(search(page)).to_have_value("jkG?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.goto(f"{recorded_runs.server.url}/agents/stories/workers?worker={recorded_runs.stories.everything}")
    expect(row(page, 3)).to_be_visible()
    transcript(page).click(position={"x": 5, "y": 5})
    press(page, "/")
    expect(page.get_by_role("searchbox", name="Search in this run")).to_be_focused()


def test_the_question_mark_shows_the_shortcuts(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    expect(cards(page).first).to_be_visible()
    press(page, "?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("gg / G")
    press(page, "Escape")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_have_count(0)
    press(page, "n")
    expect(page.get_by_role("dialog", name="New run")).to_be_visible()


def test_c_copies_the_link_to_the_selected_event(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, f"/agents/stories/workers?worker={run_id}&event=9")
    expect(row(page, 9)).to_have_attribute("aria-current", "true")
    transcript(page).click(position={"x": 5, "y": 5})
    press(page, "c")
    wait_until(lambda: "event=" in page.evaluate("navigator.clipboard.readText()"), "the link to be copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert re.search(rf"worker={run_id}&event=\d+$", link)
    page.goto(link)
    expect(transcript(page).locator('[data-seq][aria-current="true"]')).to_be_in_viewport()


def test_f_follows_and_stops_following(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.start_command("seq 1 200; sleep 600", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    follow = button(page, "Follow")
    expect(follow).to_have_attribute("aria-pressed", "true")
    transcript(page).click(position={"x": 5, "y": 5})
    press(page, "f")
    expect(follow).to_have_attribute("aria-pressed", "false")
    press(page, "f")
    expect(follow).to_have_attribute("aria-pressed", "true")


@pytest.mark.req("WT-55")
def test_without_a_mouse_a_run_is_found_opened_read_and_answered(tabs: Tabs, server: Server, owner: str) -> None:
    server.command("echo something else", "--owner", owner)
    run_id = server.dispatch("asker", owner=owner, task="Paint the fence")
    server.wait_for_status(run_id, "waiting")
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(card(page, run_id)).to_be_visible()
    press(page, "/")
    page.keyboard.type("fence")
    expect(cards(page)).to_have_count(1)
    for _ in range(20):
        press(page, "Tab")
        if focused_card(page) == run_id:
            break
    press(page, "Enter")
    expect(task(page)).to_have_text("Paint the fence")
    answer = page.get_by_role("textbox", name="Your answer")
    expect(answer).to_be_visible()
    for _ in range(60):
        press(page, "Tab")
        if answer.evaluate("one => one === document.activeElement"):
            break
    expect(answer).to_be_focused()
    page.keyboard.type("white")
    press(page, "Tab")
    expect(button(page, "Answer")).to_be_focused()
    press(page, "Enter")
    expect(selected(page)).to_contain_text("painted in white")


def test_focus_can_be_seen(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    expect(cards(page).first).to_be_visible()
    for _ in range(12):
        press(page, "Tab")
        seen = page.evaluate(
            """() => {
                const one = document.activeElement;
                if (!one || one === document.body) return true;
                const style = getComputedStyle(one);
                return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
            }"""
        )
        assert seen, page.evaluate("document.activeElement.outerHTML")
