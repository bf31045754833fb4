"""JSON on stdout: the option `--json` of the commands, and the functions that print what it promises.

docs/reference/json.md lists what each command prints. A command prints one object, or one object per line where it
reports results as they happen; everything else goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

import msgspec

from shopfloor.cli.arguments import CommandParser, OptionGroup
from shopfloor.control_characters import C1_CONTROLS, DEL, DIRECTION_CONTROLS

RESPONSE: Final = "print the response of the API"
EVENTS: Final = "print the events as JSON, one per line"
_ESCAPED: Final = {code: f"\\u{code:04x}" for code in (DEL, *C1_CONTROLS, *DIRECTION_CONTROLS)}
"""The JSON escapes of DEL, the C1 controls, and the characters that change the direction of text."""


def add_json_option(parser: OptionGroup, text: str = "print JSON") -> None:
    """Add `--json`. Before an inner command it means the same as after it."""
    # A default of the inner command would overwrite the value of an option before it.
    default = argparse.SUPPRESS if isinstance(parser, CommandParser) else False
    parser.add_argument("--json", action="store_true", default=default, help=text)


def print_json(value: object) -> None:
    """Print a value as one line of JSON and flush it, so that a program reads each result when it happens."""
    # Bytes of a file name that are not UTF-8 become question marks.
    write_json(json.dumps(msgspec.to_builtins(value), ensure_ascii=False).encode(errors="replace"))
    sys.stdout.flush()


def write_json(line: bytes) -> None:
    """Write a line of JSON to stdout. On a terminal, escape control characters and replace invalid UTF-8."""
    if sys.stdout.isatty():
        line = escape_json_for_terminal(line.decode(errors="replace")).encode()
    sys.stdout.buffer.write(line + b"\n")


def escape_json_for_terminal(text: str) -> str:
    """Return JSON for stdout: on a terminal with control characters escaped, otherwise unchanged."""
    return text.translate(_ESCAPED) if sys.stdout.isatty() else text
