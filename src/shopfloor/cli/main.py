"""Parse the command line and call the command. Only the module of the called command is imported."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, Protocol, cast

from shopfloor.errors import ShopfloorError, UnexpectedError, UsageError, sole_error

if TYPE_CHECKING:
    import io
    from argparse import ArgumentParser, Namespace


GROUPS: dict[str, dict[str, str]] = {
    "Run": {
        "run": "Run a worker, an agent or a command here, and record it",
        "resume": "Continue a run that was interrupted or answered",
        "rerun": "Run a worker again, with the same input or some of it changed",
        "reply": "Continue the session of an agent with a new prompt",
        "fork": "Start a run with the steps of another run up to an event",
        "dispatch": "Hand a run to the server, which executes it in the background",
        "waiting": "List what waits for you: questions, approvals and tool calls",
        "answer": "Answer a question or a tool call that a run is waiting for",
        "approvals": "List and revoke the calls that workers may make without asking",
        "cancel": "Cancel a run",
        "workers": "List, show, check and create workers",
        "providers": "List the agents and model APIs that can be used",
        "plugins": "List, create, check and allow plugins",
    },
    "Inspect": {
        "list": "List and search runs, newest first",
        "queue": "Show which runs have not started, and why",
        "stats": "Show what runs cost, per day, model, provider or worker, and what failed",
        "status": "Show the status, cost and timeline of a run",
        "result": "Print the output of a run",
        "show": "Print the transcript of a run",
        "tail": "Print the transcript of a run while it is written",
        "export": "Write a run as Markdown or as one HTML file, to share it",
        "tree": "Show the steps of a run and of its sub-runs as a tree",
        "events": "Print the events of agents, hosts and providers, as dashboards get them",
    },
    "Serve": {
        "up": "Start the server: the web page, the API, and dispatched runs",
        "down": "Stop the server",
        "host": "Execute dispatched runs beside the server, without the page and the API",
        "hosts": "List the hosts that execute runs, and drain one",
        "projects": "List, add and remove folders whose workers the server runs",
        "open": "Open the page in a browser, at a run",
        "login": "Print a one-time link that logs a browser in",
        "tokens": "List, create and revoke access tokens and browser sessions",
        "hooks": "List, add, remove and test webhooks that are notified of runs",
        "mcp": "Let another agent hand work to the workers: the MCP server that it starts",
        "prompt": "Print what an agent must know to hand work to the workers",
        "audit": "Show who did what, from where and when",
    },
    "Maintain": {
        "doctor": "Check this machine and report what is missing",
        "delete": "Delete finished runs",
        "prune": "Delete runs that finished long ago",
        "rebuild": "Rebuild the database from the transcripts",
        "verify": "Check transcript files against the rules of the format",
        "normalize": "Convert the output of an agent into a transcript",
        "completion": "Print a script that completes commands in bash, zsh or fish",
        "schema": "Print the JSON Schema of a transcript line or a fleet event",
    },
}
COMMANDS: dict[str, str] = {name: summary for group in GROUPS.values() for name, summary in group.items()}

ALIASES: dict[str, str] = {"ps": "list", "logs": "show", "token": "tokens"}
"""Other names of commands, as other tools have them."""

EXAMPLES = """\
  shopfloor run hello -i NAME=Ada              run a worker
  shopfloor run --provider codex 'fix test 3'  hand a task to an agent
  shopfloor run --command 'pytest -q'          record a command
  shopfloor show last                          read the newest transcript
  shopfloor tail 5f3a                          watch the run 5f3a…"""


class CommandModule(Protocol):
    """The functions that each command's module has."""

    def parser(self, name: str, summary: str) -> ArgumentParser:
        """Return the parser of the command's arguments."""
        ...

    def run(self, args: Namespace) -> int:
        """Execute the command and return the exit code."""
        ...


def find_command(name: str) -> CommandModule:
    """Import the module of a command."""
    return cast("CommandModule", import_module(f"shopfloor.cli.{name}"))


def overview() -> str:
    """Return the text of `shopfloor --help`."""
    width = max(map(len, COMMANDS))
    groups = "\n\n".join(
        "\n".join([f"{title}:", *(f"  {name:<{width}}  {summary}" for name, summary in group.items())])
        for title, group in GROUPS.items()
    )
    return f"""\
Shopfloor runs AI workers and keeps an exact record of what they did.

Usage: shopfloor COMMAND [OPTIONS]

{groups}

Options:
  -h, --help     show this help; after a command, the help of the command
  -V, --version  show the version

Examples:
{EXAMPLES}

Runs are stored in $SHOPFLOOR_STORAGE, or else in your data folder."""


SIGPIPE_EXIT = 141
_START_UP_OBJECTS = 100_000
_DEFAULT_GC_THRESHOLDS = gc.get_threshold()


