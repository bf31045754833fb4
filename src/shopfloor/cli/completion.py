"""`shopfloor completion`: print a script that completes commands, options, workers and runs in a shell."""

from __future__ import annotations

import argparse
import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.completion_scripts import BASH, FISH, ZSH
from shopfloor.ports import PROVIDER_TITLES

EXAMPLES = """\
  source <(shopfloor completion bash)   now; add it to ~/.bashrc to keep it
  source <(shopfloor completion zsh)    now; add it to ~/.zshrc to keep it
  shopfloor completion fish > ~/.config/fish/completions/shopfloor.fish

The script starts no program: it reads the names of files, so it is fast. Make
it again after an upgrade."""
_Kind = Literal["runs", "workers", "choices", "files"]


class _Value(NamedTuple):
    """What is offered as a value of options or as an argument; `choices` only for that kind."""

    kind: _Kind
    choices: tuple[str, ...] = ()


class _Command(NamedTuple):
    name: str
    summary: str
    options: dict[str, _Value | None]
    """The long options, each with its value; None for an option without one."""
    inner: list[str]
    arguments: list[_Value]


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    return parser


def run(args: Namespace) -> int:
    """Print the script."""
    scripts: dict[str, Callable[[list[_Command], str], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    print(scripts[args.shell](_commands(), str(storage_from_args(args).root)), end="")
    return 0


def _commands() -> list[_Command]:
    from shopfloor.cli.main import ALIASES, COMMANDS, find_command

    found: list[_Command] = []
    for name, target in {**{name: name for name in COMMANDS}, **ALIASES}.items():
        outer = _actions(find_command(target).parser(target, COMMANDS[target]))
        parts: dict[str, ArgumentParser] = {}
        for action in outer:
            parts |= cast("dict[str, Any]", action.choices) if _has_parts(action) else {}
        actions = [*outer, *(action for part in parts.values() for action in _actions(part))]
        options = {
            word: None if action.nargs == 0 else _value(action)
            for action in actions
            for word in action.option_strings
            if word.startswith("--")
        }
        positionals = [_value(action) for action in actions if not action.option_strings and not _has_parts(action)]
        arguments = [value for value in dict.fromkeys(positionals) if value.kind != "files"]
        found.append(_Command(name, COMMANDS[target], dict(sorted(options.items())), [*parts], arguments))
    return found


def _actions(parser: ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001 - argparse has no other list of options


def _has_parts(action: argparse.Action) -> bool:
    return action.nargs == argparse.PARSER


def _value(action: argparse.Action) -> _Value:
    metavar = str(action.metavar).split(" ")[0]
    if action.choices is not None:
        return _Value("choices", tuple(str(choice) for choice in action.choices))
    if metavar == "RUN":
        return _Value("runs")
    if "--provider" in action.option_strings:
        return _Value("choices", tuple(PROVIDER_TITLES))
    return _Value("workers") if metavar == "WORKER" else _Value("files")


def _known_workers() -> str:
    """Return the workers that need no file of the user: the packaged ones, and the agents."""
    from shopfloor.engine import EXAMPLE_WORKERS
    from shopfloor.wiring import provider_names

    folders = sorted(path.name for path in EXAMPLE_WORKERS.iterdir() if path.is_dir() and path.name[0] not in "._")
    return _quoted([*folders, *provider_names()])


def _quoted(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def _fill(script: str, commands: Sequence[_Command], storage: str, **parts: str) -> str:
    """Replace the `@NAMES@` in a script. `storage` is quoted for its shell."""
    names = _quoted([command.name for command in commands])
    values = {"COMMANDS": names, "STORAGE": storage, "WORKERS": _known_workers(), **parts}
    for name, text in values.items():
        script = script.replace(f"@{name}@", text)
    return script


def _cases(commands: Sequence[_Command], offer: Callable[[Sequence[_Value]], str]) -> tuple[str, str]:
    """Return the branches of a `case` by command and option, and those by command alone, for bash and zsh."""
    by_value: dict[str, list[str]] = {}
    by_command: list[str] = []
    for command in commands:
        for option, value in command.options.items():
            if value is not None:
                by_value.setdefault(offer([value]), []).append(shlex.quote(f"{command.name} {option}"))
        words = _Value("choices", (*command.inner, *command.options))
        by_command.append(f"        {command.name}) {offer([words, *command.arguments])} ;;")
    branches = [f"        {'|'.join(names)}) {body}; return ;;" for body, names in by_value.items()]
    return "\n".join(branches), "\n".join(by_command)


def _bash(commands: list[_Command], storage: str) -> str:
    calls = {"runs": "_shopfloor_runs", "workers": "_shopfloor_workers", "files": ":"}

    def offer(values: Sequence[_Value]) -> str:
        """Return the statements that fill COMPREPLY. Without words, bash completes the names of files."""
        return "; ".join(calls.get(value.kind, f"_shopfloor_offer {_quoted(value.choices)}") for value in values)

    values, cases = _cases(commands, offer)
    return _fill(BASH, commands, shlex.quote(storage), VALUES=values, CASES=cases)


def _zsh(commands: list[_Command], storage: str) -> str:
    calls = {"runs": "_shopfloor_runs", "workers": "_shopfloor_workers", "files": "_files"}

    def offer(values: Sequence[_Value]) -> str:
        """Return the statements that add the words to what zsh offers."""
        return "; ".join(calls.get(value.kind, f"compadd -- {_quoted(value.choices)}") for value in values)

    described = "\n".join(
        "        " + shlex.quote(f"{command.name}:{command.summary.replace(':', chr(92) + ':')}")
        for command in commands
    )
    values, cases = _cases(commands, offer)
    return _fill(ZSH, commands, shlex.quote(storage), DESCRIBED=described, VALUES=values, CASES=cases)


def _fish(commands: list[_Command], storage: str) -> str:
    offers = {
        "runs": "-x -a '(__shopfloor_runs)'",
        "workers": "-x -a '(__shopfloor_workers)'",
        "files": "-r -F",
    }
    lines: list[str] = []
    for command in commands:
        start = f"complete -c shopfloor -n '__fish_seen_subcommand_from {command.name}'"
        lines.append(
            f"complete -c shopfloor -n __fish_use_subcommand -f -a {command.name} -d {_fish_quote(command.summary)}"
        )
        for option, value in command.options.items():
            offer = "" if value is None else offers.get(value.kind, f"-x -a '{' '.join(value.choices)}'")
            lines.append(f"{start} -l {option[2:]} {offer}".rstrip())
        for value in [_Value("choices", tuple(command.inner)), *command.arguments]:
            if value.kind != "choices" or value.choices:
                offer = offers.get(value.kind, f"-x -a '{' '.join(value.choices)}'").replace("-x ", "-f ")
                lines.append(f"{start} {offer}")
    return _fill(FISH, commands, _fish_quote(storage), LINES="\n".join(lines))


def _fish_quote(text: str) -> str:
    """Quote a word for fish, whose single quotes know two escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
