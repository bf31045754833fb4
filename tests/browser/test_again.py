"""New runs that are made from a run on the page, and approvals that are decided there."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.agents.agent_environment import agent_environment
from tests.browser.page_elements import button, card, result, row, run_action, selected, task, transcript
from tests.browser.server import Server
from tests.browser.tabs import Tabs
from tests.model_server.server import ModelServer


@pytest.mark.req("SF-53", "WT-91")
def test_a_run_is_repeated_with_another_input_and_both_runs_link_to_each_other(
    tabs: Tabs, server: Server, owner: str
) -> None:
    run_id = server.dispatch("form", owner=owner, TITLE="tea", TONE="glad", RATIO=0.5)
    server.wait_for_status(run_id, "done")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    run_action(page, "Edit and rerun…").click()
    dialog = page.get_by_role("dialog", name="Edit and rerun form")
    expect(dialog.get_by_label("Title")).to_have_value("tea")
    expect(dialog.get_by_label("Title")).to_be_focused()
    expect(dialog.get_by_label("Count")).to_have_value("3")
    expect(dialog.get_by_label("Ratio")).to_have_value("0.5")
    dialog.get_by_label("Count").fill("1.5")
    button(page, "Run").click()
    expect(dialog.get_by_text("Must be a whole number.")).to_be_visible()
    dialog.get_by_label("Count").fill("5")
    dialog.get_by_label("Title").fill("coffee")
    dialog.get_by_label("Ratio").fill("")
    button(page, "Run").click()
    expect(result(page)).to_contain_text("coffee x 5 false")
    expect(dialog).to_have_count(0)
    expect(selected(page)).to_contain_text(f"Rerun of {run_id[:8]}")
    (later,) = server.detail(run_id)["continued_by"]
    changed = server.first_event(later["run_id"])["payload"]["input"]
    assert (changed["TONE"], changed["RATIO"]) == ("glad", None)
    selected(page).get_by_role("link", name=run_id[:8]).click()
    expect(result(page)).to_contain_text("tea x 3 false")
    expect(selected(page)).to_contain_text(f"Then rerun {later['run_id'][:8]}")


@pytest.mark.req("SF-53", "WT-91")
def test_an_emptied_field_is_left_out_and_an_emptied_required_one_is_an_error_there(
    tabs: Tabs, server: Server, owner: str
) -> None:
    run_id = server.dispatch("form", owner=owner, TITLE="tea", COUNT=5, TONE="glad", ITEMS=["c"])
    server.wait_for_status(run_id, "done")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    run_action(page, "Edit and rerun…").click()
    dialog = page.get_by_role("dialog", name="Edit and rerun form")
    for label in ("Title", "Count", "Items"):
        dialog.get_by_label(label).fill("")
    button(page, "Run").click()
    title = dialog.get_by_label("Title")
    expect(title).to_be_focused()
    expect(title).to_have_attribute("aria-invalid", "true")
    expect(title).to_have_accessible_description("What it is called Required.")
    assert server.detail(run_id)["continued_by"] == []
    title.fill("coffee")
    with page.expect_request("**/rerun") as sent:
        button(page, "Run").click()
    request: dict[str, Any] = json.loads(sent.value.post_data or "")
    assert (request["input"]["COUNT"], request["input"]["ITEMS"]) == (None, None)
    expect(result(page)).to_contain_text("coffee x 3 false")
    (later,) = server.detail(run_id)["continued_by"]
    assert server.first_event(later["run_id"])["payload"]["input"] == {
        "TITLE": "coffee",
        "COUNT": 3,
        "RATIO": None,
        "LOUD": False,
        "TONE": "glad",
        "ITEMS": ["a", "b"],
    }


@pytest.mark.req("WT-91")
def test_a_run_is_repeated_from_the_menu_and_by_key(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("form", owner=owner, TITLE="tea")
    server.wait_for_status(run_id, "done")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    run_action(page, "Rerun").click()
    expect(selected(page)).to_contain_text(f"Rerun of {run_id[:8]}")
    expect(result(page)).to_contain_text("tea x 3 false")
    card(page, run_id).click()
    expect(selected(page)).to_contain_text("Then rerun")
    # The list has the keys: no key starts a run by accident.
    page.keyboard.press("r")
    task(page).click()
    page.keyboard.press("r")
    expect(selected(page)).to_contain_text(f"Rerun of {run_id[:8]}")
    assert len(server.detail(run_id)["continued_by"]) == 2
    page.keyboard.press("Shift+R")
    dialog = page.get_by_role("dialog", name="Edit and rerun form")
    expect(dialog.get_by_label("Title")).to_have_value("tea")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.keyboard.press("x")
    expect(page.get_by_role("menuitem", name="Export Markdown")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Export HTML")).to_be_focused()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename.endswith(".html")


@pytest.mark.req("SF-55", "WT-91")
def test_a_run_is_forked_from_an_event_by_mouse_and_by_key(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("parent", owner=owner)
    server.wait_for_status(run_id, "done")
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    rows = transcript(page).locator("[data-seq]")
    expect(rows.nth(1)).to_be_visible()
    seq = int(rows.nth(1).get_attribute("data-seq") or 0)
    row(page, seq).hover()
    row(page, seq).get_by_role("button", name="Fork here").click()
    expect(selected(page)).to_contain_text(f"Fork of {run_id[:8]} at event")
    expect(result(page)).to_contain_text("did report one and did report two")
    selected(page).get_by_role("link", name=run_id[:8]).click()
    expect(selected(page)).to_contain_text("Then fork")
    transcript(page).click()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Shift+F")
    expect(selected(page)).to_contain_text(f"Fork of {run_id[:8]} at event")
    assert [later["kind"] for later in server.detail(run_id)["continued_by"]] == ["fork", "fork"]


@pytest.mark.req("SF-54", "WT-91")
def test_an_ended_session_of_an_agent_is_continued_with_a_reply_below_its_transcript(
    tabs: Tabs, model: ModelServer, tmp_path: Path
) -> None:
    scenario = model.scenario("claude", "echo", uuid.uuid4().hex[:8])
    with Server(tmp_path, **agent_environment("claude-code", scenario.url, tmp_path / "home")) as server:
        run_id = server.dispatch("claude-code", prompt="Say hello.")
        server.wait_for_status(run_id, "done")
        page = tabs.open(server, f"/agents/all/workers?worker={run_id}")
        field = page.get_by_role("textbox", name="Reply")
        box = field.bounding_box()
        assert box is not None
        assert 30 <= box["height"] <= 48
        field.fill("And now the rest.")
        field.press("Enter")
        expect(task(page)).to_have_text("And now the rest.")
        expect(selected(page)).to_contain_text(f"Reply to {run_id[:8]}")
        expect(transcript(page)).to_contain_text("You said: Say hello. | And now the rest.")
        expect(button(page, "Fork here")).to_have_count(0)
        page.goto(server.viewer_login(f"/agents/all/workers?worker={run_id}"))
        expect(task(page)).to_have_text("Say hello.")
        expect(button(page, "Export")).to_be_visible()
        expect(field).to_have_count(0)
        page.close()


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
    button(page, "Approve once").click()
    expect(result(page)).to_contain_text("pushed")
