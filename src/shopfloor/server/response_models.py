"""The shapes of answers: the seed's fields, and what came to them. The API's description is made from these."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from shopfloor.ports import LogReader, ProviderInfo, RunItem, WorkerInfo
from shopfloor.server.limits import RESULT_LOOKAHEAD_EVENTS
from shopfloor.views import ArchiveEntry, LogHit, Span, is_interrupted

WireStatus = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]

_SHOWN: dict[str, WireStatus] = {
    "queued": "queued",
    "running": "running",
    "waiting": "waiting",
    "completed": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}
_INSIDE: dict[str, str] = {shown: inside for inside, shown in _SHOWN.items()}


def to_wire_status(inside: str) -> WireStatus:
    return _SHOWN[inside]


def statuses_for_filter(shown: str) -> tuple[str, ...] | None:
    """The statuses that a filter means; None for all."""
    return None if shown == "all" else (_INSIDE[shown],)


class Problem(msgspec.Struct, frozen=True):
    code: Annotated[str, Meta(description="What a program goes by.")]
    message: Annotated[str, Meta(description="What happened.")]
    hint: Annotated[str | None, Meta(description="What to do about it.")]


class ProblemAnswer(msgspec.Struct, frozen=True):
    """Every error is said like this."""

    error: Problem


class ExecutionProblem(msgspec.Struct, frozen=True):
    """An error where a worker was to be executed: flat, as the TypeScript SDK reads it."""

    error: Annotated[str, Meta(description="What happened.")]
    code: Annotated[str, Meta(description="What a program goes by.")]
    hint: Annotated[str | None, Meta(description="What to do about it.")]


class Failure(msgspec.Struct, frozen=True):
    """Why a run failed."""

    code: str | None
    message: str | None
    hint: Annotated[
        str | msgspec.UnsetType, Meta(description="What can be done about it; left out where nothing is known.")
    ] = msgspec.UNSET


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens, by class."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class _Worker(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    task: str
    status: WireStatus
    worker_type: Annotated[str, Meta(description="`builtin`, `plugin`, or the provider of a bare run.")]
    channel_id: str | None
    channel_name: str | None
    started_at: str
    completed_at: Annotated[str | None, Meta(description="Null until it has ended.")]
    event_count: Annotated[int, Meta(description="How many rows its timeline has.")]
    has_transcript: bool
    agent_id: Annotated[str | None, Meta(description="The owner under which it is listed.")]
    parent_run_id: Annotated[str | None, Meta(description="The run that called it.")]
    root_run_id: Annotated[str | None, Meta(description="The first run of its tree.")]
    name: str
    kind: str
    duration_ms: int | None
    tool_calls: int
    usage: Annotated[TokenUsage, Meta(description="Of the run itself; while it goes on, as far as is told.")]
    cost_usd: Annotated[float | None, Meta(description="Of the run itself; null where it is not known.")]
    tree_usage: Annotated[TokenUsage, Meta(description="With the runs that it called, and theirs.")]
    tree_cost_usd: Annotated[float | None, Meta(description="The same in money, as far as it is known.")]
    error: Failure | None
    pinned: Annotated[bool, Meta(description="Kept when old runs are pruned.")]
    provider: Annotated[
        str | None, Meta(description="What powers it: of its newest session, or of the run itself where it is bare.")
    ]
    model: Annotated[str | None, Meta(description="The model that wrote its newest message.")]
    children: Annotated[int, Meta(description="How many runs it has called.")]
    waits_for: Annotated[
        list[str] | None,
        Meta(
            description="While it waits, the kinds of what it waits for: `client_tool`, `question`, `approval`, "
            "`rate_limit`, `definition_changed`, or another; `run` for a run that it called. Null while it does not."
        ),
    ]
    asks: Annotated[
        list[str] | None,
        Meta(
            description="While it waits, what it asks for, each on one line, without what somebody has answered. Null "
            "while it does not."
        ),
    ]
    interrupted: Annotated[
        bool,
        Meta(description="Its status is `running`, and no process works on it: the one that did is gone."),
    ]
    interruptions: Annotated[
        int,
        Meta(description="How often it was cut off and begun again. To wait and to be answered is no interruption."),
    ]
    search_stopped_at: Annotated[
        int | None,
        Meta(description="The event at which search stops, since the run has more text than is indexed; else null."),
    ]


class WorkerItem(_Worker, frozen=True, kw_only=True):
    """A run, as the list shows it."""

    snippet: Annotated[str | None, Meta(description="Where the searched words stand, between U+E000 and U+E001.")]


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a run waits for somebody to answer."""

    run_id: Annotated[str, Meta(description="The run that waits: the one asked for, or one below it.")]
    call_id: Annotated[str, Meta(description="What an answer names.")]
    kind: Annotated[str, Meta(description="`client_tool`, `question`, `approval`, or another.")]
    name: Annotated[str, Meta(description="The tool.")]
    input: Annotated[Any, Meta(description="What it is to be given, or what is asked.")]
    until: Annotated[str | None, Meta(description="When the wait ends by itself.")]
    answered: Annotated[bool, Meta(description="Somebody has answered, and the run has not taken it up yet.")]


