"""The argument parser of the commands, with the options and value types that several commands share."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol, cast

from shopfloor.cli.limits import UNPARSED_LINE_WARNINGS
from shopfloor.cli.style import escape_controls
from shopfloor.error_factories import missing_working_directory
from shopfloor.errors import InvalidEvent, UsageError
from shopfloor.limits import HOST_SLOTS_MAX, LONGEST_SPAN_SECONDS, MAX_PRIORITY
from shopfloor.log import Entry, Event, decode, parse_duration
from shopfloor.record import Problem, Storage

RUN_HELP: Final = "run id, its first characters, or `last`"
QUIET_HELP: Final = "print no status lines, only output and errors"
_HELP_COLUMN = 26


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_HELP_COLUMN)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Return `-i, --input NAME=VALUE`, where argparse repeats the value after each spelling."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _iter_indented_subactions(self, action: argparse.Action) -> Generator[argparse.Action, None, None]:
        """Yield the inner commands, which are not indented because no line is above them."""
        for inner in super()._iter_indented_subactions(action):
            self._dedent()
            yield inner
            self._indent()

    def _format_action(self, action: argparse.Action) -> str:
        """Return the lines of an action; for inner commands without the line `COMMAND` above them."""
        text = super()._format_action(action)
        return text.partition("\n")[2] if action.nargs == argparse.PARSER else text


class _PrintFullHelp(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(cast("Parser", parser).format_full_help(), end="")
        parser.exit()


class OptionGroup(Protocol):
    """A group of options under a heading of the help."""

    def add_argument(self, *names: str, **settings: Any) -> object:
        """Add an option, as `ArgumentParser.add_argument` does."""
        ...


class Parser(argparse.ArgumentParser):
    """The parser of one command.

    `--help` prints what fits on one screen; `--help-all` adds the `advanced` options (by their long spelling) and the
    `details`, which are more examples and explanations. `usage` replaces the generated usage lines.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        *,
        examples: str,
        details: str = "",
        usage: Sequence[str] = (),
        advanced: Collection[str] = (),
    ) -> None:
        super().__init__(
            prog=f"shopfloor {name}",
            # The usage is part of the description, below the summary.
            usage=argparse.SUPPRESS,
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )
        self._summary = summary
        self._examples = examples
        self._details = details
        self._usage_lines = usage
        self._advanced = frozenset(advanced)
        self._inner_commands: Any = None
        self._positionals.title = "Arguments"
        self._optionals.title = "Options"
        self._common = self.add_argument_group("Common options")
        self._common.add_argument("--storage", metavar="DIR", help="storage folder (default: $SHOPFLOOR_STORAGE)")
        self._common.add_argument("--debug", action="store_true", help="show a traceback if the command fails")
        self._common.add_argument("-h", "--help", action="help", help="show this help")
        self._common.add_argument(
            "--help-all", action=_PrintFullHelp, nargs=0, help="show all options and more examples"
        )

    def add_command(self, name: str, summary: str, *, examples: str) -> CommandParser:
        """Add a command inside this command, such as `list` in `workers list`. Its name becomes `args.part`."""
        if self._inner_commands is None:
            self._inner_commands = self.add_subparsers(
                dest="part",
                metavar="COMMAND",
                title="Commands",
                required=True,
                prog=self.prog,
                parser_class=CommandParser,
            )
            # Inner commands that have `--json` leave this value as it is.
            self.set_defaults(json=False)
        return self._inner_commands.add_parser(name, help=summary, summary=summary, examples=examples)

    def set_default_command(self, name: str, **defaults: Any) -> None:
        """Make COMMAND optional; `defaults` are the values of the options of the default command."""
        self._inner_commands.required = False
        self.set_defaults(part=name, **defaults)

    def format_help(self) -> str:
        """Return the help without the advanced options and the details."""
        hidden = self._advanced if self._advanced or self._details else frozenset({"--help-all"})
        return self._format(hidden, f"Examples:\n{self._examples}")

    def format_full_help(self) -> str:
        """Return the help with all options and details."""
        details = f"\n{self._details}" if self._details else ""
        return self._format(frozenset(), f"Examples:\n{self._examples}{details}")

    def _format(self, hidden: frozenset[str], epilog: str) -> str:
        usage = "\n       ".join(self._usage_lines or [self._default_usage()])
        self.description = f"{self._summary}.\n\nUsage: {usage}"
        self.epilog = epilog
        # The common options come last.
        self._action_groups.remove(self._common)
        self._action_groups.append(self._common)
        texts = {action: action.help for action in self._actions if not hidden.isdisjoint(action.option_strings)}
        for action in texts:
            action.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:
            for action, text in texts.items():
                action.help = text

    def _default_usage(self) -> str:
        words = [self.prog, "[OPTIONS]"]
        for action in self._actions:
            if not action.option_strings:
                word = str(action.metavar or action.dest)
                words.append({"?": f"[{word}]", "*": f"[{word}...]", "+": f"{word}..."}.get(str(action.nargs), word))
        return " ".join(words)

    def parse_args(self, *arguments: Any, **settings: Any) -> Any:
        """Parse the arguments. Options may stand before an optional argument, as in `run WORKER -i A=B TASK`."""
        values, words = self.parse_known_args(*arguments, **settings)
        is_escaped = words[:1] == ["--"]
        rest = words[1:] if is_escaped else words
        for action in self._actions:
            is_missing = action.nargs == "?" and not action.option_strings and getattr(values, action.dest) is None
            if is_missing and rest and (is_escaped or rest[0] == "-" or not rest[0].startswith("-")):
                setattr(values, action.dest, rest.pop(0))
        if rest:
            advice = "" if rest[0].startswith("-") else "put a text of several words in quotes, or "
            self._refuse(f"unrecognized arguments: {' '.join(rest)}", advice)
        return values

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` instead of exiting."""
        self._refuse(message)

    def _refuse(self, message: str, advice: str = "") -> NoReturn:
        raise UsageError(message, hint=f"{advice}run `{self.prog} --help` for the arguments and options")


class CommandParser(Parser):
    """The parser of a command inside a command, such as `workers list`."""

    def __init__(self, *, prog: str, summary: str, examples: str, **_: Any) -> None:
        super().__init__(prog.removeprefix("shopfloor "), summary, examples=examples)
        # An option before the inner command keeps its value: a default here would overwrite it.
        for action in self._actions:
            if action.dest in ("storage", "debug"):
                action.default = argparse.SUPPRESS


WORKERS_OPTION: Final[dict[str, Any]] = {
    "metavar": "SOURCE",
    "action": "append",
    "default": [],
    "help": "also load workers from a folder, Python file or module (repeatable)",
}
"""The keyword arguments of `--workers`, the same for every command that loads workers."""
PLUGINS_OPTION: Final[dict[str, Any]] = {
    "metavar": "FOLDER",
    "action": "append",
    "default": [],
    "help": "also use the plugins in this folder (repeatable)",
}
"""The keyword arguments of `--plugins`, the same for every command that uses plugins."""


def add_color_option(parser: argparse.ArgumentParser) -> None:
    """Add `--color`."""
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="when to use colors (default: auto, only on a terminal)",
    )


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument RUN of commands that also read transcript files from elsewhere."""
    parser.add_argument("run", metavar="RUN", help=f"{RUN_HELP}; or a transcript file")


def positive_int(text: str) -> int:
    """Parse an integer of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, got {text!r}")
    return number


def slot_count(text: str) -> int:
    """Parse the number of runs that a host executes at once."""
    number = positive_int(text)
    if number > HOST_SLOTS_MAX:
        raise argparse.ArgumentTypeError(f"must be at most {HOST_SLOTS_MAX:,}, got {text!r}")
    return number


def priority(text: str) -> int:
    """Parse the priority of a run. Used as the type of an option."""
    try:
        number = int(text)
    except ValueError:
        number = MAX_PRIORITY + 1
    if abs(number) > MAX_PRIORITY:
        raise argparse.ArgumentTypeError(f"must be a whole number from {-MAX_PRIORITY} to {MAX_PRIORITY}, got {text!r}")
    return number


def label(text: str) -> tuple[str, str]:
    """Parse a label, NAME=VALUE. Used as the type of an option."""
    from shopfloor.ports import label_problem

    name, _, value = text.partition("=")
    if label_problem(name, value):
        raise argparse.ArgumentTypeError(
            f"must be NAME=VALUE of letters, digits, `.`, `_`, `/` and `-`, e.g. gpu=yes, got {text!r}"
        )
    return name, value


def port_number(text: str) -> int:
    """Parse a port number; 0 means any free port."""
    if not (text.isascii() and text.isdecimal() and int(text) <= _LAST_PORT):
        raise argparse.ArgumentTypeError(f"must be a port from 0 to {_LAST_PORT}, got {text!r}")
    return int(text)


_LAST_PORT = 65535
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def duration_seconds(text: str) -> float:
    """Parse a duration such as 30d, 12h, 90m, 45s or 2w."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"must be a duration such as 30d, 12h, 90m, 45s or 2w, got {text!r}")
    seconds = int(number) * _UNITS[unit]
    if seconds > LONGEST_SPAN_SECONDS:
        raise argparse.ArgumentTypeError(f"must not be longer than a thousand years, got {text!r}")
    return seconds


def timeout_seconds(text: str) -> float:
    """Parse a time limit: seconds, or a duration such as 45s, 10m or 2h."""
    seconds = parse_duration(text)
    if seconds is None or seconds > LONGEST_SPAN_SECONDS:
        raise argparse.ArgumentTypeError(f"must be a time limit such as 90, 45s, 10m or 2h, got {text!r}")
    return seconds


class ReadWarnings:
    """Warnings on stderr about the parts of a log that cannot be read. Only the first few are printed."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, problem: Problem) -> None:
        self.warn(f"at byte {problem.offset}: {problem.reason}")

    def warn(self, text: str) -> None:
        """Print a warning, unless the limit is reached."""
        self._count += 1
        if self._count <= UNPARSED_LINE_WARNINGS:
            print(f"warning: {escape_controls(text)}", file=sys.stderr)
        elif self._count == UNPARSED_LINE_WARNINGS + 1:
            print("warning: more problems are not shown; `shopfloor verify` lists them all", file=sys.stderr)

    def decode_events(self, entries: Iterable[Entry]) -> Iterator[Event]:
        """Yield the decoded events. Warn about an event that cannot be decoded and skip it."""
        for entry in entries:
            try:
                yield decode(entry.raw)
            except InvalidEvent as error:
                self.warn(f"event {entry.seq} cannot be shown: {error.message}")


def storage_from_args(args: argparse.Namespace) -> Storage:
    """Return the storage that `--storage` names, or the default one."""
    path: str | None = args.storage
    return Storage(resolve_folder(path)) if path else Storage.default()


def resolve_folder(path: str) -> Path:
    """Return the absolute path of a folder that the user typed. The folder need not exist."""
    try:
        return Path(path).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"cannot resolve {path!r}: {error}", hint="use a path without `~`") from error
    except FileNotFoundError as error:
        raise missing_working_directory() from error


def log_path_from_args(args: argparse.Namespace) -> Path:
    """Return the path of the transcript that the argument RUN names."""
    run: str = args.run
    if os.sep in run or run.endswith(".jsonl"):
        return Path(run)
    storage = storage_from_args(args)
    return storage.log_path(storage.find(run))
