"""Response models of what waits for a person."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from shopfloor.ports import RunItem
from shopfloor.views import DEFINITION_CHANGED, INTERRUPTED

WaitingAction = Literal["answer", "rerun", "cancel", "dismiss"]
FAILURE = "failure"


class WaitingItem(msgspec.Struct, frozen=True, kw_only=True):
    """A question, an approval, a tool call, a failure or a held run that waits for a person or a client."""

    run_id: Annotated[str, Meta(description="The run that waits.")]
    root_run_id: Annotated[str, Meta(description="The root of the tree of runs that the run is part of.")]
    title: Annotated[str, Meta(description="The task of the run, on one line.")]
    worker: str
    kind: Annotated[
        str,
        Meta(
            description="`question`, `approval` or `client_tool` for a call. `failure` for a run that failed for a "
            "reason that only a person can remove, `definition_changed` for a run that is held because its worker "
            "changed, `interrupted` for a run that no server resumes."
        ),
    ]
    call_id: Annotated[str | None, Meta(description="The id to send with an answer; null if there is no call.")]
    text: Annotated[
        str,
        Meta(description="The question, the tool and its input, or the reason; shortened if it is very long."),
    ]
    error_code: Annotated[str | None, Meta(description="For a failure, the code of the error. Null otherwise.")]
    hint: Annotated[str | None, Meta(description="What to do about it; null if nothing is known.")]
    actions: Annotated[
        list[WaitingAction],
        Meta(description="What can be done with requests to `/api/runs/{run_id}/…`, the most useful first."),
    ]
    options: Annotated[list[str] | None, Meta(description="The answers to choose from; null for any text.")]
    since: Annotated[str, Meta(description="When the run began to wait for this.")]
    until: Annotated[str | None, Meta(description="When the run stops waiting; null if it waits without limit.")]


class WaitingList(msgspec.Struct, frozen=True):
    """Everything that waits for a person."""

    items: Annotated[list[WaitingItem], Meta(description="The longest wait first.")]
    total: Annotated[
        int,
        Meta(
            description="The number of all that waits. `items` has those of at most 500 runs of each kind, which wait "
            "longest."
        ),
    ]


def build_call_items(run: RunItem) -> list[WaitingItem]:
    """Return the unanswered requests of a waiting run."""
    waits = run.row.waits
    return [
        _item(
            run,
            kind=waits.kinds.get(call_id, ""),
            call_id=call_id,
            text=request.text,
            options=list(request.options) or None,
            actions=["answer"],
            since=request.since,
            until=waits.until.get(call_id),
        )
        for call_id, request in waits.requests.items()
        if call_id not in run.answered
    ]


def build_failure_item(run: RunItem) -> WaitingItem:
    """Return a run that failed for a reason that only a person can remove."""
    row = run.row
    return _item(
        run,
        kind=FAILURE,
        text=row.error_message or row.error_code or "",
        error_code=row.error_code,
        hint=row.error_hint,
        actions=["rerun", "dismiss"],
        since=row.completed_at or "",
    )


def build_held_item(run: RunItem, refusal: str | None) -> WaitingItem:
    """Return a run that is held because its worker changed. `refusal`: why a server does not resume the run."""
    waits = run.row.waits
    return _item(
        run,
        kind=DEFINITION_CHANGED,
        text=waits.hold_reason or "",
        hint="restore the worker, and the run continues by itself" if refusal is None else _shell_hint(run),
        actions=["cancel"],
        since=next((waits.since[call] for call, kind in waits.kinds.items() if kind == DEFINITION_CHANGED), ""),
    )


def build_interrupted_item(run: RunItem, refusal: str, since: str) -> WaitingItem:
    """Return an interrupted run that no server resumes."""
    return _item(
        run,
        kind=INTERRUPTED,
        text=f"interrupted, and not resumed: {refusal}",
        hint=_shell_hint(run),
        actions=["cancel"],
        since=since,
    )


def _shell_hint(run: RunItem) -> str:
    return f"`shopfloor resume {run.row.id[:8]}` resumes the run in your shell"


def _item(run: RunItem, **fields: Any) -> WaitingItem:
    row = run.row
    optional: dict[str, Any] = dict.fromkeys(("call_id", "error_code", "hint", "options", "until"))
    return WaitingItem(
        run_id=row.id,
        root_run_id=row.root_run_id or row.id,
        title=row.title,
        worker=row.name,
        **{**optional, **fields},
    )
