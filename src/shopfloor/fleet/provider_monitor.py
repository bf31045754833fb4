"""The monitor of providers: checks those of one host, announces changes, and stores what people decide."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from shopfloor.engine import tolerate_temporary_errors
from shopfloor.errors import ProviderNotFound
from shopfloor.fleet.limits import PROVIDER_POLL_SECONDS, PROVIDER_SETTLE_SECONDS
from shopfloor.fleet.provider_announcements import change_and_settle, settle
from shopfloor.fleet.provider_status import StatusDecision, decide_status, timestamp_seconds
from shopfloor.limits import PROVIDER_CHECK_SECONDS
from shopfloor.log import now
from shopfloor.ports import (
    PROVIDER_TITLES,
    Bus,
    DisabledBy,
    Hosts,
    ProviderCheck,
    ProviderHealth,
    ProviderInfo,
    ProviderRecord,
    Records,
    disabled_reason,
)
from shopfloor.views import ObservedLimit

_log = logging.getLogger("shopfloor.fleet")
LOCAL: Final = "local"
"""The host of a check by a process that executes no runs, such as a command without a server."""


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


def _add_checks(records: Records, *, infos: Sequence[ProviderInfo], host: str, at: str) -> Records:
    """Return the records with the checks of a host."""
    changed = dict(records)
    for info in infos:
        record = records.get(info.name) or ProviderRecord(name=info.name)
        changed[info.name] = replace(record, checks={**record.checks, host: ProviderCheck(info=info, at=at)})
    return changed


def _drop_checks(records: Records, *, dead: Collection[str]) -> Records:
    """Return the records without the checks of hosts that are gone. The last check of a provider stays."""
    changed = dict(records)
    for name, record in records.items():
        checks = {host: check for host, check in record.checks.items() if host not in dead}
        if checks:
            changed[name] = replace(record, checks=checks)
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
        self._check_lock = anyio.Lock()
        self.usable: tuple[str, ...] | None = None
        """The providers that the last check of this process found installed, with credentials; None before it."""
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

    async def check(self, *, asks_providers: bool = True) -> list[ProviderState]:
        """Check all providers now, announce changes, and return the states. One check at a time."""
        async with self._check_lock:
            return await self._check(asks_providers=asks_providers)

    async def _check(self, *, asks_providers: bool) -> list[ProviderState]:
        add_checks = await self._probe_change(asks_providers=asks_providers)
        await self._update(add_checks)
        return self._states(add_checks(await self._health.read()))

    async def _probe_change(self, *, asks_providers: bool) -> Callable[[Records], Records]:
        """Look for the providers, and return the change that stores what was found."""
        infos = await anyio.to_thread.run_sync(self._probe, asks_providers, abandon_on_cancel=True)
        self.usable = tuple(info.name for info in infos if info.usable)
        return partial(_add_checks, infos=infos, host=self._host, at=now())

    async def list(self) -> list[ProviderState]:
        """Return the providers by their last check.

        Without a check by this host, check them first, without asking them. A process that is no host always looks, and
        stores nothing.
        """
        if self._host == LOCAL:
            add_checks = await self._probe_change(asks_providers=False)
            return self._states(add_checks(await self._health.read()))
        if states := self._states(await self._health.read()):
            return states
        async with self._check_lock:
            # Another caller may have checked meanwhile.
            return self._states(await self._health.read()) or await self._check(asks_providers=False)

    def _states(self, records: Records) -> list[ProviderState]:
        at = time.time()
        return [
            ProviderState(
                info=check.info,
                decision=decide_status(record, at),
                disabled=record.disabled,
                checked_at=check.at,
                limits=record.limits,
            )
            for name in PROVIDER_TITLES
            if (record := records.get(name)) is not None and (check := record.checks.get(self._host)) is not None
        ]

    async def settle(self) -> float:
        """Announce what changed, also because a host is gone that could use a provider.

        Return when the next provider is expected to recover, by the clock of the loop; infinite if none is expected to.
        """
        at = time.time()
        records = await self._health.read()
        self._remember_disabled(records)
        drop_checks = partial(_drop_checks, dead=await self._find_dead_hosts(records))
        if (current := drop_checks(records)) != records or settle(records, at)[0]:
            await self._update(drop_checks)
        recoveries = [
            recovery
            for record in current.values()
            if (recovery := timestamp_seconds(decide_status(record, at).estimated_recovery)) is not None
        ]
        return anyio.current_time() + max(0.0, min(recoveries, default=math.inf) - at)

    async def _find_dead_hosts(self, records: Records) -> set[str]:
        checkers = {host for record in records.values() for host in record.checks} - {self._host}
        return {host for host in checkers if not await self._hosts.is_alive(host)}

    async def disable(self, name: str, *, by: str, maintenance: bool = False, reason: str | None = None) -> None:
        """Disable a provider until someone enables it. Line breaks of `reason` become spaces.

        Raises `ProviderNotFound`.
        """
        reason = " ".join(reason.split()) if reason else None
        disabled = DisabledBy(by=by, at=now(), maintenance=maintenance, reason=reason)
        await self._decide(name, disabled)

    async def enable(self, name: str) -> None:
        """Enable a provider, and forget the failures that runs observed. Raises `ProviderNotFound`."""
        await self._decide(name, None)

    async def _decide(self, name: str, disabled: DisabledBy | None) -> None:
        if name not in PROVIDER_TITLES:
            raise ProviderNotFound(f"there is no provider {name!r}", hint=f"there are {', '.join(PROVIDER_TITLES)}")
        # Without a server no other process checks, and `enable` must announce what is true.
        add_checks = await self._probe_change(asks_providers=False) if self._host == LOCAL else None

        def change(records: Records) -> Records:
            records = add_checks(records) if add_checks is not None else records
            record = records.get(name) or ProviderRecord(name=name)
            failure = record.failure if disabled is not None else None
            return {**records, name: replace(record, disabled=disabled, failure=failure)}

        await self._update(change)

    async def _update(self, change: Callable[[Records], Records]) -> None:
        """Change the records and announce what changes by that."""
        if await self._health.update(partial(change_and_settle, change=change, now=time.time())):
            self._bus.notify_fleet()
        self._remember_disabled(await self._health.read())

    def _remember_disabled(self, records: Records) -> None:
        self.disabled = {name: text for name, record in records.items() if (text := disabled_reason(record))}
