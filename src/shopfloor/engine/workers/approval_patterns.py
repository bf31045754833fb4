"""Patterns of calls that need a person's approval: `Bash`, `Bash(git push*)`, `command`, `mcp__*`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import chain
from posixpath import normpath
from typing import Any, Final, cast

from shopfloor.engine.workers.command_words import find_commands
from shopfloor.engine.workers.shell import PASS_TO_SHELL, SHELLS, WRAPPERS
from shopfloor.errors import InvalidInput
from shopfloor.limits import APPROVAL_WORDS, FILTER_MAX_CHARS
from shopfloor.views import COMMAND_FIELD, MAIN_FIELD_TOOLS, PATH_FIELDS, as_text, main_field

_PATTERN: Final = re.compile(r"(?P<tool>[^\s()]+)(?:\((?P<text>.+)\))?", re.DOTALL)
_PREFIX_SUFFIX: Final = ":*"
"""How Claude Code ends a pattern of commands that begin with the text before it."""
_SEPARATORS: Final = re.compile(r"&&|\|\||\$\(|[;|&\n()`{}]")
_QUOTES: Final = re.compile(r"\\\n|[\\'\"]")
_PREFIX: Final = re.compile(r"if|then|elif|else|while|until|do|!|[A-Za-z_]\w*(\[[^]]*\])?\+?=.*", re.DOTALL)
"""A word after which a command begins: a reserved word or an assignment."""
_SCRIPT: Final = re.compile(r"[\s;&|<>`]|\$\(")
"""What makes a word a script that a shell would read."""
COMMAND_WRAPPERS: Final = SHELLS | WRAPPERS | PASS_TO_SHELL | {"coproc", "eval", "trap"}
"""Programs and builtins whose arguments are a command or a script, after options and arguments of their own."""


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
    return any(fnmatchcase(text, wanted) for text in _texts(tool, tool_input) for wanted in texts)


def _texts(tool: str, tool_input: Any) -> Iterator[str]:
    """Yield the texts of a call that a pattern is compared to."""
    name = main_field(tool_input)
    if name is None or tool not in MAIN_FIELD_TOOLS:
        yield as_text(tool_input)
    if name is None:
        return
    text = str(tool_input[name]).strip()
    yield text
    if name == COMMAND_FIELD:
        variables: Any = tool_input.get("variables")
        yield from _command_texts(text, cast("dict[str, Any]", variables) if isinstance(variables, dict) else {})
    elif name in PATH_FIELDS:
        yield from _path_texts(text)


def _expand(text: str, variables: dict[str, Any]) -> str:
    """Return the text of a worker's command with the values that it gets as variables (`shell.py`)."""
    for name, value in variables.items():
        text = text.replace(f"${{{name}}}", str(value))
    return text


def _command_texts(command: str, variables: dict[str, Any]) -> Iterator[str]:
    """Yield a shell command as a whole and part by part, as it is written and without quotes.

    So `git push*` also finds `cd x && git push`, `sudo git push` and `sh -c 'git push'`.
    """
    scripts = [command]
    for script in scripts:
        expanded = _expand(script, variables)
        yield expanded
        yield from (part.strip() for part in _SEPARATORS.split(expanded))
        # Quotes inside of values mean nothing, so the values come after the words. What the words hide, because a
        # construct was misread, is found without regard for quotes.
        commands = ([_expand(word, variables) for word in words] for words in find_commands(script))
        unquoted = (part.split() for part in _SEPARATORS.split(_QUOTES.sub("", expanded)))
        for words in chain(commands, unquoted):
            first = next((n for n, word in enumerate(words) if not _PREFIX.fullmatch(word)), len(words))
            yield " ".join(words)
            yield from _texts_from(words, first)
            if first < len(words) and _program(words[first]) in COMMAND_WRAPPERS:
                for start in range(first + 1, min(len(words), first + APPROVAL_WORDS)):
                    for text in _texts_from(words, start):
                        # Programs such as `xargs` add arguments, so that `rm *` finds `xargs rm`.
                        yield from (text, f"{text} ")
                    _add_script(scripts, words[start])


def _texts_from(words: list[str], start: int) -> Iterator[str]:
    """Yield the command that begins at this word, with the name of its program and with its path."""
    for program in dict.fromkeys((*words[start : start + 1], *map(_program, words[start : start + 1]))):
        yield " ".join((program, *words[start + 1 :]))


def _add_script(scripts: list[str], word: str) -> None:
    """Add the argument of a program that starts others, if the argument may be a script."""
    script = word.partition("=")[2] if word.startswith("-") and "=" in word else word
    if _SCRIPT.search(script) and script not in scripts and len(scripts) < APPROVAL_WORDS:
        scripts.append(script)


def _program(word: str) -> str:
    return word.rpartition("/")[2]


def _path_texts(path: str) -> list[str]:
    """Return a path without `..`, and what follows each of its folders: `src/*` also finds `/home/me/src/x.py`."""
    parts = normpath(path).lstrip("/").split("/")
    whole = ["/" + "/".join(parts)] if path.startswith("/") else []
    return whole + ["/".join(parts[start:]) for start in range(max(0, len(parts) - APPROVAL_WORDS), len(parts))]
