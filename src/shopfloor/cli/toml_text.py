"""Edits of TOML text that keep every other byte: comments, order, line ends, a missing newline at the end.

A table is added at the end of the text, and removed with the empty line above it. For any text without the table,
`set_table` and then `remove_table` give the same text again. Every edit is checked by parsing the result.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast


class TomlTextError(ValueError):
    """The text is not TOML, or the table is written in a form that cannot be edited."""


_QUOTED: Final = re.compile(r"[^A-Za-z0-9_-]").search


class _Block(NamedTuple):
    """The lines of a table, without its sub-tables, by its place in the text."""

    start: int
    end: int
    """The end of its last line that has a key, without the line end."""


def parse(text: str) -> dict[str, Any]:
    """Parse TOML. Raises `TomlTextError`."""
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except tomllib.TOMLDecodeError as error:
        raise TomlTextError(str(error)) from error


def set_table(text: str, path: Sequence[str], fields: Mapping[str, Any]) -> str:
    """Return the text with these fields in the table at `path`. Other fields of the table stay."""
    document = parse(text)
    known = _get(document, path)
    if known is not None and all(known.get(name) == value for name, value in fields.items()):
        return text
    expected = _with(document, path, {**(known or {}), **fields})
    for changed in _changes(text, path, known, fields):
        if _is_equal(_try_parse(changed), expected):
            return changed
    raise _not_editable(path)


def remove_table(text: str, path: Sequence[str]) -> str | None:
    """Return the text without the table at `path`; unchanged if there is none, None if nothing else is left."""
    document = parse(text)
    if _get(document, path) is None:
        return text
    others = _with(document, path, None)
    shortened = text
    # From the end, so that the places of the others stay valid. Each sub-table has a header of its own.
    for block in [*_blocks(text, path, sub_tables=True)][::-1]:
        candidate = _cut(shortened, block)
        parsed = _try_parse(candidate)
        # In a text of several lines a line can look like a header.
        if parsed is not None and _is_equal(_with(parsed, path, None), others):
            shortened = candidate
    if _get(parse(shortened), path) is not None:
        raise _not_editable(path)
    # In a file that was there, the table has an empty line above it.
    return None if text.startswith("[") and not shortened.strip() else shortened


def new_document(path: Sequence[str], fields: Mapping[str, Any]) -> str:
    """Return a document that has nothing but the table."""
    return _render(path, fields, "\n") + "\n"


def _changes(
    text: str, path: Sequence[str], known: Mapping[str, Any] | None, fields: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the texts that may have the table, where a header in a text of several lines looks like a table."""
    newline = _newline(text)
    if known is None:
        body = text.removesuffix(newline)
        yield body + newline * 2 + _render(path, fields, newline) + text[len(body) :]
        return
    plain = {name: value for name, value in {**known, **fields}.items() if not isinstance(value, dict)}
    if not all(isinstance(value, str | int | list) for value in plain.values()):
        return
    for block in _blocks(text, path, sub_tables=False):
        yield text[: block.start] + _render(path, plain, newline) + text[block.end :]


def _render(path: Sequence[str], fields: Mapping[str, Any], newline: str) -> str:
    lines = [f"{json.dumps(name) if _QUOTED(name) else name} = {_value(value)}" for name, value in fields.items()]
    return newline.join([f"[{'.'.join(path)}]", *lines])


def _value(value: Any) -> str:
    # A string, integer, boolean, or list of these in JSON is also TOML, except that TOML allows no DEL in a string.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _blocks(text: str, path: Sequence[str], *, sub_tables: bool) -> Iterator[_Block]:
    names = r"[ \t]*\.[ \t]*".join(rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')" for name in path)
    more = r"(?:[ \t]*\.[^\]\r\n]*)?" if sub_tables else ""
    header = re.compile(rf"^[ \t]*\[[ \t]*{names}{more}[ \t]*\][ \t]*(?:#[^\r\n]*)?(?=\r?$)", re.MULTILINE)
    for found in header.finditer(text):
        following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, found.end())
        lines = text[found.end() : following.start() if following else len(text)]
        kept = re.sub(r"(?:\r?\n[ \t]*(?:#[^\r\n]*)?)+\Z", "", lines)
        yield _Block(found.start(), found.end() + len(kept))


def _cut(text: str, block: _Block) -> str:
    """Return the text without the block and the empty line above it, or below it at the start of the text."""
    before, after = text[: block.start], text[block.end :]
    if not before:
        return re.sub(r"\A(?:\r?\n){0,2}", "", after)
    return re.sub(r"(?:\r?\n){0,2}\Z", "", before, count=1) + after


def _get(document: Mapping[str, Any], path: Sequence[str]) -> dict[str, Any] | None:
    node: Any = document
    for number, key in enumerate(path):
        node = cast("Mapping[str, Any]", node).get(key, {} if number < len(path) - 1 else None)
        if node is not None and not isinstance(node, dict):
            raise TomlTextError(f"`{'.'.join(path[: number + 1])}` is not a table")
    return cast("dict[str, Any] | None", node)


def _with(document: Mapping[str, Any], path: Sequence[str], fields: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the document with the table at `path`; without `fields`, without the table and what is empty then."""
    head, *rest = path
    inner = document.get(head, {})
    value = fields if not rest else _with(cast("Mapping[str, Any]", inner), rest, fields)
    others = {name: item for name, item in document.items() if name != head}
    return {**others, head: value} if value or fields is not None else others


def _is_equal(document: Mapping[str, Any] | None, other: Mapping[str, Any]) -> bool:
    # As text: a NaN is not equal to itself.
    texts = [json.dumps(item, sort_keys=True, default=repr) for item in (document, other)]
    return texts[0] == texts[1]


def _try_parse(text: str) -> dict[str, Any] | None:
    try:
        return parse(text)
    except TomlTextError:
        return None


def _not_editable(path: Sequence[str]) -> TomlTextError:
    return TomlTextError(f"`{'.'.join(path)}` cannot be edited here: it is not written as a table of its own")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"
