"""Shell commands with values: decides where a value may go, and how the script refers to it.

A value never becomes text of the script. Each `{{NAME}}` becomes a reference to an environment variable, quoted for its
place, so that a value always stays one word. Shells evaluate text a second time in a few places: arithmetic accepts
only numbers, and places whose value would become program text are rejected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, pairwise

import msgspec

from shopfloor.engine.workers.shell_scanner import (
    PROCESS,
    Quotes,
    Scan,
    SimpleCommand,
    Word,
    scan,
    words_with_placeholders,
)


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHELLS = _word_set("sh bash dash zsh ksh mksh ash fish busybox rbash csh tcsh")
INTERPRETERS = {
    **dict.fromkeys(("python", "python3", "pypy", "pypy3"), "c"),
    **dict.fromkeys(("perl", "ruby", "lua"), "e"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), "ep"),
    **dict.fromkeys(("php", "psql"), "rc"),
    **dict.fromkeys(("julia", "Rscript", "racket", "groovy", "osascript", "scala", "elixir", "ghc", "mysql"), "e"),
    **dict.fromkeys(("expect", "guile", "pwsh", "powershell"), "c"),
}
"""Programs that execute the text after one of these options."""
PROGRAM_FIRST = _word_set("sed awk gawk mawk nawk ed ex vi vim")
"""Programs whose first argument is a program."""
STDIN_PROGRAMS = _word_set("ed ex vi vim dc m4 tclsh gdb")
"""Programs that execute what they read from standard input."""
EVALUATING = _word_set(
    "let declare typeset unset read mapfile readarray getopts trap alias source . bind complete compgen "
    "hash enable fc history"
)
"""Builtins that evaluate their arguments once more."""
WRAPPERS = _word_set(
    "sudo doas env nohup nice ionice timeout xargs exec command builtin setsid stdbuf chroot "
    "unshare nsenter find flock strace watch parallel script time su runuser systemd-run at batch"
)
"""Programs that start another program."""
OPTION_ARGUMENTS = {
    **dict.fromkeys(("sudo", "doas"), "ugpChRrtTUD"),
    **dict.fromkeys(("unshare", "nsenter"), "RwSGtr"),
    "env": "uCS",
    "xargs": "IaEdLnPs",
    "nice": "n",
    "ionice": "cnpPu",
    "timeout": "ks",
    "flock": "wE",
    "exec": "a",
    "strace": "oepuEPsS",
    "stdbuf": "ioe",
    "systemd-run": "pMHuEt",
}
"""The options of wrappers that take the next word as their argument."""
FIRST_ARGUMENTS = {"flock": 1, "chroot": 1}
"""How many words other wrappers have before the program."""
PASS_TO_SHELL = _word_set("ssh su runuser parallel watch at batch rsh mosh tmux screen")
"""Programs that pass their arguments to a shell."""
SPECIAL_VARIABLES = re.compile(
    r"PATH|IFS|ENV|BASH\w*|PS[0-4]|PROMPT_COMMAND|SHELLOPTS|LD_\w+|DYLD_\w+|RANDOM|SECONDS|OPTIND|HISTCMD|SRANDOM|LINENO"
    r"|GIT_(SSH|EDITOR|SEQUENCE|PAGER|ASKPASS|EXTERNAL|PROXY|EXEC|CONFIG)\w*|EDITOR|VISUAL|\w*PAGER|LESSOPEN|LESSCLOSE"
    r"|PERL5\w+|PERLLIB|PYTHON(PATH|STARTUP|HOME)|NODE_OPTIONS|RUBYOPT|MAKEFLAGS|TAR_OPTIONS|RSYNC_RSH"
)
"""Variables whose value determines what is executed."""
PROGRAM_OPTION = re.compile(r"--?[\w-]*(command|program|exec|askpass|rsh|pager|editor|eval|action=exec)=?")
"""Options that take the name of a program, or program text."""
PROGRAM_LETTERS = {"rsync": "-e", "nc": "-e", "ncat": "-e", "tar": "-I", "man": "-P", "git": "-c", "dc": "-e"}
"""Short options of the same kind."""
TAKES_WORD = re.compile(r"[-+]\w*[oO]|-[XWIrd]|--rcfile|--init-file|--require")
"""Options of shells and interpreters, before the program, that take the next word."""
POSITIONAL = _word_set("@ * 0 1 2 3 4 5 6 7 8 9")
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
"""The form of a value in arithmetic."""
ON_STDIN = "pass the value on standard input, or by `env:`"
AS_ARGUMENT = "pass the value as an argument: `sh -c '… \"$1\"' sh {{NAME}}`"


class Rejection(msgspec.Struct, frozen=True):
    """Why no value is allowed at a place."""

    reason: str
    hint: str


class PlaceholderSlot(msgspec.Struct, frozen=True):
    """A place for a value."""

    quotes: Quotes
    is_number: bool = False
    """Whether only numbers are allowed."""


def find_placeholder_slots(script: str, placeholders: Mapping[int, int]) -> dict[int, PlaceholderSlot | Rejection]:
    """Decide for each placeholder, given by its start and end, how a value can go there."""
    found = scan(script, placeholders)
    _add_nested_programs(found)
    slots: dict[int, PlaceholderSlot | Rejection] = {
        start: Rejection(f"is {reason}", "move it out of there, or write the command as a list")
        for start, reason in found.rejected.items()
    }
    script_rejection = next(filter(None, map(_rejection_of_script, found.commands)), None)
    if found.is_incomplete:
        script_rejection = script_rejection or Rejection("is next to a program that was not understood", ON_STDIN)
    found.arithmetic = found.arithmetic or any(_is_arithmetic(command) for command in found.commands)
    reads = any(_reads_variable(command) for command in found.commands)
    uses = list(_tainted_words(found))
    flow_rejection = next(filter(None, (_rejection_of_use(*use) for use in uses)), None)
    wraps = any(_is_wrapped(command, index) for command, index, _ in uses)
    for command, index, word in words_with_placeholders(found.commands):
        rejection, number = script_rejection or _rejection(command, index, word), _is_wrapped(command, index)
        flows = reads or _assigns(command, word, found)
        if flows or command.in_substitution:
            rejection, number = rejection or flow_rejection, number or wraps or (flows and found.arithmetic)
        for start in word.placeholders:
            slots.setdefault(start, rejection or PlaceholderSlot(found.quotes[start], is_number=number))
    for start, quotes in found.quotes.items():
        # The remaining placeholders are in arithmetic, or in the body of a here-document.
        rejection = script_rejection or (flow_rejection if reads and quotes != "arithmetic" else None)
        is_number = quotes == "arithmetic" or (reads and (found.arithmetic or wraps))
        slots.setdefault(start, rejection or PlaceholderSlot(quotes, is_number=is_number))
    for start in placeholders:
        slots.setdefault(start, Rejection("is where the command was not understood", ON_STDIN))
    return slots


def rejected_arguments(argv: Sequence[tuple[str, bool]]) -> dict[int, Rejection]:
    """Return the parts of a command without a shell whose value would become program text of another program.

    Each part is given by its literal text and by whether it contains a value.
    """
    words = [Word(text=text, placeholders=[0] if has_value else []) for text, has_value in argv]
    names = [_base_name(word.text) if word.is_literal else None for word in words]
    found = {at: _in_nested_program(words, names, at) for at, word in enumerate(words) if word.placeholders and at}
    return {at: rejection for at, rejection in found.items() if rejection is not None and names[0] is not None}


def variable_reference(variable: str, quotes: Quotes) -> str:
    """Return a reference to a variable for a place with these quotes."""
    match quotes:
        case "":
            return f'"${{{variable}}}"'
        case "'":
            return f"'\"${{{variable}}}\"'"
        case '"':
            return f"${{{variable}}}"
        case "arithmetic":
            return f"(${{{variable}}})"


# Rules. `names` are the base names of a command's literal words, with None for the other words.


def _names(command: SimpleCommand) -> list[str | None]:
    return [_base_name(word.text) if word.is_literal else None for word in _arguments(command)]


def _base_name(text: str) -> str:
    return text.rsplit("/", 1)[-1] or text


def _arguments(command: SimpleCommand) -> list[Word]:
    """Return the words from the command's name on, without the assignments before it."""
    words = command.words
    first = next((n for n, word in enumerate(words) if word.assigned is None), len(words))
    while first + 1 < len(words) and words[first].text in ("command", "builtin") and not _is_option(words[first + 1]):
        first += 1
    return words[first:]


