"""Patterns of calls that need a person's approval: `Bash`, `Bash(git push*)`, `command`, `mcp__*`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, Final, cast

from shopfloor.errors import InvalidInput
from shopfloor.limits import FILTER_MAX_CHARS
from shopfloor.views import as_text

COMMAND_TOOL: Final = "command"
"""The name under which patterns address the command steps of a worker."""
_PATTERN: Final = re.compile(r"(?P<tool>[^\s()]+)(?:\((?P<text>.+)\))?", re.DOTALL)
_TEXT_FIELDS: Final = ("command", "file_path", "notebook_path", "path", "url", "query")
"""The fields of an input that a pattern's text is compared to, the first that the input has."""
_SHELL_SEPARATORS: Final = re.compile(r"&&|\|\||\$\(|[;|&\n()`{}]")


def check_patterns(patterns: Iterable[str]) -> None:
    """Raise `InvalidInput` for the first pattern that is not valid."""
    for pattern in patterns:
        if not pattern or len(pattern) > FILTER_MAX_CHARS or _PATTERN.fullmatch(pattern) is None:
            raise InvalidInput(
                f"{pattern[:FILTER_MAX_CHARS]!r} is not a pattern of calls to approve",
                hint="e.g. Bash, Bash(git push*), mcp__*, or command for the commands of a worker",
            )


def find_pattern(patterns: Iterable[str], tool: str, tool_input: Any) -> str | None:
    """Return the first pattern that a call matches; None if it matches none."""
    return next((pattern for pattern in patterns if _matches(pattern, tool, tool_input)), None)


def tool_part(pattern: str) -> str:
    """Return the part of a pattern that is compared to the name of the tool."""
    return pattern.partition("(")[0]


def _matches(pattern: str, tool: str, tool_input: Any) -> bool:
    parts = _PATTERN.fullmatch(pattern)
    if parts is None or not fnmatchcase(tool, parts["tool"]):
        return False
    wanted = parts["text"]
    return wanted is None or any(fnmatchcase(text, wanted) for text in _texts(tool_input))


def _texts(tool_input: Any) -> list[str]:
    """Return the texts of an input that a pattern is compared to.

    A shell command is compared as a whole and part by part, so that `git push*` also finds `cd x && git push`.
    """
    fields = cast("dict[str, Any]", tool_input) if isinstance(tool_input, dict) else {}
    name = next((name for name in _TEXT_FIELDS if isinstance(fields.get(name), str)), None)
    if name is None:
        return [as_text(tool_input)]
    text = str(fields[name]).strip()
    if name != "command":
        return [text]
    return [text, *(part.strip() for part in _SHELL_SEPARATORS.split(text) if part.strip())]
