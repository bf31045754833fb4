"""The parameters of operations in path, query and headers, with their constraints."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from shopfloor.errors import InvalidParameter, InvalidRunId, RunNotFound
from shopfloor.limits import FILTER_MAX_CHARS, STATS_DAYS, STATS_DEFAULT_DAYS, WORKER_NAME_MAX_CHARS
from shopfloor.log import is_run_id, validate_run_id
from shopfloor.ports import FleetFilter, RunFilter, RunOrder, run_fields
from shopfloor.server.limits import (
    EVENTS_MAX,
    FIND_DEFAULT,
    FLEET_EVENTS_DEFAULT,
    LIST_DEFAULT,
    LIST_MAX,
    LOG_DEFAULT,
    MAX_SAFE_INTEGER,
    OFFSET_MAX,
    STREAM_RUNS,
    TIMELINE_DEFAULT,
)
from shopfloor.views import FLEET_PAYLOADS, EventStream, ExportFormat

HEADERS: Final = {"last_event_id": "Last-Event-ID"}
"""The parameters that are headers; the others are part of the path or of the query."""
UUID4 = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_TIME_CHARS = 40
_EVENT_ID = re.compile(r"[0-9]{1,16}")
_SHOWN_CHARS = 100
_RFC3339 = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$"
_is_id_prefix = re.compile(r"[0-9a-f-]{1,36}").fullmatch
_is_rfc3339 = re.compile(_RFC3339, re.ASCII).fullmatch

# The patterns of ids and times are for the OpenAPI document only: the checks below raise clearer errors.
_RunId = Annotated[str, Meta(extra_json_schema={"pattern": UUID4})]
_Time = Annotated[str, Meta(extra_json_schema={"pattern": _RFC3339, "maxLength": _TIME_CHARS})]
_SafeInteger = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
_ShortText = run_fields.ShortText
_FilterText = Annotated[str, Meta(max_length=FILTER_MAX_CHARS)]

RunId = Annotated[_RunId, Meta(description="The id of the run.")]
HostId = Annotated[_ShortText, Meta(description="The id of the host.")]
AgentId = Annotated[_ShortText | None, Meta(description="The owner of the run; a run of another owner is not found.")]
AfterSeq = Annotated[_SafeInteger, Meta(description="Only events after this `seq`.")]
EventLimit = Annotated[int, Meta(ge=1, le=EVENTS_MAX, description="The maximum number of events or rows.")]
LastEventId = Annotated[
    str | None, Meta(description="When reconnecting: the `id` of the last event that the client received.")
]


def require_run_id(text: str) -> str:
    """Return the id if it is a valid run id. Raises `RunNotFound` otherwise, as for an id that no run has."""
    if not is_run_id(text):
        raise RunNotFound(f"there is no run {text!r}", hint="a run id is a UUID v4 in lower case")
    return text


class NoParams(Struct, frozen=True):
    """The parameters of an operation that has none."""


class HostParams(Struct, frozen=True, kw_only=True):
    """A host, by its id in the path."""

    host_id: HostId


class RunParams(Struct, frozen=True, kw_only=True):
    """A run, by its id in the path."""

    run_id: RunId

    def __post_init__(self) -> None:
        require_run_id(self.run_id)


class ExportParams(RunParams, frozen=True, kw_only=True):
    """A run to export."""

    format: Annotated[ExportFormat, Meta(description="`md` for Markdown, `html` for one HTML file.")] = "html"


class HookParams(Struct, frozen=True, kw_only=True):
    """A hook, by its id in the path."""

    hook_id: Annotated[_ShortText, Meta(description="The id of the hook.")]


class ApprovalParams(Struct, frozen=True, kw_only=True):
    """A rule of approvals, by its id or the beginning of it in the path."""

    rule_id: Annotated[_ShortText, Meta(description="The rule.")]


class ProviderParams(Struct, frozen=True, kw_only=True):
    """A provider, by its name in the path."""

    name: Annotated[_ShortText, Meta(description="The name of the provider.")]


class DeleteParams(RunParams, frozen=True, kw_only=True):
    """A run to delete."""

    force: Annotated[bool, Meta(description="Delete the run even if it failed.")] = False


class ArtifactParams(RunParams, frozen=True, kw_only=True):
    """An artifact of a run."""

    name: Annotated[_ShortText, Meta(description="The name of the artifact.")]


class LogParams(RunParams, frozen=True, kw_only=True):
    """A page of a run's log."""

    after: AfterSeq = 0
    before: Annotated[
        _SafeInteger | None,
        Meta(description="Only events before this `seq`; without `after`, the last `limit` of them."),
    ] = None
    limit: EventLimit = LOG_DEFAULT
    brief: Annotated[
        bool,
        Meta(
            description="Shorten long texts, and add results that belong to the page's calls but appear after the page."
        ),
    ] = False


