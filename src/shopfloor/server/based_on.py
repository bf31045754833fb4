"""The earlier run that a run repeats, continues or forks, and the later runs that do this with it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shopfloor.log import BasedOn
from shopfloor.ports import Store


class EarlierRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a run repeats, continues or forks."""

    run_id: str
    kind: Annotated[Literal["rerun", "reply", "fork"], Meta(description="How the run was made from the earlier one.")]
    seq: Annotated[int | None, Meta(description="For a fork: the last event that it has in common with the run.")]


class LaterRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that repeats, continues or forks another run."""

    run_id: str
    kind: Literal["rerun", "reply", "fork"]


def to_earlier_run(based_on: BasedOn | None) -> EarlierRun | None:
    """Convert what a log has of the earlier run."""
    return based_on and EarlierRun(run_id=based_on.run_id, kind=based_on.kind, seq=based_on.seq)


async def find_later_runs(store: Store, run_id: str) -> list[LaterRun]:
    """Return the runs based on a run, newest first."""
    return [LaterRun(run_id=later.run_id, kind=later.kind) for later in await store.later_runs(run_id)]
