"""Shell commands with values in them: the script that is executed, and the variables that it refers to.

A value never becomes text of the script. Each `{{NAME}}` turns into a reference to an environment variable, quoted for
the place where it stands, so that a value stays one word whatever is in it. Shells evaluate text a second time in a few
places: arithmetic takes only numbers, and places whose value would be program text again are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain, count

import msgspec

from shopfloor.engine.workers.shell_scanner import Quotes, Scan, SimpleCommand, Word, holes_in, scan


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHELLS = _words("sh bash dash zsh ksh mksh ash fish busybox rbash csh tcsh")
INTERPRETERS = {
    **dict.fromkeys(("python", "python3", "pypy", "pypy3"), "c"),
    **dict.fromkeys(("perl", "ruby", "lua"), "e"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), "ep"),
    "php": "r",
}
"""Programs that execute the text after one of these options."""
FILTERS = _words("sed awk gawk mawk nawk ed ex vi vim")
"""Programs whose first argument is a program."""
EVALUATING = _words("let declare typeset unset read mapfile readarray getopts trap alias source . bind complete")
"""Builtins that evaluate their arguments once more."""
WRAPPERS = _words(
    "sudo doas env nohup nice ionice timeout xargs exec command builtin setsid stdbuf chroot "
    "unshare nsenter find flock strace watch parallel script time su runuser systemd-run at batch"
)
"""Programs that start another program."""
REMOTE = _words("ssh su runuser parallel watch at batch rsh mosh tmux screen")
"""Programs that hand their arguments to a shell."""
SPECIAL_VARIABLES = re.compile(
    r"PATH|IFS|ENV|BASH\w*|PS[0-4]|PROMPT_COMMAND|SHELLOPTS|LD_\w+|DYLD_\w+|RANDOM|SECONDS|OPTIND|HISTCMD|SRANDOM|LINENO"
)
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
"""What a value in arithmetic may be."""
ON_STDIN = "pass the value on standard input, or by `env:`"
AS_ARGUMENT = "pass the value as an argument: `sh -c '… \"$1\"' sh {{NAME}}`"


class Refused(msgspec.Struct, frozen=True):
    """No value can go here."""

    why: str
    hint: str


class Slot(msgspec.Struct, frozen=True):
    """Where a value goes."""

    quotes: Quotes
    is_number: bool = False
    """Whether only a number is accepted."""


def slots_in(script: str, holes: Mapping[int, int]) -> dict[int, Slot | Refused]:
    """Decide for each placeholder, given by its start and end, how a value can go there."""
    found = scan(script, holes)
    slots: dict[int, Slot | Refused] = {
        start: Refused(f"stands {why}", "move it out of there, or write the command as a list")
        for start, why in found.refused.items()
    }
    everywhere = next(filter(None, map(_refusal_of_all, found.commands)), None)
    found.arithmetic = found.arithmetic or any(_makes_integer(command) for command in found.commands)
    tainted = found.arithmetic and any(_reads(command) for command in found.commands)
    runs_variable = any(_runs_variable(command) for command in found.commands)
    for command, index, word in holes_in(found.commands):
        refused = everywhere or _refusal(command, index, word)
        if runs_variable and _assigns(command, word, found):
            refused = refused or Refused(
                "gets into a variable, and the script executes a variable as a command", "write the name of the program"
            )
        number = tainted or (found.arithmetic and _assigns(command, word, found)) or _is_wrapped(command, index)
        for start in word.holes:
            slots.setdefault(start, refused or Slot(found.quotes[start], is_number=number))
    for start, quotes in found.quotes.items():
        slots.setdefault(start, everywhere or Slot(quotes, is_number=quotes == "arithmetic"))
    for start in holes:
        slots.setdefault(start, Refused("stands where the command was not understood", ON_STDIN))
    return slots


def refused_arguments(argv: Sequence[tuple[str, bool]]) -> dict[int, Refused]:
    """Find the parts of a command without a shell whose value would be program text of another program.

    Each part is given by its literal text and by whether it has a value.
    """
    words = [Word(text=text, holes=[0] if has_value else []) for text, has_value in argv]
    names = [_base_name(word.text) if word.is_literal else None for word in words]
    found = {at: _in_nested_program(words, names, at) for at, word in enumerate(words) if word.holes and at}
    return {at: refused for at, refused in found.items() if refused is not None and names[0] is not None}


def reference(variable: str, quotes: Quotes) -> str:
    """Refer to a variable from such a place."""
    match quotes:
        case "":
            return f'"${{{variable}}}"'
        case "'":
            return f"'\"${{{variable}}}\"'"
        case '"':
            return f"${{{variable}}}"
        case "arithmetic":
            return f"(${{{variable}}})"


# Rules. `names` are the literal words of a command by their base name; None for the others.


def _names(command: SimpleCommand) -> list[str | None]:
    return [_base_name(word.text) if word.is_literal else None for word in _arguments(command)]


def _base_name(text: str) -> str:
    return text.rsplit("/", 1)[-1] or text


def _arguments(command: SimpleCommand) -> list[Word]:
    """The words from the command's name on, without the assignments before it."""
    words = command.words
    first = next((n for n, word in enumerate(words) if word.assigned is None), len(words))
    return words[first:]


