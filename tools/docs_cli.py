"""docs/reference/cli.md: what each command says about itself, and the variables that it reads."""

import ast
import os
import subprocess
import sys

from shopfloor.cli.main import COMMANDS
from tools.docs_markdown import code, fenced, generated, page, section, table
from tools.docs_source import SOURCE, calls, constant, modules

COLUMNS = "100"
REAPER = SOURCE / "adapters" / "local" / "reaper.py"

# Each variable that the source reads has a line here; one without makes the page fail.
VARIABLES = {
    "SHOPFLOOR_STORAGE": "The folder in which runs are kept. Without it: `storage` in the user's data folder.",
    "SHOPFLOOR_DISK_LOW_WATER": "Bytes that must stay free on the disk: below that no run is started, and running ones "
    "are ended while they can still be recorded.",
    "SHOPFLOOR_PORT": "The port that `shopfloor up` listens on, where `--port` does not say it; 7420 by default.",
    "SHOPFLOOR_SLOTS": "How many runs `shopfloor up` works on at once, where `--slots` does not say it.",
    "SHOPFLOOR_EXECUTE_GRACE": "Seconds that a run of `execute` goes on after its client hung up; 0.5 by default.",
    "SHOPFLOOR_CLIENT_WAIT": "Seconds that a run of `execute` waits for the result of a client tool; then it is "
    "cancelled. A day by default.",
    "SHOPFLOOR_URL": "A server to ask, instead of the files here: `list`, `status`, `show` and `tail` are of its runs, "
    "and it executes what `run` starts. `…/login?token=…` is URL and token in one.",
    "SHOPFLOOR_TOKEN": "The token for that server; for a server of your own, the token that it takes as an admin's. It "
    "has at least 16 characters.",
    "SHOPFLOOR_CONNECTIONS": "How many connections `shopfloor up` has at once, where the limit of open files allows "
    "it; 4,096 by default.",
    "SHOPFLOOR_CONNECTIONS_PER_ADDRESS": "How many of them another machine has; 256 by default. This machine has all.",
    "SHOPFLOOR_HEADER_SECONDS": "Seconds that a client has to send the head of a request; 15 by default.",
    "SHOPFLOOR_BODY_SECONDS": "Seconds that a client has to send the body of a request; 60 by default.",
    "SHOPFLOOR_IDLE_CONNECTION_SECONDS": "Seconds that a connection stays open between two requests; 5 by default.",
    "SHOPFLOOR_STALLED_SECONDS": "Seconds that a client may leave a full send buffer unread; 60 by default.",
    "NO_COLOR": "Not empty: no colours, unless `--color always`.",
    "TERM": "`dumb`: no colours, unless `--color always`.",
}
# By the names of the constants in reaper.py.
MARKERS = {
    "RUN_MARKER": "The id of the run that the process belongs to.",
    "CHILD_MARKER": "A mark of the command's own. What carries it ends with the command.",
    "HOST_MARKER": "The host that executes the run. What carries it ends with the host.",
}


def cli_page() -> str:
    return page(
        "The command line",
        generated("the commands' own help"),
        fenced("text", _help()),
        *(section(f"shopfloor {name}", fenced("text", _help(name))) for name in COMMANDS),
        section("Variables", table(("variable", "meaning"), _variable_rows())),
        section(
            "Variables that a command finds set",
            table(("variable", "meaning"), [(code(constant(REAPER, name)), text) for name, text in MARKERS.items()]),
        ),
        section("Exit codes", _EXIT_CODES),
    )


_EXIT_CODES = """\
`shopfloor run` exits with the code of the command; with 128 and the signal's number where a signal cancelled it or
killed the command; with 141 where whoever read its output went away. `run`, `result` and `dispatch --wait` exit with 75
where the run waits for somebody, or has not ended yet. `verify` exits with 1 where a rule is broken, and
`tail` with 1 where the run ended without an outcome. Errors of Shopfloor itself are listed in [errors](errors.md)."""


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
