"""Start a run from the page, with a form made from the worker's schema."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.browser.page_elements import button, result, task
from tests.browser.server import Server
from tests.browser.tabs import Tabs, checked_tabs


def form(page: Page) -> Locator:
    return page.get_by_role("dialog", name="New run")


def open_form(page: Page, worker: str) -> Locator:
    button(page, "New run").click()
    form(page).get_by_role("combobox", name="Worker").select_option(value=worker)
    return form(page)


def test_a_worker_runs_with_the_values_of_the_form(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "form")
    expect(dialog).to_contain_text("Takes one of everything.")
    expect(dialog).to_contain_text("What it is called")
    expect(dialog.get_by_label(re.compile("^Count"))).to_have_value("3")
    dialog.get_by_label(re.compile("^Title")).fill("a kettle")
    dialog.get_by_label(re.compile("^Count")).fill("7")
    dialog.get_by_label(re.compile("^Loud")).check()
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(dialog).to_have_count(0)
    expect(result(page)).to_contain_text("a kettle x 7 true")
    (run,) = server.runs(agent_id=owner)
    expect(page).to_have_url(re.compile(f"worker={run['id']}"))
    assert (run["name"], run["channel_id"]) == ("form", "page")


@pytest.mark.req("WT-87")
def test_an_input_with_choices_offers_them(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "form")
    tone = dialog.get_by_role("combobox", name=re.compile("^Tone"))
    expect(tone.get_by_role("option")).to_have_text(["(none)", "calm", "glad"])
    tone.select_option(label="glad")
    dialog.get_by_label(re.compile("^Title")).fill("x")
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(task(page)).to_have_text("Form · x, glad")
    refused = server.http.post("/api/runs", json={"worker": "form", "input": {"TITLE": "x", "TONE": "sad"}})
    assert "`TONE` must be one of 'calm', 'glad', got 'sad'" in refused.json()["error"]["message"]


def test_the_form_of_an_agent_is_its_prompt_and_the_rest_is_folded(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "claude-code")
    fields = dialog.locator("form").locator("input:visible, textarea:visible, select:visible")
    expect(fields).to_have_count(1)
    expect(dialog.get_by_role("textbox", name=re.compile("^Prompt"))).to_be_visible()
    dialog.get_by_text("Options").click()
    expect(dialog.get_by_role("textbox", name="Working folder")).to_be_visible()
    assert fields.count() > 2


def test_fields_have_names_for_people_and_for_programs(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "form")
    for name in ("TITLE", "COUNT", "LOUD"):
        expect(dialog.locator("label").filter(has_text=name)).to_have_text(
            re.compile(rf"^{name.capitalize()}\*?\s*{name}$")
        )


def test_a_missing_provider_cannot_be_run(browser: Browser, tmp_path: Path) -> None:
    # Without programs on the PATH there are no agents.
    with Server(tmp_path, PATH=str(tmp_path)) as server, checked_tabs(browser) as tabs:
        page = tabs.open(server)
        dialog = open_form(page, "codex")
        (install,) = [one["install"] for one in server.get("/api/providers")["providers"] if one["name"] == "codex"]
        expect(dialog.get_by_text("To install it:")).to_contain_text(install)
        expect(dialog.get_by_role("option", name="codex (not available)")).to_be_attached()
        expect(dialog.get_by_role("button", name="Run", exact=True)).to_be_disabled()
        dialog.get_by_role("textbox").first.fill("try it all the same")
        page.keyboard.press("Control+Enter")
        page.wait_for_timeout(300)
        assert server.runs() == []
        dialog.get_by_role("combobox", name="Worker").select_option(value="child")
        expect(dialog.get_by_role("button", name="Run", exact=True)).to_be_enabled()


def test_missing_values_are_reported_before_anything_is_sent(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "form")
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(dialog).to_be_visible()
    field = dialog.get_by_label(re.compile("^Title"))
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    field.fill("a title")
    dialog.get_by_label(re.compile("^Count")).fill("2.5")
    dialog.get_by_label(re.compile("^Items")).fill("[1,")
    dialog.get_by_role("button", name="Run", exact=True).click()
    for name in ("Count", "Items"):
        expect(dialog.get_by_label(re.compile(f"^{name}"))).to_have_attribute("aria-invalid", "true")
    expect(field).not_to_have_attribute("aria-invalid", "true")
    assert server.runs(agent_id=owner) == []


def test_a_refusal_of_the_server_is_shown_in_the_form(tabs: Tabs, server: Server, owner: str) -> None:
    tabs.allow_errors("422|400|404|409")
    page = tabs.open(server, f"/agents/{owner}/workers")
    dialog = open_form(page, "form")
    page.route("**/api/runs", lambda route: route.continue_(post_data='{"worker": "nobody", "input": {}}'))
    dialog.get_by_label(re.compile("^Title")).fill("x")
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("nobody")
    page.unroute("**/api/runs")
    expect(dialog.get_by_label(re.compile("^Title"))).to_have_value("x")
    dialog.get_by_role("button", name="Run", exact=True).click()
    expect(task(page)).to_be_visible()
    expect(dialog).to_have_count(0)


def test_typed_values_survive_a_click_beside_the_form(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    open_form(page, "form").get_by_label(re.compile("^Title")).fill("a long story")
    page.mouse.click(5, 5)
    expect(form(page)).to_have_count(0)
    expect(open_form(page, "form").get_by_label(re.compile("^Title"))).to_have_value("a long story")


def test_escape_closes_the_form(tabs: Tabs, server: Server, owner: str) -> None:
    page = tabs.open(server, f"/agents/{owner}/workers")
    open_form(page, "child")
    page.keyboard.press("Escape")
    expect(form(page)).to_have_count(0)
    assert server.runs(agent_id=owner) == []


def test_the_cancel_button_closes_the_form_at_every_width(tabs: Tabs, server: Server, owner: str) -> None:
    for width, height in ((1400, 900), (820, 900), (390, 500)):
        page = tabs.open(server, f"/agents/{owner}/workers", viewport={"width": width, "height": height})
        cancel = open_form(page, "form").get_by_role("button", name="Cancel")
        expect(cancel).to_be_in_viewport(ratio=1)
        cancel.click()
        expect(form(page)).to_have_count(0)
    assert server.runs(agent_id=owner) == []


@pytest.fixture(scope="module")
def many_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with so many workers that the dialog has a search field."""
    server = Server(tmp_path_factory.mktemp("many"))
    for number in range(5):
        home = server.folder / "workers" / f"extra-{number}"
        home.mkdir(parents=True)
        definition = (
            f"name: Extra {number}\nsteps:\n  Say: {{block: command, command: 'printf {number}', output: SAID}}\n"
        )
        (home / "worker.yaml").write_text(f"{definition}output: SAID\n", encoding="utf-8")
    with server:
        yield server


