"""From a command line to a command. Only the command that is called is loaded."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NoReturn

from shopfloor.cli.commands import COMMANDS, find_command, overview
from shopfloor.errors import ShopfloorError, UnexpectedError, UsageError

if TYPE_CHECKING:
    import argparse

SIGPIPE_EXIT = 141


def entry() -> NoReturn:
    """The installed `shopfloor`."""
    sys.exit(main(sys.argv[1:]))


def main(words: list[str]) -> int:
    debug = "--debug" in words
    if words[:1] == ["--debug"]:
        words = words[1:]
    try:
        return _dispatch(words)
    except ShopfloorError as error:
        if debug:
            raise
        return complain(error)
    except BrokenPipeError:
        # Whoever read our output has gone, as in `shopfloor show last | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SIGPIPE_EXIT
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if debug:
            raise
        return complain(
            UnexpectedError(
                f"{type(error).__name__}: {error}",
                hint="this is a defect of Shopfloor; the same command with --debug shows where",
            )
        )


def complain(error: ShopfloorError) -> int:
    """Says what happened and what to do, and gives the exit code."""
    sys.stdout.flush()
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
        from shopfloor import __version__

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
