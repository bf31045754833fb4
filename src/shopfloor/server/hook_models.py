"""Response models of hooks."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class HookItem(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook or command that is notified of runs. Its secret is not shown."""

    id: str
    origin: Annotated[str, Meta(description="`api`, `settings`, `run` or `desktop`.")]
    url: str | None
    command: str | None
    kinds: Annotated[list[str], Meta(description="What it is notified: `outcome`, `question`, `budget`.")]
    run_id: Annotated[str | None, Meta(description="The only run that it is notified of; null for all.")]
    created_at: str
    pending: Annotated[int, Meta(description="Deliveries that wait for their next try.")]
    delivered: int
    dropped: Annotated[int, Meta(description="Deliveries that were given up.")]
    last_error: Annotated[str | None, Meta(description="The problem of the newest try; null if it succeeded.")]
    last_at: str | None


class HookList(msgspec.Struct, frozen=True):
    """The hooks of a storage."""

    hooks: list[HookItem]


class AddedHook(msgspec.Struct, frozen=True, kw_only=True):
    """A new webhook."""

    id: str
    secret: Annotated[str, Meta(description="The key of its signatures. It is not shown again.")]


class RemovedHook(msgspec.Struct, frozen=True, kw_only=True):
    """The hook that was removed."""

    id: str


class HookTest(msgspec.Struct, frozen=True, kw_only=True):
    """What a receiver did with a test event."""

    id: str
    delivered: bool
    problem: str | None
