"""What `run` does after the outcome: run the command of `--on-outcome`, and show a desktop notification."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import storage_from_args
from shopfloor.errors import UsageError
from shopfloor.limits import DESKTOP_MIN_SECONDS


def add_on_outcome_option(parser: ArgumentParser) -> None:
    """Add `--on-outcome`."""
    parser.add_argument(
        "--on-outcome",
        metavar="CMD",
        help="run this shell command when the run has ended, with the outcome as JSON on stdin and $SHOPFLOOR_STATUS",
    )


def reject_on_outcome(args: Namespace) -> None:
    """Raise `UsageError` if `--on-outcome` is used with a server elsewhere: its machine does not have the command."""
    if args.on_outcome is not None and os.environ.get("SHOPFLOOR_URL"):
        raise UsageError(
            "--on-outcome needs a run of this machine, and SHOPFLOOR_URL names another server",
            hint="unset SHOPFLOOR_URL, or add a webhook with `shopfloor hooks add URL`",
        )
    if args.on_outcome is not None and not args.on_outcome.strip():
        raise UsageError("--on-outcome is empty", hint="e.g. --on-outcome 'notify-send \"$SHOPFLOOR_TITLE\"'")


def desktop_min_seconds() -> float:
    """Return how long a run must take for a desktop notification, from the environment."""
    from shopfloor.wiring import seconds_setting

    name = "SHOPFLOOR_NOTIFY_SECONDS"
    return seconds_setting(name, os.environ.get(name), DESKTOP_MIN_SECONDS)


def announce_outcome(args: Namespace, run_id: str | None, seconds: float) -> None:
    """Tell about the outcome of a run of this process, which took `seconds`. A problem is a warning only."""
    wants_desktop = not args.no_notify and sys.stdout.isatty() and seconds >= desktop_min_seconds()
    if run_id is None or not (args.on_outcome or wants_desktop) or os.environ.get("SHOPFLOOR_URL"):
        return
    import anyio

    from shopfloor.cli.arguments import ReadWarnings
    from shopfloor.record import read
    from shopfloor.views import RunRow, outcome_notification, row_fold
    from shopfloor.wiring import desktop_hook, run_hook_command

    row = RunRow(id=run_id)
    for event in ReadWarnings().decode_events(read(storage_from_args(args).log_path(run_id))):
        row = row_fold(row, [event])
    if not row.is_ended:
        return
    desktop = desktop_hook() if wants_desktop else None
    commands = [args.on_outcome, desktop.command if desktop else None]
    for command in commands:
        problem = anyio.run(run_hook_command, command, outcome_notification(row)) if command else None
        if problem is not None and command == args.on_outcome:
            print(f"shopfloor: warning: --on-outcome: {problem}", file=sys.stderr)