class WorkerDetail(_Worker, frozen=True, kw_only=True):
    """A run with all that was said in it."""

    result: str | None
    transcript: Annotated[
        list[ArchiveEntry] | None, Meta(description="Null while it is running, and where none was kept.")
    ]
    transcript_omitted: Annotated[str | None, Meta(description="Why a transcript that was kept is not given.")]
    queued_at: str | None
    host: str | None
    attempt: int
    last_seq: Annotated[int, Meta(description="The newest event of its log that this tells of.")]
    awaits: Annotated[list[Awaited], Meta(description="What it and the runs below it wait for somebody to give.")]


class Deleted(msgspec.Struct, frozen=True):
    deleted: list[str]
    """The runs that are gone, sub-runs before the run they belong to."""


class WorkerList(msgspec.Struct, frozen=True):
    workers: list[WorkerItem]
    total: Annotated[int, Meta(description="How many runs match, on all pages.")]
    next: Annotated[str | None, Meta(description="The cursor of the next page; null on the last.")]


class WorkerEvent(msgspec.Struct, frozen=True):
    """A row of a timeline."""

    id: int
    event_type: Literal["status", "tool_started", "tool_completed", "error"]
    data: Annotated[dict[str, Any], Meta(description="What the type carries; it may gain fields.")]
    created_at: str
    seq: Annotated[int, Meta(description="The event of the log that it comes from.")]


class WorkerEvents(msgspec.Struct, frozen=True):
    events: list[WorkerEvent]
    more: Annotated[bool, Meta(description="Whether there are later ones.")]


class LogPage(msgspec.Struct, frozen=True):
    """Events as they stand in the log, or briefly."""

    events: Annotated[
        list[dict[str, Any]],
        Meta(
            description="As they stand in the log. Told briefly, an event whose texts were cut has `cut`: "
            "how many bytes it has as a whole."
        ),
    ]
    more: Annotated[bool, Meta(description="Whether there are others beyond the page, on the side it was cut.")]
    later: Annotated[
        list[dict[str, Any]] | msgspec.UnsetType,
        Meta(
            description="With `brief`: the results of calls and sub-runs that begin on the page and end beyond it, "
            f"as far as they stand in the {RESULT_LOOKAHEAD_EVENTS:,} events that follow."
        ),
    ] = msgspec.UNSET


class FoundEvents(msgspec.Struct, frozen=True):
    """The events of a log in which a text stands."""

    hits: list[LogHit]
    more: Annotated[bool, Meta(description="Whether there are events that were not looked at yet.")]
    searched_to: Annotated[int, Meta(description="The `seq` of the last event that was looked at: go on after it.")]