class FindParams(RunParams, frozen=True, kw_only=True):
    """A search in a run's log."""

    q: Annotated[_ShortText, Meta(description="The text to find, ignoring case.")]
    after: AfterSeq = 0
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX, description="The maximum number of hits.")] = FIND_DEFAULT


class RunStreamParams(RunParams, frozen=True, kw_only=True):
    """A run to stream, and the event to start after."""

    after: AfterSeq = 0
    last_event_id: LastEventId = None

    @property
    def last_seq(self) -> int:
        """The `seq` of the last event that the client has. `Last-Event-ID` takes precedence over `after`."""
        return self.after if self.last_event_id is None else parse_event_id("Last-Event-ID", self.last_event_id)


class PageStreamParams(Struct, frozen=True, kw_only=True):
    """The runs that a page follows."""

    runs: Annotated[
        _FilterText,
        Meta(
            description=f"Runs whose log events to include: a comma-separated list of `<id>:<after>`, at most "
            f"{STREAM_RUNS}."
        ),
    ] = ""
    last_event_id: LastEventId = None


class _FleetParams(Struct, frozen=True, kw_only=True):
    """A filter for fleet events."""

    stream: Annotated[EventStream | None, Meta(description="Only events of this stream.")] = None
    type: Annotated[_ShortText | None, Meta(description="Only events of this type, such as `agent.error`.")] = None
    provider: Annotated[_ShortText | None, Meta(description="Only events of this provider.")] = None
    run: Annotated[_RunId | None, Meta(description="Only events of this run.")] = None
    tree: Annotated[bool, Meta(description="With `run`: also the events of its sub-runs, at every depth.")] = False

    def __post_init__(self) -> None:
        if self.run is not None:
            require_run_id(self.run)
        if self.type is not None and self.type not in FLEET_PAYLOADS:
            raise InvalidParameter(
                f"type: must be a type of event, e.g. agent.error, got {self.type!r}",
                hint="`shopfloor schema --events` lists them",
            )

    @property
    def wanted(self) -> FleetFilter:
        """The filter."""
        return FleetFilter(stream=self.stream, type=self.type, provider=self.provider, run_id=self.run, tree=self.tree)


class FleetPageParams(_FleetParams, frozen=True, kw_only=True):
    """A page of fleet events."""

    after: Annotated[
        _SafeInteger | None, Meta(description="Only events after this cursor; without it, the newest events.")
    ] = None
    limit: EventLimit = FLEET_EVENTS_DEFAULT


class FleetStreamParams(_FleetParams, frozen=True, kw_only=True):
    """Fleet events to stream, and the cursor to start after."""

    after: Annotated[
        _SafeInteger | None,
        Meta(description="Only events after this cursor, 0 for all that are stored; without it, from now on."),
    ] = None
    last_event_id: LastEventId = None

    @property
    def last_cursor(self) -> int | None:
        """The cursor that the client has. `Last-Event-ID` takes precedence over `after`."""
        return self.after if self.last_event_id is None else parse_event_id("Last-Event-ID", self.last_event_id)


class ExecuteParams(Struct, frozen=True, kw_only=True):
    """A worker to execute."""

    slug: Annotated[str, Meta(max_length=WORKER_NAME_MAX_CHARS, description="The slug of the worker.")]


class _WorkerParams(Struct, frozen=True, kw_only=True):
    """A run under the parameter names of the Workers tab."""

    worker_id: RunId
    agent_id: AgentId = None

    def __post_init__(self) -> None:
        require_run_id(self.worker_id)


class DetailParams(_WorkerParams, frozen=True, kw_only=True):
    """A run to show."""

    transcript: Annotated[bool, Meta(description="Include the transcript, which may be large.")] = True