def _rejection_of_script(command: SimpleCommand) -> Rejection | None:
    """Return why no value is allowed in a script with this command, which a value could reach through a variable."""
    if command.is_for_list:
        return None
    words, names = _arguments(command), _names(command)
    if "eval" in _programs(names):
        return Rejection("is in a script with `eval`, which executes text", "write the script without `eval`")
    is_special = _names_variables(names) and any(SPECIAL_VARIABLES.fullmatch(name or "") for name in names)
    if is_special or _makes_reference(names):
        return Rejection(f"is in a script where `{names[0]}` changes what a variable means", "write it without that")
    if _evaluates_expansion(words, names):
        return Rejection(f"is in a script where `{names[0]}` evaluates a variable", "write the script without it")
    return _rejection_of_stdin(words, names)


def _rejection_of_stdin(words: list[Word], names: list[str | None]) -> Rejection | None:
    """Return why no value may reach the standard input of a program, or the variables in program text."""
    for at, name in enumerate(names):
        letters = "c" if name in SHELLS else _program_options(name)
        reads_program = name in PROGRAM_FIRST and "-f" in names and not {"-", "stdin"}.isdisjoint(names)
        if reads_program or (name in STDIN_PROGRAMS and name in _programs(names)):
            return Rejection(f"is in a script where `{name}` executes its standard input", ON_STDIN)
        if not letters or not (at == 0 or _is_wrapper(names[0]) or _has_option(names[at + 1 :], letters)):
            continue
        program = _program_text(words[at + 1 :], letters)
        if program is None and not _has_script(words[at + 1 :]) and not _has_option(names[at + 1 :], "V", "--version"):
            return Rejection(f"is in a script where `{name}` executes its standard input", AS_ARGUMENT)
        if program is not None and names[0] in ("xargs", "find") and _inserts_items(names, program):
            return Rejection(f"is in a script where `{names[0]}` writes into the program of `{name}`", AS_ARGUMENT)
        if name not in SHELLS:
            continue
        if program is not None and program.expands and not program.placeholders:
            return Rejection(f"is in a script where `{name} -c` executes text with variables in it", AS_ARGUMENT)
    return None


