"""Client tools of sub-runs, as the client of the run above them is asked for them."""

from __future__ import annotations

import msgspec

from shopfloor.log import is_run_id
from shopfloor.views.stream_events import RequestedCall

_SEPARATOR = ":"


class CallsBelow(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The client tools that the runs below a run wait for, at a time when everything in its tree waits.

    No single log tells this, so a stream of the run gets it beside the log. The id of each call names its run.
    """

    tool_calls: list[RequestedCall]
    waits: bool = False
    """There are no such calls, nothing in the tree works any more, and the run's log has been silent for a while."""


def join_call_id(run_id: str, call_id: str) -> str:
    """The id under which a call of a sub-run is known to the client of a run above it."""
    return f"{run_id}{_SEPARATOR}{call_id}"


def split_call_id(text: str) -> tuple[str | None, str]:
    """The sub-run that made a call, and the call's id there; None where the id names no run."""
    run_id, separator, call_id = text.partition(_SEPARATOR)
    return (run_id, call_id) if separator and call_id and is_run_id(run_id) else (None, text)
