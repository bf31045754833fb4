"""Provider checks: the status of each provider, from checks, from what runs observe and from what people decide.

`decide_status` and `settle` are pure. A change of status and the event that announces it are stored in one transaction
that compares with the status announced last, so each change is announced once, by whichever process sees it first.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from shopfloor.engine import tolerate_temporary_errors
from shopfloor.errors import AuthenticationFailed, ProviderNotFound
from shopfloor.fleet.limits import (
    PROVIDER_FAILURE_SECONDS,
    PROVIDER_LIMIT_SECONDS,
    PROVIDER_POLL_SECONDS,
    PROVIDER_SETTLE_SECONDS,
)
from shopfloor.limits import PROVIDER_CHECK_SECONDS
from shopfloor.log import format_timestamp
from shopfloor.ports import (
    AccessMode,
    AnnouncedStatus,
    Bus,
    DisabledBy,
    Hosts,
    ProviderCheck,
    ProviderHealth,
    ProviderInfo,
    ProviderRecord,
    ProviderStatus,
    Records,
    UnavailableReason,
    disabled_reason,
)
from shopfloor.views import FleetEvent, ObservedLimit

_log = logging.getLogger("shopfloor.fleet")
LOCAL: Final = "local"
"""The host of a check by a process that executes no runs, such as a command without a server."""
_TITLES: Final = {
    "claude-code": "Claude Code",
    "claude-sdk": "Claude Agent SDK",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "copilot": "GitHub Copilot CLI",
    "opencode": "OpenCode",
    "openai": "OpenAI API",
    "anthropic": "Anthropic API",
}
"""The names of providers for people."""
Settled = tuple[list[ProviderRecord], list[FleetEvent]]


class StatusDecision(msgspec.Struct, frozen=True):
    """The status of a provider, and why it is not `available`."""

    status: ProviderStatus
    reason: UnavailableReason | None = None
    error: str | None = None
    estimated_recovery: str | None = None


class ProviderState(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as it is shown: what a check found, its status, and the limits that runs met."""

    info: ProviderInfo
    decision: StatusDecision
    disabled: DisabledBy | None
    checked_at: str | None
    limits: tuple[ObservedLimit, ...]

    @property
    def usable(self) -> bool:
        """Whether the provider is installed, has credentials and is not disabled."""
        return self.info.usable and self.disabled is None


def decide_status(record: ProviderRecord, now: float) -> StatusDecision:
    """Return the status of a provider at the time `now`, in seconds since the epoch.

    What a person decided comes first, then what checks found, then what runs observed since a session last ended well.
    """
    if (disabled := record.disabled) is not None:
        is_maintenance = disabled.maintenance
        return StatusDecision("disabled", "maintenance" if is_maintenance else "disabled", disabled.reason)
    infos = [check.info for check in record.checks.values()]
    if infos and not any(info.usable for info in infos):
        return StatusDecision("unavailable", "error", _problem_of(infos[-1]))
    failure = record.failure
    if failure is not None and failure.at > _accepted_at(record):
        recovery = None if failure.code == AuthenticationFailed.code else _later(failure.at, PROVIDER_FAILURE_SECONDS)
        if recovery is None or recovery > now:
            return StatusDecision("unavailable", "error", failure.message or failure.code, _format(recovery))
    answered_at = record.answered_at or ""
    rejected = [limit for limit in record.limits if limit.status == "rejected" and limit.met_at > answered_at]
    resets = [_reset_of(limit) for limit in rejected]
    if resets and max(resets) > now:
        return StatusDecision("rate_limited", "rate_limited", None, _format(max(resets)))
    return StatusDecision("available")


def _accepted_at(record: ProviderRecord) -> str:
    """Return when the provider last accepted its credentials: a session ended well, or an API answered a check.

    The answer of a program does not count, because a program that knows its login does not know whether it is revoked.
    """
    answers = [check.at for check in record.checks.values() if check.info.answers and check.info.kind == "api"]
    return max([*answers, record.answered_at or ""])


def _problem_of(info: ProviderInfo) -> str:
    if info.problem is not None:
        return info.problem
    if info.kind == "agent" and info.path is None:
        return f"{info.program} is not installed: {info.install}"
    return f"not logged in: {info.install if info.kind == 'api' else f'start `{info.program}` once and log in'}"


