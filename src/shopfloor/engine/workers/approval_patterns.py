"""Patterns of calls that need a person's approval: `Bash`, `Bash(git push*)`, `command`, `mcp__*`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import Any, Final, cast

from shopfloor.errors import InvalidInput
from shopfloor.limits import APPROVAL_WORDS, FILTER_MAX_CHARS
from shopfloor.views import as_text

COMMAND_TOOL: Final = "command"
"""The name under which patterns address the command steps of a worker."""
_PATTERN: Final = re.compile(r"(?P<tool>[^\s()]+)(?:\((?P<text>.+)\))?", re.DOTALL)
_COMMAND_FIELD: Final = "command"
_PATH_FIELDS: Final = ("file_path", "notebook_path", "path")
_TEXT_FIELDS: Final = (_COMMAND_FIELD, *_PATH_FIELDS, "url", "query")
"""The fields of an input that a pattern's text is compared to, the first that the input has."""
_PREFIX_SUFFIX: Final = ":*"
"""How Claude Code ends a pattern of commands that begin with the text before it."""
_SHELL_SEPARATORS: Final = re.compile(r"&&|\|\||\$\(|[;|&\n()`{}]")
_SHELL_QUOTES: Final = re.compile(r"\\\n|[\\'\"]")
_SHELL_PREFIX: Final = re.compile(r"if|then|elif|else|while|until|do|!|[A-Za-z_]\w*\+?=.*", re.DOTALL)
"""A word after which a command begins: a reserved word or an assignment."""
_SHELL_WRAPPERS: Final = frozenset(
    ("bash", "builtin", "command", "dash", "doas", "env", "eval", "exec", "find", "nice", "nohup", "setsid", "sh")
) | {"stdbuf", "sudo", "time", "timeout", "watch", "xargs", "zsh"}
"""Programs whose arguments are a command, after options of their own."""


def check_patterns(patterns: Iterable[str]) -> None:
    """Raise `InvalidInput` for the first pattern that is not valid."""
    for pattern in patterns:
        if not pattern or len(pattern) > FILTER_MAX_CHARS or _PATTERN.fullmatch(pattern) is None:
            raise InvalidInput(
                f"{pattern[:FILTER_MAX_CHARS]!r} is not a pattern of calls to approve",
                hint="e.g. Bash, Bash(git push*), mcp__*, or command for the commands of a worker",
            )


def matching_patterns(patterns: Iterable[str], tool: str, tool_input: Any) -> list[str]:
    """Return the patterns that a call matches."""
    return [pattern for pattern in patterns if _matches(pattern, tool, tool_input)]


def tool_part(pattern: str) -> str:
    """Return the part of a pattern that is compared to the name of the tool."""
    return pattern.partition("(")[0]


def _matches(pattern: str, tool: str, tool_input: Any) -> bool:
    parts = _PATTERN.fullmatch(pattern)
    if parts is None or not fnmatchcase(tool, parts["tool"]):
        return False
    wanted = parts["text"]
    if wanted is None:
        return True
    texts = {wanted}
    if wanted.endswith(_PREFIX_SUFFIX):
        texts |= {wanted.removesuffix(_PREFIX_SUFFIX), f"{wanted.removesuffix(_PREFIX_SUFFIX)} *"}
    return any(fnmatchcase(text, wanted) for text in _texts(tool_input) for wanted in texts)


def _texts(tool_input: Any) -> list[str]:
    """Return the texts of an input that a pattern is compared to."""
    fields = cast("dict[str, Any]", tool_input) if isinstance(tool_input, dict) else {}
    name = next((name for name in _TEXT_FIELDS if isinstance(fields.get(name), str)), None)
    if name is None:
        return [as_text(tool_input)]
    text = str(fields[name]).strip()
    if name == _COMMAND_FIELD:
        return _command_texts(_expand(text, fields.get("variables")))
    return [text, *_path_texts(text)] if name in _PATH_FIELDS else [text]


def _expand(command: str, variables: Any) -> str:
    """Return a command of a worker with the values that it gets as variables (`shell.py`)."""
    if isinstance(variables, dict):
        for name, value in cast("dict[str, Any]", variables).items():
            command = command.replace(f"${{{name}}}", str(value))
    return command


def _command_texts(command: str) -> list[str]:
    """Return a shell command as a whole and part by part, as it is written and without quotes.

    So `git push*` also finds `cd x && git push`, `sudo git push` and `sh -c 'git push'`.
    """
    texts = [command, *(part.strip() for part in _SHELL_SEPARATORS.split(command))]
    for part in _SHELL_SEPARATORS.split(_SHELL_QUOTES.sub("", command)):
        words = part.split()
        first = next((n for n, word in enumerate(words) if not _SHELL_PREFIX.fullmatch(word)), len(words))
        is_wrapped = first < len(words) and _program(words[first]) in _SHELL_WRAPPERS
        texts.append(" ".join(words))
        for start in range(first, min(len(words), first + (APPROVAL_WORDS if is_wrapped else 1))):
            rest = " ".join(words[start + 1 :])
            texts += [f"{words[start]} {rest}".strip(), f"{_program(words[start])} {rest}".strip()]
    return [text for text in texts if text]


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _path_texts(path: str) -> list[str]:
    """Return a path without `..`, and what follows each of its folders: `src/*` also finds `/home/me/src/x.py`."""
    parts = normpath(path).lstrip("/").split("/")
    whole = ["/" + "/".join(parts)] if path.startswith("/") else []
    return whole + ["/".join(parts[start:]) for start in range(max(0, len(parts) - APPROVAL_WORDS), len(parts))]
