"""Read a shell script from left to right and find out what surrounds each placeholder in it.

The scanner knows POSIX `sh` and the common parts of `bash`. Where it meets a construct that it does not follow to its
end, it stops, and every placeholder of the script is refused. A mistake of the scanner cannot make a value
execute, because a value is always a variable and never text of the script (`shell.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

Quotes = Literal["", "'", '"', "arithmetic"]
"""What a placeholder stands in: nothing, quotes, or an arithmetic expression."""

PROCESS = "<("
"""The literal text of a word that is a process substitution."""
_META = " \t\n;&|()<>"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "!", "{", "}", "time"])
"""After each of these a command begins."""


class Word(msgspec.Struct):
    """One word of a command, without its quotes."""

    text: str = ""
    """Its literal characters; placeholders and expansions are left out."""
    holes: list[int] = []
    """The placeholders in it, by their offset."""
    expands: bool = False
    """Whether the shell puts something into it: a variable, a substitution."""
    variables: set[str] = set()
    """The variables that the shell puts into it; "" for a substitution."""
    splits: bool = False
    """Whether what the shell puts into it may become several words."""
    subscript: bool = False
    """Whether it begins as `NAME[`, so that `bash` may evaluate what follows."""
    quoted: bool = False
    is_here_string: bool = False
    assigned: str | None = None
    """The variable that it assigns, where it begins as `NAME=`."""

    @property
    def is_literal(self) -> bool:
        return not self.holes and not self.expands


class SimpleCommand(msgspec.Struct):
    """The words of one command, with the targets of its redirections apart."""

    words: list[Word] = []
    redirected: list[Word] = []
    is_for_list: bool = False
    """The words after `for NAME in`."""
    loop_variable: str = ""
    """That name."""
    in_assignment: bool = False
    """Whether it stands in a substitution whose output a variable or an arithmetic expression gets."""
    in_substitution: bool = False


class Scan(msgspec.Struct):
    """What was found out about a script."""

    commands: list[SimpleCommand] = []
    quotes: dict[int, Quotes] = {}
    """What each placeholder stands in, where that is known."""
    refused: dict[int, str] = {}
    """Placeholders where no value can go, with the reason."""
    arithmetic: bool = False
    """Whether it evaluates arithmetic with variables in it."""
    functions: set[str] = set()
    is_unclear: bool = False
    """Whether the scanner did not follow it to its end."""


class _Unclear(Exception):
    """The scanner does not follow the script any further."""


def scan(script: str, holes: Mapping[int, int]) -> Scan:
    """Scan a script whose placeholders begin and end at these offsets."""
    scanner = _Scanner(script, holes)
    try:
        scanner.read_list(closing=None)
    except _Unclear as unclear:
        # What was read before counts no more: the rest could use a value in any way, through a variable.
        scanner.found.is_unclear = True
        scanner.found.refused = {start: scanner.found.refused.get(start, str(unclear)) for start in holes}
    return scanner.found


class _Scanner:
    def __init__(self, script: str, holes: Mapping[int, int]) -> None:
        self._script = script
        self._holes = holes
        self.here = 0
        self.found = Scan()
        self._assigning = 0
        self._here_documents: list[tuple[str, bool, bool]] = []
        """Those whose bodies begin on the next line: the delimiter, whether it is quoted, whether tabs are stripped."""
        self._nested = 0

    # Characters. A backslash before a line end is no character at all, except in single quotes and comments.

    def _skip_continuations(self) -> None:
        while self._script.startswith("\\\n", self.here):
            self.here += 2

    def _skip_blanks(self) -> None:
        while self._peek() in (" ", "\t"):
            self.here += 1

    def _peek(self) -> str:
        self._skip_continuations()
        return self._script[self.here : self.here + 1]

    def _take(self, expected: str) -> bool:
        """Take these characters if they come next."""
        before = self.here
        for char in expected:
            if self._peek() != char or self.here in self._holes:
                self.here = before
                return False
            self.here += 1
        return True

    def _hole(self, word: Word | None, quotes: Quotes) -> bool:
        """Take a placeholder if one comes next."""
        self._skip_continuations()
        end = self._holes.get(self.here)
        if end is None:
            return False
        self.found.quotes[self.here] = quotes
        if word is not None:
            word.holes.append(self.here)
        self.here = end
        return True

    def _refuse_hole(self, why: str) -> bool:
        self._skip_continuations()
        end = self._holes.get(self.here)
        if end is None:
            return False
        self.found.refused[self.here] = why
        self.here = end
        return True

    # Lists of commands.

    def read_list(self, *, closing: str | None) -> None:
        """Read commands up to the closing parenthesis, or to the end of the script."""
        command = self._new_command()
        depth = 0
        while True:
            self._skip_blanks()
            char = self._peek()
            if not char:
                if closing:
                    raise _Unclear("in a substitution that is never closed")
                return
            if self.here in self._holes:
                self._add(command, self._read_word())
            elif char == "#":
                self._read_comment()
            elif char == ")":
                self.here += 1
                if closing and not depth:
                    return
                depth = max(0, depth - 1)
                command = self._new_command()
            elif char == "(":
                depth += self._read_parenthesis(command)
                command = self._new_command()
            elif char in "<>":
                self._read_redirection(command)
            elif char in ";&|\n":
                self.here += 1
                self._read_here_documents()
                command = self._new_command()
            else:
                command = self._add(command, self._read_word(), nested=closing is not None)

    def _new_command(self) -> SimpleCommand:
        command = SimpleCommand(in_assignment=self._assigning > 0, in_substitution=self._nested > 0)
        self.found.commands.append(command)
        return command

    def _add(self, command: SimpleCommand, word: Word, *, nested: bool = False) -> SimpleCommand:
        """Add a word to its command; give the command that the next word belongs to."""
        first = not command.words
        plain = word.is_literal and not word.quoted
        if first and plain:
            if word.text in (*_RESERVED, "-p", "--"):
                # The options are those of `time`.
                return command
            if word.text == "case" and nested:
                raise _Unclear("after a `case` inside of a substitution")
            if word.text == "[[":
                self._read_double_brackets()
            if word.text == "function":
                raise _Unclear("in or after `function`; use `name() { … }`")
            if word.text == "coproc":
                raise _Unclear("in or after `coproc`")
        if plain and word.text == "in" and [one.text for one in command.words[:1]] == ["for"]:
            names = [one.text for one in command.words[1:]]
            command = self._new_command()
            command.is_for_list, command.loop_variable = True, names[0] if names else ""
            return command
        command.words.append(word)
        return command

    def _read_parenthesis(self, command: SimpleCommand) -> bool:
        """Read an opening parenthesis; True where a subshell begins that has to be closed."""
        self.here += 1
        if (not command.words or command.words[0].text == "for") and self._take("("):
            self._read_arithmetic()
            return False
        if len(command.words) == 1 and command.words[0].is_literal and self._peek() == ")":
            self.found.functions.add(command.words[0].text)
            self.here += 1
            return False
        if command.words and command.words[-1].assigned is not None:
            raise _Unclear("in or after an array")
        return True

    def _read_comment(self) -> None:
        end = self._script.find("\n", self.here)
        end = len(self._script) if end < 0 else end
        for start in self._holes:
            if self.here <= start < end:
                self.found.refused[start] = "in a comment"
        self.here = end

    def _read_redirection(self, command: SimpleCommand) -> None:
        if self._take("<<<"):
            command.redirected.append(self._read_argument())
            command.redirected[-1].is_here_string = True
        elif self._take("<<"):
            strips = self._take("-")
            delimiter = self._read_argument()
            if not delimiter.is_literal or not delimiter.text or "\n" in delimiter.text:
                raise _Unclear("in a script with a here-document whose end is not plain")
            self._here_documents.append((delimiter.text, delimiter.quoted, strips))
        elif self._take("<(") or self._take(">("):
            # A file with what the commands print.
            command.words.append(Word(text=PROCESS, expands=True, variables={""}))
            self._read_nested()
        else:
            for operator in ("<&", "<>", ">>", ">&", ">|", "<", ">"):
                if self._take(operator):
                    break
            command.redirected.append(self._read_argument())

    def _read_here_documents(self) -> None:
        """Read the bodies of the here-documents that the line has begun, if it ends here."""
        if self._script[self.here - 1] != "\n":
            return
        for delimiter, is_quoted, strips in self._here_documents:
            while True:
                end = self._script.find("\n", self.here)
                end = len(self._script) if end < 0 else end
                line = self._script[self.here : end]
                if (line.lstrip("\t") if strips else line) == delimiter:
                    break
                if end == len(self._script):
                    raise _Unclear("in a script with a here-document that is never closed")
                self._read_body_line(line, is_quoted=is_quoted)
                self.here = end + 1
            self.here = min(end + 1, len(self._script))
        self._here_documents = []

    def _read_body_line(self, line: str, *, is_quoted: bool) -> None:
        if not is_quoted and re.search(r"[`\\]|\$[({\[]", line):
            raise _Unclear("in a script with substitutions or escapes in a here-document")
        for start in self._holes:
            if self.here <= start < self.here + len(line):
                if is_quoted:
                    self.found.refused[start] = "in a here-document with a quoted delimiter"
                elif self._script[start - 1] == "$":
                    self.found.refused[start] = "after a `$`"
                else:
                    self.found.quotes[start] = '"'

    def _read_argument(self) -> Word:
        self._skip_blanks()
        return self._read_word()

    def _read_nested(self, *, is_assigned: bool = False) -> None:
        self._nested += 1
        self._assigning += is_assigned
        if self._nested > 50:  # noqa: PLR2004 - no script that people write is nested so deeply
            raise _Unclear("in too many substitutions")
        self.read_list(closing=")")
        self._assigning -= is_assigned
        self._nested -= 1

    # Words.

    def _read_word(self) -> Word:
        word = Word()
        while True:
            if self._hole(word, ""):
                continue
            char = self._peek()
            if not char or char in _META:
                if word.subscript and (word.expands or re.search(r"\[[^]]*[A-Za-z_]", word.text)):
                    self.found.arithmetic = True
                return word
            self.here += 1
            if char == "\\":
                word.quoted = True
                self._read_escaped(word)
            elif char == "'":
                word.quoted = True
                self._read_single(word)
            elif char == '"':
                word.quoted = True
                self._read_double(word)
            elif char == "$":
                self._read_dollar(word)
                word.splits = word.expands
            elif char == "`":
                self._read_backticks(word)
                word.splits = True
            else:
                if char == "[" and _NAME.fullmatch(word.text):
                    word.subscript = True
                if char == "=" and word.is_literal and not word.quoted and word.assigned is None:
                    name = word.text.removesuffix("+")
                    word.assigned = name if _NAME.fullmatch(name) else None
                word.text += char

    def _read_single(self, word: Word) -> None:
        while self.here < len(self._script):
            end = self._holes.get(self.here)
            if end is not None:
                self.found.quotes[self.here] = "'"
                word.holes.append(self.here)
                self.here = end
            elif self._script[self.here] == "'":
                self.here += 1
                return
            else:
                word.text += self._script[self.here]
                self.here += 1
        raise _Unclear("in quotes that are never closed")

    def _read_double(self, word: Word) -> None:
        while char := self._peek():
            if self._hole(word, '"'):
                continue
            self.here += 1
            if char == '"':
                return
            if char == "\\":
                self._read_escaped(word)
            elif char == "$":
                self._read_dollar(word)
            elif char == "`":
                self._read_backticks(word)
            else:
                word.text += char
        raise _Unclear("in quotes that are never closed")

    def _read_escaped(self, word: Word) -> None:
        # As it stands: a second backslash before a line end is no continuation.
        word.text += self._script[self.here : self.here + 1]
        self.here += 1

    # Expansions.

    def _read_dollar(self, word: Word) -> None:
        """Read what follows a `$`."""
        if self._refuse_hole("after a `$`"):
            return
        if self._take("(("):
            self._read_arithmetic()
        elif self._take("("):
            self._read_nested(is_assigned=word.assigned is not None)
            word.variables.add("")
        elif self._take("{"):
            self._read_braces(word)
        elif self._peek() == "[":
            raise _Unclear("in or after `$[…]`; use `$((…))`")
        elif self._peek() in ("'", '"') and self._peek():
            raise _Unclear(f"in or after `${self._peek()}…{self._peek()}`")
        elif not re.match(r"[A-Za-z0-9_@*#?$!-]", self._peek()):
            word.text += "$"
            return
        else:
            self._note_variable(word, self._script[self.here :].replace("\\\n", ""))
        word.expands = True

    def _note_variable(self, word: Word, text: str) -> None:
        name = re.match(r"[#!]?(\w+|[@*])", text)
        found = name[1] if name else text[:1]
        # `$1x` is the first argument and an `x`.
        word.variables.add(found[:1] if found[:1].isdigit() else found)
        word.splits = word.splits or found in ("@", "*")

    def _read_arithmetic(self) -> None:
        """Read an arithmetic expression up to its `))`."""
        depth = 0
        text = ""
        while char := self._peek():
            if self._hole(None, "arithmetic"):
                text += " "
                continue
            if depth == 0 and self._take("))"):
                self.found.arithmetic = self.found.arithmetic or bool(re.search(r"[A-Za-z_$]", text))
                return
            self.here += 1
            if char in "'\"`\\" or (char == ")" and depth == 0):
                raise _Unclear("in or after quotes or a subshell inside of arithmetic")
            if char == "$" and self._take("("):
                self._read_nested(is_assigned=True)
            depth += (char == "(") - (char == ")")
            text += char
        raise _Unclear("in arithmetic that is never closed")

    def _read_braces(self, word: Word) -> None:
        """Read `${…}`. Subscripts and offsets in it are arithmetic."""
        text = ""
        while char := self._peek():
            if self._refuse_hole("inside of `${…}`"):
                continue
            self.here += 1
            if char == "}":
                offset = re.match(r"[A-Za-z0-9_@*]+:[^-=?+]", text)
                self.found.arithmetic = self.found.arithmetic or "[" in text or offset is not None or text[:1] == "!"
                if re.search(r".@[^QULu]$", text):
                    raise _Unclear("in a script with `${…@…}`, which evaluates a variable")
                self._note_variable(word, text)
                return
            if char in "'\"`\\$":
                raise _Unclear("in or after quotes or expansions inside of `${…}`")
            text += char
        raise _Unclear("in `${…}` that is never closed")

    def _read_backticks(self, word: Word) -> None:
        word.expands = True
        word.variables.add("")
        while char := self._peek():
            if self._refuse_hole("between backticks (use `$(…)`)"):
                continue
            self.here += 2 if char == "\\" else 1
            if char == "`":
                return
        raise _Unclear("in backticks that are never closed")

    def _read_double_brackets(self) -> None:
        """Read `[[ … ]]`, in which `bash` evaluates what it compares as numbers."""
        end = self._script.find("]]", self.here)
        if end < 0:
            raise _Unclear("in `[[` that is never closed")
        text = self._script[self.here : end]
        self.found.arithmetic = self.found.arithmetic or bool(re.search(r"\s-(eq|ne|lt|le|gt|ge|v|R)\s", text))
        for start in self._holes:
            if self.here <= start < end:
                self.found.refused[start] = "in `[[ … ]]` (use `[ … ]`)"
        if re.search(r"[\"'`$\\#]", text) and self._later(end):
            # Quotes could hide the end.
            self._check_brackets(text)
        self.here = end + 2

    def _later(self, end: int) -> bool:
        return any(start > end for start in self._holes)

    def _check_brackets(self, text: str) -> None:
        if re.search(r"[`\\#]|\$[({'\"]", text) or text.count('"') % 2 or text.count("'") % 2:
            raise _Unclear("after a `[[ … ]]` with substitutions or escapes in it")


def holes_in(commands: Iterable[SimpleCommand]) -> Iterator[tuple[SimpleCommand, int, Word]]:
    """Each placeholder of each command: the command, the index of its word (-1 for a redirection), the word."""
    for command in commands:
        for index, word in enumerate(command.words):
            for _ in word.holes:
                yield command, index, word
        for word in command.redirected:
            for _ in word.holes:
                yield command, -1, word
