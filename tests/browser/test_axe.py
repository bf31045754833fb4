"""axe finds no accessibility problem in any state of the page, light or dark."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser.axe import problems
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import (
    button,
    card,
    cards,
    pill,
    result,
    row,
    run_action,
    run_list,
    search,
    selected,
    timeline,
    transcript,
)
from tests.browser.server import Server
from tests.browser.tabs import PHONE, Tabs


def check(page: Page, state: str) -> None:
    page.mouse.move(0, 0)
    assert problems(page) == [], state


@pytest.mark.req("WT-73")
def test_the_list(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, "/agents/all/workers")
    expect(cards(page).first).to_be_visible()
    check(page, "the list")
    button(page, "Show sub-runs").first.click()
    expect(button(page, "Hide sub-runs")).to_have_count(1)
    check(page, "sub-runs below their run")
    button(page, "Filters").click()
    expect(page.get_by_role("combobox", name="Filter by")).to_be_focused()
    check(page, "the menu of filters")
    page.get_by_role("option", name="Duration").click()
    check(page, "the choices of a filter")
    page.keyboard.press("Escape")
    button(page, "Sort").click()
    check(page, "the menu of orders")
    page.keyboard.press("Escape")
    search(page).fill("quetzalcoatl")
    expect(cards(page)).to_have_count(1)
    check(page, "a search that finds something")
    card(page, recorded_runs.stories.everything).click()
    expect(row(page, 21)).to_have_attribute("aria-current", "true")
    check(page, "what a search found, opened at the hit")
    search(page).fill("nothing at all of this kind")
    expect(cards(page)).to_have_count(0)
    check(page, "a search that finds nothing")
    page.goto(f"{recorded_runs.server.url}/agents/nobody/workers")
    expect(page.get_by_text("No runs yet")).to_be_visible()
    check(page, "a list with nothing in it")
    page.goto(f"{recorded_runs.server.url}/agents/stories/workers")
    pill(page, "Failed").click()
    expect(cards(page)).to_have_count(1)
    check(page, "a filter")


@pytest.mark.req("WT-73")
def test_a_run_that_has_ended(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    tabs.allow_errors("404")
    stories = recorded_runs.stories
    page = tabs.open(recorded_runs.server, f"/agents/stories/workers?worker={stories.everything}")
    expect(result(page)).to_be_visible()
    expect(row(page, 3)).to_be_attached()
    check(page, "a run with one of everything")
    button(page, "Expand all").click()
    page.get_by_role("searchbox", name="Search in this run").fill("return")
    expect(page.get_by_text(re.compile(r"^1 of \d+$"))).to_be_visible()
    check(page, "all open, and something found")
    page.get_by_role("searchbox", name="Search in this run").fill("nothing of this kind")
    expect(page.get_by_text("No hits")).to_be_visible()
    check(page, "nothing found")
    page.goto(f"{recorded_runs.server.url}/agents/all/workers?worker={stories.everything}&event=20")
    expect(button(page, "988 earlier lines")).to_be_visible()
    check(page, "an event, and the end of what a command printed")
    timeline(page).locator("[data-bar]").first.focus()
    check(page, "a bar that has the focus")
    delete = run_action(page, "Delete…")
    check(page, "the menu of the run")
    delete.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    check(page, "whether to delete")
    for run_id in (
        stories.failed,
        stories.child,
        stories.no_messages,
        stories.steps,
        stories.agents,
        stories.reader,
        stories.failures,
        stories.lost_child,
    ):
        page.goto(f"{recorded_runs.server.url}/agents/all/workers?worker={run_id}")
        expect(result(page)).to_be_visible()
        expect(timeline(page).locator("li[data-seq]").first).to_be_attached()
        check(page, run_id)
    page.goto(f"{recorded_runs.server.url}/agents/all/workers?worker=5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10")
    expect(selected(page)).to_contain_text("Run not found")
    check(page, "a run that is not there")


@pytest.mark.req("WT-73")
def test_a_run_of_each_status(tabs: Tabs, server: Server, owner: str) -> None:
    running = server.dispatch("sleeper", owner=owner)
    failed = server.dispatch("picky", owner=owner, GO="x")
    done = server.command("seq 300; echo oops >&2", "--owner", owner)
    waits = {name: server.dispatch(name, owner=owner) for name in ("asker", "chooser", "measurer")}
    for run_id in waits.values():
        server.wait_for_status(run_id, "waiting")
    server.wait_for_status(running, "running")
    server.wait_for_status(failed, "failed")
    page = tabs.open(server, f"/agents/{owner}/workers")
    for run_id in (running, failed, done, *waits.values()):
        card(page, run_id).click()
        expect(transcript(page).locator("[data-seq]").first).to_be_visible()
        check(page, f"{run_id} of {server.detail(run_id)['name']}")
    card(page, waits["chooser"]).click()
    button(page, "Another answer…").click()
    check(page, "another answer")
    card(page, waits["measurer"]).click()
    page.get_by_role("textbox", name="Your answer").fill("[1, 2")
    button(page, "Answer").click()
    expect(page.get_by_text("This is not valid JSON")).to_be_visible()
    check(page, "an answer that is broken JSON")
    card(page, running).click()
    button(page, "Cancel").click()
    check(page, "the confirmation of a cancel")
    button(page, "Really cancel?").click()
    expect(selected(page).locator('[data-status="cancelled"]').first).to_be_visible()
    check(page, "a run that was cancelled")


@pytest.mark.req("WT-72")
def test_a_queued_run_and_a_wait_without_an_answer_form(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("asker", owner=owner)
    server.wait_for_status(run_id, "waiting")
    overrides: dict[str, Any] = {}

    def answer_detail(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, json={**response.json(), **overrides})

    context = tabs.context()
    context.route("**/api/agents/workers/detail?*", answer_detail)
    (pending,) = server.detail(run_id)["awaits"]
    text = "greet() in worker.py has changed since this run began."
    changed = {**pending, "kind": "definition_changed", "input": {"message": text, "function": "greet"}}
    overrides |= {"awaits": [changed], "waits_for": ["definition_changed"]}
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    waiting = page.get_by_role("region", name="Waiting", exact=True)
    expect(waiting).to_contain_text(text)
    expect(waiting).to_contain_text("function: greet")
    expect(waiting.get_by_role("textbox")).to_have_count(0)
    expect(waiting.get_by_role("button")).to_have_count(0)
    check(page, "a wait of another kind")
    overrides |= {"status": "queued", "awaits": [], "waits_for": None}
    page.reload()
    expect(selected(page).locator('[data-status="queued"]').first).to_be_visible()
    check(page, "a queued run")


@pytest.mark.req("WT-73")
def test_dialogs(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    button(page, "New run").click()
    dialog = page.get_by_role("dialog", name="New run")
    dialog.get_by_role("searchbox", name="Find a worker").fill("form")
    expect(dialog).to_contain_text("Takes one of everything.")
    check(page, "the form of a worker")
    dialog.get_by_role("button", name="Run", exact=True).click()
    check(page, "a form in which something is missing")
    dialog.get_by_role("searchbox", name="Find a worker").fill("no such worker")
    expect(dialog.get_by_role("option", name="No worker matches")).to_be_attached()
    check(page, "no worker matches")
    dialog.get_by_role("button", name="Cancel").click()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    check(page, "the keys")


@pytest.mark.req("WT-73")
def test_on_a_phone(tabs: Tabs, server: Server, recorded_runs: RecordedRuns, owner: str) -> None:
    page = tabs.open(recorded_runs.server, "/agents/stories/workers", viewport=PHONE)
    expect(run_list(page)).to_be_visible()
    check(page, "the list")
    card(page, recorded_runs.stories.everything).click()
    expect(row(page, 3)).to_be_attached()
    check(page, "a run")
    run_id = server.dispatch("chooser", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", viewport=PHONE)
    expect(button(page, "Another answer…")).to_be_visible()
    check(page, "a question")


@pytest.mark.req("WT-73")
def test_loading_states_and_errors(tabs: Tabs, server: Server, owner: str) -> None:
    tabs.allow_errors("503", "ERR_FAILED|ERR_ABORTED")
    run_id = server.command("echo here", "--owner", owner)
    context = tabs.context()

    def hold(_: Route) -> None:
        """Leave the request unanswered."""

    addresses = ("**/api/agents/workers?*", "**/api/agents/workers/detail?*")
    for address in addresses:
        context.route(address, hold)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    expect(page.get_by_role("status").filter(has_text="Loading the run…")).to_be_visible()
    check(page, "loading")
    context.route("**/api/stream*", lambda route: route.abort())
    refusal = {"error": {"code": "store_error", "message": "the database is locked", "hint": "wait a little"}}
    for address in addresses:
        context.unroute(address)
        context.route(address, lambda route: route.fulfill(status=503, json=refusal))
    page.reload()
    expect(page.get_by_role("alert")).to_have_count(2)
    expect(page.get_by_text("Not connected")).to_be_visible()
    check(page, "errors, and no connection")


@pytest.mark.req("WT-73")
def test_pages_of_the_server_itself(tabs: Tabs, server: Server) -> None:
    server.command("echo here")
    page = tabs.context().new_page()
    for address in ("/", "/login?token=wrong"):
        page.goto(f"{server.url}{address}")
        expect(page.get_by_role("heading", name="You are not logged in")).to_be_visible()
        expect(page.get_by_text("shopfloor login", exact=True).first).to_be_visible()
        check(page, address)
    page.goto(server.login)
    expect(run_list(page)).to_be_visible()
    for address, heading in (("/agents/x/nonsense", "There is no such page"), ("/api/docs", "Shopfloor")):
        page.goto(f"{server.url}{address}")
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        check(page, address)
