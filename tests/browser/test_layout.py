"""The layout of the page, and the addresses of what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import FloatRect, Locator, Page, expect
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import card, cards, result, run_list, selected, task, timeline, transcript
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
    "size", [(1280, 800), (1440, 900), (1920, 1080), (390, 844)], ids=["small", "usual", "wide", "phone"]
)


def order_of(page: Page) -> tuple[bool, bool]:
    """Return whether the timeline is above the transcript, and whether it is to its left."""
    first, second = box_of(timeline(page)), box_of(transcript(page))
    return first["y"] + first["height"] <= second["y"] + 1, first["x"] + first["width"] <= second["x"] + 1


@SIZES
@pytest.mark.req("WT-68")
def test_the_panes_keep_their_places_when_the_run_ends(
    tabs: Tabs, server: Server, owner: str, tmp_path: Path, size: tuple[int, int]
) -> None:
    go = tmp_path / "go"
    run_id = server.dispatch("stepper", owner=owner, GO=str(go))
    viewport = {"width": size[0], "height": size[1]}
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=viewport)
    expect(timeline(page).get_by_text("Wait").first).to_be_visible()
    before = order_of(page)
    assert any(before)
    go.touch()
    expect(result(page)).to_be_attached()
    expect(timeline(page).get_by_text("completed").first).to_be_attached()
    assert order_of(page) == before
    # The result is above both.
    result_box = box_of(result(page))
    assert all(
        result_box["y"] + result_box["height"] <= box_of(part)["y"] + 1 for part in (transcript(page), timeline(page))
    )


@SIZES
def test_a_run_that_had_ended_before_shows_its_result_its_transcript_and_its_timeline(
    tabs: Tabs, server: Server, owner: str, size: tuple[int, int]
) -> None:
    run_id = server.dispatch("child", owner=owner, PART="all")
    server.wait_for_status(run_id, "done")
    viewport = {"width": size[0], "height": size[1]}
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=viewport)
    expect(timeline(page).get_by_text("completed").first).to_be_attached()
    first, second, third = (box_of(part) for part in (result(page), transcript(page), timeline(page)))
    assert first["y"] + first["height"] <= second["y"] + 1
    is_beside = third["x"] >= second["x"] + second["width"] - 1
    assert is_beside or third["y"] >= second["y"] + second["height"] - 1


def test_the_transcript_has_most_of_the_room(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    viewport = {"width": 1400, "height": 900}
    page = tabs.open(
        recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}", viewport=viewport
    )
    expect(result(page)).to_be_visible()
    expect(timeline(page).get_by_text("completed").first).to_be_visible()
    assert box_of(transcript(page))["height"] >= 450


def test_a_timeline_is_no_higher_than_its_content(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("echo hello", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    last = timeline(page).get_by_text("completed")
    expect(last).to_be_visible()
    shown, around = box_of(last), box_of(timeline(page))
    assert around["y"] + around["height"] - (shown["y"] + shown["height"]) < 16


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