def _refusal_of_all(command: SimpleCommand) -> Refused | None:
    """Why no value may stand anywhere in a script with this command: a value could reach it through a variable."""
    if command.is_for_list:
        return None
    words, names = _arguments(command), _names(command)
    if "eval" in _programs(names):
        return Refused("stands in a script with `eval`, which executes text", "write the script without `eval`")
    if _evaluates_expansion(words, names):
        return Refused(f"stands in a script where `{names[0]}` evaluates a variable", "write the script without it")
    for at, name in enumerate(names):
        if name not in SHELLS or not (at == 0 or _is_wrapper(names[0]) or _has_option(names[at + 1 :], "c")):
            continue
        program = _program_text(words[at + 1 :], "c")
        if program is None and not _has_script(words[at + 1 :]):
            return Refused(f"stands in a script where `{name}` executes its standard input", AS_ARGUMENT)
        if program is not None and program.expands and not program.holes:
            return Refused(f"stands in a script where `{name} -c` executes text with variables in it", AS_ARGUMENT)
    return None


def _evaluates_expansion(words: list[Word], names: list[str | None]) -> bool:
    """Whether a builtin evaluates what the shell puts into its arguments."""
    name = names[0] if names else None
    if name in ("export", "readonly", "local"):
        return any(word.expands and word.assigned is None for word in words[1:])
    evaluates = name in EVALUATING or (name in ("printf", "test", "[") and "-v" in names)
    return evaluates and any(word.expands for word in words[1:])


def _refusal(command: SimpleCommand, index: int, word: Word) -> Refused | None:
    if index < 0 or command.is_for_list:
        return None
    if word.assigned is not None and SPECIAL_VARIABLES.fullmatch(word.assigned):
        return Refused(f"stands in a value of `{word.assigned}`, by which the shell works", ON_STDIN)
    if word.subscript:
        return Refused("stands in a subscript, which `bash` evaluates", ON_STDIN)
    words, names = _arguments(command), _names(command)
    at = index - (len(command.words) - len(words))
    if at < 0:
        return None
    if at == 0 or (names[0] and _is_wrapped(command, index) and not any(map(_may_be_program, names[at + 1 :]))):
        return Refused(
            "stands where the name of a program is expected", "use the form without a shell: `command: [program, …]`"
        )
    for rule in (_in_builtin, _in_test, _beside_value, _in_nested_program):
        if refused := rule(words, names, at):
            return refused
    return None


def _in_builtin(words: list[Word], names: list[str | None], at: int) -> Refused | None:
    name = names[0]
    if name in EVALUATING:
        return Refused(f"stands in the arguments of `{name}`, which evaluates them", ON_STDIN)
    if name in ("export", "readonly", "local") and words[at].assigned is None:
        return Refused(f"stands in the arguments of `{name}`, which evaluates them", f"write `{name} NAME={{{{…}}}}`")
    if name == "printf" and (at == 1 or "-v" in names[1:at]):
        return Refused("stands in the format of `printf`", "write `printf %s {{…}}`")
    return None


def _in_test(words: list[Word], names: list[str | None], at: int) -> Refused | None:
    if names[0] not in ("test", "["):
        return None
    if "-v" in names or "-R" in names:
        return Refused("stands in a `test` that evaluates names of variables", ON_STDIN)
    return None


def _beside_value(words: list[Word], names: list[str | None], at: int) -> Refused | None:
    """Two values side by side could be an operator and what it works on."""
    if names[0] == "find" and names[at - 1] in ("-exec", "-execdir", "-ok", "-okdir"):
        return Refused("stands where the name of a program is expected", "write the name of the program")
    if names[0] in ("test", "[", "find") and any(words[n].holes for n in (at - 1, at + 1) if n < len(words)):
        return Refused(f"stands beside another value in `{names[0]}`", "put a literal word between the two")
    return None