class TimelineParams(_WorkerParams, frozen=True, kw_only=True):
    """A page of a run's timeline."""

    limit: EventLimit = TIMELINE_DEFAULT
    after: Annotated[_SafeInteger, Meta(description="Only rows with a larger `id`.")] = 0


_Status = Literal["all", "queued", "running", "waiting", "done", "failed", "cancelled"]
_ListStatus = Literal["all", "queued", "running", "interrupted", "waiting", "done", "failed", "cancelled"]
_Amount = Annotated[float, Meta(ge=0, le=MAX_SAFE_INTEGER)]


class _FilterParams(Struct, frozen=True, kw_only=True):
    """A filter for runs."""

    agent_id: Annotated[_ShortText | None, Meta(description="Only runs of this owner.")] = None
    worker_type: Annotated[_ShortText | None, Meta(description="Only runs of this worker type.")] = None
    channel_id: Annotated[_ShortText | None, Meta(description="Only runs from this channel.")] = None
    parent: Annotated[_RunId | None, Meta(description="Only runs that this run called.")] = None
    roots: Annotated[bool, Meta(description="Only runs that no other run called.")] = False
    worker: Annotated[_ShortText | None, Meta(description="Only runs of the worker with this name.")] = None
    model: Annotated[_ShortText | None, Meta(description="Only runs whose newest message this model wrote.")] = None
    provider: Annotated[
        _ShortText | None, Meta(description="Only runs whose newest session or model has this provider.")
    ] = None
    error: Annotated[_ShortText | None, Meta(description="Only runs that ended with this error code.")] = None
    error_group: Annotated[
        _FilterText | None,
        Meta(
            description="Only runs that failed with a message of this group: a message without times, ids and long "
            "numbers, as `GET /api/stats` has it in `failures[].group`."
        ),
    ] = None
    ended_since: Annotated[_Time | None, Meta(description="Only runs that ended after this time (RFC 3339).")] = None
    ended_until: Annotated[_Time | None, Meta(description="Only runs that ended before this time (RFC 3339).")] = None
    id_prefix: Annotated[
        str | None,
        Meta(
            description="Only runs whose id begins with these characters.",
            extra_json_schema={"pattern": "^[0-9a-f-]{1,36}$"},
        ),
    ] = None
    min_cost: Annotated[
        _Amount | None, Meta(description="Only runs that cost at least this, in US dollars, with their sub-runs.")
    ] = None
    max_cost: Annotated[
        _Amount | None, Meta(description="Only runs whose cost is known and at most this, with their sub-runs.")
    ] = None
    min_duration_ms: Annotated[_SafeInteger | None, Meta(description="Only runs that took at least this long.")] = None
    max_duration_ms: Annotated[
        _SafeInteger | None, Meta(description="Only runs that have ended and took at most this long.")
    ] = None
    q: Annotated[
        _FilterText | None,
        Meta(
            description='Only runs that contain all of these words and "quoted phrases". Each may match any part of '
            "the task, or whole words in any text of the run."
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.parent is not None:
            require_run_id(self.parent)
        if self.id_prefix is not None and not _is_id_prefix(self.id_prefix):
            raise InvalidParameter(
                f"id_prefix: must be the first characters of a run id, got {self.id_prefix[:_SHOWN_CHARS]!r}",
                hint="a run id has the digits 0 to 9, the letters a to f, and hyphens",
            )

    def run_filter(self, *, statuses: tuple[str, ...] | None, since: str | None, until: str | None) -> RunFilter:
        """Return the filter for runs with these statuses that started in this range."""
        return RunFilter(
            agent_id=self.agent_id,
            statuses=statuses,
            worker_type=self.worker_type,
            channel_id=self.channel_id,
            parent_run_id=self.parent,
            roots=self.roots or None,
            name=self.worker,
            model=self.model,
            provider=self.provider,
            error_code=self.error,
            error_group=self.error_group,
            ended_after=to_utc("ended_since", self.ended_since),
            ended_before=to_utc("ended_until", self.ended_until),
            id_prefix=self.id_prefix,
            min_cost_usd=self.min_cost,
            max_cost_usd=self.max_cost,
            min_duration_ms=self.min_duration_ms,
            max_duration_ms=self.max_duration_ms,
            started_after=to_utc("since", since),
            started_before=to_utc("until", until),
            search=_search_words(self.q),
        )


class CountParams(_FilterParams, frozen=True, kw_only=True):
    """A filter for runs that are counted."""

    status: Annotated[_ListStatus, Meta(description="Ignored: all statuses are counted.")] = "all"
    since: Annotated[_Time | None, Meta(description="Only runs started after this time (RFC 3339).")] = None
    until: Annotated[_Time | None, Meta(description="Only runs started before this time (RFC 3339).")] = None


class ListParams(_FilterParams, frozen=True, kw_only=True):
    """A filter for runs, and a page of the result."""

    limit: Annotated[int, Meta(ge=1, le=LIST_MAX, description="The maximum number of runs.")] = LIST_DEFAULT
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="Skip this many runs.")] = 0
    status: Annotated[
        _ListStatus,
        Meta(description="Only runs with this status. `interrupted` runs are `running` runs that no process executes."),
    ] = "all"
    since: Annotated[_Time | None, Meta(description="Only runs started after this time (RFC 3339).")] = None
    until: Annotated[_Time | None, Meta(description="Only runs started before this time (RFC 3339).")] = None
    sort: Annotated[
        RunOrder,
        Meta(
            description="The order: `newest` or `oldest` by start; `cost` with sub-runs, or `duration`, highest first "
            "and unknown last."
        ),
    ] = "newest"
    cursor: Annotated[
        _ShortText | None,
        Meta(description="`next` of the previous page with the same `sort`; `offset` is ignored with it."),
    ] = None


