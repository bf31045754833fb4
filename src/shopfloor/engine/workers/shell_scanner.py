"""Scanner of shell scripts: finds the context of each placeholder, reading from left to right.

The scanner knows POSIX `sh` and the common parts of `bash`. At a construct that it does not know, it stops, and every
placeholder of the script is rejected. A mistake of the scanner cannot make a value execute, because a value is always a
variable and never text of the script (`shell.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec

Quotes = Literal["", "'", '"', "arithmetic"]
"""The context of a placeholder: none, quotes, or an arithmetic expression."""

PROCESS = "<("
"""The literal text of a word that is a process substitution."""
_META = " \t\n;&|()<>"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED = frozenset(["if", "then", "elif", "else", "fi", "while", "until", "do", "done", "!", "{", "}", "time"])
"""Words after which a command begins."""


class Word(msgspec.Struct):
    """One word of a command, without its quotes."""

    text: str = ""
    """The literal characters, without placeholders and expansions."""
    placeholders: list[int] = []
    """The offsets of the placeholders in the word."""
    expands: bool = False
    """Whether the word contains an expansion: a variable or a substitution."""
    variables: set[str] = set()
    """The expanded variables; "" for a substitution."""
    splits: bool = False
    """Whether an expansion may become several words."""
    subscript: bool = False
    """Whether the word begins with `NAME[`, so that `bash` may evaluate the rest."""
    quoted: bool = False
    is_here_string: bool = False
    assigned: str | None = None
    """The assigned variable, if the word begins with `NAME=`."""

    @property
    def is_literal(self) -> bool:
        return not self.placeholders and not self.expands


class SimpleCommand(msgspec.Struct):
    """The words of one command; targets of redirections are separate."""

    words: list[Word] = []
    redirected: list[Word] = []
    is_for_list: bool = False
    """Whether these are the words after `for NAME in`."""
    loop_variable: str = ""
    """The NAME in `for NAME in`."""
    in_assignment: bool = False
    """Whether the command is in a substitution whose output goes to a variable or an arithmetic expression."""
    in_substitution: bool = False


class Scan(msgspec.Struct):
    """The result of scanning a script."""

    commands: list[SimpleCommand] = []
    quotes: dict[int, Quotes] = {}
    """The context of each placeholder, if known."""
    rejected: dict[int, str] = {}
    """Placeholders where no value is allowed, with the reason."""
    arithmetic: bool = False
    """Whether the script evaluates arithmetic that contains variables."""
    functions: set[str] = set()
    is_incomplete: bool = False
    """Whether the scanner stopped before the end."""


class _ScanStopped(Exception):
    """Raised where the scanner cannot continue."""


def scan(script: str, placeholders: Mapping[int, int]) -> Scan:
    """Scan a script whose placeholders begin and end at these offsets."""
    scanner = _Scanner(script, placeholders)
    try:
        scanner.read_list(closing=None)
    except _ScanStopped as stopped:
        # Reject all placeholders, because the rest of the script could use any value through a variable.
        scanner.found.is_incomplete = True
        scanner.found.rejected = {start: scanner.found.rejected.get(start, str(stopped)) for start in placeholders}
    return scanner.found


class _Scanner:
    def __init__(self, script: str, placeholders: Mapping[int, int]) -> None:
        self._script = script
        self._placeholders = placeholders
        self.offset = 0
        self.found = Scan()
        self._assignment_depth = 0
        self._here_documents: list[tuple[str, bool, bool]] = []
        """Here-documents whose bodies begin on the next line: delimiter, whether it is quoted, whether tabs are
        stripped."""
        self._nesting_depth = 0

    # Characters. A backslash before a line end is not a character, except in single quotes and comments.

    def _skip_continuations(self) -> None:
        while self._script.startswith("\\\n", self.offset):
            self.offset += 2

    def _skip_blanks(self) -> None:
        while self._peek() in (" ", "\t"):
            self.offset += 1

    def _peek(self) -> str:
        self._skip_continuations()
        return self._script[self.offset : self.offset + 1]

    def _consume(self, expected: str) -> bool:
        """Consume these characters if they come next."""
        before = self.offset
        for char in expected:
            if self._peek() != char or self.offset in self._placeholders:
                self.offset = before
                return False
            self.offset += 1
        return True

    def _take_placeholder(self, word: Word | None, quotes: Quotes) -> bool:
        """Consume a placeholder if one comes next."""
        self._skip_continuations()
        end = self._placeholders.get(self.offset)
        if end is None:
            return False
        self.found.quotes[self.offset] = quotes
        if word is not None:
            word.placeholders.append(self.offset)
        self.offset = end
        return True

    def _reject_placeholder(self, reason: str) -> bool:
        self._skip_continuations()
        end = self._placeholders.get(self.offset)
        if end is None:
            return False
        self.found.rejected[self.offset] = reason
        self.offset = end
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
                    raise _ScanStopped("in a substitution that is never closed")
                return
            if self.offset in self._placeholders:
                self._add_word(command, self._read_word())
            elif char == "#":
                self._read_comment()
            elif char == ")":
                self.offset += 1
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
                self.offset += 1
                self._read_here_documents()
                command = self._new_command()
            else:
                command = self._add_word(command, self._read_word(), nested=closing is not None)

    def _new_command(self) -> SimpleCommand:
        command = SimpleCommand(in_assignment=self._assignment_depth > 0, in_substitution=self._nesting_depth > 0)
        self.found.commands.append(command)
        return command

    def _add_word(self, command: SimpleCommand, word: Word, *, nested: bool = False) -> SimpleCommand:
        """Add a word to its command. Return the command that the next word belongs to."""
        first = not command.words
        plain = word.is_literal and not word.quoted
        if first and plain:
            if word.text in (*_RESERVED, "-p", "--"):
                # `-p` and `--` are options of `time`.
                return command
            if word.text == "case" and nested:
                raise _ScanStopped("after a `case` inside of a substitution")
            if word.text == "[[":
                self._read_double_brackets()
            if word.text == "function":
                raise _ScanStopped("in or after `function`; use `name() { … }`")
            if word.text == "coproc":
                raise _ScanStopped("in or after `coproc`")
        if plain and word.text == "in" and [earlier.text for earlier in command.words[:1]] == ["for"]:
            names = [earlier.text for earlier in command.words[1:]]
            command = self._new_command()
            command.is_for_list, command.loop_variable = True, names[0] if names else ""
            return command
        command.words.append(word)
        return command

    def _read_parenthesis(self, command: SimpleCommand) -> bool:
        """Read an opening parenthesis. Return True if a subshell begins that has to be closed."""
        self.offset += 1
        if (not command.words or command.words[0].text == "for") and self._consume("("):
            self._read_arithmetic()
            return False
        if len(command.words) == 1 and command.words[0].is_literal and self._peek() == ")":
            self.found.functions.add(command.words[0].text)
            self.offset += 1
            return False
        if command.words and command.words[-1].assigned is not None:
            raise _ScanStopped("in or after an array")
        return True

    def _read_comment(self) -> None:
        end = self._script.find("\n", self.offset)
        end = len(self._script) if end < 0 else end
        for start in self._placeholders:
            if self.offset <= start < end:
                self.found.rejected[start] = "in a comment"
        self.offset = end

    def _read_redirection(self, command: SimpleCommand) -> None:
        if self._consume("<<<"):
            command.redirected.append(self._read_argument())
            command.redirected[-1].is_here_string = True
        elif self._consume("<<"):
            strips = self._consume("-")
            delimiter = self._read_argument()
            if not delimiter.is_literal or not delimiter.text or "\n" in delimiter.text:
                raise _ScanStopped("in a script with a here-document whose delimiter is not a literal word")
            self._here_documents.append((delimiter.text, delimiter.quoted, strips))
        elif self._consume("<(") or self._consume(">("):
            # The word is a file with the output of the commands.
            command.words.append(Word(text=PROCESS, expands=True, variables={""}))
            self._read_nested()
        else:
            for operator in ("<&", "<>", ">>", ">&", ">|", "<", ">"):
                if self._consume(operator):
                    break
            command.redirected.append(self._read_argument())

    def _read_here_documents(self) -> None:
        """If a line ends here, read the bodies of its here-documents."""
        if self._script[self.offset - 1] != "\n":
            return
        for delimiter, is_quoted, strips in self._here_documents:
            while True:
                end = self._script.find("\n", self.offset)
                end = len(self._script) if end < 0 else end
                line = self._script[self.offset : end]
                if (line.lstrip("\t") if strips else line) == delimiter:
                    break
                if end == len(self._script):
                    raise _ScanStopped("in a script with a here-document that is never closed")
                self._read_body_line(line, is_quoted=is_quoted)
                self.offset = end + 1
            self.offset = min(end + 1, len(self._script))
        self._here_documents = []

    def _read_body_line(self, line: str, *, is_quoted: bool) -> None:
        if not is_quoted and re.search(r"[`\\]|\$[({\[]", line):
            raise _ScanStopped("in a script with substitutions or escapes in a here-document")
        for start in self._placeholders:
            if self.offset <= start < self.offset + len(line):
                if is_quoted:
                    self.found.rejected[start] = "in a here-document with a quoted delimiter"
                elif self._script[start - 1] == "$":
                    self.found.rejected[start] = "after a `$`"
                else:
                    self.found.quotes[start] = '"'

    def _read_argument(self) -> Word:
        self._skip_blanks()
        return self._read_word()

    def _read_nested(self, *, is_assigned: bool = False) -> None:
        self._nesting_depth += 1
        self._assignment_depth += is_assigned
        if self._nesting_depth > 50:  # noqa: PLR2004 - no realistic script is nested so deeply
            raise _ScanStopped("in too many substitutions")
        self.read_list(closing=")")
        self._assignment_depth -= is_assigned
        self._nesting_depth -= 1

    # Words.

    def _read_word(self) -> Word:
        word = Word()
        while True:
            if self._take_placeholder(word, ""):
                continue
            char = self._peek()
            if not char or char in _META:
                if word.subscript and (word.expands or re.search(r"\[[^]]*[A-Za-z_]", word.text)):
                    self.found.arithmetic = True
                return word
            self.offset += 1
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
        while self.offset < len(self._script):
            end = self._placeholders.get(self.offset)
            if end is not None:
                self.found.quotes[self.offset] = "'"
                word.placeholders.append(self.offset)
                self.offset = end
            elif self._script[self.offset] == "'":
                self.offset += 1
                return
            else:
                word.text += self._script[self.offset]
                self.offset += 1
        raise _ScanStopped("in quotes that are never closed")

    def _read_double(self, word: Word) -> None:
        while char := self._peek():
            if self._take_placeholder(word, '"'):
                continue
            self.offset += 1
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
        raise _ScanStopped("in quotes that are never closed")

    def _read_escaped(self, word: Word) -> None:
        # Take the character as it is: a second backslash before a line end is not a continuation.
        word.text += self._script[self.offset : self.offset + 1]
        self.offset += 1

    # Expansions.

    def _read_dollar(self, word: Word) -> None:
        """Read what follows a `$`."""
        if self._reject_placeholder("after a `$`"):
            return
        if self._consume("(("):
            self._read_arithmetic()
        elif self._consume("("):
            self._read_nested(is_assigned=word.assigned is not None)
            word.variables.add("")
        elif self._consume("{"):
            self._read_braces(word)
        elif self._peek() == "[":
            raise _ScanStopped("in or after `$[…]`; use `$((…))`")
        elif self._peek() in ("'", '"') and self._peek():
            raise _ScanStopped(f"in or after `${self._peek()}…{self._peek()}`")
        elif not re.match(r"[A-Za-z0-9_@*#?$!-]", self._peek()):
            word.text += "$"
            return
        else:
            self._add_variable(word, self._script[self.offset :].replace("\\\n", ""))
        word.expands = True

    def _add_variable(self, word: Word, text: str) -> None:
        name = re.match(r"[#!]?(\w+|[@*])", text)
        found = name[1] if name else text[:1]
        # `$1x` is the first argument followed by an `x`.
        word.variables.add(found[:1] if found[:1].isdigit() else found)
        word.splits = word.splits or found in ("@", "*")

    def _read_arithmetic(self) -> None:
        """Read an arithmetic expression up to `))`."""
        depth = 0
        text = ""
        while char := self._peek():
            if self._take_placeholder(None, "arithmetic"):
                text += " "
                continue
            if depth == 0 and self._consume("))"):
                self.found.arithmetic = self.found.arithmetic or bool(re.search(r"[A-Za-z_$]", text))
                return
            self.offset += 1
            if char in "'\"`\\" or (char == ")" and depth == 0):
                raise _ScanStopped("in or after quotes or a subshell inside of arithmetic")
            if char == "$" and self._consume("("):
                self._read_nested(is_assigned=True)
            depth += (char == "(") - (char == ")")
            text += char
        raise _ScanStopped("in arithmetic that is never closed")

    def _read_braces(self, word: Word) -> None:
        """Read `${…}`. Subscripts and offsets in it are arithmetic."""
        text = ""
        while char := self._peek():
            if self._reject_placeholder("inside of `${…}`"):
                continue
            self.offset += 1
            if char == "}":
                offset = re.match(r"[A-Za-z0-9_@*]+:[^-=?+]", text)
                self.found.arithmetic = self.found.arithmetic or "[" in text or offset is not None or text[:1] == "!"
                if re.search(r".@[^QULu]$", text):
                    raise _ScanStopped("in a script with `${…@…}`, which evaluates a variable")
                self._add_variable(word, text)
                return
            if char in "'\"`\\$":
                raise _ScanStopped("in or after quotes or expansions inside of `${…}`")
            text += char
        raise _ScanStopped("in `${…}` that is never closed")

    def _read_backticks(self, word: Word) -> None:
        word.expands = True
        word.variables.add("")
        while char := self._peek():
            if self._reject_placeholder("between backticks (use `$(…)`)"):
                continue
            self.offset += 2 if char == "\\" else 1
            if char == "`":
                return
        raise _ScanStopped("in backticks that are never closed")

    def _read_double_brackets(self) -> None:
        """Read `[[ … ]]`, in which `bash` evaluates operands of numeric comparisons."""
        end = self._script.find("]]", self.offset)
        if end < 0:
            raise _ScanStopped("in `[[` that is never closed")
        text = self._script[self.offset : end]
        self.found.arithmetic = self.found.arithmetic or bool(re.search(r"\s-(eq|ne|lt|le|gt|ge|v|R)\s", text))
        for start in self._placeholders:
            if self.offset <= start < end:
                self.found.rejected[start] = "in `[[ … ]]` (use `[ … ]`)"
        if re.search(r"[\"'`$\\#]", text) and self._has_placeholder_after(end):
            # Quotes could hide the end.
            self._check_brackets(text)
        self.offset = end + 2

    def _has_placeholder_after(self, end: int) -> bool:
        return any(start > end for start in self._placeholders)

    def _check_brackets(self, text: str) -> None:
        if re.search(r"[`\\#]|\$[({'\"]", text) or text.count('"') % 2 or text.count("'") % 2:
            raise _ScanStopped("after a `[[ … ]]` with substitutions or escapes in it")


def words_with_placeholders(commands: Iterable[SimpleCommand]) -> Iterator[tuple[SimpleCommand, int, Word]]:
    """Yield each placeholder: its command, the index of its word (-1 for a redirection), and the word."""
    for command in commands:
        for index, word in enumerate(command.words):
            for _ in word.placeholders:
                yield command, index, word
        for word in command.redirected:
            for _ in word.placeholders:
                yield command, -1, word
