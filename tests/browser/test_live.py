"""Active runs: text streams in, the end stays in sight, and nothing is lost or shown twice."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect
from tests.browser.page_elements import button, card, result, selected, transcript
from tests.browser.server import Server
from tests.browser.tabs import Tabs
from tests.model_server.script import Text, Turn
from tests.model_server.server import ModelServer
from tests.timeouts import wait_until

WORDS = " ".join(f"word{number}" for number in range(1, 61))
TICKS = 60
TALL = {"width": 1280, "height": 3_000}


def ticking_command(count: int = TICKS, pause: float = 0.1) -> str:
    return f"i=0; while [ $i -lt {count} ]; do i=$((i+1)); echo tick $i.; sleep {pause}; done"


def ticks(page: Page) -> list[int]:
    return [int(found) for found in re.findall(r"tick (\d+)\.", transcript(page).inner_text())]


def open_before_answer(tabs: Tabs, server: Server, model: ModelServer, owner: str, text: str) -> tuple[Page, str]:
    """Open the page of a run whose model streams this text once the page is open."""
    model.say(Turn(say=[Text(text=text)], chunk=8, pause=0.1, hang_after=0))
    run_id = server.dispatch("speaker", owner=owner, TOPIC="tea")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=TALL)
    expect(transcript(page)).to_contain_text("Tell me of tea.")
    tabs.wait_until(lambda: tabs.paths(f"/api/stream.*{run_id}") != [], "the page to follow the run")
    wait_until(lambda: model.requests() != [], "a request to the model")
    model.say()
    return page, run_id


def test_text_appears_while_it_streams_and_before_the_log_has_it(
    tabs: Tabs, server: Server, model: ModelServer, owner: str
) -> None:
    page, run_id = open_before_answer(tabs, server, model, owner, WORDS)
    expect(transcript(page)).to_contain_text("word1 word2 word3")
    assert b"end_turn" not in server.log(run_id)
    expect(transcript(page)).not_to_contain_text("word60")
    expect(selected(page).locator('[data-status="done"]').first).to_be_visible()
    expect(transcript(page)).to_contain_text("word60")
    assert transcript(page).inner_text().count("word33 ") == 1
    expect(result(page)).to_contain_text("word60")


def test_a_reload_while_text_streams_loses_nothing(tabs: Tabs, server: Server, model: ModelServer, owner: str) -> None:
    page, _ = open_before_answer(tabs, server, model, owner, WORDS)
    expect(transcript(page)).to_contain_text("word20")
    page.reload()
    # From the log, and then live, while the text is still streaming.
    expect(transcript(page)).to_contain_text("word1 word2 word3")
    expect(transcript(page)).not_to_contain_text("word60")
    assert "………" not in transcript(page).inner_text()
    expect(result(page)).to_contain_text("word60")
    assert transcript(page).inner_text().count("word5 ") == 1


@pytest.mark.req("TR-56")
def test_an_interrupted_message_stays_and_is_marked(tabs: Tabs, server: Server, model: ModelServer, owner: str) -> None:
    model.say(Turn(say=[Text(text=WORDS)], chunk=8, hang_after=6))
    run_id = server.dispatch("speaker", owner=owner, TOPIC="tea")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=TALL)
    expect(transcript(page)).to_contain_text("word1 word2 word3 word4 word5")
    assert server.http.post(f"/api/runs/{run_id}/cancel", json={}).is_success
    expect(transcript(page)).to_contain_text("The message is incomplete")
    page.reload()
    expect(transcript(page)).to_contain_text("The message is incomplete")
    assert transcript(page).inner_text().count("word1 word2 word3 word4 word5") == 1


def test_output_appears_line_by_line(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.start_command(ticking_command(30), owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=TALL)
    expect(transcript(page)).to_contain_text("tick 5.")
    expect(transcript(page)).not_to_contain_text("tick 30.")
    expect(transcript(page)).to_contain_text("tick 30.")
    assert ticks(page) == list(range(1, 31))


class Printer:
    """A run that prints a line whenever the test calls `tick`; each line is an event."""

    def __init__(self, server: Server, folder: Path, owner: str) -> None:
        self._server = server
        self._pipe = folder / "lines"
        os.mkfifo(self._pipe)
        self.run_id = server.start_command(f"while :; do cat {self._pipe}; done", owner=owner)

    @property
    def events(self) -> int:
        return self._server.log(self.run_id).count(b"\n")

    def tick(self, number: int) -> None:
        """Print a line, and return when the log has it."""
        line = f"tick {number}."
        self._pipe.write_text(f"{line}\n")
        wait_until(lambda: line.encode() in self._server.log(self.run_id), f"{line} to be in the log")


@pytest.fixture
def printer(server: Server, tmp_path: Path, owner: str) -> Printer:
    printer = Printer(server, tmp_path, owner)
    printer.tick(1)
    return printer


def test_rows_are_loaded_however_fast_events_arrive(tabs: Tabs, server: Server, owner: str, printer: Printer) -> None:
    context = tabs.paused_clock_context(viewport=TALL)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={printer.run_id}", context=context)
    known = page.get_by_role("tab", name=f"Transcript {printer.events}", exact=True)
    tabs.step_until(page, lambda: known.count() == 1, "the page to know how long the log is")
    tabs.step_until(page, lambda: tabs.paths(f"/api/stream.*{printer.run_id}") != [], "the page to follow the run")
    for number in range(2, 12):
        printer.tick(number)
        expect(page.get_by_role("tab", name=f"Transcript {printer.events}", exact=True)).to_be_visible()
        # Shorter than the delay of the page before it loads.
        page.clock.run_for(30)
    expect(transcript(page)).to_contain_text("tick 11.")
    assert ticks(page) == list(range(1, 12))


def test_live_events_are_shown_when_an_older_response_arrives_after_them(
    tabs: Tabs, server: Server, owner: str, printer: Printer
) -> None:
    context = tabs.context(viewport=TALL)
    delayed: list[tuple[Route, APIResponse]] = []

    def delay_first(route: Route) -> None:
        if delayed:
            route.continue_()
        else:
            delayed.append((route, route.fetch()))

    context.route(re.compile(rf"/api/runs/{printer.run_id}/log\?"), delay_first)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={printer.run_id}", context=context)
    tabs.wait_until(lambda: delayed != [], "a request for the log")
    for number in range(2, 5):
        printer.tick(number)
    expect(page.get_by_role("tab", name=f"Transcript {printer.events}", exact=True)).to_be_visible()
    assert ticks(page) == []
    route, answer = delayed[0]
    route.fulfill(response=answer)
    expect(transcript(page)).to_contain_text("tick 4.")
    assert ticks(page) == [1, 2, 3, 4]


def test_a_reload_in_the_middle_loses_nothing_and_shows_nothing_twice(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.start_command(ticking_command(40), owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=TALL)
    expect(transcript(page)).to_contain_text("tick 5.")
    page.reload()
    expect(transcript(page)).to_contain_text("tick 15.")
    page.reload()
    expect(transcript(page)).to_contain_text("tick 40.")
    assert ticks(page) == list(range(1, 41))


def test_two_tabs_see_the_same(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.start_command(ticking_command(30), owner=owner)
    first = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=TALL)
    second = tabs.open(server, f"/agents/{owner}/workers", context=first.context)
    card(second, run_id).click()
    for page in (first, second):
        expect(transcript(page)).to_contain_text("tick 30.")
        assert ticks(page) == list(range(1, 31))
        expect(card(page, run_id).locator('[data-status="done"]')).to_be_visible()


def test_the_end_is_followed_until_the_reader_scrolls_away(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.start_command("seq -f 'line %g.' 1 300; " + ticking_command(400, 0.05), owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    follow = button(page, "Follow")
    expect(follow).to_have_attribute("aria-pressed", "true")
    newest = transcript(page).get_by_text(re.compile(r"tick \d+\."))
    expect(newest.last).to_be_in_viewport()
    transcript(page).hover()
    page.mouse.wheel(0, -1_500)
    expect(follow).to_have_attribute("aria-pressed", "false")
    still = transcript(page).get_by_text(re.compile(r"(line|tick) \d+\.")).first
    place = "one => one.getBoundingClientRect().y"
    before = still.evaluate(place)
    page.wait_for_timeout(600)
    assert still.evaluate(place) == before
    follow.click()
    expect(follow).to_have_attribute("aria-pressed", "true")
    expect(newest.last).to_be_in_viewport()


def test_nothing_jumps_while_text_streams_and_when_the_run_ends(
    tabs: Tabs, server: Server, model: ModelServer, owner: str
) -> None:
    model.say(Turn(say=[Text(text=WORDS * 5)], chunk=30, pause=0.05))
    run_id = server.dispatch("speaker", owner=owner, TOPIC="calm")
    context = tabs.context()
    context.add_init_script(
        # The text that streams becomes a row at the same place, so the element below it, which is empty then, does not
        # count; nor does the frame in the chart, which shows where the reader is.
        """window.shifted = [];
        new PerformanceObserver((list) => {
            const counts = (one) => one.sources.some(({ node }) => !node?.closest?.("[data-tail], [data-frame]"));
            const named = ({ node, previousRect: from, currentRect: to }) =>
                `${(node?.outerHTML ?? node?.textContent ?? "").slice(0, 120)} ${JSON.stringify([from, to])}`;
            for (const one of list.getEntries().filter(counts))
                window.shifted.push([one.value, ...one.sources.map(named)]);
        }).observe({ type: "layout-shift", buffered: true });"""
    )
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    expect(transcript(page)).to_contain_text("word20")
    page.evaluate("window.shifted = []")
    expect(transcript(page)).to_contain_text(re.compile("(word59 word60.*){3}", re.DOTALL))
    expect(selected(page).locator('[data-status="done"]').first).to_be_visible()
    expect(result(page)).to_contain_text("word1 word2")
    shifts = page.evaluate("window.shifted")
    assert sum(value for value, *_ in shifts) < 0.01, shifts
