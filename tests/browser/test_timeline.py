"""The timeline of a run: its lines in order, and the chart of where the time went."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.browser.colors import color_name, rgb
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import row, timeline, transcript
from tests.browser.server import Server
from tests.browser.tabs import Tabs
from tests.timeouts import wait_until

LOW = {"width": 1280, "height": 600}
"""So low that the transcript scrolls, whatever fonts the machine has."""


def rows(page: Page) -> Locator:
    return timeline(page).locator("li[data-seq]")


def line(page: Page, seq: int) -> Locator:
    return timeline(page).locator(f'li[data-seq="{seq}"]')


@pytest.mark.req("WT-51", "WT-52")
def test_the_timeline_has_a_line_for_each_status_call_and_error_in_order(
    tabs: Tabs, recorded_runs: RecordedRuns
) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}")
    expect(timeline(page)).to_be_visible()
    expect(line(page, 1)).to_contain_text("starting")
    expect(line(page, 2)).to_contain_text("agent")
    # A call and its result are one line: icon, name, what it was called with, a bar and a duration.
    for text in ("Bash", "ls --color", "0.4 s"):
        expect(line(page, 7)).to_contain_text(text)
    expect(line(page, 7).get_by_role("img", name="completed")).to_be_visible()
    expect(line(page, 8)).to_have_count(0)
    seqs = rows(page).evaluate_all("rows => rows.map((row) => Number(row.dataset.seq))")
    assert seqs == sorted(seqs)
    failed = line(page, 9)
    expect(failed.get_by_role("img", name="failed")).to_be_visible()
    assert color_name(rgb(failed.get_by_text("Bash"))) == "red"
    expect(failed.get_by_role("button")).to_have_attribute("title", re.compile("the second test failed"))
    expect(rows(page).first.locator("time")).to_contain_text(re.compile(r"\d\d:\d\d:\d\d"))
    expect(timeline(page).get_by_text("Turn 1", exact=True)).to_be_visible()


def test_a_command_of_a_worker_has_its_command_line_and_duration(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("child", owner=owner, PART="all")
    server.wait_for_status(run_id, "done")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    command = rows(page).filter(has_text="Work")
    expect(command).to_contain_text("printf 'did %s'")
    expect(command).to_contain_text(re.compile(r"\d+ ms|\d\.\d s"))
    expect(transcript(page).locator("[data-kind=prompt]")).to_contain_text(
        re.compile(r"printf 'did[\s\S]*(\d+ ms|\d\.\d s)")
    )


@pytest.mark.req("WT-85")
def test_transcript_and_timeline_mark_the_same_call(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(
        recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}", viewport=LOW
    )
    expect(line(page, 7)).to_be_visible()
    expect(row(page, 7)).to_be_visible()
    line(page, 7).hover()
    expect(row(page, 7)).to_have_attribute("data-hovered", "")
    row(page, 9).hover()
    expect(line(page, 9)).to_have_attribute("data-hovered", "")
    expect(row(page, 7)).not_to_have_attribute("data-hovered", "")
    # The frame in the chart is what the transcript shows, and follows it.
    frame = timeline(page).locator("[data-frame]")
    before = frame.bounding_box()
    page.mouse.wheel(0, 5_000)
    expect(row(page, 21)).to_be_in_viewport()
    tabs.wait_until(lambda: frame.bounding_box() != before, "the frame to follow")


def test_the_timeline_follows_the_transcript_after_a_selection_and_up_from_the_end(
    tabs: Tabs, recorded_runs: RecordedRuns
) -> None:
    path = f"/agents/all/workers?worker={recorded_runs.stories.everything}&event=19"
    page = tabs.open(recorded_runs.server, path, viewport={"width": 1280, "height": 480})
    expect(line(page, 19)).to_be_in_viewport()
    line(page, 19).get_by_role("button").click()
    expect(line(page, 2)).not_to_be_in_viewport()
    transcript(page).get_by_role("group", name="Transcript rows").hover()
    page.mouse.wheel(0, -20_000)
    expect(line(page, 2)).to_be_in_viewport()
    page.mouse.wheel(0, 20_000)
    expect(line(page, 23)).to_be_in_viewport()
    page.mouse.wheel(0, -20_000)
    expect(line(page, 2)).to_be_in_viewport()
    expect(line(page, 23)).not_to_be_in_viewport()


def test_the_tab_key_stops_once_in_the_timeline_and_arrows_move(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}")
    expect(line(page, 7)).to_be_visible()
    stops = timeline(page).locator('ol[aria-label=Events] button[tabindex="0"]')
    expect(stops).to_have_count(1)
    stops.focus()
    page.keyboard.press("ArrowDown")
    expect(line(page, 2).get_by_role("button")).to_be_focused()
    page.keyboard.press("End")
    expect(line(page, 23).get_by_role("button")).to_be_focused()
    expect(stops).to_have_count(1)


@pytest.mark.req("WT-52")
def test_the_error_of_a_run_is_red_in_its_timeline(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.failed}")
    error = rows(page).get_by_text("the provider refuses for now").first
    expect(error).to_be_visible()
    assert color_name(rgb(error)) == "red"


@pytest.mark.req("WT-51", "WT-52")
def test_the_timeline_of_an_active_run_grows(tabs: Tabs, server: Server, owner: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    run_id = server.dispatch("stepper", owner=owner, GO=str(go))
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(rows(page).filter(has_text="Getting ready")).to_be_visible()
    expect(rows(page).filter(has_text="Wait").first).to_be_visible()
    expect(transcript(page)).to_be_visible()
    go.touch()
    expect(rows(page).filter(has_text=re.compile("completed|done")).last).to_be_visible()
    expect(transcript(page)).to_be_visible()
    expect(timeline(page)).to_be_attached()


@pytest.mark.req("WT-15")
def test_without_a_transcript_the_timeline_is_first(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.no_messages}")
    expect(rows(page).first).to_be_in_viewport()
    expect(transcript(page)).to_have_count(0)


def test_bars_show_where_the_time_went(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}")
    bars = page.get_by_role("img", name="Where the time went").or_(page.get_by_role("list", name="Where the time went"))
    expect(bars).to_be_visible()
    box = bars.bounding_box()
    assert box
    assert box["width"] > 100


def test_clicking_a_row_goes_to_its_event(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}")
    rows(page).filter(has_text="Edit").first.get_by_role("button").first.click()
    expect(page).to_have_url(re.compile(r"event=1[12]\b"))
    expect(row(page, 11)).to_have_attribute("aria-current", "true")
    expect(row(page, 11)).to_be_in_viewport()
    page.go_back()
    expect(page).not_to_have_url(re.compile("event="))


def test_clicking_a_row_again_goes_to_its_event_again(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(
        recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}", viewport=LOW
    )
    edit = rows(page).filter(has_text="Edit").first.get_by_role("button").first
    edit.click()
    expect(row(page, 11)).to_be_in_viewport()
    rows_box = transcript(page).get_by_role("group", name="Transcript rows")

    def scroll_up() -> bool:
        """Scroll up, again if the page was still going to the event."""
        rows_box.evaluate("one => one.scrollTo(0, 0)")
        page.wait_for_timeout(100)
        return rows_box.evaluate("one => one.scrollTop") == 0

    wait_until(scroll_up, "the transcript to be scrolled up")
    expect(row(page, 11)).not_to_be_in_viewport()
    edit.click()
    expect(row(page, 11)).to_be_in_viewport()
    expect(row(page, 11)).to_have_attribute("aria-current", "true")
    page.go_back()
    expect(page).not_to_have_url(re.compile("event="))


@pytest.mark.req("WT-67")
@pytest.mark.parametrize(("event", "line_seq"), [(1, 1), (7, 7), (8, 7), (11, 11), (20, 19), (21, 19), (23, 23)])
def test_a_deep_link_to_an_event_reveals_it_in_the_timeline(
    tabs: Tabs, recorded_runs: RecordedRuns, event: int, line_seq: int
) -> None:
    """A result is on the line of its call. A message has no line: the line before it is selected."""
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={run_id}&event={event}")
    expect(line(page, line_seq)).to_be_in_viewport()
    expect(line(page, line_seq).get_by_role("button")).to_have_attribute("aria-current", "true")
    expect(transcript(page).locator('[data-seq][aria-current="true"]')).to_be_in_viewport()


@pytest.mark.req("WT-67")
def test_a_deep_link_stays_in_sight_when_the_chart_above_is_loaded_later(
    tabs: Tabs, recorded_runs: RecordedRuns
) -> None:
    context = tabs.context()
    routes: list[Route] = []

    def hold(route: Route) -> None:
        routes.append(route)

    context.route("**/spans", hold)
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={run_id}&event=20", context=context)
    expect(line(page, 19)).to_be_in_viewport()
    for route in routes:
        route.continue_()
    bars = page.get_by_role("img", name="Where the time went").or_(page.get_by_role("list", name="Where the time went"))
    expect(bars).to_be_visible()
    expect(line(page, 19)).to_be_in_viewport()


def test_a_deep_link_into_an_active_run_stays_at_its_event(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("stepper", owner=owner, GO="/nonexistent")
    server.wait_for_status(run_id, "running")
    page = tabs.open(
        server, f"/agents/{owner}/workers?worker={run_id}&event=2", viewport={"width": 1280, "height": 500}
    )
    expect(rows(page).filter(has_text="Wait").first).to_be_attached()
    expect(line(page, 2)).to_be_in_viewport()
    server.http.post(f"/api/runs/{run_id}/cancel", json={})
    server.wait_for_status(run_id, "cancelled")


def test_bars_mark_time_spent_waiting(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("asker", owner=owner)
    (question,) = server.wait_for_status(run_id, "waiting")["awaits"]
    server.http.post(f"/api/runs/{run_id}/answer", json={"call_id": question["call_id"], "answer": "blue"})
    server.wait_for_status(run_id, "done")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    bars = timeline(page).get_by_role("list", name="Where the time went").locator("[data-bar]")
    waits = timeline(page).get_by_role("button", name=re.compile("ask, waiting, "))
    expect(waits).to_have_attribute("title", re.compile("^ask, waiting, "))
    assert waits.evaluate("one => getComputedStyle(one).backgroundImage") != "none"
    others = bars.evaluate_all("all => all.filter((one) => getComputedStyle(one).backgroundImage === 'none').length")
    assert others == bars.count() - 1 >= 1
    expect(timeline(page).get_by_text("waiting", exact=True)).to_be_visible()


@pytest.mark.parametrize(("zone", "clock"), [("UTC", "10:30:00"), ("Asia/Tokyo", "19:30:00")])
def test_times_are_in_the_readers_zone(tabs: Tabs, recorded_runs: RecordedRuns, zone: str, clock: str) -> None:
    path = f"/agents/all/workers?worker={recorded_runs.stories.steps}"
    page = tabs.open(recorded_runs.server, path, timezone_id=zone)
    time = line(page, 1).locator("time")
    expect(time).to_have_text(clock)
    expect(time).to_have_attribute("title", re.compile(f"15 November 2026.*{clock}"))
