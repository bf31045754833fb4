"""Runs that wait for an answer are answered on the page and continue."""

from __future__ import annotations

from playwright.sync_api import expect
from tests.browser.page_elements import button, card, result, selected, task
from tests.browser.server import Server
from tests.browser.tabs import Tabs


def test_a_question_is_answered_on_the_page_and_the_run_continues(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("asker", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(selected(page).get_by_text("Which colour shall it be?").first).to_be_visible()
    field = page.get_by_role("textbox", name="Your answer")
    field.fill("sea green")
    # This Enter only ends the composition of a character.
    field.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    expect(button(page, "Answer")).to_be_enabled()
    button(page, "Answer").click()
    expect(selected(page).locator('[data-status="done"]').first).to_be_visible()
    expect(result(page)).to_contain_text("painted in sea green")
    expect(page.get_by_role("textbox", name="Your answer")).to_have_count(0)


def test_a_half_typed_answer_survives_a_look_at_another_run(tabs: Tabs, server: Server, owner: str) -> None:
    other = server.command("echo beside", "--owner", owner)
    run_id = server.dispatch("asker", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    page.get_by_role("textbox", name="Your answer").fill("sea gr")
    card(page, other).click()
    expect(task(page)).to_have_text("echo beside")
    card(page, run_id).click()
    expect(page.get_by_role("textbox", name="Your answer")).to_have_value("sea gr")


def test_a_question_with_options_is_answered_by_a_click(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("chooser", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    button(page, "Yes, go on").click()
    if button(page, "Answer").count():
        button(page, "Answer").click()
    expect(result(page)).to_contain_text("Yes, go on")
    assert server.wait_for_status(run_id, "done")["result"] == "Yes, go on"


def test_a_question_that_is_answered_elsewhere_disappears(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("asker", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(page.get_by_role("textbox", name="Your answer")).to_be_visible()
    call_id = server.detail(run_id)["awaits"][0]["call_id"]
    server.http.post(f"/api/runs/{run_id}/answer", json={"call_id": call_id, "answer": "brown"})
    expect(result(page)).to_contain_text("painted in brown")
    expect(page.get_by_role("textbox", name="Your answer")).to_have_count(0)
