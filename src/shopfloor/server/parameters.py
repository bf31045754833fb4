"""The parameters of requests, and what each may be."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, StrictBool, WithJsonSchema

from shopfloor.errors import InvalidParameter, InvalidRunId, RunNotFound
from shopfloor.log import checked_run_id, is_run_id
from shopfloor.server.limits import (
    EVENTS_MOST,
    LIST_DEFAULT,
    LIST_MOST,
    NUMBER_MOST,
    OFFSET_MOST,
    STREAM_RUNS,
    WORDS_MOST_CHARS,
)

UUID4 = "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"
_TIME_CHARS = 40
_SEQ = re.compile(r"[0-9]{1,16}")
_RFC3339 = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,6})?(Z|[+-]\d{2}:\d{2})$"
_is_rfc3339 = re.compile(_RFC3339, re.ASCII).fullmatch


def found_run_id(text: str) -> str:
    """The id, if a run can have it. Raises `RunNotFound` else, as for an id that no run has."""
    if not is_run_id(text):
        raise RunNotFound(f"there is no run {text!r}", hint="a run id is a UUID v4 in lower case")
    return text


# The validator raises our own error, which pydantic lets through.
_RunId = Annotated[str, AfterValidator(found_run_id), WithJsonSchema({"type": "string", "pattern": UUID4})]
_Number = Annotated[int, Query(ge=0, le=NUMBER_MOST)]
_Word = Annotated[str, Query(min_length=1, max_length=WORDS_MOST_CHARS)]


def utc(said: str) -> str:
    """A time as rows have it: RFC 3339 in UTC with milliseconds, so that texts compare as times do."""
    try:
        at = datetime.fromisoformat(said).astimezone(UTC) if _is_rfc3339(said) else None
    except (ValueError, OverflowError):
        at = None
    if at is None:
        # To pydantic, which knows the parameter's name; a pattern that it checks itself would be all that it says.
        raise ValueError(f"{said[:_TIME_CHARS]!r} is not a time as in RFC 3339, e.g. 2026-02-23T10:30:00Z")
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_Time = Annotated[
    str, AfterValidator(utc), WithJsonSchema({"type": "string", "pattern": _RFC3339, "maxLength": _TIME_CHARS})
]

RunId = Annotated[_RunId, Path(description="A run.")]
WorkerId = Annotated[_RunId, Query(description="A run.")]
AgentId = Annotated[_Word | None, Query(description="The owner; a run of another one is not found.")]
AfterSeq = Annotated[_Number, Query(description="Only events after this `seq`.")]
BeforeSeq = Annotated[_Number | None, Query(description="Only events before it; without `after`, the last of those.")]
AfterId = Annotated[_Number, Query(description="Only rows whose `id` is over this.")]
EventLimit = Annotated[int, Query(ge=1, le=EVENTS_MOST, description="At most so many.")]
Brief = Annotated[bool, Query(description="With long texts cut, and with the results that stand beyond the page.")]
SearchedText = Annotated[
    str, Query(min_length=1, max_length=WORDS_MOST_CHARS, description="The text, whatever its case.")
]
HitLimit = Annotated[int, Query(ge=1, le=EVENTS_MOST, description="At most so many hits.")]
WithTranscript = Annotated[bool, Query(description="Whether the transcript is wanted; it may be large.")]
Force = Annotated[bool, Query(description="Also what failed.")]
LastEventId = Annotated[str | None, Header(description="Where a stream was cut: the `id` of the last event received.")]
FollowedRuns = Annotated[
    str,
    Query(
        max_length=WORDS_MOST_CHARS,
        description=f"Runs whose events to add: `<id>:<after>`, at most {STREAM_RUNS}, with commas between.",
    ),
]


class ListQuery(BaseModel):
    """Which runs, and which page of them."""

    agent_id: Annotated[_Word | None, Query(description="Of this owner.")] = None
    limit: Annotated[int, Query(ge=1, le=LIST_MOST, description="At most so many.")] = LIST_DEFAULT
    offset: Annotated[int, Query(ge=0, le=OFFSET_MOST, description="After so many, newest first.")] = 0
    status: Annotated[
        Literal["all", "queued", "running", "waiting", "done", "failed", "cancelled"],
        Query(description="In this state."),
    ] = "all"
    worker_type: Annotated[_Word | None, Query(description="Of this type.")] = None
    channel_id: Annotated[_Word | None, Query(description="From this channel.")] = None
    parent: Annotated[_RunId | None, Query(description="Called by this run.")] = None
    roots: Annotated[bool, Query(description="Only those that no run called.")] = False
    worker: Annotated[_Word | None, Query(description="Of this worker, by its name.")] = None
    since: Annotated[_Time | None, Query(description="Started after this time (RFC 3339).")] = None
    until: Annotated[_Time | None, Query(description="Started before this time (RFC 3339).")] = None
    q: Annotated[
        str | None,
        Query(
            max_length=WORDS_MOST_CHARS,
            description='With all of these words and "quoted phrases": any part of the task, or words of any text.',
        ),
    ] = None
    cursor: Annotated[_Word | None, Query(description="`next` of the page before; `offset` does not count then.")] = (
        None
    )


class PinBody(BaseModel):
    """Whether a run is kept when old ones are pruned."""

    model_config = ConfigDict(extra="forbid")

    pinned: StrictBool


def event_place(said: str | None, after: int) -> int:
    """Where a stream goes on: what a client received last counts for more than where it began."""
    if said is None:
        return after
    if not _SEQ.fullmatch(said) or int(said) > NUMBER_MOST:
        raise InvalidParameter(f"Last-Event-ID: {said!r} is not the id of an event", hint="an event's `seq`")
    return int(said)


def followed_runs(said: str) -> dict[str, int]:
    """The runs that a page wants events of, each with the `seq` after which."""
    words = [word for word in said.split(",") if word]
    if len(words) > STREAM_RUNS:
        raise InvalidParameter(f"runs: at most {STREAM_RUNS} can be followed, not {len(words)}")
    places: dict[str, int] = {}
    for word in words:
        run_id, _, after = word.partition(":")
        try:
            places[checked_run_id(run_id)] = event_place(after or "0", 0)
        except (InvalidRunId, InvalidParameter) as error:
            raise InvalidParameter(f"runs: {word!r} is not `<id>:<after>`", hint=error.hint) from error
    return places


async def only_known_parameters(request: Request) -> None:
    """Refuses parameters that mean nothing here: a filter that is not heeded is worse than an error."""
    known: frozenset[str] = request.app.state.known_parameters[request.scope["route"].unique_id]
    given = Counter(name for name, _ in request.query_params.multi_items())
    for name, times in given.items():
        if name not in known:
            hint = f"there are {', '.join(sorted(known))}" if known else "there are none"
            raise InvalidParameter(f"{name}: there is no such parameter", hint=hint)
        if times > 1:
            raise InvalidParameter(f"{name}: it is given {times} times")


def api_router(prefix: str) -> APIRouter:
    """Routes that refuse parameters they do not know, and are named as their functions are."""
    return APIRouter(
        prefix=prefix,
        dependencies=[Depends(only_known_parameters)],
        generate_unique_id_function=lambda route: route.name,
    )
