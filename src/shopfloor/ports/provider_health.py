"""ProviderHealth: what is known of each provider, and which status was announced last.

Checks of hosts, observations of runs and the decisions of people are kept in one record per provider. The status is a
pure function of the record (`fleet/provider_status.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from shopfloor.errors import ProviderDisabled
from shopfloor.ports.agents import ProviderInfo
from shopfloor.views import FleetEvent, ObservedLimit, ProviderObservation

ProviderStatus = Literal["available", "unavailable", "rate_limited", "disabled"]
UnavailableReason = Literal["rate_limited", "error", "maintenance", "disabled"]


class DisabledBy(msgspec.Struct, frozen=True, kw_only=True):
    """Who disabled a provider, when and why."""

    by: str
    at: str
    maintenance: bool = False
    reason: str | None = None


class ProviderCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check by one host, which has its own environment."""

    info: ProviderInfo
    at: str


class ProviderFailure(msgspec.Struct, frozen=True, kw_only=True):
    """The newest failure that runs met and that is the provider's."""

    code: str
    message: str | None
    at: str


class AnnouncedStatus(msgspec.Struct, frozen=True):
    """The status that was announced last."""

    status: ProviderStatus
    reason: UnavailableReason | None


class ProviderRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of a provider."""

    name: str
    disabled: DisabledBy | None = None
    checks: dict[str, ProviderCheck] = {}
    """The newest check of each host."""
    limits: tuple[ObservedLimit, ...] = ()
    """The newest limit of each kind and name."""
    failure: ProviderFailure | None = None
    answered_at: str | None = None
    """When a session or a call last ended well."""
    announced: AnnouncedStatus | None = None
    """None before the first check."""


Records = Mapping[str, ProviderRecord]
Change = Callable[[Records], tuple[Iterable[ProviderRecord], Sequence[FleetEvent]]]
"""Returns the changed records and the events that announce the changes. Called in a transaction: must not block."""


class ProviderHealth(Protocol):
    """The records of providers. `Store.apply` adds the observations of runs, in the transaction of their rows."""

    async def read(self) -> Records: ...

    async def update(self, change: Change) -> bool:
        """Change records and store fleet events in one transaction, which no other process interrupts.

        Return whether events were stored; the caller then notifies the bus.
        """
        ...


def observe(records: Records, observations: Iterable[ProviderObservation]) -> dict[str, ProviderRecord]:
    """Return the records that observations change. Older observations than the known ones change nothing."""
    changed: dict[str, ProviderRecord] = {}
    for observation in observations:
        name = observation.provider
        record = changed.get(name) or records.get(name) or ProviderRecord(name=name)
        after = _with_observation(record, observation)
        if after != record:
            changed[name] = after
    return changed


def _with_observation(record: ProviderRecord, seen: ProviderObservation) -> ProviderRecord:
    limits = {(limit.kind, limit.name): limit for limit in record.limits}
    for limit in seen.limits:
        known = limits.get((limit.kind, limit.name))
        if known is None or known.met_at <= limit.met_at:
            limits[limit.kind, limit.name] = limit
    failure, answered_at = record.failure, record.answered_at
    if seen.failure is not None and (failure is None or failure.at <= seen.at):
        failure = ProviderFailure(code=seen.failure, message=seen.message, at=seen.at)
    if seen.answered and (answered_at is None or answered_at < seen.at):
        answered_at = seen.at
    return msgspec.structs.replace(record, limits=tuple(limits.values()), failure=failure, answered_at=answered_at)


async def require_enabled(health: ProviderHealth, providers: Iterable[str]) -> None:
    """Raise `ProviderDisabled` if one of these providers is disabled. Reads nothing if there are none."""
    if not (wanted := [*providers]):
        return
    records = await health.read()
    for name in wanted:
        record = records.get(name)
        if record is not None and (reason := disabled_reason(record)) is not None:
            raise ProviderDisabled(
                reason, hint=f"`shopfloor providers enable {name}` enables it; or use another provider"
            )


def disabled_providers(records: Records) -> frozenset[str]:
    """Return the names of the providers that a person has disabled."""
    return frozenset(name for name, record in records.items() if record.disabled is not None)


def disabled_reason(record: ProviderRecord) -> str | None:
    """Say who disabled a provider, when and why; None if it is enabled."""
    disabled = record.disabled
    if disabled is None:
        return None
    state = "disabled for maintenance" if disabled.maintenance else "disabled"
    reason = f": {disabled.reason}" if disabled.reason else ""
    return f"{record.name} is {state} by {disabled.by} since {disabled.at}{reason}"
