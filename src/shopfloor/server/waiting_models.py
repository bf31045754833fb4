"""Response models of what waits for a person."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from shopfloor.limits import PREVIEW_CHARS
from shopfloor.ports import RunItem


class WaitingItem(msgspec.Struct, frozen=True, kw_only=True):
    """A question, an approval or a tool call that waits for a person or a client."""

    run_id: Annotated[str, Meta(description="The run that waits.")]
    root_run_id: Annotated[str, Meta(description="The root of the tree of runs that the run is part of.")]
    title: Annotated[str, Meta(description="The task of the run, on one line.")]
    worker: str
    kind: Annotated[str, Meta(description="`question`, `approval` or `client_tool`.")]
    call_id: Annotated[str, Meta(description="The id to send with an answer.")]
    text: Annotated[str, Meta(description="The question, or the tool and its input; shortened if it is very long.")]
    options: Annotated[list[str] | None, Meta(description="The answers to choose from; null for any text.")]
    since: Annotated[str, Meta(description="When the run began to wait for this.")]
    until: Annotated[str | None, Meta(description="When the run stops waiting; null if it waits without limit.")]


class WaitingList(msgspec.Struct, frozen=True):
    """Everything that waits for a person."""

    items: Annotated[list[WaitingItem], Meta(description="The longest wait first.")]
    total: Annotated[int, Meta(description="The number of items.")]


def build_waiting_items(run: RunItem) -> list[WaitingItem]:
    """Return the unanswered requests of a waiting run."""
    row, waits = run.row, run.row.waits
    return [
        WaitingItem(
            run_id=row.id,
            root_run_id=row.root_run_id or row.id,
            title=" ".join(row.task[:PREVIEW_CHARS].split()),
            worker=row.name,
            kind=waits.kinds.get(call_id, ""),
            call_id=call_id,
            text=request.text,
            options=list(request.options) or None,
            since=request.since,
            until=waits.until.get(call_id),
        )
        for call_id, request in waits.requests.items()
        if call_id not in run.answered
    ]
