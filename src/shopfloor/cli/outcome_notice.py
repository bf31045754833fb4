"""What `run` does after the outcome: execute the command of `--on-outcome`, and show a desktop notification."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from contextlib import suppress

from shopfloor.cli.arguments import storage_from_args
from shopfloor.errors import ShopfloorError, UsageError
from shopfloor.limits import DESKTOP_MIN_SECONDS


def add_on_outcome_option(parser: ArgumentParser) -> None:
    """Add `--on-outcome`."""
    parser.add_argument(
        "--on-outcome",
        metavar="CMD",
        help="run this shell command when the run has ended, with the outcome as JSON on stdin and $SHOPFLOOR_STATUS",
    )


def add_no_notify_option(parser: ArgumentParser) -> None:
    """Add `--no-notify`."""
    parser.add_argument("--no-notify", action="store_true", help="show no desktop notification after a long run")


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


def leave_to_server(args: Namespace, run_id: str) -> None:
    """Let the server of this machine execute the command of `--on-outcome` when the run has ended."""
    import anyio

    from shopfloor.wiring import add_run_hook

    anyio.run(add_run_hook, storage_from_args(args), run_id, args.on_outcome)


def announce_outcome(args: Namespace, run_id: str | None, seconds: float) -> None:
    """Notify of the outcome of a run of this process, which took `seconds`. A problem is a warning only.

    If the run has not ended, `--on-outcome` is left to the server.
    """
    wants_desktop = not args.no_notify and sys.stdout.isatty() and seconds >= desktop_min_seconds()
    if run_id is None or not (args.on_outcome or wants_desktop) or os.environ.get("SHOPFLOOR_URL"):
        return
    import anyio

    from shopfloor.cli.arguments import ReadWarnings
    from shopfloor.record import read
    from shopfloor.views import RunRow, outcome_notification, row_fold
    from shopfloor.wiring import run_hook_command

    row = RunRow(id=run_id)
    for event in ReadWarnings().decode_events(read(storage_from_args(args).log_path(run_id))):
        row = row_fold(row, [event])
    if row.is_ended:
        notification = outcome_notification(row)
        if args.on_outcome and (problem := anyio.run(run_hook_command, args.on_outcome, notification)) is not None:
            print(f"shopfloor: warning: --on-outcome: {problem}", file=sys.stderr)
        if wants_desktop and (command := _desktop_command(args)) is not None:
            anyio.run(run_hook_command, command, notification)
    elif args.on_outcome:
        try:
            leave_to_server(args, run_id)
        except ShopfloorError as error:
            print(f"shopfloor: warning: --on-outcome is not stored: {error.message}", file=sys.stderr)
        else:
            message = "the server (`shopfloor up`) executes --on-outcome when the run has ended"
            print(f"shopfloor: {message}", file=sys.stderr)


def _desktop_command(args: Namespace) -> str | None:
    """Return the command that notifies on this desktop; None if there is none, or the server notifies on it."""
    import anyio

    from shopfloor.wiring import desktop_hook, has_desktop_server

    with suppress(ShopfloorError):
        if anyio.run(has_desktop_server, storage_from_args(args)):
            return None
    hook = desktop_hook()
    return hook.command if hook else None
