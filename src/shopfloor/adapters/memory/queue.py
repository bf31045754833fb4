"""The queue in plain dicts. No method awaits anything, so each is a transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from shopfloor.adapters.memory.store import MemoryStore
from shopfloor.errors import ConflictError
from shopfloor.limits import QUEUE_GROUPS
from shopfloor.log import Requirements
from shopfloor.ports import (
    NO_REQUIREMENTS,
    ControlMessage,
    HostOffer,
    QueuedRun,
    QueueGroup,
    ViewUpdate,
    disabled_providers,
    queue_groups_exceeded,
    session_continued,
)
from shopfloor.views import queued_row


class _Claim(msgspec.Struct):
    queued: QueuedRun
    host: str | None
    """The host that has claimed the run; None while it is unclaimed."""


def _required(claim: _Claim) -> Requirements:
    return claim.queued.started.requires or NO_REQUIREMENTS


def _encode_requirements(queued: QueuedRun) -> bytes:
    return msgspec.json.encode(queued.started.requires or NO_REQUIREMENTS, order="deterministic")


class MemoryQueue:
    """Implements `Queue`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._runs: dict[str, _Claim] = {}
        self._keys: dict[str, tuple[str, tuple[Any, ...]]] = {}
        self._messages = store.control_messages
        self._last_number = 0

    async def dispatch(self, queued_run: QueuedRun, *, host: str | None = None) -> str:
        started = queued_run.started
        key, requested = started.idempotency_key, (started.name, started.input, started.based_on)
        previous = None if key is None else self._keys.get(key)
        if previous is not None:
            previous_run_id, previously_requested = previous
            if previously_requested != requested:
                raise ConflictError(
                    f"the idempotency key {key!r} was used with another worker or input, for run {previous_run_id}",
                    hint="use a new key for each different request",
                )
            return previous_run_id
        if queued_run.run_id in await self._store.known_runs():
            raise ConflictError(f"run {queued_run.run_id} already exists", hint="use a new id for each run")
        if queued_run.is_only_reply and started.based_on is not None:
            earlier = started.based_on.run_id
            replies = [later.run_id for later in await self._store.later_runs(earlier) if later.kind == "reply"]
            if replies:
                raise session_continued(earlier, replies[0])
        if host is None and started.requires is not None:
            groups = {_encode_requirements(claim.queued) for claim in self._unclaimed()}
            if len(groups | {_encode_requirements(queued_run)}) > max(len(groups), QUEUE_GROUPS):
                raise queue_groups_exceeded()
        if key is not None:
            self._keys[key] = (queued_run.run_id, requested)
        self._runs[queued_run.run_id] = _Claim(queued_run, host)
        await self._add_row(queued_run)
        return queued_run.run_id

    async def claim(self, host: str, limit: int, offer: HostOffer) -> list[QueuedRun]:
        claimable = self._claimable(offer)[:limit]
        for claim in claimable:
            claim.host = host
        return [claim.queued for claim in claimable]

    async def groups(self, *, limit: int) -> list[QueueGroup]:
        groups: dict[bytes, list[QueuedRun]] = {}
        for claim in self._unclaimed():
            groups.setdefault(_encode_requirements(claim.queued), []).append(claim.queued)
        return [
            QueueGroup(
                requires=runs[0].started.requires,
                total=len(runs),
                first=runs[:limit],
                oldest_queued_at=min(run.started.queued_at or "" for run in runs) or None,
            )
            for runs in groups.values()
        ]

    def _claimable(self, offer: HostOffer) -> list[_Claim]:
        """Return the runs that a host with this offer may claim, in the order in which they start."""
        offer = offer.disable(disabled_providers(self._store.providers))
        return [claim for claim in self._unclaimed() if offer.satisfies(_required(claim))]

    def _unclaimed(self) -> list[_Claim]:
        """Return the unclaimed runs in the order in which they start."""
        unclaimed = [claim for claim in self._runs.values() if claim.host is None]
        return sorted(unclaimed, key=lambda claim: -claim.queued.started.priority)

    async def claim_one(self, run_id: str, host: str, *, previous_host: str | None = None) -> QueuedRun | None:
        claim = self._runs.get(run_id)
        if claim is None or claim.host != previous_host:
            return None
        claim.host = host
        return claim.queued

    async def find(self, run_id: str) -> QueuedRun | None:
        claim = self._runs.get(run_id)
        return None if claim is None else claim.queued

    async def next_unclaimed(self, offer: HostOffer, *, limit: int) -> list[str]:
        return [claim.queued.run_id for claim in self._claimable(offer)[:limit]]

    async def mark_started(self, run_ids: Sequence[str]) -> None:
        for run_id in run_ids:
            self._runs.pop(run_id, None)

    async def claimed(self) -> list[tuple[str, str]]:
        return [(run_id, claim.host) for run_id, claim in self._runs.items() if claim.host is not None]

    async def release(self, claims: Collection[tuple[str, str]]) -> None:
        for run_id, host in claims:
            claim = self._runs.get(run_id)
            if claim is not None and claim.host == host:
                claim.host = None

    async def put_control_message(self, message: ControlMessage) -> bool:
        if any((other.run_id, other.id) == (message.run_id, message.id) for other in self._messages.values()):
            return False
        self._last_number += 1
        self._messages[self._last_number] = message
        return True

    async def control_messages(self, *, after: int = 0) -> list[tuple[int, ControlMessage]]:
        return [(number, message) for number, message in self._messages.items() if number > after]

    async def acknowledge(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._messages.pop(number, None)

    async def restore_queued_rows(self) -> None:
        for claim in self._runs.values():
            await self._add_row(claim.queued)

    async def _add_row(self, queued: QueuedRun) -> None:
        # The store ignores the update if the run already has a row with events.
        await self._store.apply([ViewUpdate(row=queued_row(queued.run_id, queued.started), state=b"", timeline=[])])

    async def recover(self, *, is_idle: bool = False) -> int:
        # Memory is only lost together with its process, so there is nothing to recover.
        return 0

    async def forget(self, run_ids: Collection[str]) -> None:
        forgotten = set(run_ids)
        await self.mark_started(tuple(forgotten))
        await self.acknowledge([number for number, message in self._messages.items() if message.run_id in forgotten])
        self._keys = {key: previous for key, previous in self._keys.items() if previous[0] not in forgotten}
