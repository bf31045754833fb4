"""The parameters of requests, and what each may be."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from shopfloor.errors import InvalidParameter, InvalidRunId, RunNotFound
from shopfloor.limits import FILTER_MAX_CHARS, WORKER_NAME_MAX_CHARS
from shopfloor.log import is_run_id, validate_run_id
from shopfloor.ports import run_fields
from shopfloor.server.limits import (
    EVENTS_MAX,
    FIND_DEFAULT,
    LIST_DEFAULT,
    LIST_MAX,
    LOG_DEFAULT,
    MAX_SAFE_INTEGER,
    OFFSET_MAX,
    STREAM_RUNS,
    TIMELINE_DEFAULT,
)

HEADERS: Final = {"last_event_id": "Last-Event-ID"}
"""The parameters that are headers; the others are part of the path or of the query."""
UUID4 = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_TIME_CHARS = 40
_SEQ = re.compile(r"[0-9]{1,16}")
_RFC3339 = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$"
_is_rfc3339 = re.compile(_RFC3339, re.ASCII).fullmatch

# The patterns of ids and times are for the description only: our own checks give the better error.
_RunId = Annotated[str, Meta(extra_json_schema={"pattern": UUID4})]
_Time = Annotated[str, Meta(extra_json_schema={"pattern": _RFC3339, "maxLength": _TIME_CHARS})]
_Number = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
_Word = run_fields.ShortText
_Words = Annotated[str, Meta(max_length=FILTER_MAX_CHARS)]

RunId = Annotated[_RunId, Meta(description="A run.")]
AgentId = Annotated[_Word | None, Meta(description="The owner; a run of another one is not found.")]
AfterSeq = Annotated[_Number, Meta(description="Only events after this `seq`.")]
EventLimit = Annotated[int, Meta(ge=1, le=EVENTS_MAX, description="At most so many.")]
LastEventId = Annotated[str | None, Meta(description="Where a stream was cut: the `id` of the last event received.")]


def require_run_id(text: str) -> str:
    """Return the id if a run can have it. Raises `RunNotFound` else, as for an id that no run has."""
    if not is_run_id(text):
        raise RunNotFound(f"there is no run {text!r}", hint="a run id is a UUID v4 in lower case")
    return text


class NoParams(Struct, frozen=True):
    """An operation without parameters."""


class RunParams(Struct, frozen=True, kw_only=True):
    """A run, by its id in the path."""

    run_id: RunId

    def __post_init__(self) -> None:
        require_run_id(self.run_id)


class DeleteParams(RunParams, frozen=True, kw_only=True):
    force: Annotated[bool, Meta(description="Also what failed.")] = False


class LogParams(RunParams, frozen=True, kw_only=True):
    """A page of a run's log."""

    after: AfterSeq = 0
    before: Annotated[
        _Number | None, Meta(description="Only events before it; without `after`, the last of those.")
    ] = None
    limit: EventLimit = LOG_DEFAULT
    brief: Annotated[
        bool, Meta(description="With long texts cut, and with the results that stand beyond the page.")
    ] = False


class FindParams(RunParams, frozen=True, kw_only=True):
    """A search in a run's log."""

    q: Annotated[_Word, Meta(description="The text, whatever its case.")]
    after: AfterSeq = 0
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX, description="At most so many hits.")] = FIND_DEFAULT


class RunStreamParams(RunParams, frozen=True, kw_only=True):
    """Where the stream of a run begins."""

    after: AfterSeq = 0
    last_event_id: LastEventId = None

    @property
    def last_seq(self) -> int:
        """The last event that the client has: what it received counts for more than where it began."""
        return self.after if self.last_event_id is None else _received_seq(self.last_event_id)


class PageStreamParams(Struct, frozen=True, kw_only=True):
    """What a page follows."""

    runs: Annotated[
        _Words,
        Meta(description=f"Runs whose events to add: `<id>:<after>`, at most {STREAM_RUNS}, with commas between."),
    ] = ""
    last_event_id: LastEventId = None


