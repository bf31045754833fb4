"""Markdown of a run, made safe to open in any viewer: code is kept, and what could act is shown as text.

Nothing here backtracks: the time is linear in the text, which may be hostile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_OPENING: Final = re.compile(r"([ \t]*+)([-*+][ \t]+|\d{1,9}+[.)][ \t]+)?+(`{3,}+|~{3,}+)(.*)")
_LANGUAGE: Final = re.compile(r"[\w+#.-]{1,40}")
_TICKS: Final = re.compile("`+")
_SPAN_TICKS: Final = 2
_TABLE_CHARS: Final = frozenset(" \t|:->*+.)0123456789")
"""The characters of the line below the headers of a table, with those of a list or a quote around it."""
_ACTIVE: Final = re.compile(r"\\[\\&<`~{]|[&<{]|`+|~{3,}")
"""What could act in prose. Some viewers take `{onclick=…}` for attributes of what is before it."""
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;"}
_OTHER_LINK: Final = re.compile(r"\]\((?=\s*+(?!(?:https?|mailto):)[^()\s/?#:]{0,40}+\s*+:)", re.IGNORECASE)
"""The beginning of a link that is neither relative nor of the web or of mail. Its colon may have a backslash."""


def safe_markdown(text: str) -> str:
    """Return Markdown with its code blocks and code spans kept, and everything else that could act made inert."""
    lines = iter(text.split("\n"))
    parts: list[str] = []
    prose: list[str] = []
    for line in lines:
        opening = _OPENING.fullmatch(line)
        if opening is None or (opening[3][0] == "`" and "`" in opening[4]):
            prose.append(line)
            continue
        marker = opening[2] or ""
        if marker:
            # A marker alone is a list item too, and the code block below is in it.
            prose.append(opening[1] + marker.rstrip())
        indent = opening[1] + " " * (len(marker.rstrip()) + 1 if marker else 0)
        if prose:
            if indent.expandtabs().startswith("    ") and prose[-1].strip():
                # Indented this far, the fence may continue a paragraph. After an empty line it is code in any case.
                prose.append("")
            parts.append(safe_inline("\n".join(prose)))
            prose.clear()
        language = _LANGUAGE.match(opening[4].strip())
        parts.append(
            _indented_fence(list(_code_lines(lines, opening[3], indent)), indent, language[0] if language else "")
        )
    if prose:
        parts.append(safe_inline("\n".join(prose)))
    return "\n".join(parts)


def safe_line(text: str) -> str:
    """Return text as one line of Markdown, such as a heading."""
    return safe_inline(" ".join(text.split()))


def fence(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any in the text."""
    ticks = "`" * max(3, _longest_ticks(text) + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def inline_code(text: str) -> str:
    """Return text as a code span on one line."""
    line = " ".join(text.split())
    ticks = "`" * (_longest_ticks(line) + 1)
    return f"{ticks} {line} {ticks}" if "`" in line else f"`{line}`"


def _longest_ticks(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)


def _code_lines(lines: Iterator[str], opening: str, indent: str) -> Iterator[str]:
    """Yield the lines of a code block without its indentation, up to its end or that of the text."""
    for line in lines:
        closing = line.strip()
        if len(closing) >= len(opening) and closing == opening[0] * len(closing):
            return
        yield line[len(indent) :] if line.startswith(indent) else line.lstrip(" ")


def _indented_fence(lines: list[str], indent: str, language: str) -> str:
    # Viewers that know no indented fences take this for a code span, which an empty line would end: what follows would
    # be Markdown and HTML. At the margin, each viewer takes it for a code block.
    if not all(line.strip() for line in lines):
        indent = ""
    return "\n".join(indent + line for line in fence("\n".join(lines), language).split("\n"))


def safe_inline(text: str) -> str:
    """Return Markdown without code blocks with its code spans kept, and everything else that could act made inert."""
    parts: list[str] = []
    end = 0
    for start, stop, code in _code_spans(text):
        parts += [_inert(text[end:start]), code]
        end = stop
    return "".join([*parts, _inert(text[end:])])


def _code_spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and text of the code spans that each viewer takes for one.

    A span must be on one line: another block could begin on the next. All other backticks are made inert, so that they
    cannot pair with those of a span.
    """
    lines = text.split("\n")
    has_table = _has_table(lines)
    offset = 0
    for line in lines:
        for start, end, code in _line_spans(line):
            # In a table, `|` ends a cell and so the span. `]:` may define a link, whatever is around it.
            if "]:" not in code and not (has_table and "|" in code):
                yield offset + start, offset + end, code
        offset += len(line) + 1


def _line_spans(line: str) -> Iterator[tuple[int, int, str]]:
    runs = [run.span() for run in _TICKS.finditer(line)]
    closers: list[int | None] = []
    last_of_length: dict[int, int] = {}
    for number in reversed(range(len(runs))):
        start, end = runs[number]
        closers.append(last_of_length.get(end - start))
        last_of_length[end - start] = number
    closers.reverse()
    number = 0
    while number < len(runs):
        start, end = runs[number]
        closer = closers[number]
        if closer is None or line[start - 1 : start] == "\\":
            number += 1
            continue
        number = closer + 1
        code, stop = line[end : runs[closer][0]], runs[closer][1]
        ticks = "`" if "`" not in code else line[start:end]
        # Longer ones could open a code block, and not every viewer ends a span after a backslash.
        if len(ticks) <= _SPAN_TICKS and not code.endswith("\\"):
            yield start, stop, f"{ticks}{code}{ticks}"


def _has_table(lines: list[str]) -> bool:
    """Return whether any viewer could find a table in these lines."""
    before = ""
    for line in lines:
        is_below_headers = "-" in line and _TABLE_CHARS.issuperset(line)
        if is_below_headers and ("|" in line or ":" in line or "|" in before):
            return True
        before = line
    return False


def _inert(text: str) -> str:
    text = _ACTIVE.sub(lambda found: _escape(found[0]), text)
    # A definition would change the meaning of links elsewhere.
    text = text.replace("![", "!\\[").replace("]:", "]\\:")
    return _OTHER_LINK.sub("]\\\\(", text)


def _escape(found: str) -> str:
    if found[0] == "\\":
        # Not every viewer knows `\<` and `\&`.
        return _ENTITIES.get(found[1], found)
    return _ENTITIES.get(found) or "".join("\\" + char for char in found)
