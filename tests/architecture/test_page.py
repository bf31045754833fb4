"""The page's sources: made types are fresh, one folder talks to the server, and nothing becomes HTML by itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import page
from tools.page_types import write_types

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for path in (ROOT / "web" / "src").rglob("*.ts*") if path.name != "schema.d.ts")


def test_the_types_are_those_of_the_servers_description(tmp_path: Path) -> None:
    made = tmp_path / "schema.d.ts"
    write_types(made, page.npm)
    committed = ROOT / "web" / "src" / "api" / "schema.d.ts"
    assert made.read_text() == committed.read_text(), "stale: run `make types`"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "web" / "src")))
def test_a_source_keeps_the_rules_of_the_house(source: Path) -> None:
    text = source.read_text()
    assert len(text.splitlines()) <= 500
    # Text of a transcript can be anything: React writes it as text, and nothing else may write it.
    assert not re.search(r"dangerouslySetInnerHTML|\.innerHTML|insertAdjacentHTML|document\.write|\beval\(", text)
    assert not re.search(r"@ts-ignore|@ts-expect-error|@ts-nocheck|eslint-disable|\bconsole\.", text)
    if source.parent.name != "api":
        assert not re.search(r"\bfetch\(|new EventSource|XMLHttpRequest|new WebSocket", text), (
            "only api/ asks the server"
        )
    if source.parent.name == "views":
        assert not re.search(r"from \"react|Date\.now|new Date\(\)|Math\.random", text), "a view is a pure function"


def test_the_lock_names_no_place_to_download_from() -> None:
    assert '"resolved":' not in (ROOT / "web" / "package-lock.json").read_text()


def test_the_sources_decide_whether_the_page_is_built_anew() -> None:
    before = page.source_digest()
    assert before == page.source_digest()
    added = ROOT / "web" / "src" / "added.ts"
    added.touch()
    try:
        assert page.source_digest() != before
        assert not page.is_built()
    finally:
        added.unlink()
