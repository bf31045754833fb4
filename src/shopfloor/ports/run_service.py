"""Works: what makes runs happen, as faces ask for it."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from shopfloor.ports import run_fields


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks for a run that goes on whoever watches."""

    worker: run_fields.Worker
    input: run_fields.Input = {}
    task: run_fields.Task = None
    owner: run_fields.Owner = None
    channel_id: run_fields.ChannelId = None
    channel_name: run_fields.ChannelName = None
    idempotency_key: run_fields.IdempotencyKey = None
    cwd: run_fields.Folder = None


class RunOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """What Shopfloor itself decides about a new run: its id, its place in the tree, its wait for clients."""

    run_id: str | None = None
    """None: a new id."""
    parent_run_id: str | None = None
    root_run_id: str | None = None
    depth: int = 0
    """How many runs are above it."""
    client_wait_seconds: float | None = None
    """How long each of its client tool calls waits for the client; None: as long as it takes."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody outside gives for a call that a run waits for."""

    call_id: str
    result: Any = None
    error: str | None = None


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that can be run here."""

    slug: str
    """What a caller names it by: `<project>/<slug>` where the slug alone is ambiguous."""
    project: str | None
    name: str | None
    description: str | None
    worker_type: str
    input_schema: dict[str, Any]
    """JSON Schema of its input."""
    tools: list[str]
    client_tools: list[str]
    """Those that nobody on the server executes."""


class RunService(Protocol):
    """What makes runs happen. Each returns when what was asked is kept, so that nothing can lose it."""

    async def dispatch(self, request: RunRequest, origin: RunOrigin | None = None) -> str:
        """The id of the run. Raises `WorkerNotFound`, `InvalidInput`, `StorageFull`."""
        ...

    async def answer(self, run_id: str, results: list[CallResult]) -> None:
        """Keep the results of calls. The same result again changes nothing.

        Raises `RunNotFound`, `UnknownCall`, `RunEnded`, and `ConflictError` for a call that has another result already.
        """
        ...

    async def cancel(self, run_id: str, *, reason: str) -> None:
        """Raises `RunNotFound`, `RunEnded`."""
        ...

    async def resume(self, run_id: str) -> None:
        """Has a run gone on with that nobody is at. Raises `RunNotFound`, `RunEnded`, `RunRunning`."""
        ...

    def workers(self) -> list[WorkerInfo]: ...

    def provider_workers(self) -> list[WorkerInfo]:
        """Those that stand for a provider: they hand it a task as it is."""
        ...
