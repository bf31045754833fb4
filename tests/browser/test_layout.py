"""The layout of the page, and the addresses of what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import (
    card,
    cards,
    result,
    run_list,
    selected,
    show_timeline,
    task,
    timeline,
    transcript,
)
from tests.browser.server import Server
from tests.browser.tabs import PHONE, Tabs

NOTHING_CHOSEN = "Select a worker to view details"


def box_of(part: Locator) -> FloatRect:
    box = part.bounding_box()
    assert box
    return box


@pytest.mark.req("WT-38", "WT-46")
def test_the_list_is_on_the_left_and_the_selected_run_on_the_right(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("echo hello", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers")
    expect(page.get_by_text(NOTHING_CHOSEN)).to_be_visible()
    card(page, run_id).click()
    expect(task(page)).to_have_text("echo hello")
    expect(page.get_by_text(NOTHING_CHOSEN)).not_to_be_visible()
    left, right = run_list(page).bounding_box(), selected(page).bounding_box()
    assert left
    assert right
    assert left["x"] + left["width"] <= right["x"] + 1


def test_the_list_of_all_owners_has_all_runs_and_an_owners_list_only_theirs(
    tabs: Tabs, server: Server, owner: str
) -> None:
    mine = server.command("echo mine", "--owner", owner)
    other = server.command("echo other", "--owner", f"{owner}-other")
    page = tabs.open(server, "/agents/all/workers")
    expect(card(page, mine)).to_be_visible()
    expect(card(page, other)).to_be_visible()
    page.goto(f"{server.url}/agents/{owner}/workers")
    expect(card(page, mine)).to_be_visible()
    expect(cards(page)).to_have_count(1)
    expect(page.get_by_text("1 run", exact=True)).to_be_visible()


@pytest.mark.req("WT-55")
def test_the_selected_run_is_in_the_address_and_back_and_forward_work(tabs: Tabs, server: Server, owner: str) -> None:
    first, second = (server.command(f"echo {word}", "--owner", owner) for word in ("first", "second"))
    page = tabs.open(server, f"/agents/{owner}/workers")
    card(page, first).click()
    expect(page).to_have_url(re.compile(rf"/agents/{owner}/workers\?worker={first}$"))
    card(page, second).click()
    expect(task(page)).to_have_text("echo second")
    page.go_back()
    expect(task(page)).to_have_text("echo first")
    expect(card(page, first)).to_have_attribute("aria-current", "true")
    page.go_back()
    expect(page.get_by_text(NOTHING_CHOSEN)).to_be_visible()
    page.go_forward()
    expect(task(page)).to_have_text("echo first")


@pytest.mark.req("WT-55")
def test_a_deep_link_opens_the_run_in_a_fresh_tab(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("echo linked", "--owner", owner)
    page = tabs.open(server, f"/agents/all/workers?worker={run_id}")
    expect(task(page)).to_have_text("echo linked")
    page.reload()
    expect(task(page)).to_have_text("echo linked")
    expect(page).to_have_title(re.compile("echo linked|Shopfloor"))


def test_an_unknown_run_shows_not_found(tabs: Tabs, server: Server) -> None:
    tabs.allow_errors("404")
    page = tabs.open(server, "/agents/all/workers?worker=5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10")
    expect(selected(page)).to_contain_text("Run not found")


def test_without_a_login_the_page_explains_how_to_log_in(tabs: Tabs, server: Server) -> None:
    tabs.allow_errors("401")
    page = tabs.context().new_page()
    page.goto(server.url)
    expect(page.get_by_role("heading", name="You are not logged in")).to_be_visible()


def test_an_unknown_path_links_to_all_runs(tabs: Tabs, server: Server, owner: str) -> None:
    server.command("echo a run to list", "--owner", owner)
    tabs.allow_errors("404")
    page = tabs.open(server, f"/agents/{owner}/workers")
    page.goto(f"{server.url}/agents/{owner}/nonsense")
    page.get_by_role("link").first.click()
    expect(run_list(page).or_(page.get_by_text(NOTHING_CHOSEN)).first).to_be_visible()


def test_a_link_on_another_site_leads_to_the_run(tabs: Tabs, server: Server, owner: str) -> None:
    tabs.allow_errors("elsewhere.example")
    run_id = server.command("echo linked", "--owner", owner)
    page = tabs.open(server)
    link = f'<a href="{server.url}/agents/all/workers?worker={run_id}&event=3">the run</a>'
    page.route("http://elsewhere.example/", lambda route: route.fulfill(body=link, content_type="text/html"))
    page.goto("http://elsewhere.example/")
    page.get_by_role("link", name="the run").click()
    expect(task(page)).to_have_text("echo linked")
    expect(page).to_have_url(re.compile(f"worker={run_id}&event=3$"))


SIZES = pytest.mark.parametrize(
    "size", [(1280, 800), (1920, 1080), (1024, 768), (390, 844)], ids=["usual", "wide", "tablet", "phone"]
)
ROOM_FOR_BOTH_PX = 1100
"""From this width on, the timeline is at the right of the transcript; below, both are tabs."""


def boxes(page: Page) -> dict[str, FloatRect]:
    """Return where the parts of a run are."""
    parts = {
        "header": selected(page).locator("header").first,
        "transcript": transcript(page),
        "timeline": timeline(page),
    }
    return {name: box_of(part) for name, part in parts.items() if part.is_visible()}


@SIZES
@pytest.mark.req("WT-68", "WT-51")
def test_nothing_moves_when_the_run_ends(
    tabs: Tabs, server: Server, owner: str, tmp_path: Path, size: tuple[int, int]
) -> None:
    go = tmp_path / "go"
    run_id = server.dispatch("stepper", owner=owner, GO=str(go), task="Step on")
    viewport = {"width": size[0], "height": size[1]}
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=viewport)
    expect(transcript(page)).to_contain_text("Wait · command")
    has_both = size[0] >= ROOM_FOR_BOTH_PX
    if has_both:
        expect(timeline(page).get_by_text("Wait").first).to_be_visible()
    before = boxes(page)
    if has_both:
        assert before["timeline"]["x"] >= before["transcript"]["x"] + before["transcript"]["width"] - 1
    go.touch()
    expect(result(page)).to_contain_text("through")
    if has_both:
        expect(timeline(page).get_by_text("completed").first).to_be_visible()
    assert boxes(page) == before
    # The result is above both, on a line that was there before.
    line = box_of(result(page))
    assert line["y"] + line["height"] <= before["transcript"]["y"] + 1


@SIZES
def test_a_run_that_had_ended_before_shows_its_result_its_transcript_and_its_timeline(
    tabs: Tabs, server: Server, owner: str, size: tuple[int, int]
) -> None:
    run_id = server.dispatch("child", owner=owner, PART="all")
    server.wait_for_status(run_id, "done")
    viewport = {"width": size[0], "height": size[1]}
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=viewport)
    expect(transcript(page)).to_contain_text("did all")
    first, second = box_of(result(page)), box_of(transcript(page))
    assert first["y"] + first["height"] <= second["y"] + 1
    if size[0] < ROOM_FOR_BOTH_PX:
        expect(timeline(page)).not_to_be_visible()
        show_timeline(page)
        expect(transcript(page)).not_to_be_visible()
    expect(timeline(page).get_by_text("completed").first).to_be_visible()
    if size[0] >= ROOM_FOR_BOTH_PX:
        assert box_of(timeline(page))["x"] >= second["x"] + second["width"] - 1
    # A line of the timeline leads to its place in the transcript.
    timeline(page).locator("li[data-seq]").filter(has_text="Work").get_by_role("button").click()
    expect(transcript(page).locator('[aria-current="true"]')).to_be_visible()


def test_the_transcript_has_most_of_the_room(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    viewport = {"width": 1440, "height": 900}
    page = tabs.open(
        recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}", viewport=viewport
    )
    expect(result(page)).to_be_visible()
    expect(timeline(page).get_by_text("completed").first).to_be_visible()
    assert box_of(transcript(page))["height"] >= 620
    assert box_of(timeline(page))["width"] == 280
    assert box_of(page.get_by_role("banner").first)["height"] == 44


def test_prose_is_no_wider_than_people_like_to_read(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(
        recorded_runs.server,
        f"/agents/all/workers?worker={recorded_runs.stories.long_text}",
        viewport={"width": 1920, "height": 900},
    )
    text = transcript(page).get_by_text("many words").first
    expect(text).to_be_visible()
    # A row may be rendered again meanwhile: then the element is gone and has no width.
    tabs.wait_until(lambda: text.evaluate("one => one.getBoundingClientRect().width") > 0, "the text")
    width, digit = text.evaluate(
        "one => { const c = document.createElement('canvas').getContext('2d'); c.font = getComputedStyle(one).font;"
        " return [one.getBoundingClientRect().width, c.measureText('0').width]; }"
    )
    assert 0 < width <= 80 * digit


def test_the_column_that_takes_the_keys_can_be_seen(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, f"/agents/stories/workers?worker={run_id}&event=7")
    edge = "one => getComputedStyle(one.parentElement, '::before').backgroundColor"
    expect(transcript(page).locator('[aria-current="true"]')).to_be_visible()
    active = card(page, run_id).evaluate(edge)
    row_edge = (
        transcript(page).locator('[aria-current="true"]').evaluate("one => getComputedStyle(one).borderLeftColor")
    )
    transcript(page).click(position={"x": 5, "y": 5})
    inactive = card(page, run_id).evaluate(edge)
    assert active != inactive
    # The edge of the selected event has the color instead.
    now = transcript(page).locator('[aria-current="true"]').evaluate("one => getComputedStyle(one).borderLeftColor")
    assert (row_edge, now) == (inactive, active)


def test_the_first_tab_stop_skips_to_the_content(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers")
    expect(cards(page).first).to_be_visible()
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport(ratio=1)
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_the_top_bar_leads_to_the_pages(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link")).to_have_text(["Overview", "Runs", "Fleet"])
    expect(pages.get_by_role("link", name="Runs")).to_have_attribute("aria-current", "page")
    expect(pages.get_by_role("link", name="Fleet")).to_have_attribute("href", "/fleet")
    expect(pages.get_by_role("link", name="Overview")).to_have_attribute("href", "/")


def test_in_a_narrow_column_names_can_be_read(tabs: Tabs, server: Server) -> None:
    run_id = server.dispatch("asker", owner="long-name-of-somebody")
    server.wait_for_status(run_id, "waiting")
    page = tabs.open(server, "/agents/all/workers", viewport={"width": 820, "height": 900})
    name = card(page, run_id).get_by_text("long-name-of-somebody")
    expect(name).to_be_visible()
    assert box_of(name)["width"] >= 50


def test_a_question_is_in_sight_on_a_phone(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("asker", owner=owner)
    server.wait_for_status(run_id, "waiting")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=PHONE)
    expect(page.get_by_role("region", name="Waiting for your answer")).to_be_in_viewport(ratio=1)
    page.keyboard.press("Escape")
    expect(card(page, run_id)).to_be_visible()


def test_a_part_of_the_page_that_cannot_be_loaded_offers_to_reload(tabs: Tabs, server: Server) -> None:
    """After an update of the server, a page that is open asks for files that are gone."""
    tabs.allow_errors("Failed to load resource", "Failed to fetch dynamically imported module")
    context = tabs.context()
    context.route("**/assets/Overview-*.js", lambda route: route.abort())
    page = tabs.open(server, "/", context=context)
    expect(page.get_by_role("alert")).to_contain_text("This part of the page failed.")
    context.unroute_all()
    page.get_by_role("button", name="Reload").click()
    expect(page.get_by_role("region", name="Overview")).to_be_visible()
