"""Exported runs: one HTML file that shows everything, runs nothing and requests nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser
from tests.browser.conftest import RecordedRuns
from tests.browser.hostile_text import ALL, MARKDOWN, OTHER_ORIGIN
from tests.browser.server import SHOPFLOOR

FORBIDDEN = "script,iframe,object,embed,base,img,video,audio,form,input,a,svg,math,link,style:not(head > style)"


def export(runs: RecordedRuns, *words: str) -> subprocess.CompletedProcess[str]:
    words = ("export", runs.hostile_text, *words)
    return subprocess.run([SHOPFLOOR, *words], env=runs.server.env, capture_output=True, text=True, check=True)


@pytest.mark.req("SF-62")
def test_an_exported_file_of_a_hostile_run_runs_nothing_and_requests_nothing(
    browser: Browser, recorded_runs: RecordedRuns, tmp_path: Path
) -> None:
    file = tmp_path / "run.html"
    export(recorded_runs, "-o", str(file))
    context = browser.new_context()
    page = context.new_page()
    requests: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: problems.append(dialog.message))
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert page.evaluate(f"document.querySelectorAll({FORBIDDEN!r}).length") == 0
    assert (
        page.evaluate(
            "[...document.querySelectorAll('*')].some(e => e.getAttributeNames().some(n => n.startsWith('on')))"
        )
        is False
    )
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("getComputedStyle(document.body).maxWidth") != "none"
    shown = page.inner_text("main")
    for hostile in (text for text in ALL if text.isprintable() and len(text) < 500):
        assert hostile in shown
    assert requests == [file.as_uri()]
    assert problems == []
    # Even with a script in it, the file's own policy would stop that.
    (tmp_path / "worse.html").write_text(
        file.read_text().replace("</main>", f"<script>window.pwned=1</script><img src='{OTHER_ORIGIN}/x.png'></main>")
    )
    page.goto((tmp_path / "worse.html").as_uri())
    assert page.evaluate("window.pwned") is None
    context.close()


@pytest.mark.req("SF-62")
def test_exported_markdown_has_no_html_no_images_and_no_script_links(recorded_runs: RecordedRuns) -> None:
    text = export(recorded_runs, "--format", "md").stdout
    # As a viewer that trusts the file: HTML is allowed, and so is every link.
    parser = MarkdownIt("commonmark", {"html": True})
    vars(parser)["validateLink"] = lambda _: True
    html = parser.render(text)
    assert 'href="javascript' in parser.render("[a](javascript:alert)")
    assert "<script" not in html
    assert "<img" not in html
    assert 'href="javascript' not in html.lower()
    assert MARKDOWN[0].partition("(")[0] in text
