"""From a command line to a command. Only the command that is called is loaded."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from shopfloor.errors import (
    ShopfloorError,
    UnexpectedError,
    UsageError,
    missing_working_directory,
    sole_error,
    storage_error,
)

if TYPE_CHECKING:
    import argparse
    import io
    from argparse import ArgumentParser, Namespace


GROUPS: dict[str, dict[str, str]] = {
    "Run workers": {
        "up": "Serve this machine: API, live streams, and a host that makes runs",
        "down": "Stop the server of this machine",
        "run": "Run a worker, or a command, here and live, and keep its transcript",
        "resume": "Continue a run here whose process is gone",
        "dispatch": "Have the server run a worker, whoever watches",
        "answer": "Give a run what it waits for",
        "cancel": "End a run before its time",
        "workers": "List the workers that there are, check them, make new ones",
        "projects": "List the folders whose workers a server serves, add and remove them",
        "providers": "List the agents and model APIs that a task can be handed to",
    },
    "Say who may use the server": {
        "login": "Print a link that logs a browser in, once",
        "tokens": "List, make and revoke tokens and browser sessions",
        "audit": "Show who did what, from where and when",
    },
    "Read what they did": {
        "list": "List runs, newest first, with filters and search",
        "status": "Show how a run stands, and its timeline",
        "result": "Print what a run gave",
        "show": "Show a transcript readably",
        "tail": "Follow a run that is being written",
        "events": "List what an agent's session reported, as signals",
        "tree": "Draw the steps of a run and its sub-runs",
    },
    "Keep the record": {
        "normalize": "Turn what an agent printed into a transcript",
        "verify": "Hold transcript files against every rule of the format",
        "schema": "Print the JSON Schema of a transcript's lines",
        "rebuild": "Make the rows anew from the logs",
        "delete": "Delete runs that have ended",
        "prune": "Delete runs that ended long ago",
        "doctor": "Look at what this machine has, and say what is missing",
    },
}
COMMANDS: dict[str, str] = {name: summary for group in GROUPS.values() for name, summary in group.items()}

EXAMPLES = """\
  shopfloor run hello -i NAME=Ada        run a worker
  shopfloor run --provider claude-code 'fix the failing test'
                                         hand a task to an agent
  shopfloor run --command 'pytest -q'    record a command
  shopfloor show last                    read it back
  shopfloor tail 5f3a                    watch one, named by the first characters of its id"""


class CommandModule(Protocol):
    """What each module of a command has."""

    def parser(self, name: str, summary: str) -> ArgumentParser: ...

    def run(self, args: Namespace) -> int: ...


def find_command(name: str) -> CommandModule:
    return cast("CommandModule", import_module(f"shopfloor.cli.{name}"))


def overview() -> str:
    width = max(map(len, COMMANDS))
    groups = "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:<{width}}  {summary}" for name, summary in group.items())])
        for title, group in GROUPS.items()
    )
    return f"""\
Shopfloor runs AI workers and keeps the record.

Usage: shopfloor COMMAND [OPTIONS]

{groups}

Options:
  -h, --help     Show this, or with a command what it takes
  -V, --version  Show the version

Examples:
{EXAMPLES}

Runs are kept in $SHOPFLOOR_STORAGE, or else in the user's data folder."""


SIGPIPE_EXIT = 141
_START_UP_OBJECTS = 100_000
_USUAL = gc.get_threshold()


def entry() -> NoReturn:
    """The installed `shopfloor`."""
    # What is loaded at the start stays: looking through it for garbage takes a tenth of a short command's time.
    gc.set_threshold(_START_UP_OBJECTS)
    _mend_streams()
    code = main(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        # Nobody can be told any more; the code is still true.
        _silence()
    if "threading" in sys.modules:
        from shopfloor.cli.shutdown import schedule_exit_if_threads_remain

        schedule_exit_if_threads_remain(code)
    sys.exit(code)


def restore_gc_thresholds() -> None:
    """Collect garbage as often as Python does by itself: for a process that works for longer than it starts."""
    gc.freeze()
    gc.set_threshold(*_USUAL)


def _mend_streams() -> None:
    """Opens what we were started without: else the next file that is opened would be taken for our output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = cast("io.TextIOWrapper | None", getattr(sys, name))
        if stream is None:
            setattr(sys, name, open(descriptor, "w", closefd=False))  # noqa: SIM115 - for life
        else:
            # A terminal that knows no ✓ gets a question mark, not an error.
            stream.reconfigure(errors="replace")


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def main(words: list[str]) -> int:
    debug = "--debug" in words
    if words[:1] == ["--debug"]:
        words = words[1:]
    try:
        return _dispatch(words)
    except ShopfloorError as error:
        if debug:
            raise
        return print_error(_no_text(error, words) or error)
    except BrokenPipeError:
        # Whoever read our output has gone, as in `shopfloor show last | head`.
        _silence()
        return SIGPIPE_EXIT
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if debug:
            raise
        return print_error(_of_system(error))
    except Exception as error:
        if debug:
            raise
        return print_error(_readable(error, words))


def _of_system(error: OSError) -> ShopfloorError:
    if isinstance(error, FileNotFoundError) and error.filename is None:
        # Of all that is looked for, only the folder that we are in has no name.
        return missing_working_directory()
    return storage_error(error, f"cannot use {error.filename or 'the output'}", reading=True)


def _readable(error: Exception, words: list[str]) -> ShopfloorError:
    """An error of ours, also where task groups have wrapped it; anything else is a defect."""
    inside = sole_error(error)
    if isinstance(inside, ShopfloorError | UnicodeEncodeError) and (refused := _no_text(inside, words)):
        return refused
    if isinstance(inside, ShopfloorError):
        return inside
    return UnexpectedError(
        f"{type(error).__name__}: {error}",
        hint="this is a defect of Shopfloor; the same command with --debug shows where",
    )


def _no_text(error: ShopfloorError | UnicodeEncodeError, words: list[str]) -> UsageError | None:
    """The error where one of the words is to be text, and is none.

    It is seen only where the word is used: a path may be any bytes.
    """
    cause = error if isinstance(error, UnicodeEncodeError) else error.__context__
    if not isinstance(cause, UnicodeEncodeError):
        return None
    wrong = cause.object[cause.start : cause.end]
    word = next((word for word in words if wrong in word), None)
    return UsageError(f"{word!r} is no text in UTF-8", hint="give it in UTF-8: it is kept as text") if word else None


def print_error(error: ShopfloorError) -> int:
    """Says what happened and what to do, and gives the exit code."""
    # Where nobody can be told, the exit code still says it.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        print(f"error[{error.code}]: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def _dispatch(words: list[str]) -> int:
    if len(words) > 1 and words[0] == "help":
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if words[0] in ("-V", "--version"):
        from shopfloor.version import __version__

        print(f"shopfloor {__version__}")
        return 0
    name, rest = words[0], words[1:]
    if name not in COMMANDS:
        raise UsageError(f"there is no command {name!r}", hint=_did_you_mean(name))
    command = find_command(name)
    parser = command.parser(name, COMMANDS[name])
    args: argparse.Namespace = parser.parse_args(rest)
    return command.run(args)


def _did_you_mean(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"did you mean `shopfloor {close[0]}`?" if close else "`shopfloor --help` lists the commands"
