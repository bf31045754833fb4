"""The page with a lost connection, or without any."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser.page_elements import card, cards, row, selected, timeline, transcript
from tests.browser.server import Server
from tests.browser.tabs import Tabs
from tests.timeouts import TIMEOUT_SECONDS

# Errors that a browser logs for requests without a response.
REFUSED = (
    r"ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_FAILED|ERR_ABORTED"
)


def not_connected(page: Page):
    return page.get_by_role("status").filter(has_text="Not connected")


def test_the_page_catches_up_after_a_restart_of_the_server(own_server: Server, tabs: Tabs) -> None:
    tabs.allow_errors(REFUSED)
    before = own_server.command("echo before")
    page = tabs.open(own_server, f"/agents/all/workers?worker={before}")
    expect(card(page, before)).to_be_visible()
    expect(transcript(page)).to_contain_text("before")
    expect(not_connected(page)).to_have_count(0)
    own_server.kill()
    expect(not_connected(page)).to_be_visible()
    expect(card(page, before)).to_be_visible()
    expect(transcript(page)).to_contain_text("before")
    own_server.start()
    after = own_server.command("echo after")
    expect(card(page, after)).to_be_visible()
    expect(not_connected(page)).to_have_count(0)


def test_a_transcript_that_failed_to_load_is_loaded_when_the_server_is_back(own_server: Server, tabs: Tabs) -> None:
    tabs.allow_errors(REFUSED)
    run_id = own_server.command("echo patience")
    context = tabs.context()
    context.route("**/log?*", lambda route: route.abort())
    page = tabs.open(own_server, f"/agents/all/workers?worker={run_id}", context=context)
    expect(transcript(page).get_by_role("alert")).to_contain_text("cannot be reached")
    own_server.kill()
    expect(not_connected(page)).to_be_visible()
    context.unroute("**/log?*")
    own_server.start()
    expect(not_connected(page)).to_have_count(0)
    expect(row(page, 3)).to_contain_text("echo patience")
    expect(transcript(page).get_by_role("alert")).to_have_count(0)


def test_a_run_continues_while_the_server_is_down_and_no_event_is_missed(own_server: Server, tabs: Tabs) -> None:
    tabs.allow_errors(REFUSED)
    line = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo tick $i.; sleep 0.1; done"
    run_id = own_server.start_command(line, owner="o")
    context = tabs.context(viewport={"width": 1280, "height": 3_000}, reduced_motion="no-preference")
    page = tabs.open(own_server, f"/agents/all/workers?worker={run_id}", context=context)
    expect(transcript(page)).to_contain_text("tick 5.")
    own_server.kill()
    expect(not_connected(page)).to_contain_text(re.compile(r"State of [\d:]+, \d+ s ago"))
    # Nobody knows whether the run goes on: its sign does not spin.
    spinner = card(page, run_id).locator(".spin")
    assert spinner.evaluate("e => getComputedStyle(e).animationPlayState") == "paused"
    own_server.start()
    page.get_by_role("button", name="Try now").click()
    missed = page.get_by_role("status").filter(has_text=re.compile(r"[1-9]\d* events? (was|were) missed and ha(s|ve)"))
    expect(missed).to_be_visible()
    expect(transcript(page)).to_contain_text("tick 60.")
    shown = [int(found) for found in re.findall(r"tick (\d+)\.", transcript(page).inner_text())]
    assert shown == list(range(1, 61))
    expect(selected(page).locator('[data-status="done"]').first).to_be_visible()


def test_a_run_on_the_page_does_not_repeat_what_the_banner_says(own_server: Server, tabs: Tabs) -> None:
    tabs.allow_errors(REFUSED)
    run_id = own_server.start_command("sleep 600", owner="o")
    context = tabs.context()
    context.clock.install()
    page = tabs.open(own_server, f"/agents/all/workers?worker={run_id}", context=context)
    expect(timeline(page).locator("li[data-seq]").first).to_be_visible()
    expect(transcript(page)).to_contain_text("sleep 600")
    own_server.kill()
    expect(not_connected(page)).to_be_visible()
    before = len(tabs.paths(r"/detail\?"))

    def are_requests_repeated() -> bool:
        page.clock.run_for(500)
        return len(tabs.paths(r"/detail\?")) >= before + 6

    tabs.wait_until(are_requests_repeated, "requests of the run to fail and to be repeated")
    expect(selected(page).get_by_role("alert")).to_have_count(0)
    own_server.start()


def test_selecting_a_run_while_the_server_is_down_shows_an_error(own_server: Server, tabs: Tabs) -> None:
    tabs.allow_errors(REFUSED)
    first, second = (own_server.command(f"echo {word}") for word in ("first", "second"))
    context = tabs.context()
    context.clock.install()
    page = tabs.open(own_server, f"/agents/all/workers?worker={first}", context=context)
    expect(transcript(page)).to_contain_text("first")
    own_server.kill()
    page.clock.pause_at(time.time() + TIMEOUT_SECONDS)
    card(page, second).click()
    alert = selected(page).get_by_role("alert")
    # At once, and not only after the retries: on the page's clock those take longer.
    tabs.step_until(page, lambda: alert.count() == 1, "the page to show an error")
    expect(alert).to_contain_text("cannot be reached")
    expect(not_connected(page)).to_be_visible()
    page.clock.run_for(10_000)
    expect(alert).to_contain_text("cannot be reached")
    page.clock.resume()
    own_server.start()
    expect(transcript(page)).to_contain_text("second")
    expect(selected(page).get_by_role("alert")).to_have_count(0)


def test_truncated_responses_show_an_error_until_they_are_complete_again(
    tabs: Tabs, server: Server, owner: str
) -> None:
    run_id = server.command("echo mended", "--owner", owner)
    context = tabs.context()
    addresses = ["**/api/agents/workers?*", "**/api/agents/workers/detail?*", "**/api/runs/*/log?*"]
    is_repaired = False

    def truncate(route: Route) -> None:
        response = route.fetch()
        body = response.body()
        route.fulfill(response=response, body=body if is_repaired else body[:-20])

    for address in addresses:
        context.route(address, truncate)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    runs = page.get_by_role("region", name="Runs")
    for place in (runs, selected(page)):
        expect(place.get_by_role("alert")).to_contain_text("not valid JSON")
        expect(place.get_by_role("alert")).to_contain_text("unreadable")
    # The page recovers without a reload.
    is_repaired = True
    expect(card(page, run_id)).to_be_visible()
    expect(row(page, 3)).to_contain_text("echo mended")
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.parametrize("on_request", [False, True])
def test_a_failed_transcript_is_retried_after_a_while_or_on_request(
    tabs: Tabs, server: Server, owner: str, on_request: bool
) -> None:
    tabs.allow_errors(REFUSED)
    run_id = server.command("echo mended", "--owner", owner)
    context = tabs.paused_clock_context()
    is_mended = False
    context.route("**/api/runs/*/log?*", lambda route: route.continue_() if is_mended else route.abort())
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    alert = transcript(page).get_by_role("alert")
    tabs.step_until(page, lambda: alert.count() == 1, "the page to show an error")
    expect(alert).to_contain_text("cannot be reached")
    is_mended = True
    if on_request:
        alert.get_by_role("button", name="Try again").click()
    # Otherwise after three seconds.
    page.clock.run_for(100 if on_request else 3_100)
    expect(row(page, 3)).to_contain_text("echo mended")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_the_page_reconnects_after_an_unreadable_stream_event(tabs: Tabs, server: Server, owner: str) -> None:
    context = tabs.context()
    stream_text = "event: ready\ndata: {}\n\nevent: run\ndata: {oops\n\n"
    stream = "**/api/stream*"
    context.clock.install()
    context.route(stream, lambda route: route.fulfill(body=stream_text, content_type="text/event-stream"))
    page = tabs.open(server, f"/agents/{owner}/workers", context=context)
    expect(not_connected(page)).to_be_visible()
    # On the page's clock: the next attempt is five seconds later.
    page.clock.run_for(6_000)
    tabs.wait_until(lambda: len(tabs.paths("/api/stream")) >= 2, "the next try")
    assert len(tabs.paths("/api/stream")) <= 3
    context.unroute(stream)
    run_id = server.command("echo heard", "--owner", owner)
    expect(card(page, run_id)).to_be_visible()
    expect(not_connected(page)).to_have_count(0)


@pytest.mark.req("WT-45")
def test_without_a_stream_the_list_is_polled_every_five_seconds(tabs: Tabs, server: Server, owner: str) -> None:
    tabs.allow_errors(REFUSED)
    context = tabs.context()
    context.clock.install()
    context.route("**/api/stream*", lambda route: route.abort())
    page = tabs.open(server, f"/agents/{owner}/workers", context=context)
    expect(not_connected(page)).to_be_visible()
    run_id = server.command("echo polled", "--owner", owner)
    expect(card(page, run_id)).to_be_visible()
    assert 1 <= requests_within(page, tabs, 15, r"/api/agents/workers\?") <= 4


def requests_within(page: Page, tabs: Tabs, seconds: int, pattern: str) -> int:
    """Return how many matching requests the page makes within `seconds` of its own clock."""
    page.clock.pause_at(page.evaluate("Date.now()") / 1000 + 10)
    page.wait_for_load_state("networkidle")
    before = len(tabs.paths(pattern))
    for _ in range(seconds):
        page.clock.run_for(1_000)
        # Let a response arrive before the next tick.
        page.wait_for_timeout(50)
    return len(tabs.paths(pattern)) - before


@pytest.mark.req("WT-53")
def test_without_a_stream_the_timeline_of_a_running_run_is_polled_every_three_seconds(
    tabs: Tabs, server: Server, owner: str, tmp_path
) -> None:
    tabs.allow_errors(REFUSED)
    context = tabs.context()
    context.clock.install()
    context.route("**/api/stream*", lambda route: route.abort())
    go = tmp_path / "go"
    run_id = server.dispatch("stepper", owner=owner, GO=str(go))
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    expect(timeline(page).locator("li[data-seq]").filter(has_text="Wait").first).to_be_visible()
    assert 1 <= requests_within(page, tabs, 9, "/workers/events") <= 4
    page.clock.resume()
    go.touch()
    expect(selected(page).locator('[data-status="done"]').first).to_be_visible()
    expect(transcript(page)).to_contain_text("through")
    assert requests_within(page, tabs, 9, "/workers/events") <= 1


def test_with_a_stream_nothing_is_polled(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.start_command("sleep 600", owner=owner)
    context = tabs.context()
    context.clock.install()
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    expect(row(page, 3)).to_be_visible()
    page.wait_for_timeout(1_000)
    # Shorter than the longest silence of a healthy stream.
    assert requests_within(page, tabs, 15, "/api/") == 0


def test_one_connection_serves_the_whole_page(tabs: Tabs, server: Server, owner: str) -> None:
    runs = [server.command(f"echo {number}", "--owner", owner) for number in range(3)]
    page = tabs.open(server, f"/agents/{owner}/workers")
    for run_id in runs:
        card(page, run_id).click()
        expect(transcript(page)).to_be_visible()
    assert len(tabs.paths("/api/stream")) <= 1 + len(runs)
    assert tabs.paths("/api/runs/[^/]+/stream") == []


def test_a_list_that_fails_to_load_shows_the_error_and_can_be_retried(tabs: Tabs, server: Server, owner: str) -> None:
    tabs.allow_errors("503|500", REFUSED)
    run_id = server.command("echo here", "--owner", owner)
    context = tabs.context()
    context.route("**/api/stream*", lambda route: route.abort())
    refusal = {"error": {"code": "store_error", "message": "the database is locked", "hint": "wait a little"}}
    context.route("**/api/agents/workers?*", lambda route: route.fulfill(status=503, json=refusal))
    page = tabs.open(server, f"/agents/{owner}/workers", context=context)
    expect(page.get_by_role("alert")).to_contain_text("the database is locked")
    expect(page.get_by_role("alert")).to_contain_text("wait a little")
    context.unroute("**/api/agents/workers?*")
    page.get_by_role("button", name="Try again").click()
    expect(card(page, run_id)).to_be_visible()
    expect(cards(page)).to_have_count(1)


def test_loading_messages_are_shown(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("echo here", "--owner", owner)
    context = tabs.context()
    routes: list[Route] = []

    def hold(route: Route) -> None:
        routes.append(route)

    context.route("**/api/agents/workers?*", hold)
    context.route("**/api/agents/workers/detail?*", hold)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    expect(page.get_by_role("status").filter(has_text="Loading runs")).to_be_attached()
    expect(page.get_by_role("status").filter(has_text="Loading the run…")).to_be_visible()
    for route in routes:
        route.continue_()
    expect(card(page, run_id)).to_be_visible()
    expect(transcript(page)).to_contain_text("here")


def test_logging_out_ends_the_session_of_this_browser(own_server: Server, tabs: Tabs) -> None:
    tabs.allow_errors(r"401|ERR_ABORTED")
    run_id = own_server.command("echo private")
    page = tabs.open(own_server, f"/agents/all/workers?worker={run_id}")
    expect(transcript(page)).to_contain_text("private")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile(r"/login$"))
    page.goto(f"{own_server.url}/agents/all/workers?worker={run_id}")
    expect(page.get_by_text("private")).to_have_count(0)
    assert page.request.get(f"{own_server.url}/api/agents/workers").status == 401
