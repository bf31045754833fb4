"""Running a worker from the page: a form that is made of what the worker takes."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect
from tests.browser.parts import button, result, task
from tests.browser.server import Server
from tests.browser.tabs import Tabs


def form(page: Page) -> Locator:
    return page.get_by_role("dialog", name="New run")


def open_form(page: Page, worker: str) -> Locator:
    button(page, "New run").click()
    form(page).get_by_role("combobox", name="Worker").select_option(value=worker)
    return form(page)


def test_a_worker_is_run_with_what_the_form_says(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "form")
    expect(dialog).to_contain_text("Takes one of everything.")
    expect(dialog).to_contain_text("What it is called")
    expect(dialog.get_by_label(re.compile("^COUNT"))).to_have_value("3")
    dialog.get_by_label(re.compile("^TITLE")).fill("a kettle")
    dialog.get_by_label(re.compile("^COUNT")).fill("7")
    dialog.get_by_label(re.compile("^LOUD")).check()
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(result(page)).to_contain_text("a kettle x 7 true")
    (run,) = server.runs(agent_id=owner)
    expect(page).to_have_url(re.compile(f"worker={run['id']}"))
    assert (run["name"], run["channel_id"]) == ("form", "page")


def test_what_is_missing_is_said_before_anything_is_sent(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "form")
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(dialog).to_be_visible()
    field = dialog.get_by_label(re.compile("^TITLE"))
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    field.fill("a title")
    dialog.get_by_label(re.compile("^COUNT")).fill("2.5")
    dialog.get_by_label(re.compile("^ITEMS")).fill("[1,")
    dialog.get_by_role("button", name="Run", exact=True).click()
    for name in ("COUNT", "ITEMS"):
        expect(dialog.get_by_label(re.compile(f"^{name}"))).to_have_attribute("aria-invalid", "true")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    assert server.runs(agent_id=owner) == []


def test_what_the_server_refuses_is_shown_in_the_form(tabs: Tabs, server: Server, owner: str) -> None:
    tabs.bear("422|400|404|409")
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "form")
    page.route("**/api/runs", lambda route: route.continue_(post_data='{"worker": "nobody", "input": {}}'))
    dialog.get_by_label(re.compile("^TITLE")).fill("x")
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("nobody")
    page.unroute("**/api/runs")
    expect(dialog.get_by_label(re.compile("^TITLE"))).to_have_value("x")
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(task(page)).to_be_visible()
    expect(dialog).to_have_count(0)


def test_what_was_typed_outlives_a_click_beside_the_form(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    open_form(page, "form").get_by_label(re.compile("^TITLE")).fill("a long story")
    page.mouse.click(5, 5)
    expect(form(page)).to_have_count(0)
    expect(open_form(page, "form").get_by_label(re.compile("^TITLE"))).to_have_value("a long story")


def test_the_form_is_left_by_escape(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    open_form(page, "child")
    page.keyboard.press("Escape")
    expect(form(page)).to_have_count(0)
    assert server.runs(agent_id=owner) == []
