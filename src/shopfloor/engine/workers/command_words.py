"""The commands in a shell script as lists of words without quotes, for the patterns of calls to approve.

Unlike `shell_scanner.py`, which has to understand a script to put values into it, this reads every text to its end: a
construct that it does not know only makes other words of it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from shopfloor.limits import APPROVAL_WORDS

_PLAIN: Final = re.compile(r"[^\s\\'\"`$;&|()<>#]+")
_REDIRECTION: Final = re.compile(r"&>>?|<<<|<<-?|[<>]{1,2}[&|]?")
_HERE_STRING: Final = "<<<"
_DESCRIPTOR: Final = re.compile(r"\d+|\{\w+\}")
_SUBSTITUTION: Final = re.compile(r"`|[$<>]\(")
_ESCAPED_QUOTES: Final = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPED_IN_DOUBLE_QUOTES: Final = '$`"\\'


def find_commands(script: str) -> list[list[str]]:
    """Return the words of each command of a script, also of those in substitutions, without redirections."""
    return _Reader(script).read()


class _Frame(msgspec.Struct):
    """A list of commands that is being read: the script itself, or a substitution in it."""

    closing: str = ""
    """The character that ends the substitution."""
    start: int = 0
    depth: int = 0
    """The number of open parentheses in it."""
    is_quoted: bool = False
    """Whether the reader is between double quotes."""
    is_target: bool = False
    """Whether the next word is where a redirection leads to."""
    word: str | None = None
    words: list[str] = []


class _Reader:
    def __init__(self, script: str) -> None:
        self._script = script
        self._at = 0
        self._frames = [_Frame()]
        self._commands: list[list[str]] = []

    def read(self) -> list[list[str]]:
        while self._at < len(self._script):
            self._read_next()
        while len(self._frames) > 1:
            self._end_substitution()
        self._end_command()
        return self._commands

    def _read_next(self) -> None:
        frame = self._frames[-1]
        char = self._script[self._at]
        if char == "\\":
            self._read_escaped(frame)
        elif char == frame.closing and not frame.is_quoted and not frame.depth:
            self._at += 1
            self._end_substitution()
        elif self._begin_substitution(frame):
            return
        elif char == '"':
            frame.is_quoted = not frame.is_quoted
            self._add("", 1)
        elif frame.is_quoted:
            self._add(char, 1)
        else:
            self._read_unquoted(frame, char)

    def _read_escaped(self, frame: _Frame) -> None:
        escaped = self._script[self._at + 1 : self._at + 2]
        if escaped == "\n":
            self._at += 2
        else:
            keeps_backslash = frame.is_quoted and escaped not in _ESCAPED_IN_DOUBLE_QUOTES
            self._add(f"\\{escaped}" if keeps_backslash else escaped, 2)

    def _begin_substitution(self, frame: _Frame) -> bool:
        opening = _SUBSTITUTION.match(self._script, self._at)
        is_process = opening is not None and opening[0][0] in "<>"
        # Deeper substitutions are read as parentheses.
        if opening is None or (is_process and frame.is_quoted) or len(self._frames) > APPROVAL_WORDS:
            return False
        self._frames.append(_Frame(closing="`" if opening[0] == "`" else ")", start=self._at))
        self._at = opening.end()
        return True

    def _end_substitution(self) -> None:
        """Continue the word around a substitution. It has the substitution as it is written."""
        self._end_command()
        ended = self._frames.pop()
        self._add(self._script[ended.start : self._at], 0)

    def _read_unquoted(self, frame: _Frame, char: str) -> None:
        if escaped := _ESCAPED_QUOTES.match(self._script, self._at):
            self._add(re.sub(r"\\(.)", r"\1", escaped[1], flags=re.DOTALL), len(escaped[0]))
        elif char == "'":
            end = self._script.find("'", self._at + 1)
            # Quotes that are never closed are a character like others.
            text = char if end < 0 else self._script[self._at + 1 : end]
            self._add(text, 1 if end < 0 else len(text) + 2)
        elif char == "#" and frame.word is None:
            end = self._script.find("\n", self._at)
            self._at = len(self._script) if end < 0 else end
        elif operator := _REDIRECTION.match(self._script, self._at):
            self._read_redirection(frame, operator[0])
        elif char in ";&|()\n":
            frame.depth = max(0, frame.depth + (char == "(") - (char == ")"))
            self._at += 1
            self._end_command()
        elif char.isspace():
            self._at += 1
            self._end_word()
        else:
            plain = _PLAIN.match(self._script, self._at)
            text = plain[0] if plain else char
            self._add(text, len(text))

    def _read_redirection(self, frame: _Frame, operator: str) -> None:
        if frame.word is not None and _DESCRIPTOR.fullmatch(frame.word):
            frame.word = None
        self._end_word()
        # The text of `<<<` may be a script, so it stays a word.
        frame.is_target = operator != _HERE_STRING
        self._at += len(operator)

    def _add(self, text: str, length: int) -> None:
        """Add text to the word, and go on after the `length` characters that it is written with."""
        frame = self._frames[-1]
        frame.word = (frame.word or "") + text
        self._at += length

    def _end_word(self) -> None:
        frame = self._frames[-1]
        word, frame.word = frame.word, None
        if word is None:
            return
        if frame.is_target:
            frame.is_target = False
        elif word in ("{", "}"):
            self._end_command()
        else:
            frame.words.append(word)

    def _end_command(self) -> None:
        self._end_word()
        frame = self._frames[-1]
        frame.is_target = False
        if frame.words:
            self._commands.append(frame.words)
            frame.words = []