def _evaluates_expansion(words: list[Word], names: list[str | None]) -> bool:
    """Return whether a builtin evaluates expansions in its arguments."""
    name = names[0] if names else None
    if name in ("export", "readonly", "local"):
        return any(word.expands and word.assigned is None for word in words[1:])
    evaluates = name in EVALUATING or (name in ("printf", "test", "[") and "-v" in names)
    return evaluates and any(word.expands for word in words[1:])


def _program_options(name: str | None) -> str | None:
    return INTERPRETERS.get((name or "").rstrip("0123456789.")) or INTERPRETERS.get(name or "")


def _inserts_items(names: list[str | None], program: Word) -> bool:
    """Return whether `xargs` or `find` inserts its items into program text."""
    return "{}" in program.text or any((name or "").startswith(("-I", "-i", "--replace")) for name in names)


def _rejection_of_use(command: SimpleCommand, index: int, word: Word) -> Rejection | None:
    """Return why no value may get into a variable that is used in this word."""
    rejection = _rejection(command, index, word)
    return rejection and Rejection(f"gets into a variable that {rejection.reason}", rejection.hint)


def _rejection(command: SimpleCommand, index: int, word: Word) -> Rejection | None:
    if command.is_for_list and SPECIAL_VARIABLES.fullmatch(command.loop_variable):
        return Rejection(f"is in a value of `{command.loop_variable}`, which controls the shell", ON_STDIN)
    if index < 0 or command.is_for_list:
        return None
    if word.assigned is not None and SPECIAL_VARIABLES.fullmatch(word.assigned):
        return Rejection(f"is in a value of `{word.assigned}`, which controls the shell", ON_STDIN)
    if word.subscript:
        return Rejection("is in a subscript, which `bash` evaluates", ON_STDIN)
    words, names = _arguments(command), _names(command)
    at = index - (len(command.words) - len(words))
    if at < 0:
        return None
    if at == 0 or (names[0] and _is_wrapped(command, index) and not any(map(_may_be_program, names[at + 1 :]))):
        return Rejection(
            "is where the name of a program is expected", "use the form without a shell: `command: [program, …]`"
        )
    for rule in (_in_builtin, _in_test, _beside_value, _in_option, _in_nested_program):
        if rejection := rule(words, names, at):
            return rejection
    return None


