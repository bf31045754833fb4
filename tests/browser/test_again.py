"""New runs that are made from a run on the page, and approvals that are decided there."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect
from tests.browser.page_elements import button, result, selected, task
from tests.browser.server import Server
from tests.browser.tabs import Tabs


@pytest.mark.req("SF-53")
def test_a_run_is_repeated_with_another_input_and_both_runs_link_to_each_other(
    tabs: Tabs, server: Server, owner: str
) -> None:
    run_id = server.dispatch("form", owner=owner, TITLE="tea")
    server.wait_for_status(run_id, "done")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    button(page, "Edit and rerun…").click()
    field = page.get_by_label("Input, as JSON")
    expect(field).to_have_value(json.dumps({**_input(server, run_id)}, indent=2))
    field.fill("{not json")
    button(page, "Run").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_be_visible()
    field.fill(json.dumps({"TITLE": "coffee"}))
    button(page, "Run").click()
    expect(result(page)).to_contain_text("coffee x 3 false")
    expect(selected(page)).to_contain_text(f"Rerun of {run_id[:8]}")
    selected(page).get_by_role("link", name=run_id[:8]).click()
    expect(result(page)).to_contain_text("tea x 3 false")
    (later,) = server.detail(run_id)["continued_by"]
    expect(selected(page)).to_contain_text(f"Then rerun {later['run_id'][:8]}")
    button(page, "Rerun").click()
    expect(task(page)).to_contain_text("tea")
    expect(selected(page)).to_contain_text(f"Rerun of {run_id[:8]}")


@pytest.mark.req("SF-56")
def test_an_approval_shows_the_command_and_is_denied_with_a_reason_or_given(
    tabs: Tabs, server: Server, owner: str
) -> None:
    run_id = server.dispatch("pusher", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(selected(page).get_by_text("Allow command?").first).to_be_visible()
    expect(selected(page).get_by_text("printf pushed").first).to_be_visible()
    button(page, "Deny with a reason…").click()
    page.get_by_role("textbox", name="Your answer").fill("deny: not today")
    button(page, "Answer").click()
    expect(selected(page).locator('[data-status="failed"]').first).to_be_visible()
    assert server.wait_for_status(run_id, "failed")["error"]["message"] == "the command was denied: not today"
    second = server.dispatch("pusher", owner=owner)
    page.goto(f"{page.url.partition('?')[0]}?worker={second}")
    button(page, "approve").click()
    expect(result(page)).to_contain_text("pushed")


def _input(server: Server, run_id: str) -> dict[str, object]:
    return json.loads(server.log(run_id).split(b"\n")[0])["payload"]["input"]
