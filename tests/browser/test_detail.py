"""The selected run: its header and its actions."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from tests.browser.colors import color_name, rgb
from tests.browser.conftest import RecordedRuns
from tests.browser.page_elements import (
    button,
    card,
    open_result,
    result,
    row,
    run_action,
    selected,
    task,
    timeline,
    transcript,
)
from tests.browser.server import Server
from tests.browser.tabs import Tabs, checked_tabs


@pytest.mark.req("WT-47", "SF-46")
def test_the_header_shows_the_facts_about_the_run(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}")
    expect(task(page)).to_have_text("Find out what is wrong with the app")
    header = selected(page).get_by_role("banner").or_(selected(page).locator("header")).first
    expect(header.get_by_role("listitem").first).to_have_text("done")
    expect(header.get_by_title("Worker type")).to_have_text("claude-code")
    expect(header.get_by_title("Model")).to_have_text("claude-test-1")
    for text in ("#general", "from gemini-cli 0.61.0"):
        expect(header).to_contain_text(text)


def figure(page: Page, name: str) -> Locator:
    """A number of the run's header."""
    term = selected(page).locator("dt").filter(has_text=re.compile(f"^{name}$"))
    return term.locator("xpath=following-sibling::dd")


@pytest.mark.req("SF-46")
def test_the_header_shows_figures(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(
        recorded_runs.server,
        f"/agents/all/workers?worker={recorded_runs.stories.everything}",
        viewport={"width": 1440, "height": 900},
    )
    for name, text in {
        "Cost": "$0.04with sub-runs $0.04",
        "Tokens": "21k42 % cached · 340 out",
        "Calls": "51 failed",
        "Files": "1+1 \N{MINUS SIGN}1",
    }.items():
        expect(figure(page, name)).to_have_text(text)
    expect(figure(page, "Time")).to_have_text(re.compile(r"^\d\.\d s$"))
    # What is not known is no zero.
    page.goto(f"{recorded_runs.server.url}/agents/all/workers?worker={recorded_runs.stories.steps}")
    expect(task(page)).to_have_text("repo-report")
    expect(figure(page, "Cost")).to_have_text("\N{EN DASH}")
    expect(figure(page, "Tokens")).to_have_text("\N{EN DASH}")


def test_a_sub_run_leads_to_its_parent(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.child}")
    expect(task(page)).to_have_text("Do part one")
    page.get_by_role("link", name="Parent run").click()
    expect(task(page)).to_have_text("Find out what is wrong with the app")
    expect(page.get_by_role("link", name="Parent run")).to_have_count(0)


def test_the_duration_ticks_while_the_run_is_active(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.start_command("sleep 600", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(task(page)).to_have_text("sleep 600")
    header = selected(page).locator("header").first
    expect(header.locator('[data-status="running"]')).to_be_visible()
    took = figure(page, "Time")
    expect(took).to_contain_text(re.compile(r"\d s$"))
    text = took.inner_text()
    expect(took).not_to_have_text(text)
    assert seconds(text) < seconds(took.inner_text()) < seconds(text) + 30


def seconds(text: str) -> float:
    found = re.search(r"([\d.]+) s$", text)
    assert found, text
    return float(found[1])


@pytest.mark.req("SF-46", "SF-45")
def test_decisions_questions_and_artifacts_are_on_the_page(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("reporter", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(result(page)).to_contain_text("The whole report.")
    open_result(page)
    page.get_by_text("1 decision, 1 question").click()
    notes = page.get_by_role("list", name="Notes")
    for text in ("Which year?", "2026", "It is the newest.", "May I call?"):
        expect(notes).to_contain_text(text)
    with page.expect_download() as downloading:
        result(page).get_by_role("link", name="page.html").click()
    assert downloading.value.suggested_filename == "page.html"
    assert Path(downloading.value.path()).read_text() == "<h1>tea</h1>"


def test_a_running_run_is_cancelled_on_the_page(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.dispatch("sleeper", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(selected(page).locator('[data-status="running"]').first).to_be_visible()
    width = button(page, "Cancel").bounding_box()
    button(page, "Cancel").dblclick()
    expect(button(page, "Really cancel?")).to_be_focused()
    assert button(page, "Really cancel?").bounding_box() == width
    expect(button(page, "Cancel")).to_be_visible()
    assert server.detail(run_id)["status"] == "running"
    button(page, "Cancel").press("Enter")
    button(page, "Really cancel?").press("Enter")
    expect(selected(page).locator('[data-status="cancelled"]').first).to_be_visible()
    expect(card(page, run_id).locator('[data-status="cancelled"]')).to_be_visible()
    expect(button(page, "Cancel")).to_have_count(0)
    assert server.detail(run_id)["status"] == "cancelled"
    # Open calls are shown as cancelled, not as failed.
    for part in (transcript(page), timeline(page)):
        expect(part.get_by_text("cancelled by request").first).to_be_visible()
        assert color_name(rgb(part.get_by_text("cancelled by request").first)) != "red"
        expect(part.get_by_role("img", name="failed")).to_have_count(0)
    expect(transcript(page)).not_to_contain_text("execution_error")
    expect(timeline(page).get_by_role("button", name=re.compile("^Sleep, step, .*, cancelled$"))).to_be_visible()


def test_a_missing_event_is_reported(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={run_id}&event=99999")
    expect(page.get_by_role("status").filter(has_text="This run has no event 99999")).to_be_visible()
    expect(row(page, 4)).to_be_visible()
    expect(transcript(page).locator('[aria-current="true"]')).to_have_count(0)


def test_a_future_event_is_awaited(tabs: Tabs, server: Server, owner: str, tmp_path: Path) -> None:
    run_id = server.dispatch("stepper", owner=owner, GO=str(tmp_path / "go"))
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}&event=99999")
    expect(selected(page).locator('[data-status="running"]').first).to_be_visible()
    expect(transcript(page).locator("[data-seq]").first).to_be_visible()
    expect(transcript(page).locator('[aria-current="true"]')).to_have_count(0)
    expect(page.get_by_text("This run has no event")).to_have_count(0)
    (tmp_path / "go").touch()
    expect(page.get_by_text("This run has no event 99999")).to_be_visible()


def test_a_malformed_run_id_shows_not_found(tabs: Tabs, server: Server, owner: str) -> None:
    tabs.allow_errors("422|400|404")
    page = tabs.open(server, f"/agents/{owner}/workers?worker=abc")
    expect(page.get_by_text("Run not found")).to_be_visible()
    expect(button(page, "Try again")).to_have_count(0)
    page.get_by_role("link", name="Back to runs").click()
    for malformed_id in ('{"a":1}', "[1]"):
        expect(page.get_by_text("Select a worker to view details")).to_be_visible()
        page.goto(f"{server.url}/agents/{owner}/workers?worker={quote(malformed_id)}")
    expect(page.get_by_text("Select a worker to view details")).to_be_visible()


def test_a_queued_run_is_shown_and_starts_live(tmp_path: Path, browser: Browser) -> None:
    with Server(tmp_path, SHOPFLOOR_SLOTS="1") as server, checked_tabs(browser) as tabs:
        first = server.dispatch("sleeper")
        server.wait_for_status(first, "running")
        run_id = server.dispatch("child", PART="patience", task="Wait for your turn")
        page = tabs.open(server, f"/agents/all/workers?worker={run_id}&status=queued")
        expect(task(page)).to_have_text("Wait for your turn")
        expect(selected(page).locator('[data-status="queued"]').first).to_be_visible()
        expect(card(page, run_id)).to_be_visible()
        expect(timeline(page)).to_be_attached()
        server.http.post(f"/api/runs/{first}/cancel", json={})
        expect(selected(page).locator('[data-status="done"]').first).to_be_visible()
        expect(transcript(page)).to_contain_text("did patience")
        expect(card(page, run_id)).to_have_count(0)


def test_the_link_to_a_run_is_copied(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("echo linked", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    button(page, "Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    page.goto(link)
    expect(task(page)).to_have_text("echo linked")


def test_a_run_is_pinned_and_unpinned(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("echo kept", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    button(page, "Pin").click()
    expect(button(page, "Unpin")).to_be_visible()
    assert server.detail(run_id)["pinned"] is True
    page.reload()
    button(page, "Unpin").click()
    expect(button(page, "Pin")).to_be_visible()
    assert server.detail(run_id)["pinned"] is False


def test_the_downloaded_log_is_the_one_on_disk(tabs: Tabs, recorded_runs: RecordedRuns, tmp_path: Path) -> None:
    run_id = recorded_runs.stories.everything
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={run_id}")
    with page.expect_download() as download:
        run_action(page, "Download log").click()
    assert download.value.suggested_filename == f"{run_id}.jsonl"
    download.value.save_as(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == recorded_runs.server.log(run_id)


def test_deleting_needs_a_confirmation(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("exit 7", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    run_action(page, "Delete…").click()
    dialog = page.get_by_role("dialog", name="Delete this run?")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog).to_have_count(0)
    assert server.detail(run_id)["status"] == "failed"
    run_action(page, "Delete…").click()
    dialog.get_by_role("button", name="Delete permanently").click()
    expect(card(page, run_id)).to_have_count(0)
    expect(page.get_by_text("Select a worker to view details")).to_be_visible()
    assert not server.storage.log_path(run_id).exists()


def test_a_running_run_cannot_be_deleted(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.start_command("sleep 600", owner=owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(button(page, "Cancel")).to_be_visible()
    expect(run_action(page, "Export HTML")).to_be_visible()
    expect(page.get_by_role("menuitem", name="Delete")).to_have_count(0)


@pytest.mark.req("WT-54")
def test_the_result_is_rendered_as_markdown(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.everything}")
    # One line, until it is opened: the transcript has it too.
    expect(result(page).get_by_role("cell", name="good")).to_have_count(0)
    open_result(page)
    expect(result(page).get_by_role("heading", name="The findings")).to_be_visible()
    expect(result(page).get_by_role("cell", name="good")).to_be_visible()
    expect(result(page).get_by_role("listitem").first).to_have_text("The first one")


def test_an_error_is_shown_with_its_code_and_hint(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    page = tabs.open(recorded_runs.server, f"/agents/all/workers?worker={recorded_runs.stories.failed}")
    expect(result(page)).to_contain_text("the provider refuses for now")
    expect(result(page)).to_contain_text("rate_limit_error")
    open_result(page)
    expect(result(page)).to_contain_text("Hint: wait a minute")


def test_a_failed_command_shows_its_exit_code(tabs: Tabs, server: Server, owner: str) -> None:
    run_id = server.command("echo a last word; exit 42", "--owner", owner)
    page = tabs.open(server, f"/agents/{owner}/workers?worker={run_id}")
    expect(result(page)).to_contain_text("exit code 42")
    expect(result(page)).to_contain_text("command_failed")
    open_result(page)
    expect(result(page)).to_contain_text("a last word")
    expect(result(page)).not_to_contain_text("Hint")
