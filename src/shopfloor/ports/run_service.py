"""Run service: dispatching runs, and sending them answers, cancels and resumes."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from shopfloor.log import BasedOn
from shopfloor.ports import run_fields


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for a new run, which continues whether or not a client watches it."""

    worker: run_fields.Worker
    input: run_fields.Input = {}
    text: run_fields.Text = None
    task: run_fields.Task = None
    owner: run_fields.Owner = None
    channel_id: run_fields.ChannelId = None
    channel_name: run_fields.ChannelName = None
    idempotency_key: run_fields.IdempotencyKey = None
    cwd: run_fields.Folder = None
    client: run_fields.Client = None
    approve: run_fields.Approve = []
    approve_timeout: run_fields.ApproveTimeout = None
    priority: run_fields.Priority = 0
    labels: run_fields.Labels = {}


class RunOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a new run that Shopfloor decides: its id, its place in the tree, how long it waits for clients."""

    run_id: str | None = None
    """None: create a new id."""
    parent_run_id: str | None = None
    root_run_id: str | None = None
    depth: int = 0
    """Number of ancestors."""
    client_wait_seconds: float | None = None
    """How long each call of a client tool waits for its result; None: without limit."""
    based_on: BasedOn | None = None
    """The earlier run that the new run repeats or continues."""
    is_only_reply: bool = False
    """Whether that run may have no other reply."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call that a run waits for, sent by a client or person."""

    call_id: str
    result: Any = None
    error: str | None = None


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that a worker may make without asking, because a person approved them for always."""

    id: str
    worker: str
    """The slug of the worker."""
    origin: str | None
    """Where the worker comes from. A worker with the same slug from elsewhere asks."""
    folder: str | None = None
    """For a run of an agent without a worker: its folder. In other folders it asks."""
    pattern: str
    """The calls, such as `Bash(git push*)`."""
    run_id: str
    """The run in which the person approved them."""
    created_at: str


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that can be run here."""

    slug: str
    """The name for callers: `<project>/<slug>` if the slug alone is ambiguous."""
    project: str | None
    name: str | None
    description: str | None
    worker_type: str
    input_schema: dict[str, Any]
    """JSON Schema of the input."""
    tools: list[str]
    client_tools: list[str]
    """Tools that the client executes, not the server."""
    example: bool = False
    """Whether the worker is an example that comes with Shopfloor."""


class RunService(Protocol):
    """The engine as callers use it. Each method returns when the request is stored durably."""

    async def dispatch(self, request: RunRequest, origin: RunOrigin | None = None) -> str:
        """Queue a new run and return its id.

        Raises `WorkerNotFound`, `InvalidInput`, `ProviderDisabled`, `StorageFull`.
        """
        ...

    async def answer(self, run_id: str, results: list[CallResult]) -> None:
        """Store the results of calls. Sending the same result again changes nothing.

        Raises `RunNotFound`, `UnknownCall`, `RunEnded`, and `ConflictError` for a call that already has another result.
        """
        ...

    async def cancel(self, run_id: str, *, reason: str) -> None:
        """Request cancellation of a run. Raises `RunNotFound`, `RunEnded`."""
        ...

    async def resume(self, run_id: str) -> None:
        """Resume a run that has no host. Raises `RunNotFound`, `RunEnded`, `RunRunning`."""
        ...

    async def resume_refusal(self, run_id: str) -> str | None:
        """Return why no server resumes a run without a host, so that a person has to; None if a server does."""
        ...

    async def rerun(
        self, run_id: str, changed_input: dict[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> str:
        """Queue a new run of the same worker with the same input, except what `changed_input` has. Return its id.

        Raises `RunNotFound`, `WorkerNotFound`, `InvalidInput`, and `ConflictError` for a run that cannot be repeated.
        """
        ...

    async def reply(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> str:
        """Queue a new run that continues the agent session of a run with a new prompt. Return its id.

        Raises `RunNotFound`, `RunRunning`, `UnsupportedOption`, and `ConflictError` for a run without such a session.
        """
        ...

    async def fork(self, run_id: str, seq: int, *, idempotency_key: str | None = None) -> str:
        """Queue a new run that starts with the events of a run up to `seq`. Return its id. The old log is only read.

        Raises `RunNotFound`, `InvalidParameter`, `DefinitionChanged`, and `ConflictError` inside an agent's session.
        """
        ...

    async def approval_rules(self) -> list[ApprovalRule]:
        """Return the calls that workers may make without asking, newest first."""
        ...

    async def revoke_approval(self, rule_id: str) -> ApprovalRule:
        """Delete a rule by the beginning of its id: the calls are asked for again. Raises `NotFoundError`."""
        ...

    def find_worker(self, name: str, /, *, folder: str | None = None) -> WorkerInfo:
        """Return the worker that a request with this name and folder would run.

        Raises `WorkerNotFound`, and `AmbiguousWorker` if several projects have it and none of them is `folder`.
        """
        ...

    def workers(self) -> list[WorkerInfo]: ...

    def provider_workers(self) -> list[WorkerInfo]:
        """Return the workers that pass a task directly to a provider."""
        ...