def _in_builtin(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    name = names[0]
    if name in EVALUATING:
        return Rejection(f"is in the arguments of `{name}`, which evaluates them", ON_STDIN)
    if name in ("export", "readonly", "local") and words[at].assigned is None:
        return Rejection(f"is in the arguments of `{name}`, which evaluates them", f"write `{name} NAME={{{{…}}}}`")
    if name == "printf" and (at == 1 or "-v" in names[1:at]):
        return Rejection("is in the format of `printf`", "write `printf %s {{…}}`")
    return None


def _in_test(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    if names[0] not in ("test", "["):
        return None
    if "-v" in names or "-R" in names:
        return Rejection("is in a `test` that evaluates names of variables", ON_STDIN)
    return None


def _beside_value(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    """Reject two adjacent values, which could be an operator and its operand."""
    if names[0] == "find" and names[at - 1] in ("-exec", "-execdir", "-ok", "-okdir"):
        return Rejection("is where the name of a program is expected", "write the name of the program")
    if names[0] not in ("test", "[", "find"):
        return None
    if words[at].splits:
        return Rejection(f"may be several words in `{names[0]}`", "put double quotes around it")
    if any(not words[n].is_literal for n in (at - 1, at + 1) if n < len(words)):
        return Rejection(f"is next to another value in `{names[0]}`", "put a literal word between the two")
    return None


def _in_option(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    """Reject an option that may take the name of a program."""
    before, text = names[at - 1] or "", words[at].text
    letter = PROGRAM_LETTERS.get(names[0] or "")
    if PROGRAM_OPTION.match(text) or (PROGRAM_OPTION.fullmatch(before) and before.startswith("--")):
        return Rejection("is where the name of a program is expected", "write the name of the program")
    if letter is not None and (before == letter or text.startswith(letter)):
        return Rejection(f"is in the option `{letter}` of `{names[0]}`, which can start a program", ON_STDIN)
    if names[0] == "sqlite3":
        return Rejection("is in the program text of `sqlite3`", "bind it in a script: `python3 script.py {{…}}`")
    return None


def _in_nested_program(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    programs = _programs(names[:at])
    for name in programs:
        if name in PASS_TO_SHELL:
            return Rejection(f"is in the arguments of `{name}`, which a shell executes", ON_STDIN)
    for place, name in enumerate(names[:at]):
        rest, position = words[place + 1 :], at - place - 1
        if name in SHELLS:
            if _follows_program(rest, position, "c"):
                return None
            return Rejection(f"is in the program text of `{name}`", AS_ARGUMENT)
        if name in PROGRAM_FIRST and name in programs and not _follows_program(rest, position, ""):
            return Rejection(f"is in the program text of `{name}`", ON_STDIN)
        options = _program_options(name)
        is_started = options is not None and (name in programs or _has_option(names[place + 1 :], options))
        if options and is_started and not _follows_program(rest, position, options):
            return Rejection(f"is in the program text of `{name}`", "pass the value as an argument after the program")
    if names[0] is None and any(re.fullmatch(r"-\w*[cer]", name or "") for name in names[1:at]):
        return Rejection("may be in the program text of another program", AS_ARGUMENT)
    return None


def _programs(names: list[str | None]) -> list[str]:
    """Return the names that may be programs: the first word, and after a wrapper all words."""
    known = [name for name in names if name is not None]
    return known if names and (names[0] is None or _is_wrapper(names[0])) else known[:1]


def _is_wrapper(name: str | None) -> bool:
    return name is None or name in WRAPPERS


def _is_wrapped(command: SimpleCommand, index: int) -> bool:
    """Return whether a value precedes the program that a wrapper starts.

    Only numbers are allowed there, as in `timeout`.
    """
    names = _names(command)
    at = index - (len(command.words) - len(names))
    if index < 0 or at < 1 or not _is_wrapper(names[0]) or names[0] == "find" or command.is_for_list:
        return False
    if command.words[index].assigned is not None and not command.words[index].splits:
        return False
    letters, arguments = OPTION_ARGUMENTS.get(names[0] or "", ""), FIRST_ARGUMENTS.get(names[0] or "", 0)
    candidates = [
        name
        for before, name in pairwise(names[:at])
        if _may_be_program(name) and not re.fullmatch(f"-\\w*[{letters or '-'}]", before or "")
    ]
    return len(candidates) <= arguments


def _may_be_program(name: str | None) -> bool:
    return bool(name) and not name.startswith("-") and "=" not in name and not NUMBER.fullmatch(name)


def _has_option(names: list[str | None], letters: str, *long: str) -> bool:
    options = [name for name in names[:2] if name and name.startswith("-")]
    return any(letter in option for option in options for letter in letters) or any(name in long for name in options)


def _is_option(word: Word) -> bool:
    return word.is_literal and word.text[:1] in ("-", "+") and len(word.text) > 1


def _operands(words: list[Word], letters: str) -> list[int]:
    """Return the indexes of words that are neither options nor arguments of options."""
    found: list[int] = []
    is_taken = False
    for at, word in enumerate(words):
        if not is_taken and (found or not _is_option(word)):
            found.append(at)
        is_taken = (
            not found and not is_taken and bool(TAKES_WORD.fullmatch(word.text)) and not _has_letter(word, letters)
        )
    return found


def _has_letter(option: Word, letters: str) -> bool:
    return not option.text.startswith("--") and any(letter in option.text for letter in letters)


def _program_text(words: list[Word], letters: str) -> Word | None:
    """Return the word after an option such as `-c` and further options."""
    first = next(iter(_operands(words, letters)), len(words))
    has_option = any(_is_option(word) and _has_letter(word, letters) for word in words[:first])
    return words[first] if has_option and first < len(words) else None


def _has_script(words: list[Word]) -> bool:
    """Return whether a shell executes a script file."""
    return bool(_operands(words, "")) and not any(word.text in ("-s", "-", PROCESS) for word in words)


def _follows_program(words: list[Word], at: int, letters: str) -> bool:
    """Return whether the word follows the program text or the script file, and so is an argument of the program."""
    before = words[:at]
    if letters == "" and words[at].assigned is not None and before and before[-1].text == "-v":
        return True
    if letters == "" and any(_is_option(word) and word.text.startswith(("-e", "-f", "--expr")) for word in words):
        # It is not clear which of the words are programs.
        return False
    return any(not _is_option(before[n]) and not before[n].placeholders for n in _operands(before, letters))


# Flows through variables.


def _add_nested_programs(found: Scan) -> None:
    """Add the commands of literal programs, as in `sh -c '…'` and `trap '…'`, because they can use variables."""
    # The list grows during the loop, so programs inside of programs are added too.
    for command in found.commands:
        words, names = _arguments(command), _names(command)
        programs = [_program_text(words[at + 1 :], "c") for at, name in enumerate(names) if name in SHELLS]
        programs += words[1:2] if names[:1] == ["trap"] else []
        for program in programs:
            if program is not None and program.is_literal:
                nested = scan(program.text, {})
                found.commands += nested.commands
                found.functions |= nested.functions
                found.arithmetic = found.arithmetic or nested.arithmetic
                found.is_incomplete = found.is_incomplete or nested.is_incomplete


def _tainted_words(found: Scan) -> Iterator[tuple[SimpleCommand, int, Word]]:
    """Yield the words, each with its command, into which a value may get through a variable."""
    reading = [command for command in found.commands if _reads_variable(command)]
    tainted = {"", *POSITIONAL, *(name for command in reading for name in _names(command) if name is not None)}
    before = -1
    while before != len(tainted):
        before = len(tainted)
        for command in found.commands:
            for word in command.words:
                if word.placeholders or not tainted.isdisjoint(word.variables):
                    tainted.add(command.loop_variable if command.is_for_list else word.assigned or "")
    for command in found.commands:
        for index, word in enumerate(command.words):
            if not tainted.isdisjoint(word.variables):
                yield command, index, word


def _is_arithmetic(command: SimpleCommand) -> bool:
    """Return whether a command evaluates a variable as arithmetic, now or when the variable is set."""
    names = _names(command)
    if not names or names[0] == "let":
        return bool(names)
    if _names_variables(names) and any("[" in word.text for word in _arguments(command)[1:]):
        return True
    declares = names[0] in ("declare", "typeset", "local", "readonly", "export")
    return declares and any(name is not None and re.fullmatch(r"[-+]\w*i\w*", name) for name in names[1:])


def _names_variables(names: list[str | None]) -> bool:
    """Return whether the arguments of a builtin are names of variables."""
    name = names[0] if names else None
    return name in (EVALUATING - {"trap", "source", "."}) or (name in ("printf", "test", "[") and "-v" in names)


def _makes_reference(names: list[str | None]) -> bool:
    """Return whether a command creates a reference to the variable that its value names."""
    declares = bool(names) and names[0] in ("declare", "typeset", "local")
    return declares and any(re.fullmatch(r"-\w*n\w*", name or "") for name in names[1:])


def _reads_variable(command: SimpleCommand) -> bool:
    names = _names(command)
    return bool(names) and names[0] in ("read", "mapfile", "readarray", "getopts", "select", "xargs")


def _assigns(command: SimpleCommand, word: Word, found: Scan) -> bool:
    """Return whether a value may get into a variable through this word."""
    names = _names(command)
    name = names[0] if names else None
    return (
        word.assigned is not None
        or command.is_for_list
        or word.is_here_string
        or name == "set"
        or (command.in_assignment and word not in command.redirected)
        or name in found.functions
        or any(one in SHELLS for one in names)
    )


def new_variable_name(path: str, taken: Mapping[str, str]) -> str:
    """Return a new variable name for a value."""
    base = "VALUE_" + re.sub(r"[^A-Za-z0-9_]", "_", path)
    return next(name for name in chain([base], (f"{base}_{n}" for n in count(2))) if name not in taken)
