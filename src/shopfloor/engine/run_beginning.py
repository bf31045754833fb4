"""The `run.started` with which an attempt begins."""

from __future__ import annotations

from msgspec.structs import replace

from shopfloor.engine.journal import Journal
from shopfloor.log import FORMAT, RunStarted
from shopfloor.ports import QueuedRun


def run_started(
    journal: Journal, queued: QueuedRun | None, *, host: str, is_caller: bool = False, masked: bool = False
) -> RunStarted:
    """Make the first event of an attempt: that of the first attempt is the queued one, with its host."""
    if journal.first is None and queued is not None:
        started = replace(queued.started, format=FORMAT)
    else:
        first = journal.first
        started = RunStarted(name=first.name if first else "", kind=first.kind if first else "", attempt=0, host="")
    executor = "caller" if is_caller else None
    return replace(started, attempt=journal.attempt + 1, host=host, executor=executor, masked=masked)
