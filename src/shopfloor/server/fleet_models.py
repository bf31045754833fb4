"""Response models of the fleet: providers, the queue and fleet events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from shopfloor.fleet import ProviderState
from shopfloor.ports import ProviderInfo, ProviderStatus, ReasonCode, UnavailableReason
from shopfloor.views import ObservedLimit


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


class ProviderItem(ProviderInfo, frozen=True, kw_only=True):
    """A provider: what the last check found, its status, and the limits that runs met."""

    status: Annotated[
        ProviderStatus, Meta(description="`unavailable`: not installed, not logged in, or it does not answer.")
    ]
    reason: Annotated[UnavailableReason | None, Meta(description="Why it is not available.")]
    error: Annotated[str | None, Meta(description="What is wrong, or the reason that a person gave.")]
    estimated_recovery: Annotated[str | None, Meta(description="When it is expected to be available again.")]
    disabled_by: Annotated[str | None, Meta(description="Who disabled it.")]
    disabled_at: Annotated[str | None, Meta(description="When it was disabled.")]
    checked_at: Annotated[str | None, Meta(description="The time of the last check.")]
    limits: Annotated[list[ObservedLimit], Meta(description="The newest limit of each kind and name.")]


class ProviderList(msgspec.Struct, frozen=True):
    """The agents and model APIs that Shopfloor knows."""

    providers: list[ProviderItem]
    usable: Annotated[
        list[str],
        Meta(description="The names of those that are installed, have credentials and are not disabled."),
    ]


def build_provider_list(states: Sequence[ProviderState]) -> ProviderList:
    """Return the providers as the API shows them."""
    return ProviderList(
        [build_provider(state) for state in states], [state.info.name for state in states if state.usable]
    )


def build_provider(state: ProviderState) -> ProviderItem:
    """Return a provider as the API shows it."""
    disabled = state.disabled
    return ProviderItem(
        **{name: getattr(state.info, name) for name in ProviderInfo.__struct_fields__},
        status=state.decision.status,
        reason=state.decision.reason,
        error=state.decision.error,
        estimated_recovery=state.decision.estimated_recovery,
        disabled_by=None if disabled is None else disabled.by,
        disabled_at=None if disabled is None else disabled.at,
        checked_at=state.checked_at,
        limits=list(state.limits),
    )