class ExecuteParams(Struct, frozen=True, kw_only=True):
    slug: Annotated[str, Meta(max_length=WORKER_NAME_MAX_CHARS, description="A worker.")]


class _WorkerParams(Struct, frozen=True, kw_only=True):
    """A run as the Workers tab names it."""

    worker_id: RunId
    agent_id: AgentId = None

    def __post_init__(self) -> None:
        require_run_id(self.worker_id)


class DetailParams(_WorkerParams, frozen=True, kw_only=True):
    transcript: Annotated[bool, Meta(description="Whether the transcript is wanted; it may be large.")] = True


class TimelineParams(_WorkerParams, frozen=True, kw_only=True):
    limit: EventLimit = TIMELINE_DEFAULT
    after: Annotated[_Number, Meta(description="Only rows whose `id` is over this.")] = 0


class ListParams(Struct, frozen=True, kw_only=True):
    """Which runs, and which page of them."""

    agent_id: Annotated[_Word | None, Meta(description="Of this owner.")] = None
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX, description="At most so many.")] = LIST_DEFAULT
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="After so many, newest first.")] = 0
    status: Annotated[
        Literal["all", "queued", "running", "waiting", "done", "failed", "cancelled"],
        Meta(description="In this state."),
    ] = "all"
    worker_type: Annotated[_Word | None, Meta(description="Of this type.")] = None
    channel_id: Annotated[_Word | None, Meta(description="From this channel.")] = None
    parent: Annotated[_RunId | None, Meta(description="Called by this run.")] = None
    roots: Annotated[bool, Meta(description="Only those that no run called.")] = False
    worker: Annotated[_Word | None, Meta(description="Of this worker, by its name.")] = None
    since: Annotated[_Time | None, Meta(description="Started after this time (RFC 3339).")] = None
    until: Annotated[_Time | None, Meta(description="Started before this time (RFC 3339).")] = None
    q: Annotated[
        _Words | None,
        Meta(description='With all of these words and "quoted phrases": any part of the task, or words of any text.'),
    ] = None
    cursor: Annotated[_Word | None, Meta(description="`next` of the page before; `offset` does not count then.")] = None

    def __post_init__(self) -> None:
        if self.parent is not None:
            require_run_id(self.parent)


def to_utc(name: str, said: str | None) -> str | None:
    """A time as rows have it: RFC 3339 in UTC with milliseconds, so that texts compare as times do."""
    if said is None:
        return None
    try:
        at = datetime.fromisoformat(said).astimezone(UTC) if _is_rfc3339(said) else None
    except (ValueError, OverflowError):
        at = None
    if at is None:
        raise InvalidParameter(
            f"{name}: {said[:_TIME_CHARS]!r} is not a time as in RFC 3339, e.g. 2026-02-23T10:30:00Z"
        )
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _received_seq(said: str) -> int:
    if not _SEQ.fullmatch(said) or int(said) > MAX_SAFE_INTEGER:
        raise InvalidParameter(f"Last-Event-ID: {said!r} is not the id of an event", hint="an event's `seq`")
    return int(said)


def parse_followed_runs(said: str) -> dict[str, int]:
    """The runs that a page wants events of, each with the `seq` after which."""
    words = [word for word in said.split(",") if word]
    if len(words) > STREAM_RUNS:
        raise InvalidParameter(f"runs: at most {STREAM_RUNS} can be followed, not {len(words)}")
    places: dict[str, int] = {}
    for word in words:
        run_id, _, after = word.partition(":")
        try:
            places[validate_run_id(run_id)] = _received_seq(after or "0")
        except (InvalidRunId, InvalidParameter) as error:
            raise InvalidParameter(f"runs: {word!r} is not `<id>:<after>`", hint=error.hint) from error
    return places
