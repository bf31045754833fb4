"""Search over runs: the terms of a query, text normalization and snippets. Every store uses the same rules."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from shopfloor.limits import SEARCH_TERMS, SNIPPET_AFTER_CHARS, SNIPPET_BEFORE_CHARS

HIT_BEGIN: Final = "\ue000"
HIT_END: Final = "\ue001"
"""The marks around each hit in a snippet. Unlike brackets, these characters occur in no text that is shown."""

_MARKS: Final = re.compile(f"[{HIT_BEGIN}{HIT_END}]")
_ID: Final = re.compile(r"[0-9a-f-]{4,}")
_WORD: Final = re.compile(r"[^\W_]+")
_QUOTED: Final = re.compile(r'"([^"]*)("|$)')
_QUOTE: Final = '"'
_BETWEEN_WORDS: Final = r"[\W_]+"
# CSI, OSC and the other strings (ended by BEL or ST), and short escapes, also if the end of the text cuts one off.
_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|\Z)"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\|\x9c|\x1b?\Z)"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]|\x1b\Z"
)
# Scripts without spaces between words. Each character counts as a word, so that parts of a sentence are found.
_UNSPACED: Final = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD_BOUNDARIES: Final = rf"(?<=[{_UNSPACED}])(?=[^\W_])|(?<=[^\W_])(?=[{_UNSPACED}])"
"""Not compiled here, because that takes milliseconds: `re` compiles and caches the pattern on first use."""
WORD_SEPARATOR: Final = "\u200b"
"""A zero-width space, inserted between words that nothing else separates; snippets do not keep it."""


class Term(msgspec.Struct, frozen=True):
    """A part of a query. All terms of a query must be found in a run, each by its literal or by its words."""

    literal: str
    """Matches anywhere in the normalized task."""
    words: tuple[str, ...]
    """Match as consecutive whole words in any text of the run; empty if the term has no word."""
    is_prefix: bool = False
    """True if the last word may be unfinished, so that it matches as a prefix."""


def parse_query(query: str) -> tuple[Term, ...]:
    """Return the terms of a query: words and "quoted phrases". No other character has a meaning.

    Symbols count only in a query without words: then each part between spaces is searched in tasks. The last term is a
    prefix if its last word has more than one character.
    """
    terms: list[Term] = []
    rest = 0
    for quoted in _QUOTED.finditer(query):
        terms += _unquoted_terms(query[rest : quoted.start()])
        rest = quoted.end()
        if literal := normalize_text(quoted[1]).strip():
            terms.append(Term(literal, split_words(literal), is_prefix=not quoted[2]))
    unfinished = _unquoted_terms(query[rest:])
    if unfinished:
        unfinished[-1] = msgspec.structs.replace(unfinished[-1], is_prefix=True)
    terms += unfinished
    if query.strip() == _QUOTE:
        # A single quotation mark does not start a phrase yet, so it is searched itself.
        terms.append(Term(_QUOTE, ()))
    elif not any(term.words for term in terms):
        terms += [Term(literal, ()) for part in query.replace('"', " ").split() if (literal := normalize_text(part))]
    # The last of equal terms counts, because only the last term may be a prefix.
    known = {(term.literal, term.words): _without_short_prefix(term) for term in terms[:SEARCH_TERMS]}
    return tuple(known.values())


def _without_short_prefix(term: Term) -> Term:
    # A single letter is a prefix of too many words.
    is_prefix = term.is_prefix and bool(term.words) and len(term.words[-1]) > 1
    return msgspec.structs.replace(term, is_prefix=is_prefix)


def _unquoted_terms(text: str) -> list[Term]:
    return [Term(word, split_words(word)) for word in _WORD.findall(normalize_text(text))]


def normalize_text(text: str) -> str:
    """Return `text` without what a search ignores: case, accents, terminal colors and the kind of white space."""
    if not text.isascii():
        without_accents = "".join(
            char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) != "Mn"
        )
        text = unicodedata.normalize("NFC", without_accents)
    return " ".join(plain_text(text).lower().split())


def plain_text(text: str) -> str:
    """Return `text` without terminal escapes."""
    return _ESCAPES.sub("", text) if "\x1b" in text or not text.isascii() else text


def indexed_text(text: str) -> str:
    """Return `text` for a word index: without terminal escapes, and with `WORD_SEPARATOR` between adjacent words."""
    text = plain_text(text).replace("\0", " ")
    return text if text.isascii() else re.sub(_WORD_BOUNDARIES, WORD_SEPARATOR, unicodedata.normalize("NFC", text))


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a normalized text."""
    return tuple(_WORD.findall(text if text.isascii() else re.sub(_WORD_BOUNDARIES, WORD_SEPARATOR, text)))