def search_worker(page: Page, text: str) -> tuple[Locator, Locator]:
    """Open the dialog, type into its search field, and return the field and the worker menu."""
    button(page, "New run").click()
    field = form(page).get_by_role("searchbox", name="Find a worker")
    expect(field).to_be_focused()
    field.fill(text)
    return field, form(page).get_by_role("combobox", name="Worker")


def expect_run(page: Page, server: Server, owner: str, worker: str, *, result_text: str) -> None:
    """Expect that the page shows a run of this worker, and that no other run was started."""
    expect(form(page)).to_have_count(0)
    expect(result(page)).to_contain_text(result_text)
    assert [run["name"] for run in server.runs(agent_id=owner)] == [worker]


def test_the_worker_that_matches_the_typed_text_is_run(tabs: Tabs, many_workers: Server, owner: str) -> None:
    page = tabs.open(many_workers, f"/agents/{owner}/workers")
    field, choice = search_worker(page, "extra")
    expect(choice).to_have_value("extra-0")
    expect(choice.get_by_role("option")).to_have_count(5)
    field.press("ArrowDown")
    expect(choice).to_have_value("extra-1")
    field.fill("extra-3")
    expect(choice).to_have_value("extra-3")
    field.press("Enter")
    expect_run(page, many_workers, owner, "extra-3", result_text="3")


def test_enter_moves_from_the_search_to_the_first_field(tabs: Tabs, many_workers: Server, owner: str) -> None:
    page = tabs.open(many_workers, f"/agents/{owner}/workers")
    field, choice = search_worker(page, "child")
    expect(choice).to_have_value("child")
    field.press("Enter")
    expect(form(page).get_by_label(re.compile("^Part"))).to_be_focused()
    field.fill("extra-2")
    field.press("Control+Enter")
    expect_run(page, many_workers, owner, "extra-2", result_text="2")


def test_nothing_is_run_where_no_worker_matches(tabs: Tabs, many_workers: Server, owner: str) -> None:
    page = tabs.open(many_workers, f"/agents/{owner}/workers")
    field, choice = search_worker(page, "nobody at all")
    expect(form(page).get_by_role("status")).to_have_text("No worker matches")
    expect(choice).to_be_disabled()
    expect(form(page).get_by_role("button", name="Run", exact=True)).to_be_disabled()
    for keys in ("Enter", "Control+Enter"):
        field.press(keys)
    page.wait_for_timeout(300)
    assert many_workers.runs(agent_id=owner) == []
    field.fill("")
    expect(form(page).get_by_role("button", name="Run", exact=True)).to_be_enabled()
