"""Where in a shell command a value may be put, so that it stays one word whatever is in it.

Outside of quotes a quoted value is safe. Inside of quotes the quotes are closed before it and opened again after it.
Where that cannot be told by reading the command from left to right (comments, here-documents, substitutions inside of
quotes), the place is refused: a value there could become a command.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Around = Literal["", "'", '"']
"""The quotes that a place stands in."""

_CASE = re.compile(r"case\b")
_WORD_ENDS = frozenset(" \t\n;&|(")


class Refused(msgspec.Struct, frozen=True):
    why: str


def places_in(command: str, starts: set[int]) -> dict[int, Around | Refused]:
    """What stands around each of these places, where something is to be put into the command."""
    scanner = _Scanner(command)
    return {start: scanner.at(start) for start in sorted(starts)}


class _Scanner:
    def __init__(self, command: str) -> None:
        self._text = command
        self._next = 0
        self._open: list[str] = []
        """What is open, outermost first: `(`, `"`, `'`, backtick, `{`, `#`."""
        self._unclear: str | None = None

    def at(self, place: int) -> Around | Refused:
        while self._next < place:
            self._step()
        if self._unclear:
            return Refused(self._unclear)
        if "#" in self._open:
            return Refused("in a comment")
        if "`" in self._open:
            return Refused("between backticks; use `$(…)`")
        if "{" in self._open:
            return Refused("inside of `${…}`")
        inside = [opened for opened in self._open if opened != "("]
        if not inside:
            return ""
        if self._open == ["'"]:
            return "'"
        if self._open == ['"']:
            return '"'
        return Refused("in a command inside of quotes")

    def _step(self) -> None:
        inside = self._open[-1] if self._open else "("
        two = self._text[self._next : self._next + 2]
        char = two[:1]
        size = 1
        if inside == "#":
            if char == "\n":
                self._open.pop()
        elif inside == "'":
            if char == "'":
                self._open.pop()
        elif char == "\\":
            size = 2
        elif two in ("$(", "${"):
            self._open.append(two[1])
            size = 2
        elif char == "`":
            self._toggle("`", inside)
        elif inside == '"':
            if char == '"':
                self._open.pop()
        elif inside == "{":
            self._in_braces(char)
        else:
            size = self._in_command(char, two)
        self._next += size

    def _toggle(self, char: str, inside: str) -> None:
        if inside == char:
            self._open.pop()
        else:
            self._open.append(char)

    def _in_braces(self, char: str) -> None:
        if char == "}":
            self._open.pop()
        elif char in "'\"":
            self._unclear = "after quotes inside of `${…}`"

    def _in_command(self, char: str, two: str) -> int:
        if two == "$'":
            self._unclear = "after `$'…'`"
        elif two == "<<":
            if self._text[self._next + 2 : self._next + 3] == "<":
                return 3
            self._unclear = "in or after a here-document"
        elif char in ("'", '"', "("):
            self._open.append(char)
        elif char == ")":
            if self._open and self._open[-1] == "(":
                self._open.pop()
        elif self._begins_word():
            if char == "#":
                self._open.append("#")
            elif '"' in self._open and _CASE.match(self._text, self._next):
                self._unclear = "after a `case` inside of quotes"
        return 1

    def _begins_word(self) -> bool:
        return self._next == 0 or self._text[self._next - 1] in _WORD_ENDS
