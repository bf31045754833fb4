"""Edits of JSON text that keep every other byte: indentation, comments, trailing commas, line ends.

For any text without the value, `set_value` and then `remove_value` give the same text again. That is why `set_value`
inserts at the start of an object, and writes into an empty object differently than it adds an object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

import msgspec

from shopfloor.cli.limits import CONFIG_DEPTH

_SKIPPED: Final = re.compile(r"(?:[ \t\r\n]+|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR: Final = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_FIRST_INDENT: Final = re.compile(r"\{(?:\r?\n)+([ \t]+)")


class JsonTextError(ValueError):
    """The text is not JSON with comments; the message has the line."""


class Member(msgspec.Struct, frozen=True):
    """A member of an object, by its place in the text."""

    key: str
    start: int
    value: Node
    comma: int | None
    """The place of the comma after the member."""


class Node(msgspec.Struct, frozen=True):
    """A value, by its place in the text."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] | None = None
    """The members of an object; None for any other value."""

    def find(self, key: str) -> Member | None:
        """Return the last member with this key, which is the one that counts."""
        return next((member for member in reversed(self.members or ()) if member.key == key), None)


def parse(text: str) -> Node:
    """Parse JSON with comments and trailing commas. Raises `JsonTextError`."""
    parser = _Parser(text)
    start = parser.skip(1 if text.startswith("\ufeff") else 0)
    root = parser.value(start, 0)
    if parser.skip(root.end) != len(text):
        parser.fail(parser.skip(root.end), "text after the end")
    return root


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text

    def fail(self, at: int, problem: str) -> NoReturn:
        raise JsonTextError(f"line {self._text.count(chr(10), 0, at) + 1}: {problem}")

    def skip(self, at: int) -> int:
        """Return the place after white space and comments."""
        found = _SKIPPED.match(self._text, at)
        return found.end() if found else at

    def value(self, at: int, depth: int) -> Node:
        if depth > CONFIG_DEPTH:
            self.fail(at, "nested too deep")
        match self._text[at : at + 1]:
            case "{":
                return self._object(at, depth)
            case "[":
                return self._array(at, depth)
            case _:
                found = _STRING.match(self._text, at) or _SCALAR.match(self._text, at)
                return self._scalar(at, found.end() if found else at)

    def _scalar(self, at: int, end: int) -> Node:
        try:
            return Node(at, end, json.loads(self._text[at:end]))
        except ValueError:
            return self.fail(at, "expected a value")

    def _object(self, start: int, depth: int) -> Node:
        members: list[Member] = []
        at = self.skip(start + 1)
        while self._text[at : at + 1] != "}":
            if members and members[-1].comma is None:
                self.fail(at, "expected a comma or `}`")
            quoted = _STRING.match(self._text, at) or self.fail(at, "expected a name in quotes")
            colon = self.skip(quoted.end())
            if self._text[colon : colon + 1] != ":":
                self.fail(colon, "expected a colon")
            value = self.value(self.skip(colon + 1), depth + 1)
            comma, after = self._comma(value.end)
            members.append(Member(self._scalar(at, quoted.end()).value, at, value, comma))
            at = after
        return Node(start, at + 1, {member.key: member.value.value for member in members}, tuple(members))

    def _array(self, start: int, depth: int) -> Node:
        items: list[Any] = []
        at, comma = self.skip(start + 1), 0
        while self._text[at : at + 1] != "]":
            if comma is None:
                self.fail(at, "expected a comma or `]`")
            item = self.value(at, depth + 1)
            items.append(item.value)
            comma, at = self._comma(item.end)
        return Node(start, at + 1, items)

    def _comma(self, at: int) -> tuple[int | None, int]:
        """Return the place of the comma after a value, if there is one, and the place of what follows."""
        at = self.skip(at)
        return (at, self.skip(at + 1)) if self._text[at : at + 1] == "," else (None, at)


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at this path of keys, adding what is missing.

    Raises `JsonTextError` if the text cannot be parsed, or if a value on the path is no object.
    """
    root = parse(text)
    node, known = root, 0
    for key in path:
        if node.members is None:
            raise JsonTextError(f"`{'.'.join(path[:known]) or 'the document'}` is not an object")
        member = node.find(key)
        if member is None:
            return _insert(text, node, path[known:], value, depth=known + 1)
        node, known = member.value, known + 1
    if node.value == value:
        return text
    return text[: node.start] + _dump(value, text, known) + text[node.end :]


def set_fields(text: str, path: Sequence[str], fields: Mapping[str, Any]) -> str:
    """Return the text with these fields in the object at this path. Other fields of the object stay."""
    node: Any = parse(text).value
    for key in path:
        node = cast("dict[str, Any]", node).get(key) if isinstance(node, dict) else None
    if node is None:
        return set_value(text, path, dict(fields))
    for name, value in fields.items():
        text = set_value(text, (*path, name), value)
    return text


def remove_value(text: str, path: Sequence[str]) -> str | None:
    """Return the text without the value at this path, and without the objects that `set_value` has added for it.

    The text is unchanged if there is no such value; None if `set_value` would have added all of the document.
    """
    nodes = [parse(text)]
    for key in path:
        member = nodes[-1].find(key)
        if member is None:
            return text
        nodes.append(member.value)
    for length in range(len(path), 0, -1):
        parent = nodes[length - 1]
        if length > 1 and _is_added(text, parent):
            continue
        if length == 1 and _is_added(text, parent) and not (text[: parent.start] + text[parent.end :]).strip():
            return None
        # Again: a key that is there twice is removed twice.
        return remove_value(_cut_member(text, parent, path[length - 1]), path)
    return text


def new_document(path: Sequence[str], value: Any) -> str:
    """Return a document that has nothing but the value at this path."""
    for key in reversed(path):
        value = {key: value}
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _insert(text: str, parent: Node, path: Sequence[str], value: Any, depth: int) -> str:
    for key in reversed(path[1:]):
        value = {key: value}
    line = f"{json.dumps(path[0])}: {_dump(value, text, depth)}"
    if not parent.members:
        # On the line of the brace, which distinguishes an object that was empty from one that was added.
        return text[: parent.start + 1] + line + text[parent.start + 1 :]
    return f"{text[: parent.start + 1]}{_newline(text)}{_indent(text) * depth}{line},{text[parent.start + 1 :]}"


def _is_added(text: str, node: Node) -> bool:
    """Return whether an object looks as if it was added with its only member: on lines of their own."""
    if node.members is None or len(node.members) != 1 or node.members[0].comma is not None:
        return False
    member = node.members[0]
    before, after = text[node.start + 1 : member.start], text[member.value.end : node.end - 1]
    return bool(before) and not before.strip() and not after.strip()


def _cut_member(text: str, parent: Node, key: str) -> str:
    members = parent.members or ()
    index = max(number for number, member in enumerate(members) if member.key == key)
    member = members[index]
    start = len(text[: member.start].rstrip(" \t\r\n"))
    if member.comma is not None:
        return text[:start] + text[member.comma + 1 :]
    before = members[index - 1].comma if index else None
    kept = text[:start] if before is None else text[:before] + text[before + 1 : max(start, before + 1)]
    return kept + text[member.value.end :]


def _dump(value: Any, text: str, depth: int) -> str:
    lines = json.dumps(value, indent=_indent(text), ensure_ascii=False).split("\n")
    return (_newline(text) + _indent(text) * depth).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text[: text.find("\n") + 1] else "\n"


def _indent(text: str) -> str:
    found = _FIRST_INDENT.search(text)
    return found[1] if found else "  "