def strip_hit_marks(text: str) -> str:
    """Return `text` without the characters that mark hits."""
    return _MARKS.sub("", text)


def run_id_prefix(search: str) -> str | None:
    """Return the query as a prefix of a run id, or None if no run id can start with it."""
    prefix = search.strip().lower()
    return prefix if _ID.fullmatch(prefix) else None


def snippet(terms: Sequence[Term], task: str, texts: Iterable[str]) -> str | None:
    """Return the text around the first hit, with every hit in it marked; None without a hit.

    The snippet comes from the text that matches the most terms; the task wins a tie. `texts` are indexed texts.
    """
    best, text = _find_hits(terms, task := plain_text(task), in_task=True), task
    for other in texts:
        found = _find_hits(terms, other, in_task=False)
        if len(found) > len(best):
            best, text = found, other
    return _mark_hits(text, sorted({span for spans in best for span in spans})) if best else None


def _find_hits(terms: Sequence[Term], text: str, *, in_task: bool) -> list[list[tuple[int, int]]]:
    """Return the spans of the hits, a list for each term that matches."""
    found = ([hit.span() for hit in _pattern(term, in_task=in_task).finditer(text)] for term in terms)
    hits = [spans for spans in found if spans]
    # Normalizing shifts positions, so hits that differ in accents are searched word by word, which takes longer.
    return hits if hits or text.isascii() else [spans for term in terms if (spans := _find_word_hits(term, text))]


def _pattern(term: Term, *, in_task: bool) -> re.Pattern[str]:
    words = _BETWEEN_WORDS.join(map(re.escape, term.words))
    end = r"[^\W_]*" if term.is_prefix else r"(?![^\W_])"
    whole = rf"(?<![^\W_]){words}{end}" if words else r"(?!)"
    literal = r"\s+".join(map(re.escape, term.literal.split()))
    return re.compile(rf"{whole}|{literal}" if in_task else whole, re.IGNORECASE)


def _find_word_hits(term: Term, text: str) -> list[tuple[int, int]]:
    words = [(normalize_text(found[0]), found.span()) for found in _WORD.finditer(text)]
    count = len(term.words)
    spans: list[tuple[int, int]] = []
    for first in range(len(words) - count + 1 if count else 0):
        window = words[first : first + count]
        is_equal = all(word == wanted for (word, _), wanted in zip(window[:-1], term.words, strict=False))
        last = window[-1][0]
        if is_equal and (last == term.words[-1] or (term.is_prefix and last.startswith(term.words[-1]))):
            spans.append((window[0][1][0], window[-1][1][1]))
    return spans


def _mark_hits(text: str, hits: list[tuple[int, int]]) -> str:
    begin = max(0, hits[0][0] - SNIPPET_BEFORE_CHARS)
    # The first hit is never truncated, however long it is.
    end = min(len(text), max(hits[0][1], hits[0][0] + SNIPPET_AFTER_CHARS))
    edges = [begin]
    for start, stop in hits:
        if start >= edges[-1] and stop <= end:
            edges += [start, stop]
    parts = [strip_hit_marks(text[start:stop]) for start, stop in pairwise([*edges, end])]
    marked = "".join(f"{HIT_BEGIN}{part}{HIT_END}" if number % 2 else part for number, part in enumerate(parts))
    return f"{'…' if begin else ''}{marked}{'…' if end < len(text) else ''}".replace(WORD_SEPARATOR, "")
