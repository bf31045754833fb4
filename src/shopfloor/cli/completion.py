"""`shopfloor completion`: print a script that completes commands, options, workers and runs in a shell."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from typing import Any, NamedTuple, cast

from shopfloor.cli.arguments import Parser, storage_from_args

EXAMPLES = """\
  source <(shopfloor completion bash)   now; add it to ~/.bashrc to keep it
  source <(shopfloor completion zsh)    after compinit in ~/.zshrc
  shopfloor completion fish > ~/.config/fish/completions/shopfloor.fish

The script starts no program: it reads the names of files, so it is fast. Make
it again after an upgrade."""

_BASH = """\
_shopfloor() {
    local cur="${COMP_WORDS[COMP_CWORD]}" cmd="${COMP_WORDS[1]}" words="" storage
    storage="${SHOPFLOOR_STORAGE:-@STORAGE@}"
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "@COMMANDS@" -- "$cur"))
        return
    fi
    case "$cmd" in
@CASES@
    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
_shopfloor_runs() {
    local files=("$1"/transcripts/"$2"*.jsonl) file
    printf 'last\\n'
    for file in "${files[@]:0:200}"; do
        [ -e "$file" ] || continue
        file="${file##*/}"
        printf '%s\\n' "${file%.jsonl}"
    done
}
_shopfloor_workers() {
    local file
    printf '%s\\n' @WORKERS@
    for file in workers/*/worker.yaml workers/*/worker.py "$1"/workers/*/worker.yaml "$1"/workers/*/worker.py; do
        [ -e "$file" ] || continue
        file="${file%/*}"
        printf '%s\\n' "${file##*/}"
    done
}
complete -o default -F _shopfloor shopfloor
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\nsetopt local_options no_nomatch 2>/dev/null\n"


class _Command(NamedTuple):
    name: str
    summary: str
    options: list[str]
    inner: list[str]
    takes_run: bool
    takes_worker: bool


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    return parser


def run(args: Namespace) -> int:
    """Print the script."""
    storage, commands = str(storage_from_args(args).root), _commands()
    if args.shell == "fish":
        print(_fish(commands, storage), end="")
        return 0
    print((_ZSH if args.shell == "zsh" else "") + _bash(commands, storage), end="")
    return 0


def _commands() -> list[_Command]:
    from shopfloor.cli.main import ALIASES, COMMANDS, find_command

    found: list[_Command] = []
    for name, target in {**{name: name for name in COMMANDS}, **ALIASES}.items():
        made = find_command(target).parser(target, COMMANDS[target])
        actions = made._actions  # noqa: SLF001 - argparse has no other list of options
        inner: list[str] = []
        options = {word for action in actions for word in action.option_strings if word.startswith("--")}
        for action in actions:
            choices: Any = action.choices
            if isinstance(choices, dict):
                parts = cast("dict[str, ArgumentParser]", choices)
                inner += parts
                options |= {word for part in parts.values() for word in _options(part)}
        positionals = [str(action.metavar) for action in actions if not action.option_strings]
        takes_run = any(metavar.startswith("RUN") for metavar in positionals)
        takes_worker = any(metavar.startswith("WORKER") for metavar in positionals)
        found.append(_Command(name, COMMANDS[target], sorted(options), inner, takes_run, takes_worker))
    return found


def _options(parser: ArgumentParser) -> list[str]:
    actions = cast("list[Any]", parser._actions)  # noqa: SLF001 - argparse has no other list of options
    return [word for action in actions for word in action.option_strings if word.startswith("--")]


def _bash(commands: list[_Command], storage: str) -> str:
    cases: list[str] = []
    for command in commands:
        words = [*command.inner, *command.options]
        body = f'words="{" ".join(words)}"'
        if command.takes_run:
            body += '; words="$words $(_shopfloor_runs "$storage" "$cur")"'
        if command.takes_worker:
            body += '; words="$words $(_shopfloor_workers "$storage")"'
        cases.append(f"        {command.name}) {body} ;;")
    return (
        _BASH.replace("@STORAGE@", storage.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$"))
        .replace("@COMMANDS@", " ".join(command.name for command in commands))
        .replace("@CASES@", "\n".join(cases))
        .replace("@WORKERS@", " ".join(_example_workers()))
    )


def _example_workers() -> list[str]:
    from shopfloor.engine import EXAMPLE_WORKERS
    from shopfloor.wiring import provider_names

    folders = sorted(path.name for path in EXAMPLE_WORKERS.iterdir() if path.is_dir() and path.name[0] not in "._")
    return [shlex.quote(name) for name in [*folders, *provider_names()]]


def _fish(commands: list[_Command], storage: str) -> str:
    runs = (
        "(printf 'last\\n'; set -q SHOPFLOOR_STORAGE; or set -l SHOPFLOOR_STORAGE "
        f"{shlex.quote(storage)}; for f in $SHOPFLOOR_STORAGE/transcripts/*.jsonl; "
        "string replace -r '.*/(.*)\\.jsonl$' '$1' $f; end)"
    )
    lines = ["complete -c shopfloor -f"]
    for command in commands:
        summary = shlex.quote(command.summary)
        lines.append(f"complete -c shopfloor -n __fish_use_subcommand -a {command.name} -d {summary}")
        seen = f"'__fish_seen_subcommand_from {command.name}'"
        lines += [f"complete -c shopfloor -n {seen} -l {option[2:]}" for option in command.options]
        if command.inner:
            lines.append(f"complete -c shopfloor -n {seen} -a '{' '.join(command.inner)}'")
        if command.takes_run:
            lines.append(f'complete -c shopfloor -n {seen} -a "{runs}"')
        if command.takes_worker:
            lines.append(f"complete -c shopfloor -n {seen} -a '{' '.join(_example_workers())}'")
    return "\n".join(lines) + "\n"
