"""Shortcuts do not fire while the user types, uses a menu, or has a dialog open."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, Route, expect
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import button, cards, region, row, run_action, transcript
from tests.browser.server import Server
from tests.browser.tabs import Tabs

SHORTCUTS = ("j", "k", "g", "g", "G", "/", "f", "e", "c", "n", "[", "]", "?")
TYPED = "".join(SHORTCUTS)
NOT_COPIED = "clipboard before the test"


@pytest.fixture
def page(tabs: Tabs, recorded_runs: RecordedRuns) -> Page:
    """The page with a run of every kind of event, and one event selected."""
    page = tabs.open(recorded_runs.server, f"/agents/stories/workers?worker={recorded_runs.stories.everything}&event=9")
    expect(row(page, 9)).to_have_attribute("aria-current", "true")
    expect(cards(page).first).to_be_visible()
    return page


def page_state(page: Page) -> dict[str, Any]:
    """Return everything that a shortcut could change."""
    address = parse_qs(urlsplit(page.url).query)
    return {
        "run": address.get("worker"),
        "event": transcript(page)
        .locator('[aria-current="true"]')
        .evaluate_all("all => all.map(one => one.dataset.seq)"),
        "dialogs": page.get_by_role("dialog").evaluate_all("all => all.map(one => one.ariaLabel)"),
        "expand": button(page, "Expand all").count(),
        "copied": page.evaluate("navigator.clipboard.readText()"),
        "focus": page.evaluate("document.activeElement.outerHTML.slice(0, 60)"),
    }


def ignores_shortcuts(page: Page) -> bool:
    """Press all shortcuts, and assert that the focus and the rest of the page stay the same."""
    page.evaluate(f"navigator.clipboard.writeText({NOT_COPIED!r})")
    before = page_state(page)
    for key in SHORTCUTS:
        page.keyboard.press(key)
    assert page_state(page) == before
    return True


@pytest.mark.req("WT-66")
@pytest.mark.parametrize("name", ["Search runs", "Search in this run"])
def test_a_search_field_takes_every_letter(page: Page, name: str) -> None:
    field = page.get_by_role("searchbox", name=name)
    field.focus()
    # A hit would move the transcript: search for text that does not exist.
    page.keyboard.type("zzz")
    page.wait_for_timeout(600)
    assert ignores_shortcuts(page)
    expect(field).to_have_value(f"zzz{TYPED}")


def test_a_menu_takes_every_letter(page: Page) -> None:
    button(page, "Filters").click()
    expect(page.get_by_role("combobox", name="Filter by")).to_be_focused()
    assert ignores_shortcuts(page)


def test_a_text_that_is_edited_in_place_takes_every_letter(page: Page) -> None:
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<div contenteditable id=edited></div>')")
    page.locator("#edited").focus()
    before = page_state(page)["dialogs"]
    page.keyboard.type(TYPED)
    expect(page.locator("#edited")).to_have_text(TYPED)
    assert page_state(page)["dialogs"] == before


def test_an_answer_takes_every_letter(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("asker", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    answer = page.get_by_role("textbox", name="Your answer")
    answer.focus()
    assert ignores_shortcuts(page)
    expect(answer).to_have_value(TYPED)


@pytest.mark.req("WT-66")
def test_every_field_of_a_form_takes_every_letter(page: Page) -> None:
    button(page, "New run").click()
    dialog = page.get_by_role("dialog", name="New run")
    dialog.get_by_role("searchbox", name="Find a worker").fill("form")
    expect(dialog).to_contain_text("Takes one of everything.")
    fields = dialog.locator("input, textarea, select, button")
    assert fields.count() >= 7
    for number in range(fields.count()):
        # Typing into the search may select another worker with other fields.
        dialog.get_by_role("searchbox", name="Find a worker").fill("form")
        field = fields.nth(number)
        if field.is_enabled():
            field.focus()
            assert ignores_shortcuts(page)


def test_a_dialog_takes_every_key_also_where_nothing_in_it_has_the_focus(page: Page) -> None:
    for opener, name in (
        ("Keyboard shortcuts", "Keyboard shortcuts"),
        ("New run", "New run"),
        ("Delete…", "Delete this run?"),
    ):
        (run_action if opener.startswith("Delete") else button)(page, opener).click()
        page.get_by_role("dialog", name=name).get_by_role("heading").first.click()
        assert ignores_shortcuts(page)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.req("WT-66")
@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_another_answer_can_be_typed_at_once(tabs: Tabs, server: Server, owner: str, by: str) -> None:
    run_id = server.dispatch("chooser", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    other = button(page, "Another answer…")
    if by == "mouse":
        other.click()
    else:
        other.press("Enter")
    expect(page.get_by_role("textbox", name="Your answer")).to_be_focused()
    page.keyboard.type("not now, never")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Enter")
    assert server.wait_for_status(run_id, "done")["result"] == "not now, never"


def test_an_answer_keeps_the_focus_when_its_form_moves_above_the_transcript(
    tabs: Tabs, server: Server, owner: str
) -> None:
    """The transcript may have a question before the run's details list it; then the form moves while the user types."""
    run_id = server.dispatch("chooser", owner=owner)
    server.wait_for_status(run_id, "waiting")
    requests: list[Route] = []
    is_released = False

    def answer_detail(route: Route) -> None:
        """Answer the first request without the question, and hold the later ones until they are released."""
        requests.append(route)
        if len(requests) == 1:
            route.fulfill(json={**route.fetch().json(), "awaits": []})
        elif is_released:
            route.continue_()

    context = tabs.context()
    context.route("**/api/agents/workers/detail?*", answer_detail)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}", context=context)
    transcript(page).get_by_role("button", name="Another answer…").press("Enter")
    answer = page.get_by_role("textbox", name="Your answer")
    expect(answer).to_be_focused()
    page.keyboard.type("not now, ")
    tabs.wait_until(lambda: len(requests) > 1, "a second request for the run")
    is_released = True
    for route in requests[1:]:
        route.continue_()
    expect(region(page, "Waiting for your answer").get_by_role("textbox", name="Your answer")).to_be_focused()
    page.keyboard.type("never")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(answer).to_have_value("not now, never")
    page.keyboard.press("Enter")
    assert server.wait_for_status(run_id, "done")["result"] == "not now, never"


def test_an_answer_form_does_not_take_the_focus_by_itself(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("asker", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(page.get_by_role("textbox", name="Your answer")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
