"""Shell commands with values in them: the script that is executed, and the variables that it refers to.

A value never becomes text of the script. Each `{{NAME}}` turns into a reference to an environment variable, quoted for
the place where it stands, so that a value stays one word whatever is in it. Shells evaluate text a second time in a few
places: arithmetic takes only numbers, and places whose value would be program text again are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count, pairwise

import msgspec

from shopfloor.engine.workers.shell_scanner import PROCESS, Quotes, Scan, SimpleCommand, Word, holes_in, scan


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHELLS = _words("sh bash dash zsh ksh mksh ash fish busybox rbash csh tcsh")
INTERPRETERS = {
    **dict.fromkeys(("python", "python3", "pypy", "pypy3"), "c"),
    **dict.fromkeys(("perl", "ruby", "lua"), "e"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), "ep"),
    **dict.fromkeys(("php", "psql"), "rc"),
    **dict.fromkeys(("julia", "Rscript", "racket", "groovy", "osascript", "scala", "elixir", "ghc", "mysql"), "e"),
    **dict.fromkeys(("expect", "guile", "pwsh", "powershell"), "c"),
}
"""Programs that execute the text after one of these options."""
FILTERS = _words("sed awk gawk mawk nawk ed ex vi vim")
"""Programs whose first argument is a program."""
STDIN_PROGRAMS = _words("ed ex vi vim dc m4 tclsh gdb")
"""Programs that execute what they read from standard input."""
EVALUATING = _words(
    "let declare typeset unset read mapfile readarray getopts trap alias source . bind complete compgen "
    "hash enable fc history"
)
"""Builtins that evaluate their arguments once more."""
WRAPPERS = _words(
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
"""The options of wrappers that take the next word."""
FIRST_ARGUMENTS = {"flock": 1, "chroot": 1}
"""How many words other wrappers have before the program."""
REMOTE = _words("ssh su runuser parallel watch at batch rsh mosh tmux screen")
"""Programs that hand their arguments to a shell."""
SPECIAL_VARIABLES = re.compile(
    r"PATH|IFS|ENV|BASH\w*|PS[0-4]|PROMPT_COMMAND|SHELLOPTS|LD_\w+|DYLD_\w+|RANDOM|SECONDS|OPTIND|HISTCMD|SRANDOM|LINENO"
    r"|GIT_(SSH|EDITOR|SEQUENCE|PAGER|ASKPASS|EXTERNAL|PROXY|EXEC|CONFIG)\w*|EDITOR|VISUAL|\w*PAGER|LESSOPEN|LESSCLOSE"
    r"|PERL5\w+|PERLLIB|PYTHON(PATH|STARTUP|HOME)|NODE_OPTIONS|RUBYOPT|MAKEFLAGS|TAR_OPTIONS|RSYNC_RSH"
)
"""Variables whose value decides what is executed."""
PROGRAM_OPTION = re.compile(r"--?[\w-]*(command|program|exec|askpass|rsh|pager|editor|eval|action=exec)=?")
"""Options that take the name of a program, or its text."""
PROGRAM_LETTERS = {"rsync": "-e", "nc": "-e", "ncat": "-e", "tar": "-I", "man": "-P", "git": "-c", "dc": "-e"}
"""Short options of the same kind."""
TAKES_WORD = re.compile(r"[-+]\w*[oO]|-[XWIrd]|--rcfile|--init-file|--require")
"""The options of shells and interpreters before their program that take the next word."""
POSITIONAL = _words("@ * 0 1 2 3 4 5 6 7 8 9")
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
"""What a value in arithmetic may be."""
ON_STDIN = "pass the value on standard input, or by `env:`"
AS_ARGUMENT = "pass the value as an argument: `sh -c '… \"$1\"' sh {{NAME}}`"


class Rejection(msgspec.Struct, frozen=True):
    """No value can go here."""

    why: str
    hint: str


class PlaceholderSlot(msgspec.Struct, frozen=True):
    """Where a value goes."""

    quotes: Quotes
    is_number: bool = False
    """Whether only a number is accepted."""


def find_placeholder_slots(script: str, holes: Mapping[int, int]) -> dict[int, PlaceholderSlot | Rejection]:
    """Decide for each placeholder, given by its start and end, how a value can go there."""
    found = scan(script, holes)
    _add_nested_programs(found)
    slots: dict[int, PlaceholderSlot | Rejection] = {
        start: Rejection(f"stands {why}", "move it out of there, or write the command as a list")
        for start, why in found.refused.items()
    }
    everywhere = next(filter(None, map(_refusal_of_all, found.commands)), None)
    if found.is_unclear:
        everywhere = everywhere or Rejection("stands beside a program that was not understood", ON_STDIN)
    found.arithmetic = found.arithmetic or any(_is_arithmetic(command) for command in found.commands)
    reads = any(_reads(command) for command in found.commands)
    uses = list(_tainted_words(found))
    flow_refusal = next(filter(None, (_refusal_of_use(*use) for use in uses)), None)
    wraps = any(_is_wrapped(command, index) for command, index, _ in uses)
    for command, index, word in holes_in(found.commands):
        refused, number = everywhere or _refusal(command, index, word), _is_wrapped(command, index)
        flows = reads or _assigns(command, word, found)
        if flows or command.in_substitution:
            refused, number = refused or flow_refusal, number or wraps or (flows and found.arithmetic)
        for start in word.holes:
            slots.setdefault(start, refused or PlaceholderSlot(found.quotes[start], is_number=number))
    for start, quotes in found.quotes.items():
        # The others are in arithmetic, or in the body of a here-document.
        refused = everywhere or (flow_refusal if reads and quotes != "arithmetic" else None)
        is_number = quotes == "arithmetic" or (reads and (found.arithmetic or wraps))
        slots.setdefault(start, refused or PlaceholderSlot(quotes, is_number=is_number))
    for start in holes:
        slots.setdefault(start, Rejection("stands where the command was not understood", ON_STDIN))
    return slots


def rejected_arguments(argv: Sequence[tuple[str, bool]]) -> dict[int, Rejection]:
    """Find the parts of a command without a shell whose value would be program text of another program.

    Each part is given by its literal text and by whether it has a value.
    """
    words = [Word(text=text, holes=[0] if has_value else []) for text, has_value in argv]
    names = [_base_name(word.text) if word.is_literal else None for word in words]
    found = {at: _in_nested_program(words, names, at) for at, word in enumerate(words) if word.holes and at}
    return {at: refused for at, refused in found.items() if refused is not None and names[0] is not None}


def variable_reference(variable: str, quotes: Quotes) -> str:
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
    while first + 1 < len(words) and words[first].text in ("command", "builtin") and not _is_option(words[first + 1]):
        first += 1
    return words[first:]


def _refusal_of_all(command: SimpleCommand) -> Rejection | None:
    """Why no value may stand anywhere in a script with this command: a value could reach it through a variable."""
    if command.is_for_list:
        return None
    words, names = _arguments(command), _names(command)
    if "eval" in _programs(names):
        return Rejection("stands in a script with `eval`, which executes text", "write the script without `eval`")
    is_special = _names_variables(names) and any(SPECIAL_VARIABLES.fullmatch(name or "") for name in names)
    if is_special or _makes_reference(names):
        return Rejection(
            f"stands in a script where `{names[0]}` changes what a variable means", "write it without that"
        )
    if _evaluates_expansion(words, names):
        return Rejection(f"stands in a script where `{names[0]}` evaluates a variable", "write the script without it")
    return _refusal_of_stdin(words, names)


def _refusal_of_stdin(words: list[Word], names: list[str | None]) -> Rejection | None:
    """Why no value may reach the standard input of a program, or the variables in the text of a program."""
    for at, name in enumerate(names):
        letters = "c" if name in SHELLS else _letters(name)
        reads_program = name in FILTERS and "-f" in names and not {"-", "stdin"}.isdisjoint(names)
        if reads_program or (name in STDIN_PROGRAMS and name in _programs(names)):
            return Rejection(f"stands in a script where `{name}` executes its standard input", ON_STDIN)
        if not letters or not (at == 0 or _is_wrapper(names[0]) or _has_option(names[at + 1 :], letters)):
            continue
        program = _program_text(words[at + 1 :], letters)
        if program is None and not _has_script(words[at + 1 :]) and not _has_option(names[at + 1 :], "V", "--version"):
            return Rejection(f"stands in a script where `{name}` executes its standard input", AS_ARGUMENT)
        if program is not None and names[0] in ("xargs", "find") and _replaces(names, program):
            return Rejection(f"stands in a script where `{names[0]}` writes into the program of `{name}`", AS_ARGUMENT)
        if name not in SHELLS:
            continue
        if program is not None and program.expands and not program.holes:
            return Rejection(f"stands in a script where `{name} -c` executes text with variables in it", AS_ARGUMENT)
    return None


def _evaluates_expansion(words: list[Word], names: list[str | None]) -> bool:
    """Whether a builtin evaluates what the shell puts into its arguments."""
    name = names[0] if names else None
    if name in ("export", "readonly", "local"):
        return any(word.expands and word.assigned is None for word in words[1:])
    evaluates = name in EVALUATING or (name in ("printf", "test", "[") and "-v" in names)
    return evaluates and any(word.expands for word in words[1:])


def _letters(name: str | None) -> str | None:
    return INTERPRETERS.get((name or "").rstrip("0123456789.")) or INTERPRETERS.get(name or "")


def _replaces(names: list[str | None], program: Word) -> bool:
    """Whether `xargs` or `find` puts what it has found into the text of a program."""
    return "{}" in program.text or any((name or "").startswith(("-I", "-i", "--replace")) for name in names)


def _refusal_of_use(command: SimpleCommand, index: int, word: Word) -> Rejection | None:
    """Why no value may get into a variable that is used in this word."""
    refused = _refusal(command, index, word)
    return refused and Rejection(f"gets into a variable that {refused.why}", refused.hint)


def _refusal(command: SimpleCommand, index: int, word: Word) -> Rejection | None:
    if command.is_for_list and SPECIAL_VARIABLES.fullmatch(command.loop_variable):
        return Rejection(f"stands in a value of `{command.loop_variable}`, by which the shell works", ON_STDIN)
    if index < 0 or command.is_for_list:
        return None
    if word.assigned is not None and SPECIAL_VARIABLES.fullmatch(word.assigned):
        return Rejection(f"stands in a value of `{word.assigned}`, by which the shell works", ON_STDIN)
    if word.subscript:
        return Rejection("stands in a subscript, which `bash` evaluates", ON_STDIN)
    words, names = _arguments(command), _names(command)
    at = index - (len(command.words) - len(words))
    if at < 0:
        return None
    if at == 0 or (names[0] and _is_wrapped(command, index) and not any(map(_may_be_program, names[at + 1 :]))):
        return Rejection(
            "stands where the name of a program is expected", "use the form without a shell: `command: [program, …]`"
        )
    for rule in (_in_builtin, _in_test, _beside_value, _in_option, _in_nested_program):
        if refused := rule(words, names, at):
            return refused
    return None


def _in_builtin(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    name = names[0]
    if name in EVALUATING:
        return Rejection(f"stands in the arguments of `{name}`, which evaluates them", ON_STDIN)
    if name in ("export", "readonly", "local") and words[at].assigned is None:
        return Rejection(f"stands in the arguments of `{name}`, which evaluates them", f"write `{name} NAME={{{{…}}}}`")
    if name == "printf" and (at == 1 or "-v" in names[1:at]):
        return Rejection("stands in the format of `printf`", "write `printf %s {{…}}`")
    return None


def _in_test(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    if names[0] not in ("test", "["):
        return None
    if "-v" in names or "-R" in names:
        return Rejection("stands in a `test` that evaluates names of variables", ON_STDIN)
    return None


def _beside_value(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    """Two values side by side could be an operator and what it works on."""
    if names[0] == "find" and names[at - 1] in ("-exec", "-execdir", "-ok", "-okdir"):
        return Rejection("stands where the name of a program is expected", "write the name of the program")
    if names[0] not in ("test", "[", "find"):
        return None
    if words[at].splits:
        return Rejection(f"may be several words in `{names[0]}`", "put double quotes around it")
    if any(not words[n].is_literal for n in (at - 1, at + 1) if n < len(words)):
        return Rejection(f"stands beside another value in `{names[0]}`", "put a literal word between the two")
    return None


def _in_option(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    """An option may take the name of a program."""
    before, text = names[at - 1] or "", words[at].text
    letter = PROGRAM_LETTERS.get(names[0] or "")
    if PROGRAM_OPTION.match(text) or (PROGRAM_OPTION.fullmatch(before) and before.startswith("--")):
        return Rejection("stands where the name of a program is expected", "write the name of the program")
    if letter is not None and (before == letter or text.startswith(letter)):
        return Rejection(f"stands in the option `{letter}` of `{names[0]}`, which can start a program", ON_STDIN)
    if names[0] == "sqlite3":
        return Rejection("stands in the program text of `sqlite3`", "bind it in a script: `python3 script.py {{…}}`")
    return None


def _in_nested_program(words: list[Word], names: list[str | None], at: int) -> Rejection | None:
    programs = _programs(names[:at])
    for name in programs:
        if name in REMOTE:
            return Rejection(f"stands in the arguments of `{name}`, which a shell executes", ON_STDIN)
    for place, name in enumerate(names[:at]):
        rest, position = words[place + 1 :], at - place - 1
        if name in SHELLS:
            if _is_after_program(rest, position, "c"):
                return None
            return Rejection(f"stands in the program text of `{name}`", AS_ARGUMENT)
        if name in FILTERS and name in programs and not _is_after_program(rest, position, ""):
            return Rejection(f"stands in the program text of `{name}`", ON_STDIN)
        options = _letters(name)
        is_started = options is not None and (name in programs or _has_option(names[place + 1 :], options))
        if options and is_started and not _is_after_program(rest, position, options):
            return Rejection(
                f"stands in the program text of `{name}`", "pass the value as an argument after the program"
            )
    if names[0] is None and any(re.fullmatch(r"-\w*[cer]", name or "") for name in names[1:at]):
        return Rejection("may stand in the program text of another program", AS_ARGUMENT)
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
    """Where the words stand that are neither options nor what an option takes."""
    found: list[int] = []
    is_taken = False
    for at, word in enumerate(words):
        if not is_taken and (found or not _is_option(word)):
            found.append(at)
        is_taken = not found and not is_taken and bool(TAKES_WORD.fullmatch(word.text)) and not _has(word, letters)
    return found


def _has(option: Word, letters: str) -> bool:
    return not option.text.startswith("--") and any(letter in option.text for letter in letters)


def _program_text(words: list[Word], letters: str) -> Word | None:
    """The word after an option such as `-c`, behind further options."""
    first = next(iter(_operands(words, letters)), len(words))
    has_option = any(_is_option(word) and _has(word, letters) for word in words[:first])
    return words[first] if has_option and first < len(words) else None


def _has_script(words: list[Word]) -> bool:
    """Whether a shell is given a file to execute."""
    return bool(_operands(words, "")) and not any(word.text in ("-s", "-", PROCESS) for word in words)


def _is_after_program(words: list[Word], at: int, letters: str) -> bool:
    """Whether the word stands behind the program text, or the file with it: what follows are its arguments."""
    before = words[:at]
    if letters == "" and words[at].assigned is not None and before and before[-1].text == "-v":
        return True
    if letters == "" and any(_is_option(word) and word.text.startswith(("-e", "-f", "--expr")) for word in words):
        # Which of the words are programs is not plain.
        return False
    return any(not _is_option(before[n]) and not before[n].holes for n in _operands(before, letters))


# Flows through variables.


def _add_nested_programs(found: Scan) -> None:
    """Add the commands of programs that are literal words, as in `sh -c '…'` and `trap '…'`: they can use variables."""
    # Programs in these programs follow, since the list grows.
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
                found.is_unclear = found.is_unclear or nested.is_unclear


def _tainted_words(found: Scan) -> Iterator[tuple[SimpleCommand, int, Word]]:
    """The words into which the shell may put a value of a placeholder through a variable, each with its command."""
    reading = [command for command in found.commands if _reads(command)]
    tainted = {"", *POSITIONAL, *(name for command in reading for name in _names(command) if name is not None)}
    before = -1
    while before != len(tainted):
        before = len(tainted)
        for command in found.commands:
            for word in command.words:
                if word.holes or not tainted.isdisjoint(word.variables):
                    tainted.add(command.loop_variable if command.is_for_list else word.assigned or "")
    for command in found.commands:
        for index, word in enumerate(command.words):
            if not tainted.isdisjoint(word.variables):
                yield command, index, word


def _is_arithmetic(command: SimpleCommand) -> bool:
    """Whether it evaluates a variable as arithmetic, now or when the variable gets a value."""
    names = _names(command)
    if not names or names[0] == "let":
        return bool(names)
    if _names_variables(names) and any("[" in word.text for word in _arguments(command)[1:]):
        return True
    declares = names[0] in ("declare", "typeset", "local", "readonly", "export")
    return declares and any(name is not None and re.fullmatch(r"[-+]\w*i\w*", name) for name in names[1:])


def _names_variables(names: list[str | None]) -> bool:
    """Whether the arguments of a builtin are names of variables."""
    name = names[0] if names else None
    return name in (EVALUATING - {"trap", "source", "."}) or (name in ("printf", "test", "[") and "-v" in names)


def _makes_reference(names: list[str | None]) -> bool:
    """Whether it makes a variable that stands for the one that its value names."""
    declares = bool(names) and names[0] in ("declare", "typeset", "local")
    return declares and any(re.fullmatch(r"-\w*n\w*", name or "") for name in names[1:])


def _reads(command: SimpleCommand) -> bool:
    names = _names(command)
    return bool(names) and names[0] in ("read", "mapfile", "readarray", "getopts", "select", "xargs")


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
        or any(one in SHELLS for one in names)
    )


def new_variable_name(path: str, taken: Mapping[str, str]) -> str:
    """Name the variable for a value; two values never share one."""
    base = "VALUE_" + re.sub(r"[^A-Za-z0-9_]", "_", path)
    return next(name for name in chain([base], (f"{base}_{n}" for n in count(2))) if name not in taken)
