"""The sources of the page: generated types are current, only `api/` talks to the server, no text is used as HTML."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import page
from tools.page_types import write_types

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for path in (ROOT / "web" / "src").rglob("*.ts*") if path.name != "schema.d.ts")


def test_the_generated_types_match_the_servers_description(tmp_path: Path) -> None:
    generated = tmp_path / "schema.d.ts"
    write_types(generated, page.npm)
    committed = ROOT / "web" / "src" / "api" / "schema.d.ts"
    assert generated.read_text() == committed.read_text(), "stale: run `make types`"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "web" / "src")))
def test_a_source_follows_the_rules(source: Path) -> None:
    text = source.read_text()
    assert len(text.splitlines()) <= 500
    # A transcript may contain any text. React escapes it, and nothing else may write it to the page.
    assert not re.search(r"dangerouslySetInnerHTML|\.innerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
    assert not re.search(r"@ts-ignore|@ts-expect-error|@ts-nocheck|eslint-disable|\bconsole\.", text)
    if source.parent.name != "api":
        assert not re.search(r"\bfetch\(|new EventSource|XMLHttpRequest|new WebSocket", text), (
            "only api/ talks to the server"
        )
    if source.parent.name == "views":
        assert not re.search(r"from \"react|Date\.now|new Date\(\)|Math\.random", text), "a view is a pure function"


def test_the_lock_file_has_no_download_urls() -> None:
    assert '"resolved":' not in (ROOT / "web" / "package-lock.json").read_text()


def test_a_changed_source_makes_the_page_stale() -> None:
    before = page.source_digest()
    assert before == page.source_digest()
    added = ROOT / "web" / "src" / "added.ts"
    added.touch()
    try:
        assert page.source_digest() != before
        assert not page.is_built()
    finally:
        added.unlink()
