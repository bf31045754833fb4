"""Response models of fleet events and of the queue."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shopfloor.ports import ReasonCode


class QueuedItem(msgspec.Struct, frozen=True, kw_only=True):
    """A queued run."""

    run_id: str
    worker: str
    task: str
    priority: int
    queued_at: str | None


class QueueGroupItem(msgspec.Struct, frozen=True, kw_only=True):
    """Queued runs that have not started for the same reason."""

    reason: Annotated[ReasonCode, Meta(description="The kind of the reason, for programs.")]
    message: Annotated[str, Meta(description="The reason, for people.")]
    total: int
    runs: Annotated[list[QueuedItem], Meta(description="The runs that start first, at most 20.")]


class QueueOverview(msgspec.Struct, frozen=True, kw_only=True):
    """The queue: how many runs have not started, and why."""

    total: Annotated[int, Meta(description="The number of queued runs.")]
    oldest_queued_at: str | None
    groups: Annotated[list[QueueGroupItem], Meta(description="The queued runs by reason.")]
    wait_p50_seconds: Annotated[
        float | None,
        Meta(description="How long half of the runs waited that started in the last hour; null without one."),
    ]
    wait_p95_seconds: Annotated[float | None, Meta(description="The same for 95 of 100 runs.")]
    started_last_hour: Annotated[int, Meta(description="How many runs started in the last hour, at most 10,000.")]


class FleetEventItem(msgspec.Struct, frozen=True):
    """A fleet event."""

    id: Annotated[str, Meta(description="The cursor of the event.")]
    type: Annotated[str, Meta(description="The type of the event, such as `agent.spawned`.")]
    payload: Annotated[dict[str, Any], Meta(description="The fields of this type.")]
    timestamp: Annotated[str, Meta(description="When it happened.")]


class FleetEventList(msgspec.Struct, frozen=True):
    """A page of fleet events."""

    events: Annotated[list[FleetEventItem], Meta(description="The events, oldest first.")]
    cursor: Annotated[str, Meta(description="Where to continue: there is no other event up to this cursor.")]
    gap: Annotated[bool, Meta(description="Whether events after the requested cursor are no longer stored.")]