def entry() -> NoReturn:
    """Run the installed `shopfloor` program and exit."""
    # The objects loaded at start stay alive: scanning them for garbage takes a tenth of a short command's time.
    gc.set_threshold(_START_UP_OBJECTS)
    codes: list[int] = []
    # Registered before all other exit handlers, so called after them.
    atexit.register(_skip_teardown, codes)
    _repair_standard_streams()
    code = main(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        # The reader has gone, and the exit code is still valid.
        _discard_output()
    if "threading" in sys.modules:
        from shopfloor.cli.shutdown import schedule_exit_if_threads_remain

        schedule_exit_if_threads_remain(code)
    codes.append(code)
    sys.exit(code)


def _skip_teardown(codes: list[int]) -> None:
    """Exit with the code, if there is one. Freeing every object would take a fifth of a short command's time."""
    if codes:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(codes[0])


def restore_gc_thresholds() -> None:
    """Collect garbage at Python's default rate again, for a process that runs for much longer than it starts."""
    gc.freeze()
    gc.set_threshold(*_DEFAULT_GC_THRESHOLDS)


def _repair_standard_streams() -> None:
    """Open the standard streams that were closed when we were started.

    Otherwise the next file that is opened would get descriptor 1, and our output would be written into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = cast("io.TextIOWrapper | None", getattr(sys, name))
        if stream is None:
            setattr(sys, name, open(descriptor, "w", closefd=False))  # noqa: SIM115 - open until the process ends
        else:
            # An encoding without ✓ prints a question mark instead of failing.
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def main(words: list[str]) -> int:
    """Execute a command line, print its error if it fails, and return the exit code."""
    debug = "--debug" in words
    if words[:1] == ["--debug"]:
        words = words[1:]
    try:
        return _dispatch(words)
    except ShopfloorError as error:
        if debug:
            raise
        return print_error(_encoding_error(error, words) or error)
    except BrokenPipeError:
        # The reader of our output has gone, as in `shopfloor show last | head`.
        _discard_output()
        return SIGPIPE_EXIT
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if debug:
            raise
        return print_error(_system_error(error))
    except Exception as error:
        if debug:
            raise
        return print_error(_to_shopfloor_error(error, words))


def _system_error(error: OSError) -> ShopfloorError:
    from shopfloor.error_factories import missing_working_directory, storage_error

    if isinstance(error, FileNotFoundError) and error.filename is None:
        # Only looking up the working directory fails without a file name.
        return missing_working_directory()
    return storage_error(error, f"cannot use {error.filename or 'the output'}", reading=True)


def _to_shopfloor_error(error: Exception, words: list[str]) -> ShopfloorError:
    """Return the `ShopfloorError` inside task groups; any other exception is a defect of Shopfloor."""
    inside = sole_error(error)
    if isinstance(inside, ShopfloorError | UnicodeEncodeError) and (refused := _encoding_error(inside, words)):
        return refused
    if isinstance(inside, ShopfloorError):
        return inside
    return UnexpectedError(
        f"{type(error).__name__}: {error}",
        hint="this is a defect of Shopfloor; run the same command with --debug for a traceback",
    )


def _encoding_error(error: ShopfloorError | UnicodeEncodeError, words: list[str]) -> UsageError | None:
    """Return a `UsageError` if `error` was caused by an argument that is not valid UTF-8.

    Arguments are not checked before: a path may have any bytes.
    """
    cause = error if isinstance(error, UnicodeEncodeError) else error.__context__
    if not isinstance(cause, UnicodeEncodeError):
        return None
    invalid = cause.object[cause.start : cause.end]
    word = next((word for word in words if invalid in word), None)
    return UsageError(f"argument {word!r} is not valid UTF-8", hint="pass it as UTF-8 text") if word else None


def print_error(error: ShopfloorError) -> int:
    """Print the error and its hint to stderr, and return the exit code."""
    # If the output is closed, only the exit code reports the error.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        print(f"error[{error.code}]: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
    return error.exit_code


def _dispatch(words: list[str]) -> int:
    if len(words) > 1 and words[0] == "help":
        words = [ALIASES.get(words[1], words[1]), "--help"]
    if not words or words[0] in ("-h", "--help", "--help-all", "help"):
        print(overview())
        return 0
    if words[0] in ("-V", "--version"):
        from shopfloor.version import __version__

        print(f"shopfloor {__version__}")
        return 0
    name, rest = ALIASES.get(words[0], words[0]), words[1:]
    if words[0] == "logs" and (follow := {"-f", "--follow"}.intersection(rest)):
        # As in other tools: follow what is being written.
        name, rest = "tail", [word for word in rest if word not in follow]
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}", hint=_suggest_command(name))
    command = find_command(name)
    args = command.parser(name, COMMANDS[name]).parse_args(rest)
    return command.run(args)


def _suggest_command(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f"did you mean `shopfloor {close[0]}`?" if close else "run `shopfloor --help` for the list of commands"
