"""Queue and orders: what somebody asked for, kept until a log has it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, Protocol

import msgspec

from shopfloor.log import RunStarted


class QueuedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has not started."""

    run_id: str
    started: RunStarted
    """The run's first event; `host` is empty and `attempt` 0 until a host starts it."""

    @property
    def parent_run_id(self) -> str | None:
        return None if self.started.parent is None else self.started.parent["run_id"]

    @property
    def root_run_id(self) -> str:
        return self.started.root_run_id or self.run_id


ANSWER_ID_PREFIX = "answer:"
"""What the id of an answer begins with; the call follows."""


class ControlMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody asks of a run that there is already."""

    id: str
    """Twice the same id is once: `answer:<call_id>`, `cancel`; unique within a run."""
    run_id: str
    kind: Literal["answer", "cancel", "resume"]
    body: dict[str, Any]
    """For `answer`: `call_id`, and `result` or `error`. For `cancel`: `reason`."""
    created_at: str


class Queue(Protocol):
    async def dispatch(self, order: QueuedRun, *, host: str | None = None) -> str:
        """Keeps the order and shows the run as queued, in one transaction; gives the run's id.

        The same idempotency key again gives the id of the first, or a `ConflictError` where the worker or the input is
        another; so does an id that a run has already. With `host` it is claimed by that one from the start.
        """
        ...

    async def claim(self, host: str, limit: int) -> list[QueuedRun]:
        """The oldest that nobody has, at most `limit`; from now on they are `host`'s."""
        ...

    async def claim_one(self, run_id: str, host: str, *, previous_host: str | None = None) -> QueuedRun | None:
        """That one, if it is queued and nobody has it; with `previous_host`, if that host has it."""
        ...

    async def find(self, run_id: str) -> QueuedRun | None:
        """Return the dispatch of a run that has not started, whoever has claimed it."""
        ...

    async def mark_started(self, run_ids: Sequence[str]) -> None:
        """Their logs have them: the orders go."""
        ...

    async def claimed(self) -> list[tuple[str, str]]:
        """What hosts have claimed and not started: run and host."""
        ...

    async def release(self, claims: Collection[tuple[str, str]]) -> None:
        """Queue again the runs whose host is gone; `claims` are run and host, as `claimed` returns them.

        A run that another host has claimed meanwhile stays claimed.
        """
        ...

    async def put_control_message(self, order: ControlMessage) -> bool:
        """Keeps an order; False where the same one is there already."""
        ...

    async def control_messages(self, *, after: int = 0) -> list[tuple[int, ControlMessage]]:
        """What no log has taken up yet, oldest first, each with its number; those over `after`."""
        ...

    async def acknowledge(self, numbers: Sequence[int]) -> None:
        """A log has taken them up, or they mean nothing any more."""
        ...

    async def restore_queued_rows(self) -> None:
        """Lists as queued what is queued and has no row: for a rebuild, once the logs have theirs."""
        ...

    async def recover(self, *, is_idle: bool = False) -> int:
        """Keep again what was acknowledged and was lost with the store; give how many dispatches and messages that is.

        Where nothing was lost this drops what was kept for that case and logs have by now, when there is much of it
        or `is_idle` is set.
        """
        ...

    async def forget(self, run_ids: Collection[str]) -> None:
        """Runs that are deleted: their orders go, and their idempotency keys can be used anew."""
        ...
