"""Response models: the bodies of responses, under the names of the API. The OpenAPI document is made from them.

The API calls a run a worker, its owner an agent, and the status `completed` `done`; this module translates.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta

from shopfloor.limits import CONTINUED_RUNS
from shopfloor.ports import (
    ApprovalRule,
    LogReader,
    PluginInfo,
    RunItem,
    WorkerInfo,
)
from shopfloor.server.based_on import EarlierRun, LaterRun, to_earlier_run
from shopfloor.server.limits import RESULT_LOOKAHEAD_EVENTS
from shopfloor.views import ArchiveEntry, Decision, LogHit, Span, is_interrupted

WireStatus = Literal["queued", "running", "waiting", "done", "failed", "cancelled"]

_TO_WIRE: dict[str, WireStatus] = {
    "queued": "queued",
    "running": "running",
    "waiting": "waiting",
    "completed": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}
_FROM_WIRE: dict[str, str] = {wire_status: status for status, wire_status in _TO_WIRE.items()}


def to_wire_status(status: str) -> WireStatus:
    """Convert a status of a run to its name in the API."""
    return _TO_WIRE[status]


def statuses_for_filter(wire_status: str) -> tuple[str, ...] | None:
    """Return the statuses that a filter of the API selects, or None for all."""
    return None if wire_status == "all" else (_FROM_WIRE[wire_status],)


class Problem(msgspec.Struct, frozen=True):
    """An error."""

    code: Annotated[str, Meta(description="A stable code, for programs.")]
    message: Annotated[str, Meta(description="What failed.")]
    hint: Annotated[str | None, Meta(description="What to do about it.")]


class ProblemAnswer(msgspec.Struct, frozen=True):
    """The body of an error response."""

    error: Problem


class ExecutionProblem(msgspec.Struct, frozen=True):
    """The body of an error response of `execute`, in the flat format that the TypeScript SDK reads."""

    error: Annotated[str, Meta(description="What failed.")]
    code: Annotated[str, Meta(description="A stable code, for programs.")]
    hint: Annotated[str | None, Meta(description="What to do about it.")]


class Failure(msgspec.Struct, frozen=True):
    """Why a run failed."""

    code: str | None
    message: str | None
    hint: Annotated[str | msgspec.UnsetType, Meta(description="What to do about it; omitted if nothing is known.")] = (
        msgspec.UNSET
    )


class TokenUsage(msgspec.Struct, frozen=True):
    """Numbers of tokens, by kind."""

    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int


class RunClient(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The program that dispatched a run, as it described itself."""

    name: str
    version: str | None = None
    session_id: Annotated[str | None, Meta(description="The program's own id of its session or conversation.")] = None


class RunActivity(msgspec.Struct, frozen=True):
    """A call or step that a run is executing."""

    name: Annotated[str, Meta(description="The tool, the step, or the worker that the run called.")]
    preview: Annotated[str, Meta(description="The most descriptive part of its input, on one line; may be empty.")]


