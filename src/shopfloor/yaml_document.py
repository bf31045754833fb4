"""YAML as plain values, with the line of each.

Scalars mean what YAML 1.2 says: `yes`, `on` and `12:30` are text. What JSON cannot hold is a problem.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

from shopfloor.limits import WORKER_DEPTH, WORKER_VALUES

YamlPath = tuple[str | int, ...]
"""Where a value stands: the keys and indexes that lead to it."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = frozenset(f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "timestamp"))
_INTEGER = re.compile(r"[-+]?[0-9]{1,19}")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    spelled: value for value in (True, False) for spelled in (str(value), str(value).lower(), str(value).upper())
}
_LARGEST = 2**63


class YamlDocument(msgspec.Struct, frozen=True):
    value: Any
    lines: dict[YamlPath, int]
    problems: list[tuple[int, str]]
    """Lines and what is wrong there."""

    def line_of(self, place: YamlPath) -> int:
        """The line of that value, or of the nearest around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


class _TooMuch(Exception):
    pass


class _Loader(yaml.SafeLoader):
    """Stops at what is too much before it is read to the end."""

    _depth = 0
    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._nodes += 1
        _check(self._nodes, self._depth)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _check(values: int, depth: int) -> None:
    if values > WORKER_VALUES:
        raise _TooMuch(f"it holds more than {WORKER_VALUES:,} values")
    if depth > WORKER_DEPTH:
        raise _TooMuch(f"it is nested more than {WORKER_DEPTH} deep")


def parse_yaml(text: str) -> YamlDocument:
    """Never raises: what cannot be read is a problem."""
    try:
        node = _Loader(text).get_single_node()
    except yaml.YAMLError as error:
        return YamlDocument(None, {}, [_said_by(error)])
    except _TooMuch as error:
        return YamlDocument(None, {}, [(1, str(error))])
    except ValueError as error:
        # PyYAML lets escapes such as "\UFFFFFFFF" through to `chr`.
        return YamlDocument(None, {}, [(1, f"it has a character that cannot be: {error}")])
    if node is None:
        return YamlDocument(None, {}, [(1, "it is empty")])
    return _Reader().document(node)


def _said_by(error: yaml.YAMLError) -> tuple[int, str]:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        reason = " ".join(str(part) for part in (error.context, error.problem) if part)
        return (mark.line + 1 if mark else 1), f"not YAML: {reason}"
    return 1, f"not YAML: {str(error).splitlines()[0]}"


class _Reader:
    def __init__(self) -> None:
        self._lines: dict[YamlPath, int] = {}
        self._problems: list[tuple[int, str]] = []
        self._values = 0

    def document(self, node: yaml.Node) -> YamlDocument:
        try:
            value = self._value(node, ())
        except _TooMuch as error:
            return YamlDocument(None, self._lines, [(node.start_mark.line + 1, str(error))])
        return YamlDocument(value, self._lines, self._problems)

    def _value(self, node: yaml.Node, place: YamlPath) -> Any:
        # Aliases give the same node again, also inside itself: what counts is what they would grow to.
        self._values += 1
        _check(self._values, len(place))
        self._lines.setdefault(place, node.start_mark.line + 1)
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return self._mapping(node, place)
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self._value(item, (*place, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return self._scalar(node)
            case _:
                return self._refused(node, f"the tag `{node.tag.replace(_TAG, '!!')}` is not supported")

    def _mapping(self, node: yaml.MappingNode, place: YamlPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refused(key_node, "a key is to be text")
                continue
            key = key_node.value
            if key_node.tag == f"{_TAG}merge":
                self._refused(key_node, "`<<` is not supported; write the fields out")
            elif not _is_text(key):
                self._refused(key_node, "this key has half a character in it (a lone surrogate)")
            elif key in found:
                self._refused(key_node, f"`{key}` stands here twice")
            else:
                # A key's line is where somebody looks for the value.
                self._lines[*place, key] = key_node.start_mark.line + 1
                found[key] = self._value(value_node, (*place, key))
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = node.value
        if node.tag == f"{_TAG}str":
            return text if _is_text(text) else self._refused(node, "half a character (a lone surrogate) in a text")
        if node.tag not in _PLAIN:
            return self._refused(node, f"the tag `{node.tag.replace(_TAG, '!!')}` is not supported")
        return self._plain(node, text)

    def _plain(self, node: yaml.ScalarNode, text: str) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
            number = int(text, 16 if text.startswith("0x") else 10)
            return number if -_LARGEST <= number < _LARGEST else self._refused(node, f"{text} is too large a number")
        if node.tag == f"{_TAG}int" and text.strip("+-").isdecimal():
            return self._refused(node, "this number is too large")
        if _FLOAT.fullmatch(text):
            return self._float(node, float(text))
        if node.tag == f"{_TAG}float" and text.lower().lstrip("+-") in (".inf", ".nan"):
            return self._refused(node, f"{text} is no number that JSON knows")
        return text

    def _float(self, node: yaml.ScalarNode, number: float) -> Any:
        return self._refused(node, "this number is too large") if number in (float("inf"), -float("inf")) else number

    def _refused(self, node: yaml.Node, reason: str) -> None:
        self._problems.append((node.start_mark.line + 1, reason))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
