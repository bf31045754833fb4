"""The announcements of providers: the events of each change of status, as pure functions of the records.

A change and its event are stored in one transaction that compares with the status announced last, so each change is
announced once, by whichever process sees it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from shopfloor.fleet.provider_status import StatusDecision, decide_status
from shopfloor.log import format_timestamp
from shopfloor.ports import (
    PROVIDER_TITLES,
    AccessMode,
    AnnouncedStatus,
    ProviderRecord,
    Records,
)
from shopfloor.views import FleetEvent, FleetEventType, ProviderAvailable, ProviderUnavailable

Settled = tuple[list[ProviderRecord], list[FleetEvent]]


def settle(records: Records, now: float) -> Settled:
    """Return the records whose status changed since it was announced, and the events that announce the changes."""
    changed: list[ProviderRecord] = []
    events: list[FleetEvent] = []
    for record in records.values():
        decision, before = decide_status(record, now), record.announced
        after = AnnouncedStatus(decision.status, decision.reason)
        if after == before or (before is None and not _is_known(record)):
            continue
        changed.append(replace(record, announced=after))
        if event := _event(record, decision, before, now):
            events.append(event)
    return changed, events


def _is_known(record: ProviderRecord) -> bool:
    return bool(record.checks or record.disabled or record.limits or record.failure)


def _event(
    record: ProviderRecord, decision: StatusDecision, before: AnnouncedStatus | None, now: float
) -> FleetEvent | None:
    """Return the event of a change; None if the first check finds what was so before anyone checked."""
    name = PROVIDER_TITLES.get(record.name, record.name)
    payload: ProviderAvailable | ProviderUnavailable
    if decision.status == "available":
        if before is None or before.status == "available":
            return None
        payload = {
            "providerId": record.name,
            "name": name,
            "previousStatus": before.status,
            "accessMode": _access_mode(record),
        }
        return _fleet_event("provider.available", payload, now)
    if before is None and decision.status == "unavailable" and record.failure is None:
        return None
    payload = {"providerId": record.name, "name": name, "reason": decision.reason or "error"}
    if decision.error is not None:
        payload["error"] = decision.error
    if decision.estimated_recovery is not None:
        payload["estimatedRecovery"] = decision.estimated_recovery
    return _fleet_event("provider.unavailable", payload, now)


def _fleet_event(
    event_type: FleetEventType, payload: ProviderAvailable | ProviderUnavailable, now: float
) -> FleetEvent:
    timestamp = format_timestamp(int(now * 1000))
    fields = cast("Mapping[str, Any]", payload)
    return FleetEvent(type=event_type, payload=fields, timestamp=timestamp, provider=payload["providerId"])


def _access_mode(record: ProviderRecord) -> AccessMode | None:
    for check in record.checks.values():
        if check.info.usable and check.info.access_mode is not None:
            return check.info.access_mode
    return None


def change_and_settle(records: Records, *, change: Callable[[Records], Records], now: float) -> Settled:
    """Return the records that `change` changes, with what it makes to announce."""
    after = change(records)
    settled, events = settle(after, now)
    announced = {record.name: record for record in settled}
    changed = [announced.get(name, record) for name, record in after.items()]
    return [record for record in changed if record != records.get(record.name)], events
