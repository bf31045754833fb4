"""YAML as plain values, with the line of each value.

Scalars follow YAML 1.2: `yes`, `on` and `12:30` are text. Values that JSON cannot represent are problems.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import yaml

from shopfloor.limits import WORKER_DEPTH, WORKER_VALUES

YamlPath = tuple[str | int, ...]
"""The place of a value: the keys and indexes that lead to it."""

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
    """A parsed document."""

    value: Any
    lines: dict[YamlPath, int]
    problems: list[tuple[int, str]]
    """Lines and what is wrong there."""

    def line_of(self, place: YamlPath) -> int:
        """Return the line of the value, or of the nearest value around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


class _LimitExceeded(Exception):
    """The document exceeds a limit."""


class _Loader(yaml.SafeLoader):
    """A loader that stops as soon as a document exceeds the limits."""

    _depth = 0
    _nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._nodes += 1
        _check_limits(self._nodes, self._depth)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


def _check_limits(values: int, depth: int) -> None:
    if values > WORKER_VALUES:
        raise _LimitExceeded(f"the document has more than {WORKER_VALUES:,} values")
    if depth > WORKER_DEPTH:
        raise _LimitExceeded(f"the document is nested more than {WORKER_DEPTH} levels deep")


def parse_yaml(text: str) -> YamlDocument:
    """Parse a document. Never raises: errors are listed in `problems`."""
    try:
        node = _Loader(text).get_single_node()
    except yaml.YAMLError as error:
        return YamlDocument(None, {}, [_yaml_error(error)])
    except _LimitExceeded as error:
        return YamlDocument(None, {}, [(1, str(error))])
    except ValueError as error:
        # PyYAML passes escapes such as "\UFFFFFFFF" to `chr`.
        return YamlDocument(None, {}, [(1, f"invalid character: {error}")])
    if node is None:
        return YamlDocument(None, {}, [(1, "the document is empty")])
    return _Reader().document(node)


def _yaml_error(error: yaml.YAMLError) -> tuple[int, str]:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        reason = " ".join(str(part) for part in (error.context, error.problem) if part)
        if mark:
            advice = "check the indentation, quotes and brackets of this line"
            return mark.line + 1, f"not valid YAML, column {mark.column + 1}: {advice} ({reason})"
        return 1, f"not valid YAML: {reason}"
    return 1, f"not valid YAML: {str(error).splitlines()[0]}"


class _Reader:
    def __init__(self) -> None:
        self._lines: dict[YamlPath, int] = {}
        self._problems: list[tuple[int, str]] = []
        self._values = 0

    def document(self, node: yaml.Node) -> YamlDocument:
        try:
            value = self._value(node, ())
        except _LimitExceeded as error:
            return YamlDocument(None, self._lines, [(node.start_mark.line + 1, str(error))])
        return YamlDocument(value, self._lines, self._problems)

    def _value(self, node: yaml.Node, place: YamlPath) -> Any:
        # An alias is the same node again, even inside of itself, so count the values after expansion.
        self._values += 1
        _check_limits(self._values, len(place))
        self._lines.setdefault(place, node.start_mark.line + 1)
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                return self._mapping(node, place)
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self._value(item, (*place, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return self._scalar(node)
            case _:
                return self._add_problem(node, f"the tag `{node.tag.replace(_TAG, '!!')}` is not supported")

    def _mapping(self, node: yaml.MappingNode, place: YamlPath) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._add_problem(key_node, "keys must be text")
                continue
            key = key_node.value
            if key_node.tag == f"{_TAG}merge":
                self._add_problem(key_node, "`<<` is not supported; write the fields out")
            elif not _is_text(key):
                self._add_problem(key_node, "the key contains a lone surrogate")
            elif key in found:
                self._add_problem(key_node, f"duplicate key `{key}`")
            else:
                # Use the line of the key, where a reader looks for the value.
                self._lines[*place, key] = key_node.start_mark.line + 1
                found[key] = self._value(value_node, (*place, key))
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = node.value
        if node.tag == f"{_TAG}str":
            return text if _is_text(text) else self._add_problem(node, "the text contains a lone surrogate")
        if node.tag not in _PLAIN:
            return self._add_problem(node, f"the tag `{node.tag.replace(_TAG, '!!')}` is not supported")
        return self._plain(node, text)

    def _plain(self, node: yaml.ScalarNode, text: str) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
            number = int(text, 16 if text.startswith("0x") else 10)
            return (
                number if -_LARGEST <= number < _LARGEST else self._add_problem(node, f"the number {text} is too large")
            )
        if node.tag == f"{_TAG}int" and text.strip("+-").isdecimal():
            return self._add_problem(node, "the number is too large")
        if _FLOAT.fullmatch(text):
            return self._float(node, float(text))
        if node.tag == f"{_TAG}float" and text.lower().lstrip("+-") in (".inf", ".nan"):
            return self._add_problem(node, f"{text} is not a JSON number")
        return text

    def _float(self, node: yaml.ScalarNode, number: float) -> Any:
        return self._add_problem(node, "the number is too large") if number in (float("inf"), -float("inf")) else number

    def _add_problem(self, node: yaml.Node, reason: str) -> None:
        self._problems.append((node.start_mark.line + 1, reason))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