def _reset_of(limit: ObservedLimit) -> float:
    """Return when a limit resets; a limit that does not say so counts for a while after a run met it."""
    reset = _seconds(limit.reset_at)
    return reset if reset is not None else _later(limit.met_at, PROVIDER_LIMIT_SECONDS)


def _seconds(timestamp: str | None) -> float | None:
    """Return a timestamp in seconds since the epoch; None if it is none. Timestamps of providers may be malformed."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
        return moment.timestamp() if moment.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def _later(timestamp: str, seconds: float) -> float:
    return (_seconds(timestamp) or 0.0) + seconds


def _format(seconds: float | None) -> str | None:
    return None if seconds is None else format_timestamp(int(seconds * 1000))


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
    payload = {"providerId": record.name, "name": _TITLES.get(record.name, record.name)}
    timestamp = format_timestamp(int(now * 1000))
    if decision.status == "available":
        if before is None:
            return None
        more = {"previousStatus": before.status, "accessMode": _access_mode(record)}
        return FleetEvent(
            type="provider.available", payload={**payload, **more}, timestamp=timestamp, provider=record.name
        )
    if before is None and decision.status == "unavailable" and record.failure is None:
        return None
    facts = {
        "reason": decision.reason,
        "error": decision.error,
        "estimatedRecovery": decision.estimated_recovery,
    }
    known = {name: value for name, value in facts.items() if value is not None}
    return FleetEvent(
        type="provider.unavailable", payload={**payload, **known}, timestamp=timestamp, provider=record.name
    )


def _access_mode(record: ProviderRecord) -> AccessMode | None:
    for check in record.checks.values():
        if check.info.usable and check.info.access_mode is not None:
            return check.info.access_mode
    return None


def _with_checks(records: Records, *, infos: Sequence[ProviderInfo], host: str, dead: set[str], at: str) -> Records:
    """Return the records with the checks of a host, and without those of hosts that are gone."""
    changed = dict(records)
    for info in infos:
        record = records.get(info.name) or ProviderRecord(name=info.name)
        others = {name: check for name, check in record.checks.items() if name not in dead and name != host}
        changed[info.name] = replace(record, checks={**others, host: ProviderCheck(info=info, at=at)})
    return changed


class ProviderMonitor:
    """Checks the providers of one host, announces changes, and carries out what people decide.

    `probe` finds the providers of this machine; called with True, it also asks those with credentials whether they
    answer. `probe` blocks for seconds; `stop_probes` ends the programs that it started. `host` is the host whose
    environment is checked; None for a process that executes no runs.
    """

    def __init__(
        self,
        health: ProviderHealth,
        bus: Bus,
        hosts: Hosts,
        probe: Callable[[bool], list[ProviderInfo]],
        *,
        host: str | None = None,
        interval_seconds: float = PROVIDER_CHECK_SECONDS,
        stop_probes: Callable[[], None] | None = None,
    ) -> None:
        self._health = health
        self._bus = bus
        self._hosts = hosts
        self._probe = probe
        self._host = host or LOCAL
        self._interval_seconds = interval_seconds
        self._stop_probes = stop_probes
        self.disabled: dict[str, str] = {}
        """The disabled providers by the last look at the store, each with the reason why a run that needs it waits."""

    async def run(self) -> None:
        """Check at every interval and announce changes as runs observe them, until cancelled.

        With an interval of 0 there are no periodic checks. Stops all probes of this process at the end.
        """
        try:
            await self._run()
        finally:
            if self._stop_probes is not None:
                self._stop_probes()

    async def _run(self) -> None:
        next_check = anyio.current_time() if self._interval_seconds else math.inf
        with self._bus.subscribe_fleet() as changes:
            while True:
                recovery = next_check
                with tolerate_temporary_errors("cannot check the providers"):
                    if anyio.current_time() >= next_check:
                        next_check = recovery = anyio.current_time() + self._interval_seconds
                        await self._check_safely()
                    recovery = await self.settle()
                wait = min(next_check, recovery) - anyio.current_time()
                await changes.wait(max(0.0, min(wait, PROVIDER_POLL_SECONDS)))
                changes.drain()
                # Observations come in bursts, and each change costs a transaction.
                await anyio.sleep(PROVIDER_SETTLE_SECONDS)

    async def _check_safely(self) -> None:
        try:
            await self.check()
        except Exception as error:  # noqa: BLE001 - programs of others are started: no error of a check may end the host
            _log.warning("cannot check the providers: %s: %s", type(error).__name__, error)

    async def check(self, *, asks: bool = True) -> list[ProviderState]:
        """Check all providers now, announce changes, and return the states."""
        with_checks = await self._probe_change(asks=asks)
        await self._update(with_checks)
        return self._states(with_checks(await self._health.read()))

    async def _probe_change(self, *, asks: bool) -> Callable[[Records], Records]:
        """Look for the providers, and return the change that stores what was found."""
        infos = await anyio.to_thread.run_sync(self._probe, asks, abandon_on_cancel=True)
        checkers = {host for record in (await self._health.read()).values() for host in record.checks}
        dead = {host for host in checkers if host != self._host and not await self._hosts.is_alive(host)}
        return partial(_with_checks, infos=infos, host=self._host, dead=dead, at=_format(time.time()) or "")

    async def list(self) -> list[ProviderState]:
        """Return the providers by their last check.

        Without a check by this host, look for them, without asking them. A process that is no host always looks.
        """
        records = await self._health.read()
        if self._host == LOCAL or not any(self._host in record.checks for record in records.values()):
            records = (await self._probe_change(asks=False))(records)
        return self._states(records)

    def _states(self, records: Records) -> list[ProviderState]:
        now = time.time()
        return [
            ProviderState(
                info=check.info,
                decision=decide_status(record, now),
                disabled=record.disabled,
                checked_at=check.at,
                limits=record.limits,
            )
            for name in _TITLES
            if (record := records.get(name)) is not None and (check := record.checks.get(self._host)) is not None
        ]

    async def settle(self) -> float:
        """Announce what changed. Return when the next provider is expected to recover, by the clock of the loop.

        Infinite if none is expected to.
        """
        now = time.time()
        records = await self._health.read()
        self._remember_disabled(records)
        if settle(records, now)[0]:
            await self._update(dict)
        recoveries = [
            recovery
            for record in records.values()
            if (recovery := _seconds(decide_status(record, now).estimated_recovery)) is not None
        ]
        return anyio.current_time() + max(0.0, min(recoveries, default=math.inf) - now)

    async def disable(self, name: str, *, by: str, maintenance: bool = False, reason: str | None = None) -> None:
        """Disable a provider until someone enables it. Line breaks of `reason` become spaces.

        Raises `ProviderNotFound`.
        """
        reason = " ".join(reason.split()) if reason else None
        at = format_timestamp(int(time.time() * 1000))
        disabled = DisabledBy(by=by, at=at, maintenance=maintenance, reason=reason)
        await self._decide(name, disabled)

    async def enable(self, name: str) -> None:
        """Enable a provider, and forget the failures that runs observed. Raises `ProviderNotFound`."""
        await self._decide(name, None)

    async def _decide(self, name: str, disabled: DisabledBy | None) -> None:
        if name not in _TITLES:
            raise ProviderNotFound(f"there is no provider {name!r}", hint=f"there are {', '.join(_TITLES)}")
        # Without a server no other process checks, and `enable` must announce what is true.
        with_checks = await self._probe_change(asks=False) if self._host == LOCAL else None

        def change(records: Records) -> Records:
            records = with_checks(records) if with_checks is not None else records
            record = records.get(name) or ProviderRecord(name=name)
            failure = record.failure if disabled is not None else None
            return {**records, name: replace(record, disabled=disabled, failure=failure)}

        await self._update(change)

    async def _update(self, change: Callable[[Records], Records]) -> None:
        """Change the records and announce what changes by that."""
        if await self._health.update(partial(_change_and_settle, change=change, now=time.time())):
            self._bus.notify_fleet()
        self._remember_disabled(await self._health.read())

    def _remember_disabled(self, records: Records) -> None:
        self.disabled = {name: text for name, record in records.items() if (text := disabled_reason(record))}


def _change_and_settle(records: Records, *, change: Callable[[Records], Records], now: float) -> Settled:
    after = change(records)
    settled, events = settle(after, now)
    announced = {record.name: record for record in settled}
    changed = [announced.get(name, record) for name, record in after.items()]
    return [record for record in changed if record != records.get(record.name)], events
