"""Searching runs: the terms of a query, the folding of text, and snippets. The same for every store."""

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
"""In a snippet, what was searched for stands between these. They are in no text that is shown, unlike brackets."""

_MARKS: Final = re.compile(f"[{HIT_BEGIN}{HIT_END}]")
_ID: Final = re.compile(r"[0-9a-f-]{4,}")
_WORD: Final = re.compile(r"[^\W_]+")
_QUOTED: Final = re.compile(r'"([^"]*)("|$)')
_QUOTE: Final = '"'
_BETWEEN: Final = r"[\W_]+"
# CSI, OSC and the other strings (ended by BEL or ST), and short escapes. One that the text's end cuts off goes as well.
_ESCAPES: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*(?:[@-~]|\Z)"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\|\x9c|\x1b?\Z)"
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]|\x1b\Z"
)
# Scripts without spaces between words. Each character is a word of its own, so that parts of a sentence are found.
_UNSPACED: Final = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_SEAMS: Final = rf"(?<=[{_UNSPACED}])(?=[^\W_])|(?<=[^\W_])(?=[{_UNSPACED}])"
"""A text, for it takes milliseconds to compile: `re` keeps it when the first text that is not ASCII comes."""
WORD_SEPARATOR: Final = "\u200b"
"""Stands between words that nothing else separates: a space without width, which no snippet keeps."""


class Term(msgspec.Struct, frozen=True):
    """A part of a query. All terms of a query must be found in a run, each by its literal or by its words."""

    literal: str
    """Found anywhere in the folded task."""
    words: tuple[str, ...]
    """Found one after another, as whole words, in any text of the run; none where the term has no word."""
    is_prefix: bool = False
    """The last word may be unfinished."""


def parse_query(query: str) -> tuple[Term, ...]:
    """The terms: bare words, and "quoted phrases". No other character has a meaning.

    Symbols count only in a query that has no word: then each part between spaces is found in tasks. The last term may
    be unfinished, if its last word has more than one character.
    """
    terms: list[Term] = []
    rest = 0
    for quoted in _QUOTED.finditer(query):
        terms += _bare_terms(query[rest : quoted.start()])
        rest = quoted.end()
        if literal := normalize_text(quoted[1]).strip():
            terms.append(Term(literal, split_words(literal), is_prefix=not quoted[2]))
    unfinished = _bare_terms(query[rest:])
    if unfinished:
        unfinished[-1] = msgspec.structs.replace(unfinished[-1], is_prefix=True)
    terms += unfinished
    if query.strip() == _QUOTE:
        # It begins no phrase yet.
        terms.append(Term(_QUOTE, ()))
    elif not any(term.words for term in terms):
        terms += [Term(literal, ()) for part in query.replace('"', " ").split() if (literal := normalize_text(part))]
    # The last of equal terms counts: only that one may be unfinished.
    known = {(term.literal, term.words): _without_short_prefix(term) for term in terms[:SEARCH_TERMS]}
    return tuple(known.values())


def _without_short_prefix(term: Term) -> Term:
    # Half of all words begin with some letter.
    is_prefix = term.is_prefix and bool(term.words) and len(term.words[-1]) > 1
    return msgspec.structs.replace(term, is_prefix=is_prefix)


def _bare_terms(text: str) -> list[Term]:
    return [Term(word, split_words(word)) for word in _WORD.findall(normalize_text(text))]


def normalize_text(text: str) -> str:
    """`text` without what a search overlooks: case, accents, terminal colours, and the kind of white space."""
    if not text.isascii():
        plain = "".join(one for one in unicodedata.normalize("NFD", text) if unicodedata.category(one) != "Mn")
        text = unicodedata.normalize("NFC", plain)
    return " ".join(plain_text(text).lower().split())


def plain_text(text: str) -> str:
    """`text` without terminal escapes."""
    return _ESCAPES.sub("", text) if "\x1b" in text or not text.isascii() else text


def indexed_text(text: str) -> str:
    """`text` as a word index takes it: without terminal escapes, and with a seam between words that touch."""
    text = plain_text(text).replace("\0", " ")
    return text if text.isascii() else re.sub(_SEAMS, WORD_SEPARATOR, unicodedata.normalize("NFC", text))


def split_words(text: str) -> tuple[str, ...]:
    """The words of a folded text."""
    return tuple(_WORD.findall(text if text.isascii() else re.sub(_SEAMS, WORD_SEPARATOR, text)))


def strip_hit_marks(text: str) -> str:
    """Without the characters that mark hits."""
    return _MARKS.sub("", text)


def run_id_prefix(search: str) -> str | None:
    """What somebody searches, where a run's id may begin with it."""
    said = search.strip().lower()
    return said if _ID.fullmatch(said) else None


def snippet(terms: Sequence[Term], task: str, texts: Iterable[str]) -> str | None:
    """The text around the first hit, with every hit in it marked.

    Taken from the text with hits of the most terms; the task comes first. `texts` are indexed texts.
    """
    best, text = _hits(terms, task := plain_text(task), in_task=True), task
    for other in texts:
        found = _hits(terms, other, in_task=False)
        if len(found) > len(best):
            best, text = found, other
    return _marked(text, sorted({span for spans in best for span in spans})) if best else None


def _hits(terms: Sequence[Term], text: str, *, in_task: bool) -> list[list[tuple[int, int]]]:
    """Where each term that is found stands."""
    found = ([hit.span() for hit in _pattern(term, in_task=in_task).finditer(text)] for term in terms)
    hits = [spans for spans in found if spans]
    # Folding changes where characters stand. So what differs by accents is found word by word, which takes longer.
    return hits if hits or text.isascii() else [spans for term in terms if (spans := _word_hits(term, text))]


def _pattern(term: Term, *, in_task: bool) -> re.Pattern[str]:
    words = _BETWEEN.join(map(re.escape, term.words))
    end = r"[^\W_]*" if term.is_prefix else r"(?![^\W_])"
    whole = rf"(?<![^\W_]){words}{end}" if words else r"(?!)"
    literal = r"\s+".join(map(re.escape, term.literal.split()))
    return re.compile(rf"{whole}|{literal}" if in_task else whole, re.IGNORECASE)


def _word_hits(term: Term, text: str) -> list[tuple[int, int]]:
    words = [(normalize_text(found[0]), found.span()) for found in _WORD.finditer(text)]
    count = len(term.words)
    spans: list[tuple[int, int]] = []
    for first in range(len(words) - count + 1 if count else 0):
        some = words[first : first + count]
        same = all(word == wanted for (word, _), wanted in zip(some[:-1], term.words, strict=False))
        last = some[-1][0]
        if same and (last == term.words[-1] or (term.is_prefix and last.startswith(term.words[-1]))):
            spans.append((some[0][1][0], some[-1][1][1]))
    return spans


def _marked(text: str, hits: list[tuple[int, int]]) -> str:
    begin = max(0, hits[0][0] - SNIPPET_BEFORE_CHARS)
    # The first hit is never cut, however long it is.
    end = min(len(text), max(hits[0][1], hits[0][0] + SNIPPET_AFTER_CHARS))
    edges = [begin]
    for start, stop in hits:
        if start >= edges[-1] and stop <= end:
            edges += [start, stop]
    parts = [strip_hit_marks(text[start:stop]) for start, stop in pairwise([*edges, end])]
    marked = "".join(f"{HIT_BEGIN}{part}{HIT_END}" if number % 2 else part for number, part in enumerate(parts))
    return f"{'…' if begin else ''}{marked}{'…' if end < len(text) else ''}".replace(WORD_SEPARATOR, "")
