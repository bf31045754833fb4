"""Malicious text is shown as text and has no effect."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect
from tests.browser.conftest import RecordedRuns
from tests.browser.hostile_text import ALL
from tests.browser.logs import agent_run, call, tool_result, write_log
from tests.browser.logs import text as message
from tests.browser.page_elements import card, result, search, selected, task, timeline, transcript
from tests.browser.tabs import Tabs

HARM = """() => {
    const bad = [];
    for (const one of document.querySelectorAll("main *, section *, dialog *")) {
        const name = one.tagName.toLowerCase();
        if (["script", "style", "iframe", "object", "embed", "base", "meta", "link", "video", "audio", "math", "form"].includes(name)
            && !(name === "form" && (one.closest("dialog") || one.matches("[data-reply]")))) bad.push(one.outerHTML.slice(0, 200));
        for (const { name: attribute, value } of one.attributes) {
            if (attribute.startsWith("on")) bad.push(one.outerHTML.slice(0, 200));
            if (["href", "src", "xlink:href", "action", "formaction", "srcdoc"].includes(attribute)
                && !/^(https?:|mailto:|\\/(?!\\/)|#|\\?|data:image\\/(png|jpeg|gif|webp);|blob:)/.test(value)) bad.push(`${attribute}=${value.slice(0, 100)}`);
        }
        if (name === "img" && !/^(data:image\\/(png|jpeg|gif|webp);|blob:)/.test(one.src)) bad.push(one.outerHTML.slice(0, 200));
    }
    if (window.pwned) bad.push("it ran");
    return bad;
}"""


@pytest.fixture
def page(tabs: Tabs, recorded_runs: RecordedRuns) -> Page:
    page = tabs.open(recorded_runs.server, "/agents/malice/workers")
    page.on("dialog", lambda dialog: tabs.page_errors.append(f"a dialog: {dialog.message}"))
    return page


def check(page: Page, tabs: Tabs) -> None:
    assert page.evaluate(HARM) == []
    assert tabs.paths("pwned") == []
    assert page.url.startswith("http://127.0.0.1:")


def test_the_list_and_the_header_run_nothing_and_load_nothing(
    tabs: Tabs, recorded_runs: RecordedRuns, page: Page
) -> None:
    expect(card(page, recorded_runs.hostile_text)).to_be_visible()
    check(page, tabs)
    search(page).fill("script")
    expect(card(page, recorded_runs.hostile_text)).to_be_visible()
    check(page, tabs)
    card(page, recorded_runs.hostile_text).click()
    expect(task(page)).to_contain_text("<script>")
    expect(result(page)).to_contain_text("window.pwned=1")
    expect(timeline(page)).to_be_attached()
    check(page, tabs)


def test_a_transcript_runs_nothing_and_loads_nothing_wherever_it_is_opened(
    tabs: Tabs, recorded_runs: RecordedRuns, page: Page
) -> None:
    page.set_viewport_size({"width": 1280, "height": 2_000})
    card(page, recorded_runs.hostile_text).click()
    page.get_by_role("button", name="Expand all").click()
    transcript(page).click(position={"x": 5, "y": 5})
    seen: set[str] = set()
    at = transcript(page).locator('[data-seq][aria-current="true"]')
    before = None
    page.keyboard.press("g")
    page.keyboard.press("g")
    while (now := at.get_attribute("data-seq")) != before:
        before = now
        seen |= set(transcript(page).locator("[data-seq]").evaluate_all("rows => rows.map((row) => row.dataset.seq)"))
        check(page, tabs)
        for _ in range(5):
            page.keyboard.press("j")
        page.wait_for_timeout(50)
    assert len(seen) >= 2 * len(ALL)


def test_the_check_finds_what_it_looks_for(tabs: Tabs, page: Page) -> None:
    tabs.allow_errors("Content Security Policy")
    expect(selected(page)).to_be_visible()
    page.evaluate(
        """() => {
            for (const name of ["iframe", "style", "form"]) document.querySelector("main").append(document.createElement(name));
            const link = document.createElement("a");
            link.setAttribute("href", "javascript:void 0");
            document.querySelector("main").append(link);
        }"""
    )
    assert len(page.evaluate(HARM)) == 4
    tabs.wait_until(lambda: tabs.page_errors != [], "the browser to report a refused style")


def test_links_of_a_transcript_lead_to_web_pages_only(tabs: Tabs, recorded_runs: RecordedRuns, page: Page) -> None:
    card(page, recorded_runs.hostile_text).click()
    expect(transcript(page).get_by_text("click").first).to_be_attached()
    for link in transcript(page).get_by_role("link").all():
        href = link.get_attribute("href") or ""
        assert href.startswith(("http://", "https://", "mailto:", "/", "#", "?"))
        if href.startswith("http"):
            assert "noopener" in (link.get_attribute("rel") or "") or "noreferrer" in (link.get_attribute("rel") or "")
    for text in transcript(page).get_by_text("click", exact=True).all()[:10]:
        if text.evaluate("one => one.closest('a') === null"):
            text.click(force=True)
    check(page, tabs)
    expect(selected(page)).to_be_visible()


def test_no_text_covers_the_page(tabs: Tabs, recorded_runs: RecordedRuns, page: Page) -> None:
    card(page, recorded_runs.hostile_text).click()
    expect(task(page)).to_be_visible()
    box = page.get_by_role("button", name="New run").bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.get_by_role("dialog", name="New run")).to_be_visible()
    check(page, tabs)


DECEPTIVE = "\u202egnp.exe\u202c \u2066x\u2069 \x9b31m\x85"
SEEN = "\ufffdgnp.exe\ufffd \ufffdx\ufffd \ufffd31m\ufffd"


@pytest.mark.req("SF-24")
def test_bidirectional_controls_are_visible_and_without_effect(tabs: Tabs, recorded_runs: RecordedRuns) -> None:
    server = recorded_runs.server
    payloads = (
        message(f"a message {DECEPTIVE}"),
        call(f"tool {DECEPTIVE}", "c1", command=f"rm {DECEPTIVE}"),
        tool_result(f"tool {DECEPTIVE}", "c1", f"output {DECEPTIVE}"),
        message("שלום is Hebrew"),
    )
    run = write_log(
        server.storage, agent_run(f"a task {DECEPTIVE}", *payloads, owner="deceiver", result=f"done {DECEPTIVE}")
    )
    server.storage.announce(run)
    server.wait_for_status(run, "done")
    page = tabs.open(server, f"/agents/deceiver/workers?worker={run}")
    expect(card(page, run)).to_contain_text(f"a task {SEEN}")
    for words in (f"a message {SEEN}", "שלום is Hebrew"):
        expect(transcript(page)).to_contain_text(words)
    shown = page.evaluate("() => document.documentElement.innerHTML")
    assert [f"{ord(one):x}" for one in sorted(set(DECEPTIVE) & set(shown)) if not one.isascii()] == []
    isolated = page.evaluate(
        "() => [...document.querySelectorAll('span, a, button, code')].map((one) => getComputedStyle(one).unicodeBidi)"
    )
    assert set(isolated) == {"isolate"}