class StatsParams(_FilterParams, frozen=True, kw_only=True):
    """A filter for runs, and the days that statistics are about."""

    status: Annotated[_Status, Meta(description="Only runs with this status.")] = "all"
    since: Annotated[
        _Time | None,
        Meta(
            description="The range begins with the day of this time (RFC 3339); without it, it has "
            f"{STATS_DEFAULT_DAYS} days. At most {STATS_DAYS} days."
        ),
    ] = None
    until: Annotated[
        _Time | None, Meta(description="The range ends with the day of this time (RFC 3339); without it, with today.")
    ] = None
    tz: Annotated[
        _ShortText,
        Meta(description="The time zone of the days: a name such as `Europe/Berlin`, or an offset such as `+02:00`."),
    ] = "UTC"


def _search_words(query: str | None) -> str | None:
    """Return the words to search for, without NUL characters, or None if there are none."""
    return " ".join(query.replace("\0", " ").split()) or None if query else None


def to_utc(name: str, text: str | None) -> str | None:
    """Convert a time to the format of rows: RFC 3339 in UTC with milliseconds, so that they sort as text.

    `name` is the parameter that the error names. Raises `InvalidParameter` if the text is not a time.
    """
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text).astimezone(UTC) if _is_rfc3339(text) else None
    except (ValueError, OverflowError):
        at = None
    if at is None:
        raise InvalidParameter(
            f"{name}: must be an RFC 3339 time, e.g. 2026-02-23T10:30:00Z, got {text[:_TIME_CHARS]!r}"
        )
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_event_id(name: str, text: str | int) -> int:
    """Return the number in a parameter of this name that has the id of an event. Raises `InvalidParameter`."""
    if not _EVENT_ID.fullmatch(str(text)) or int(text) > MAX_SAFE_INTEGER:
        raise InvalidParameter(
            f"{name}: must be the id of an event, got {str(text)[:_SHOWN_CHARS]!r}",
            hint="send the `id` of the last event received",
        )
    return int(text)


def parse_followed_runs(text: str) -> dict[str, int]:
    """Parse a list of `<id>:<after>` into the `seq` after which each run is followed."""
    items = [item for item in text.split(",") if item]
    if len(items) > STREAM_RUNS:
        raise InvalidParameter(f"runs: a page can follow at most {STREAM_RUNS} runs, got {len(items)}")
    cursors: dict[str, int] = {}
    for item in items:
        run_id, _, after = item.partition(":")
        try:
            cursors[validate_run_id(run_id)] = parse_event_id("Last-Event-ID", after or "0")
        except (InvalidRunId, InvalidParameter) as error:
            raise InvalidParameter(f"runs: must be `<id>:<after>`, got {item!r}", hint=error.hint) from error
    return cursors
