"""Queue: requested runs and control messages, stored until a log has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, Protocol

import msgspec

from shopfloor.errors import ConflictError
from shopfloor.limits import QUEUE_GROUPS
from shopfloor.log import Requirements, RunStarted
from shopfloor.ports.placement import HostOffer


class QueuedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has not started."""

    run_id: str
    started: RunStarted
    """The run's first event; `host` is empty and `attempt` 0 until a host starts it."""
    is_only_reply: bool = False
    """Whether the earlier run may have no other reply than this one: its session cannot be copied."""

    @property
    def parent_run_id(self) -> str | None:
        return None if self.started.parent is None else self.started.parent["run_id"]

    @property
    def root_run_id(self) -> str:
        return self.started.root_run_id or self.run_id


class QueueGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The unclaimed runs that require the same of their host."""

    requires: Requirements | None
    total: int
    first: list[QueuedRun]
    """The runs that start next, at most as many as requested."""
    oldest_queued_at: str | None


def session_continued(run_id: str, reply_id: str) -> ConflictError:
    """Return the reason why a run that may have only one reply gets no other."""
    return ConflictError(
        f"the session of the run {run_id} continues in the run {reply_id}",
        hint=f"reply to that run: `shopfloor reply {reply_id[:8]} 'text'`",
    )


def queue_groups_exceeded() -> ConflictError:
    """Return the reason why a run with new requirements is not queued: a claim looks at each group of the queue."""
    return ConflictError(
        f"the queue has runs with {QUEUE_GROUPS:,} different requirements, which is the most that it can have",
        hint="`shopfloor queue` lists what waits; start hosts with these labels, or cancel runs",
    )


ANSWER_ID_PREFIX = "answer:"
"""Prefix of the id of an answer; the id of the call follows."""


class ControlMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A durable message to an existing run."""

    id: str
    """Unique within a run: `answer:<call_id>`, `cancel`. A second message with the same id has no effect."""
    run_id: str
    kind: Literal["answer", "cancel", "resume"]
    body: dict[str, Any]
    """For `answer`: `call_id`, and `result` or `error`. For `cancel`: `reason`."""
    created_at: str


class Queue(Protocol):
    """Runs that have not started, and control messages."""

    async def dispatch(self, queued_run: QueuedRun, /, *, host: str | None = None) -> str:
        """Store the run and list it as queued, in one transaction. Return the id of the run.

        If the idempotency key was used before, return the id of that run, or raise `ConflictError` if the worker or the
        input differs. Raises `ConflictError` if the run id exists, or if there is another reply and this must be the
        only one. With `host` the run is claimed by that host from the start.
        """
        ...

    async def claim(self, host: str, limit: int, offer: HostOffer) -> list[QueuedRun]:
        """Claim unclaimed runs whose requirements `offer` satisfies, at most `limit`.

        Which providers are disabled is read in the same transaction, since the offer may be seconds old: once a
        provider is disabled, no host claims a run that requires it.
        Runs with the highest priority come first, and among equals the oldest. The time does not depend on the number
        of queued runs, nor on runs that the offer does not satisfy.
        """
        ...

    async def groups(self, *, limit: int) -> list[QueueGroup]:
        """Return the unclaimed runs by their requirements, each group with its first `limit` runs."""
        ...

    async def claim_one(self, run_id: str, host: str, *, previous_host: str | None = None) -> QueuedRun | None:
        """Claim this run if it is queued and unclaimed, or, with `previous_host`, if that host has claimed it."""
        ...

    async def find(self, run_id: str) -> QueuedRun | None:
        """Return a run that has not started, whether claimed or not."""
        ...

    async def next_unclaimed(self, offer: HostOffer, *, limit: int) -> list[str]:
        """Return the runs that a host with this offer claims next, in this order, at most `limit`."""
        ...

    async def mark_started(self, run_ids: Sequence[str]) -> None:
        """Remove runs from the queue, since their logs have them now."""
        ...

    async def claimed(self) -> list[tuple[str, str]]:
        """Return the claimed runs that have not started, as pairs of run and host."""
        ...

    async def release(self, claims: Collection[tuple[str, str]]) -> None:
        """Queue the runs of dead hosts again; `claims` are pairs of run and host, as `claimed` returns them.

        A run that another host has claimed meanwhile stays claimed.
        """
        ...

    async def put_control_message(self, message: ControlMessage, /) -> bool:
        """Store a message. Return False if a message with the same id is stored already."""
        ...

    async def control_messages(self, *, after: int = 0) -> list[tuple[int, ControlMessage]]:
        """Return the messages that no log has yet, oldest first, each with its number; only numbers above `after`."""
        ...

    async def acknowledge(self, numbers: Sequence[int]) -> None:
        """Remove messages that a log has now, or that have become meaningless."""
        ...

    async def restore_queued_rows(self) -> None:
        """List the queued runs that have no row. Called by a rebuild, after the rows of all logs exist."""
        ...

    async def recover(self, *, is_idle: bool = False) -> int:
        """Restore what was acknowledged but lost with the database; return the number of restored runs and messages.

        If nothing was lost, drop the backup of those that logs have by now, if the backup is large or `is_idle` is set.
        """
        ...

    async def forget(self, run_ids: Collection[str]) -> None:
        """Remove deleted runs with their messages, and free their idempotency keys."""
        ...
