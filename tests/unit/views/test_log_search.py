"""Search for a text in the values of a log, independent of its case and its JSON escapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shopfloor.limits import LOG_HIT_CHARS
from shopfloor.log import Entry
from shopfloor.views import LogHit, LogSearcher


def entry(payload: Any, *, ascii_only: bool = False) -> Entry:
    raw = json.dumps({"seq": 3, "type": "tool.call", "path": "path", "payload": payload}, ensure_ascii=ascii_only)
    return Entry(3, "tool.call", raw.encode("utf-8", "surrogatepass"))


def snippet(text: str, payload: Any, **how: bool) -> str | None:
    found = LogSearcher(text).find(entry(payload, **how))
    assert found is None or (found.seq, found.type) == (3, "tool.call")
    return found and found.snippet


@pytest.mark.parametrize(
    ("text", "value", "shown"),
    [
        ("fox", "The quick brown fox.", "The quick brown \ue000fox\ue001."),
        ("FOX", "the fox", "the \ue000fox\ue001"),
        ("fox", "THE FOX", "THE \ue000FOX\ue001"),
        ("élan", "Élan!", "\ue000Élan\ue001!"),
        ("ÉLAN", "un élan", "un \ue000élan\ue001"),
        ("日本", "in 日本語", "in \ue000日本\ue001語"),
        ('say "hi"', 'they SAY "hi" now', 'they \ue000SAY "hi"\ue001 now'),
        ("a\nb", "x a\nb y", "x \ue000a b\ue001 y"),
        ("c:\\dir", "in C:\\dir", "in \ue000C:\\dir\ue001"),
        ("[x]", "an [x] here", "an \ue000[x]\ue001 here"),
        (".*", "a .* b", "a \ue000.*\ue001 b"),
        ("\x1b[31m", "\x1b[31mred", "\ue000\x1b[31m\ue001red"),
        ("fox", "\ue001a\ue000 fox\ue000", "a \ue000fox\ue001"),
        ("/usr", "in /usr/bin", "in \ue000/usr\ue001/bin"),
    ],
)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_text_is_found(text: str, value: str, shown: str, ascii_only: bool) -> None:
    assert snippet(text, {"input": {"deep": [1, value]}}, ascii_only=ascii_only) == shown


@pytest.mark.parametrize(
    "payload",
    [
        {"fox": "no"},
        {"input": {"fox": 1}},
        {"input": 17, "path": "f" + "o", "x": "x"},
        {"a": "fo", "b": "x"},
        {"a": ["fo", "x"]},
        None,
    ],
)
def test_field_names_and_text_across_two_values_are_not_found(payload: Any) -> None:
    assert snippet("fox", payload) is None


def test_the_envelope_is_not_searched() -> None:
    assert snippet("tool.call", {"a": "b"}) is None
    assert snippet("path", {"a": "b"}) is None


def test_escaped_slashes_are_found() -> None:
    raw = b'{"seq":1,"type":"x","payload":{"a":"in \\/usr\\/bin"}}'
    assert LogSearcher("/usr/bin").find(Entry(1, "x", raw)) == LogHit(1, "x", "in \ue000/usr/bin\ue001")


def test_a_snippet_shows_what_is_around_the_first_hit() -> None:
    shown = snippet("needle", {"output": "hay " * 100 + "needle " + "straw " * 100 + "needle"})
    assert shown is not None
    assert len(shown) <= LOG_HIT_CHARS
    assert shown.startswith("…")
    assert shown.endswith("…")
    assert "hay \ue000needle\ue001 straw" in shown


def test_a_long_text_is_found_and_its_snippet_is_still_short() -> None:
    shown = snippet("x" * 1_000, {"output": "a" * 50 + "x" * 1_000 + "b" * 50})
    assert shown is not None
    assert len(shown) <= LOG_HIT_CHARS
    assert shown.startswith("…\ue000xxx")


@pytest.mark.parametrize(
    "raw",
    [b"fox", b'{"fox', b'{"payload":"\xfffox"}', b'{"seq":1,"type":"fox"}', b'{"payload":' + b"[" * 99_999 + b'"fox"'],
)
def test_a_line_that_cannot_be_decoded_has_no_hits(raw: bytes) -> None:
    assert LogSearcher("fox").find(Entry(1, "x", raw)) is None


def test_text_that_no_log_can_hold_is_not_found() -> None:
    assert snippet("\udc00", {"a": "b?"}) is None