def _in_nested_program(words: list[Word], names: list[str | None], at: int) -> Refused | None:
    programs = _programs(names[:at])
    for name in programs:
        if name in REMOTE:
            return Refused(f"stands in the arguments of `{name}`, which a shell executes", ON_STDIN)
    for place, name in enumerate(names[:at]):
        rest, position = words[place + 1 :], at - place - 1
        if name in SHELLS:
            if _is_after_program(rest, position, "c"):
                return None
            return Refused(f"stands in the program text of `{name}`", AS_ARGUMENT)
        if name in FILTERS and name in programs and not _is_after_program(rest, position, ""):
            return Refused(f"stands in the program text of `{name}`", ON_STDIN)
        options = INTERPRETERS.get((name or "").rstrip("0123456789.")) or INTERPRETERS.get(name or "")
        if options and name in programs and not _is_after_program(rest, position, options):
            return Refused(f"stands in the program text of `{name}`", "pass the value as an argument after the program")
    if names[0] is None and any(re.fullmatch(r"-\w*[cer]", name or "") for name in names[1:at]):
        return Refused("may stand in the program text of another program", AS_ARGUMENT)
    return None


def _programs(names: list[str | None]) -> list[str]:
    """The names that may be of a program that is started: the first, and behind a wrapper all others."""
    known = [name for name in names if name is not None]
    return known if names and (names[0] is None or _is_wrapper(names[0])) else known[:1]


def _is_wrapper(name: str | None) -> bool:
    return name is None or name in WRAPPERS


def _is_wrapped(command: SimpleCommand, index: int) -> bool:
    """Whether a value stands before the program that a wrapper starts: there only numbers can go, as in `timeout`."""
    names = _names(command)
    at = index - (len(command.words) - len(names))
    if index < 0 or at < 1 or not _is_wrapper(names[0]) or names[0] == "find" or command.is_for_list:
        return False
    if command.words[index].assigned is not None:
        return False
    return not any(_may_be_program(name) for name in names[1:at])


def _may_be_program(name: str | None) -> bool:
    return bool(name) and not name.startswith("-") and "=" not in name and not NUMBER.fullmatch(name)


def _has_option(names: list[str | None], letters: str) -> bool:
    options = [name for name in names[:2] if name and name.startswith("-")]
    return any(letter in option for option in options for letter in letters)


def _is_option(word: Word) -> bool:
    return word.is_literal and word.text[:1] in ("-", "+") and len(word.text) > 1


def _program_text(words: list[Word], letters: str) -> Word | None:
    """The word after an option such as `-c`, behind further options."""
    found = False
    for word in words:
        if not _is_option(word):
            return word if found else None
        found = found or (not word.text.startswith("--") and any(letter in word.text for letter in letters))
    return None


def _has_script(words: list[Word]) -> bool:
    """Whether a shell is given a file to execute."""
    return any(not _is_option(word) for word in words) and not any(word.text in ("-s", "-") for word in words)


def _is_after_program(words: list[Word], at: int, letters: str) -> bool:
    """Whether the word stands behind the program text, or the file with it: what follows are its arguments."""
    before = words[:at]
    if letters == "" and words[at].assigned is not None and before and before[-1].text == "-v":
        return True
    if letters == "" and any(_is_option(word) and word.text.startswith(("-e", "-f", "--expr")) for word in words):
        # Which of the words are programs is not plain.
        return False
    return any(not _is_option(word) and not word.holes for word in before)


# Flows through variables.


def _runs_variable(command: SimpleCommand) -> bool:
    """Whether the name of the program comes from a variable or a substitution."""
    words = _arguments(command)
    return not command.is_for_list and bool(words) and words[0].expands and not words[0].holes


def _makes_integer(command: SimpleCommand) -> bool:
    """Whether it declares a variable whose values are evaluated as arithmetic."""
    names = _names(command)
    declares = bool(names) and names[0] in ("declare", "typeset", "local", "readonly", "export")
    return declares and any(name is None or re.fullmatch(r"[-+]\w*i\w*", name) for name in names[1:])


def _reads(command: SimpleCommand) -> bool:
    names = _names(command)
    return bool(names) and names[0] in ("read", "mapfile", "readarray", "getopts", "select")


def _assigns(command: SimpleCommand, word: Word, found: Scan) -> bool:
    """Whether a value may get into a variable by this word."""
    names = _names(command)
    name = names[0] if names else None
    return (
        word.assigned is not None
        or command.is_for_list
        or word.is_here_string
        or name == "set"
        or (command.in_assignment and word not in command.redirected)
        or name in found.functions
    )


def variable_for(path: str, taken: Mapping[str, str]) -> str:
    """Name the variable for a value; two values never share one."""
    base = "VALUE_" + re.sub(r"[^A-Za-z0-9_]", "_", path)
    return next(name for name in chain([base], (f"{base}_{n}" for n in count(2))) if name not in taken)
