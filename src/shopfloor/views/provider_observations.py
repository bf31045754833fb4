"""What a run observes of the provider of its sessions: answers, failures that are the provider's, and limits."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from shopfloor.errors import AuthenticationFailed, ProviderOverloaded, ProviderUnreachable, RateLimited
from shopfloor.log import (
    AssistantMessage,
    Awaits,
    Event,
    Limit,
    Note,
    StepCompleted,
    ToolCall,
    format_timestamp,
)
from shopfloor.views.agent_event_builders import is_rate_limit
from shopfloor.views.agent_events import FleetEventState
from shopfloor.views.wait_state import step_key_of

FAILURES: Final = frozenset({AuthenticationFailed.code, ProviderOverloaded.code, ProviderUnreachable.code})
"""The errors that say something about the provider, not about the request."""
_MODEL_STEP: Final = "next-message"


class ObservedLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A limit of a provider, as a run met it."""

    kind: Literal["requests", "tokens"] | None
    name: str | None
    """The provider's name of the limit, for example `five_hour`."""
    current: float | None
    """The used amount, of `max`."""
    max: float | None
    """1 if only the used fraction is known; None if nothing is known of the usage."""
    reset_at: str | None
    status: Literal["allowed", "warning", "rejected"] | None
    """Whether requests were still allowed."""
    met_at: str
    """When a run met it."""


class ProviderObservation(msgspec.Struct, frozen=True, kw_only=True):
    """What one event of a log says about a provider."""

    provider: str
    at: str
    answered: bool = False
    """Whether the provider served a session to its end."""
    failure: str | None = None
    """The code of the failure, one of `FAILURES`."""
    message: str | None = None
    limits: tuple[ObservedLimit, ...] = ()


def provider_observations(
    state: FleetEventState, event: Event, run_provider: str | None = None
) -> list[ProviderObservation]:
    """Return what an event says about a provider. `state` is the one before the event.

    `run_provider` is the provider of the whole run, for the steps of model APIs, which have no session.
    """
    match event.payload:
        case StepCompleted() as step:
            provider = step.session.provider if step.session is not None else _session_provider(state, event)
            if provider is None and step.kind == _MODEL_STEP:
                provider = run_provider
            return _of_step(provider, event, step) if provider is not None else []
        case AssistantMessage(note=Note() as note):
            provider = _session_provider(state, event)
            return _of_note(provider, event, note) if provider is not None else []
        case ToolCall(awaits=Awaits(kind="rate_limit", until=until)):
            provider = _session_provider(state, event) or run_provider
            limits = (_limit(Limit(reset_at=until), event),)
            return [ProviderObservation(provider=provider, at=event.timestamp, limits=limits)] if provider else []
        case _:
            return []


def _session_provider(state: FleetEventState, event: Event) -> str | None:
    """Return the provider of the session or conversation that an event belongs to."""
    step_key = step_key_of(event)
    agent = state.sessions.get(state.turns.get(step_key, step_key))
    return agent.provider if agent is not None else None


def _of_step(provider: str, event: Event, step: StepCompleted) -> list[ProviderObservation]:
    limits = list(step.rate_limits or [])
    if step.error_code == RateLimited.code and not any(limit.status == "rejected" for limit in limits):
        limits.append(Limit())
    is_failure = step.error_code in FAILURES
    if step.error is not None and not is_failure and not limits:
        return []
    return [
        ProviderObservation(
            provider=provider,
            at=event.timestamp,
            answered=step.error is None,
            failure=step.error_code if is_failure else None,
            message=step.error if is_failure else None,
            limits=tuple(_limit(limit, event) for limit in limits),
        )
    ]


def _of_note(provider: str, event: Event, note: Note) -> list[ProviderObservation]:
    limit = note.limit
    if limit is None and is_rate_limit(note):
        limit = Limit()
    if limit is not None and limit.reset_at is None and note.retry_after is not None:
        limit = msgspec.structs.replace(limit, reset_at=_seconds_later(event.timestamp, note.retry_after))
    is_failure = note.kind == "error" and note.code in FAILURES
    if limit is None and not is_failure:
        return []
    return [
        ProviderObservation(
            provider=provider,
            at=event.timestamp,
            failure=note.code if is_failure else None,
            message=note.message if is_failure else None,
            limits=() if limit is None else (_limit(limit, event),),
        )
    ]


def _limit(limit: Limit, event: Event) -> ObservedLimit:
    return ObservedLimit(
        kind=limit.kind,
        name=limit.window,
        current=limit.current,
        max=limit.maximum,
        reset_at=limit.reset_at,
        status=limit.status,
        met_at=event.timestamp,
    )


def _seconds_later(timestamp: str, seconds: float) -> str | None:
    try:
        return format_timestamp(int((datetime.fromisoformat(timestamp).timestamp() + seconds) * 1000))
    except (ValueError, OverflowError):
        return None
