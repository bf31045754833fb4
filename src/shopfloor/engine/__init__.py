"""What makes runs happen. The only room that decides what is written to a log."""

from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.command import CommandRun, Outcome, run_command
from shopfloor.engine.ingest import Ingest, pack
from shopfloor.engine.keeper import keep, reconcile
from shopfloor.engine.reconcile import HOST_LOST, end_orphan, is_orphan
from shopfloor.engine.retention import delete_run, prune

__all__ = [
    "HOST_LOST",
    "Cancellation",
    "CommandRun",
    "Ingest",
    "Outcome",
    "delete_run",
    "end_orphan",
    "is_orphan",
    "keep",
    "pack",
    "prune",
    "reconcile",
    "run_command",
]
