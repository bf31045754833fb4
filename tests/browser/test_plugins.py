"""Plugins on the page: the list of plugins, the form for a run of one, and the run itself."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.browser.axe import COLORS, problems
from tests.browser.page_elements import button, open_result, result, task, timeline, transcript
from tests.browser.server import SHOPFLOOR, Server
from tests.browser.tabs import PHONE, Tabs
from tests.browser.test_dispatch import form, open_form
from tests.browser.test_screens import overflow
from tests.timeouts import TIMEOUT_SECONDS, wait_until

REPORT = """\
    import time

    job["summary"] = "Reading the chapter"
    job["questions"] = ["Do hyphenated words count once or twice?"]
    time.sleep(0.5)
    job["decisions"] = [
        {
            "question": "Do hyphenated words count twice?",
            "decision": "No, once.",
            "reasoning": "Most style guides count them once.",
        }
    ]
    job["summary"] = "Counting the words"
    while task == "never ends":
        time.sleep(0.1)
    time.sleep(0.5)
    output = f"**{len(task.split())}** words"
"""


@pytest.fixture(scope="module")
def plugin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with plugins in every state."""
    folder = tmp_path_factory.mktemp("plugins")
    server = Server(folder, HOME=str(folder / "home"), XDG_DATA_HOME=str(folder / "home"))
    for name in ("counter", "narrator", "crash", "stranger"):
        into = "made" if name == "stranger" else "plugins"
        words = ("plugins", "new", name, "--template", "word-count", "--into", into)
        subprocess.run(
            [SHOPFLOOR, *words], env=server.env, cwd=folder, check=True, capture_output=True, timeout=TIMEOUT_SECONDS
        )
    plugins = folder / "plugins"
    (folder / "made" / "stranger").rename(plugins / "stranger")
    narrator = plugins / "narrator" / "server.py"
    text = narrator.read_text()
    before, after = (
        f'    try:\n        ended = {{"status": "completed", "output": {output}}}'
        for output in ("work(task)", "output")
    )
    assert before in text
    text = text.replace(before, REPORT + after)
    text = text.replace('"artifacts": None}', '"artifacts": ["counts.csv", "notes.md"]}')
    narrator.write_text(text)
    (plugins / "crash" / "server.py").write_text("import sys; sys.exit('no such module')")
    (plugins / "torn").mkdir()
    (plugins / "torn" / "guild-member.json").write_text("{")
    with server:
        wait_until(lambda: states(server).get("counter") == "ready", "the plugin to be ready")
        wait_until(lambda: states(server).get("crash") == "error", "the plugin to have failed")
        yield server


def states(server: Server) -> dict[str, str]:
    return {plugin["name"]: plugin["status"] for plugin in server.get("/api/plugins")["plugins"]}


def plugin_list(page: Page) -> Locator:
    return page.get_by_role("dialog", name="Plugins")


def item(page: Page, name: str) -> Locator:
    return plugin_list(page).get_by_role("listitem").filter(has=page.get_by_role("heading", name=name, exact=True))


def look(page: Page, name: str) -> None:
    """Save a screenshot to the folder that SHOPFLOOR_LOOK names."""
    if (folder := os.environ.get("SHOPFLOOR_LOOK")) is not None:
        page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")