class _Worker(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    task: str
    status: WireStatus
    worker_type: Annotated[str, Meta(description="`builtin`, `plugin`, or the provider of a run without a worker.")]
    channel_id: str | None
    channel_name: str | None
    started_at: str
    completed_at: Annotated[str | None, Meta(description="Null until the run has ended.")]
    event_count: Annotated[int, Meta(description="The number of rows in its timeline.")]
    has_transcript: bool
    agent_id: Annotated[str | None, Meta(description="The owner of the run.")]
    client: Annotated[RunClient | None, Meta(description="The program that dispatched the run; null if unknown.")]
    based_on: Annotated[EarlierRun | None, Meta(description="The run that this run repeats, continues or forks.")]
    parent_run_id: Annotated[str | None, Meta(description="The run that called this run.")]
    root_run_id: Annotated[str | None, Meta(description="The root of the tree of runs that this run is part of.")]
    name: str
    kind: str
    duration_ms: int | None
    tool_calls: int
    usage: Annotated[TokenUsage, Meta(description="Tokens used by the run itself, as far as reported until now.")]
    cost_usd: Annotated[float | None, Meta(description="Cost of the run itself; null if unknown.")]
    tree_usage: Annotated[TokenUsage, Meta(description="Tokens used by the run and all its sub-runs.")]
    tree_cost_usd: Annotated[
        float | None, Meta(description="Cost of the run and all its sub-runs, as far as it is known.")
    ]
    error: Failure | None
    pinned: Annotated[bool, Meta(description="Whether the run is kept when old runs are pruned.")]
    provider: Annotated[
        str | None,
        Meta(description="The provider of its newest session or model, or of the run itself if it has no worker."),
    ]
    model: Annotated[str | None, Meta(description="The model that wrote its newest message.")]
    children: Annotated[int, Meta(description="The number of runs that it called.")]
    waits_for: Annotated[
        list[str] | None,
        Meta(
            description="While the run waits, the kinds of calls that it waits for: `client_tool`, `question`, "
            "`approval`, `rate_limit`, `definition_changed`, or another; `run` for a sub-run. Null otherwise."
        ),
    ]
    asks: Annotated[
        list[str] | None,
        Meta(description="While the run waits, its unanswered questions and calls, each in one line. Null otherwise."),
    ]
    interrupted: Annotated[
        bool,
        Meta(description="Whether the status is `running` but no process executes the run any more."),
    ]
    interruptions: Annotated[
        int,
        Meta(description="How often the run was interrupted and resumed. Waiting for an answer does not count."),
    ]
    priority: Annotated[int, Meta(description="Queued runs with a higher priority start first; from -100 to 100.")]
    progress: Annotated[
        float | None,
        Meta(
            description="How far the run is, from 0 to 1: what its worker reports, or else its completed steps of "
            "those that its definition has. Null if unknown."
        ),
    ]
    activity: Annotated[
        RunActivity | None,
        Meta(description="While the run is running: its newest tool call or step. Null otherwise, or if unknown."),
    ]
    search_stopped_at: Annotated[
        int | None,
        Meta(
            description="The `seq` of the event from which on the text of the run is not searchable, because the run "
            "has more text than is indexed; null if all of it is."
        ),
    ]


class WorkerItem(_Worker, frozen=True, kw_only=True):
    """A run in a list."""

    queue_reason: Annotated[
        str | None, Meta(description="While the run is queued or interrupted: why no host executes it, if known.")
    ]
    snippet: Annotated[
        str | None, Meta(description="Text around the words that were searched, with each between U+E000 and U+E001.")
    ]


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a run waits for."""

    run_id: Annotated[str, Meta(description="The run that waits: the requested run or one of its sub-runs.")]
    call_id: Annotated[str, Meta(description="The id to send with an answer.")]
    kind: Annotated[str, Meta(description="`client_tool`, `question`, `approval`, or another.")]
    name: Annotated[str, Meta(description="The name of the tool.")]
    input: Annotated[Any, Meta(description="The input of the tool, or the question.")]
    until: Annotated[str | None, Meta(description="When the run stops waiting.")]
    answered: Annotated[bool, Meta(description="Whether there is an answer that the run has not processed yet.")]


class ArtifactItem(msgspec.Struct, frozen=True):
    """A file that a run submitted with its result."""

    name: str
    size_bytes: Annotated[int | None, Meta(description="Null if a plugin has the file: it cannot be downloaded here.")]


class ArtifactList(msgspec.Struct, frozen=True):
    """The artifacts of a run."""

    artifacts: list[ArtifactItem]


class WorkerDetail(_Worker, frozen=True, kw_only=True):
    """A run with its result, transcript and pending calls."""

    queue_reason: Annotated[
        str | None, Meta(description="While the run is queued or interrupted: why no host executes it, if known.")
    ]
    result: str | None
    transcript: Annotated[
        list[ArchiveEntry] | None, Meta(description="Null until the run has ended, and if no transcript is stored.")
    ]
    transcript_omitted: Annotated[str | None, Meta(description="Why a stored transcript is not included.")]
    queued_at: str | None
    host: str | None
    attempt: int
    last_seq: Annotated[int, Meta(description="The `seq` of the newest log event that is included here.")]
    awaits: Annotated[list[Awaited], Meta(description="The calls that the run and its sub-runs wait for.")]
    continued_by: Annotated[
        list[LaterRun], Meta(description=f"The runs based on this run, newest first, at most {CONTINUED_RUNS}.")
    ]
    summary: Annotated[str | None, Meta(description="What the worker does, as it last reported.")]
    questions: Annotated[list[str], Meta(description="Questions that the worker noted without waiting for an answer.")]
    decisions: Annotated[list[Decision], Meta(description="Decisions that the worker made by itself.")]
    artifacts: Annotated[list[ArtifactItem], Meta(description="Files that were submitted with the result.")]


class Deleted(msgspec.Struct, frozen=True):
    """The runs that were deleted."""

    deleted: list[str]
    """Ids, with sub-runs before the run that called them."""


class WorkerList(msgspec.Struct, frozen=True):
    """A page of runs."""

    workers: list[WorkerItem]
    total: Annotated[int, Meta(description="The number of matching runs on all pages.")]
    next: Annotated[str | None, Meta(description="The cursor of the next page; null on the last page.")]


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of runs by status."""

    all: int
    queued: int
    running: int
    waiting: int
    done: int
    failed: int
    cancelled: int


class WorkerEvent(msgspec.Struct, frozen=True):
    """A row of a timeline."""

    id: int
    event_type: Literal["status", "tool_started", "tool_completed", "error"]
    data: Annotated[dict[str, Any], Meta(description="Fields that depend on the type; new ones may be added.")]
    created_at: str
    seq: Annotated[int, Meta(description="The `seq` of the log event that the row is made from.")]


class WorkerEvents(msgspec.Struct, frozen=True):
    """A page of a timeline."""

    events: list[WorkerEvent]
    more: Annotated[bool, Meta(description="Whether there are later rows.")]


class LogPage(msgspec.Struct, frozen=True):
    """A page of a log."""

    events: Annotated[
        list[dict[str, Any]],
        Meta(
            description="The events as in the log. With `brief`, an event whose texts were shortened has `cut`, the "
            "size of the complete event in bytes."
        ),
    ]
    more: Annotated[
        bool,
        Meta(description="Whether there are more events after the page, or before it when only `before` is set."),
    ]
    later: Annotated[
        list[dict[str, Any]] | msgspec.UnsetType,
        Meta(
            description="With `brief`: the results of calls and sub-runs that start on the page and end after it, "
            f"if they are among the next {RESULT_LOOKAHEAD_EVENTS:,} events."
        ),
    ] = msgspec.UNSET


class FoundEvents(msgspec.Struct, frozen=True):
    """The events of a log that contain a text."""

    hits: list[LogHit]
    more: Annotated[bool, Meta(description="Whether there are events that were not searched yet.")]
    searched_to: Annotated[
        int, Meta(description="The `seq` of the last event that was searched; send it as `after` to continue.")
    ]


class SpanList(msgspec.Struct, frozen=True, kw_only=True):
    """When the steps, tool calls and sub-runs of a run started and ended."""

    spans: Annotated[list[Span], Meta(description="In the order of their start.")]
    last_seq: Annotated[int, Meta(description="The `seq` of the newest log event that is included here.")]
    started_at: str | None
    ended_at: Annotated[str | None, Meta(description="Null until the run has ended.")]
    files_changed: Annotated[int, Meta(description="The number of files that its tools changed.")]
    lines_added: Annotated[int, Meta(description="Lines added to files, as far as the agent reports them.")]
    lines_removed: int
    calls_failed: Annotated[int, Meta(description="The number of tool calls that failed.")]
    context_tokens: Annotated[
        int | None, Meta(description="The tokens that its newest message was given; null if unknown.")
    ]


class ChannelItem(msgspec.Struct, frozen=True):
    """A channel that runs came from."""

    id: str
    name: str | None


class ChannelList(msgspec.Struct, frozen=True):
    """All channels."""

    channels: list[ChannelItem]


class ApprovalList(msgspec.Struct, frozen=True):
    """The calls that workers may make without asking, each with the run in which a person approved it."""

    approvals: list[ApprovalRule]


class RunAnswer(msgspec.Struct, frozen=True):
    """The run that was started, answered or resumed."""

    run_id: str


class CancelAnswer(msgspec.Struct, frozen=True):
    """A run that is being cancelled."""

    run_id: str
    status: Annotated[WireStatus, Meta(description="The current status; the run may still be running.")]


class Catalogue(msgspec.Struct, frozen=True):
    """The workers that this server can run."""

    workers: list[WorkerInfo]
    providers: Annotated[
        list[WorkerInfo],
        Meta(
            description="Agents and model APIs that can run a task without a worker, by their slugs. "
            "`/api/providers` lists which of them are installed."
        ),
    ]


class PluginList(msgspec.Struct, frozen=True):
    """The plugins of the server's machine."""

    plugins: list[PluginInfo]


class JsonRpcProblem(msgspec.Struct, frozen=True, kw_only=True):
    """An error of JSON-RPC."""

    code: int
    message: str
    data: Annotated[dict[str, Any] | msgspec.UnsetType, Meta(description="`code` and `hint`, as in the HTTP API.")] = (
        msgspec.UNSET
    )


class JsonRpcResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A JSON-RPC 2.0 response: either `result` or `error`."""

    jsonrpc: Literal["2.0"]
    id: str | int | None
    result: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    error: JsonRpcProblem | msgspec.UnsetType = msgspec.UNSET


class Health(msgspec.Struct, frozen=True):
    """The running server."""

    version: str
    role: Annotated[str | None, Meta(description="The role of the caller: `viewer`, `operator` or `admin`.")]


async def build_worker_item(run: RunItem, logs: LogReader, queue_reason: str | None = None) -> WorkerItem:
    """Return a run as the list contains it."""
    return WorkerItem(**await _shared_fields(run, logs), queue_reason=queue_reason, snippet=run.snippet)


async def build_worker_detail(
    run: RunItem,
    logs: LogReader,
    *,
    transcript: bytes | None = None,
    omitted: str | None = None,
    awaits: list[Awaited] | None = None,
    artifacts: list[ArtifactItem] | None = None,
    continued_by: list[LaterRun] | None = None,
    queue_reason: str | None = None,
) -> WorkerDetail:
    """Return a run as its detail contains it. `transcript` is JSON, which is inserted into the response unchanged."""
    row = run.row
    return WorkerDetail(
        **await _shared_fields(run, logs),
        queue_reason=queue_reason,
        result=row.result,
        transcript=cast("list[ArchiveEntry] | None", None if transcript is None else msgspec.Raw(transcript)),
        transcript_omitted=omitted,
        queued_at=row.queued_at,
        host=row.host,
        attempt=row.attempt,
        last_seq=row.last_seq,
        awaits=awaits or [],
        continued_by=continued_by or [],
        summary=row.notes.summary,
        questions=list(row.notes.questions),
        decisions=list(row.notes.decisions),
        artifacts=artifacts or [],
    )


async def _shared_fields(run: RunItem, logs: LogReader) -> dict[str, Any]:
    row, own, tree = run.row, run.row.spending.own, run.row.spending.tree
    # Checking a lock costs a system call, so only running runs are checked.
    has_active_host = row.status != "running" or await logs.has_active_host(row.id, row.host)
    has_failed = row.error_code is not None or row.error_message is not None
    return {
        "id": row.id,
        "task": row.task,
        "status": _TO_WIRE[row.status],
        "worker_type": row.worker_type,
        "channel_id": row.channel_id,
        "channel_name": run.channel_name,
        "started_at": row.started_at,
        "completed_at": row.completed_at,
        "event_count": run.event_count,
        "has_transcript": run.has_transcript,
        "agent_id": row.agent_id,
        "client": row.client,
        "based_on": to_earlier_run(row.based_on),
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
        "error": Failure(row.error_code, row.error_message, row.error_hint or msgspec.UNSET) if has_failed else None,
        "pinned": run.pinned,
        "provider": row.provider,
        "model": row.model,
        "children": row.children,
        "waits_for": row.waits_for,
        "asks": run.pending_requests,
        "interrupted": is_interrupted(row.status, has_active_host=has_active_host),
        "interruptions": row.interruptions,
        "priority": row.priority,
        "progress": row.progress.fraction,
        "activity": RunActivity(row.activity.name, row.activity.preview)
        if row.status == "running" and row.activity.name
        else None,
        "search_stopped_at": run.search_stopped_at,
    }