class SpanList(msgspec.Struct, frozen=True, kw_only=True):
    """When the steps, tool calls and sub-runs of a run began and ended."""

    spans: Annotated[list[Span], Meta(description="In the order in which they began.")]
    last_seq: Annotated[int, Meta(description="The newest event of the log that this tells of.")]
    started_at: str | None
    ended_at: Annotated[str | None, Meta(description="Null until the run has ended.")]


class ChannelItem(msgspec.Struct, frozen=True):
    id: str
    name: str | None


class ChannelList(msgspec.Struct, frozen=True):
    channels: list[ChannelItem]


class RunAnswer(msgspec.Struct, frozen=True):
    """The run that was asked for, or that something was asked of."""

    run_id: str


class CancelAnswer(msgspec.Struct, frozen=True):
    """A run that ends as soon as it can."""

    run_id: str
    status: Annotated[WireStatus, Meta(description="As it is now: it may still be running.")]


class Catalogue(msgspec.Struct, frozen=True):
    """The workers that can be run here."""

    workers: list[WorkerInfo]
    providers: Annotated[
        list[WorkerInfo],
        Meta(
            description="Agents and model APIs that a task can be handed to as it is, under their slugs: "
            "`/api/providers` says which of them this machine has."
        ),
    ]


class ProviderList(msgspec.Struct, frozen=True):
    providers: list[ProviderInfo]
    usable: Annotated[list[str], Meta(description="The names of those that are there and could log in.")]


class Health(msgspec.Struct, frozen=True):
    version: str


async def build_worker_item(run: RunItem, logs: LogReader) -> WorkerItem:
    return WorkerItem(**await _shared(run, logs), snippet=run.snippet)


async def build_worker_detail(
    run: RunItem,
    logs: LogReader,
    transcript: bytes | None = None,
    omitted: str | None = None,
    awaits: list[Awaited] | None = None,
) -> WorkerDetail:
    """`transcript` is JSON, and goes into the answer as it is."""
    row = run.row
    return WorkerDetail(
        **await _shared(run, logs),
        result=row.result,
        transcript=cast("list[ArchiveEntry] | None", None if transcript is None else msgspec.Raw(transcript)),
        transcript_omitted=omitted,
        queued_at=row.queued_at,
        host=row.host,
        attempt=row.attempt,
        last_seq=row.last_seq,
        awaits=awaits or [],
    )


async def _shared(run: RunItem, logs: LogReader) -> dict[str, Any]:
    row, own, tree = run.row, run.row.spending.own, run.row.spending.tree
    # Locks are looked at only where they matter.
    has_active_host = row.status != "running" or await logs.has_active_host(row.id, row.host)
    failed = row.error_code is not None or row.error_message is not None
    return {
        "id": row.id,
        "task": row.task,
        "status": _SHOWN[row.status],
        "worker_type": row.worker_type,
        "channel_id": row.channel_id,
        "channel_name": run.channel_name,
        "started_at": row.started_at,
        "completed_at": row.completed_at,
        "event_count": run.event_count,
        "has_transcript": run.has_transcript,
        "agent_id": row.agent_id,
        "parent_run_id": row.parent_run_id,
        "root_run_id": row.root_run_id,
        "name": row.name,
        "kind": row.kind,
        "duration_ms": row.duration_ms,
        "tool_calls": row.tool_calls,
        "usage": own.usage,
        "cost_usd": own.cost_usd,
        "tree_usage": tree.usage,
        "tree_cost_usd": tree.cost_usd,
        "error": Failure(row.error_code, row.error_message, row.error_hint or msgspec.UNSET) if failed else None,
        "pinned": run.pinned,
        "provider": row.provider,
        "model": row.model,
        "children": row.children,
        "waits_for": row.waits_for,
        "asks": run.pending_requests,
        "interrupted": is_interrupted(row.status, has_active_host=has_active_host),
        "interruptions": row.interruptions,
        "search_stopped_at": run.search_stopped_at,
    }