@pytest.mark.parametrize("colors", COLORS)
def test_the_list_has_the_state_of_each_plugin_and_what_to_do(tabs: Tabs, plugin_server: Server, colors: str) -> None:
    page = tabs.open(plugin_server, color_scheme=colors)
    button(page, "Plugins").click()
    expect(item(page, "Counter")).to_contain_text(re.compile("counter.*0.1.0.*ready", re.DOTALL))
    expect(item(page, "Counter")).to_contain_text("Counts the words of a text.")
    expect(item(page, "Counter")).to_contain_text("count_words")
    expect(item(page, "Crash")).to_contain_text("error")
    expect(item(page, "Crash")).to_contain_text("no such module")
    expect(item(page, "torn")).to_contain_text("Input data was truncated")
    stranger = item(page, "Stranger")
    expect(stranger).to_contain_text("not allowed")
    command = f"shopfloor plugins allow {plugin_server.folder}/plugins/stranger"
    expect(stranger.get_by_text(command, exact=True)).to_be_visible()
    stranger.get_by_role("button", name="Copy command").click()
    expect(stranger.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == command
    expect(stranger.get_by_role("button", name="New run")).to_have_count(0)
    expect(item(page, "torn").get_by_role("button", name="New run")).to_have_count(0)
    look(page, f"list-{colors}")
    assert problems(page) == []


def test_a_plugin_runs_with_the_task_of_the_form(tabs: Tabs, plugin_server: Server, owner: str) -> None:
    page = tabs.open(plugin_server, f"/agents/{owner}/workers")
    expect(button(page, "Plugins")).to_be_visible()
    page.keyboard.press("p")
    item(page, "Counter").get_by_role("button", name="New run of Counter").click()
    dialog = form(page)
    expect(dialog.get_by_role("combobox", name="Worker")).to_have_value("counter")
    expect(plugin_list(page)).to_have_count(0)
    field = dialog.get_by_label(re.compile("^Task"))
    assert field.evaluate("field => field.tagName") == "TEXTAREA"
    field.fill("one two\nthree")
    dialog.get_by_label(re.compile("^Config")).fill('{"depth": ')
    dialog.get_by_role("button", name="Run", exact=True).click()
    config = dialog.get_by_label(re.compile("^Config"))
    expect(config).to_have_attribute("aria-invalid", "true")
    expect(config).to_be_focused()
    expect(dialog).to_contain_text("Invalid JSON")
    config.fill('{"depth": 2}')
    page.keyboard.press("Control+Enter")
    expect(dialog).to_have_count(0)
    expect(result(page)).to_contain_text("3 words")
    (run,) = plugin_server.runs(agent_id=owner)
    assert (run["name"], run["worker_type"], run["task"].split()) == ("counter", "plugin", ["one", "two", "three"])


@pytest.mark.parametrize("colors", COLORS)
def test_the_form_groups_plugins_and_says_why_one_cannot_run(tabs: Tabs, plugin_server: Server, colors: str) -> None:
    page = tabs.open(plugin_server, color_scheme=colors)
    dialog = open_form(page, "counter")
    group = dialog.locator('optgroup[label="Plugins"]')
    expect(group.locator("option")).to_have_text(
        ["Counter (counter)", "Crash (crash) (error)", "Narrator (narrator)", "Stranger (stranger) (not allowed)"]
    )
    expect(dialog.locator("[data-status]")).to_have_text("ready")
    look(page, f"form-{colors}")
    assert problems(page) == []
    dialog.get_by_role("combobox", name="Worker").select_option(value="stranger")
    expect(dialog.locator("[data-status]")).to_have_text("not allowed")
    expect(dialog).to_contain_text(f"shopfloor plugins allow {plugin_server.folder}/plugins/stranger")
    expect(dialog.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    look(page, f"form-not-allowed-{colors}")
    assert problems(page) == []
    dialog.get_by_role("combobox", name="Worker").select_option(value="crash")
    expect(dialog).to_contain_text("no such module")
    # The list of plugins opens above the form, and leads back to it.
    dialog.get_by_role("button", name="All plugins").click()
    item(page, "Narrator").get_by_role("button", name="New run of Narrator").click()
    expect(dialog.get_by_role("combobox", name="Worker")).to_have_value("narrator")
    dialog.get_by_role("button", name="All plugins").click()
    page.keyboard.press("Escape")
    expect(plugin_list(page)).to_have_count(0)
    expect(dialog).to_be_visible()


@pytest.mark.parametrize("colors", COLORS)
def test_a_run_shows_what_the_job_reported(tabs: Tabs, plugin_server: Server, owner: str, colors: str) -> None:
    body = {"worker": "narrator", "input": {"task": "one two three"}, "owner": owner}
    run_id = plugin_server.http.post("/api/runs", json=body).json()["run_id"]
    page = tabs.open(plugin_server, f"/agents/{owner}/workers?worker={run_id}", color_scheme=colors)
    expect(result(page)).to_contain_text("3 words")
    open_result(page)
    expect(result(page).get_by_role("list", name="Artifacts").get_by_role("listitem")).to_have_text(
        ["counts.csv", "notes.md"]
    )
    for text in ("Counting the words", "Do hyphenated words count once or twice?", "No, once."):
        expect(timeline(page)).to_contain_text(text)
    for text in (
        "SummaryReading the chapter",
        "QuestionDo hyphenated words count once or twice?",
        "DecisionDo hyphenated words count twice? → No, once.",
        "Artifactscounts.csv, notes.md",
    ):
        expect(transcript(page).get_by_role("button", name=re.compile(re.escape(text)[-20:])).first).to_contain_text(
            text
        )
    decision = transcript(page).get_by_role("button", name=re.compile("Decision"))
    decision.click()
    expect(transcript(page)).to_contain_text("ReasoningMost style guides count them once.")
    look(page, f"run-{colors}")
    assert problems(page) == []


def test_a_run_whose_plugin_works_is_followed_live_and_cancelled(tabs: Tabs, plugin_server: Server, owner: str) -> None:
    page = tabs.open(plugin_server, f"/agents/{owner}/workers")
    dialog = open_form(page, "narrator")
    dialog.get_by_label(re.compile("^Task")).fill("never ends")
    page.keyboard.press("Control+Enter")
    expect(task(page)).to_have_text("never ends")
    expect(transcript(page)).to_contain_text("Counting the words")
    look(page, "run-live")
    # A question of a plugin never makes its run wait.
    (run,) = plugin_server.runs(agent_id=owner)
    assert run["status"] == "running"
    button(page, "Cancel").click()
    button(page, "Really cancel?").click()
    expect(open_result(page)).to_contain_text("This run was cancelled")


def test_a_server_without_plugins_says_how_to_create_one(own_server: Server, tabs: Tabs) -> None:
    page = tabs.open(own_server, "/agents/all/workers")
    button(page, "Plugins").click()
    expect(plugin_list(page)).to_contain_text("No plugins yet. shopfloor plugins new NAME creates one")
    assert problems(page) == []


def test_the_plugins_fit_on_a_phone(tabs: Tabs, plugin_server: Server) -> None:
    page = tabs.open(plugin_server, viewport=PHONE, has_touch=True, is_mobile=True)
    button(page, "New run").tap()
    form(page).get_by_role("button", name="All plugins").tap()
    expect(item(page, "Counter")).to_be_visible()
    look(page, "list-phone")
    assert overflow(page) == []
