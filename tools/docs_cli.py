"""docs/reference/cli.md: the help of each command, the environment variables and the exit codes."""

import ast
import os
import subprocess
import sys

from shopfloor.cli.main import COMMANDS
from tools.docs_markdown import code, fenced, generated, page, section, table
from tools.docs_source import SOURCE, calls, constant, modules

COLUMNS = "100"
REAPER = SOURCE / "adapters" / "local" / "reaper.py"

# Each variable that the source reads needs a line here; otherwise the page fails.
VARIABLES = {
    "SHOPFLOOR_STORAGE": "The folder for runs. By default `storage` in the user's data folder.",
    "SHOPFLOOR_DISK_LOW_WATER": "The bytes that must stay free on the disk. With less, no run starts, and active runs "
    "are ended while they can still be recorded.",
    "SHOPFLOOR_PORT": "The port that `shopfloor up` listens on without `--port`; 7420 by default.",
    "SHOPFLOOR_SLOTS": "The number of runs that `shopfloor up` and `shopfloor host` execute at once without `--slots`.",
    "SHOPFLOOR_HEARTBEAT": "Seconds between two heartbeats of `shopfloor up` and `shopfloor host`; 30 by default.",
    "SHOPFLOOR_EXECUTE_GRACE": "Seconds that a run of `execute` continues after its client disconnected; 0.5 by "
    "default.",
    "SHOPFLOOR_NOTIFY_SECONDS": "Seconds that a run must take for a desktop notification; 30 by default.",
    "SHOPFLOOR_PROVIDER_CHECK": "Seconds between the checks of providers by a server; 300 by default, 0 for none.",
    "SHOPFLOOR_CLIENT_WAIT": "Seconds that a run of `execute` waits for the result of a client tool before it is "
    "cancelled; a day by default.",
    "SHOPFLOOR_URL": "A server to use instead of the local files: `list`, `status`, `show` and `tail` show its runs, "
    "and it executes the runs that `run` starts. A login link (`…/login?token=…`) is URL and token in one.",
    "SHOPFLOOR_TOKEN": "The token for that server. For `shopfloor up`, the token that it accepts as an admin's. It has "
    "at least 16 characters.",
    "SHOPFLOOR_CONNECTIONS": "The number of connections that `shopfloor up` accepts at once, if the limit of open "
    "files allows; 4,096 by default.",
    "SHOPFLOOR_CONNECTIONS_PER_ADDRESS": "The number of connections from one other machine; 256 by default. "
    "Connections from this machine are not limited by it.",
    "SHOPFLOOR_HEADER_SECONDS": "Seconds that a client has to send the head of a request; 15 by default.",
    "SHOPFLOOR_BODY_SECONDS": "Seconds that a client has to send the body of a request; 60 by default.",
    "SHOPFLOOR_IDLE_CONNECTION_SECONDS": "Seconds that a connection stays open between two requests; 5 by default.",
    "SHOPFLOOR_STALLED_SECONDS": "Seconds that a client may leave a full send buffer unread; 60 by default.",
    "NO_COLOR": "If not empty: no colors, unless `--color always`.",
    "TZ": "The time zone of the days that `shopfloor stats` shows, without `--tz`; otherwise that of the machine.",
    "TERM": "If `dumb`: no colors, unless `--color always`.",
}
# By the names of the constants in reaper.py.
MARKERS = {
    "RUN_MARKER": "The id of the run that the process belongs to.",
    "CHILD_MARKER": "A mark of this command. Processes that have it are ended with the command.",
    "HOST_MARKER": "The host that executes the run. Processes that have it are ended with the host.",
}


def cli_page() -> str:
    return page(
        "The command line",
        generated("the commands' own help"),
        fenced("text", _help()),
        *(section(f"shopfloor {name}", fenced("text", _help(name))) for name in COMMANDS),
        section("Variables", table(("variable", "meaning"), _variable_rows())),
        section(
            "Variables that Shopfloor sets for commands",
            table(("variable", "meaning"), [(code(constant(REAPER, name)), text) for name, text in MARKERS.items()]),
        ),
        section("Exit codes", _EXIT_CODES),
    )


_EXIT_CODES = """\
`shopfloor run` exits with the code of the command; with 128 plus the signal's number if a signal cancelled the run or
killed the command; with 141 if the reader of its output closed the pipe. `run`, `result` and `dispatch --wait` exit
with 75 if the run waits for an answer or has not ended yet. `verify` exits with 1 if a rule is broken, and `tail` with
1 if the run ended without an outcome. Errors of Shopfloor itself are listed in [errors](errors.md)."""


def _help(*words: str) -> str:
    command = [sys.executable, "-m", "shopfloor", *words, "--help-all"]
    env = {**os.environ, "COLUMNS": COLUMNS, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=env).stdout


def _variable_rows() -> list[tuple[str, str]]:
    read = {name for path in modules() for call in calls(path, "os.environ.get") for name in _first_word(call)}
    if unknown := read - VARIABLES.keys():
        raise LookupError(f"the source reads {', '.join(sorted(unknown))}, which tools/docs_cli.py does not explain")
    return [(code(name), text) for name, text in VARIABLES.items() if name in read]


def _first_word(call: ast.Call) -> list[str]:
    match call.args:
        case [ast.Constant(value=str() as name), *_]:
            return [name]
        case _:
            return []
