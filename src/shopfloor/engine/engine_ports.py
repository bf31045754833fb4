"""The ports of an engine: its storage, and what the steps of a run use."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from shopfloor.engine.agents.request import AgentRuntime
from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.plugin_jobs import FindJobClaims
from shopfloor.ports import (
    Audit,
    Blobs,
    Hosts,
    LogReader,
    Logs,
    Models,
    Plugins,
    Processes,
    ProviderHealth,
    Queue,
    Store,
)


class StoragePorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports to a storage."""

    store: Store
    queue: Queue
    hosts: Hosts
    logs: Logs
    reader: LogReader
    audit: Audit
    blobs: Blobs
    provider_health: ProviderHealth


class CallWorker(Protocol):
    """A function that dispatches a sub-run, or waits for the one that the log has; returns its output and cost."""

    async def __call__(
        self, attempt: Attempt, step_try: StepTry, worker: str, worker_input: dict[str, Any]
    ) -> StepResult: ...


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    """The ports that the steps of a run use."""

    models: Models
    processes: Processes
    call_worker: CallWorker
    agents: AgentRuntime
    plugins: Plugins
    find_job_claims: FindJobClaims
    blobs: Blobs
    cwd: str
    """The working directory of the run."""
    has_memory: bool = False
    """Whether the worker's memory is added to its system prompts."""
    approve: tuple[str, ...] = ()
    """The patterns of calls that a person has to approve: of the run and of its worker."""
    approve_timeout: float | None = None
    """Seconds after which a call without a decision is denied; None: the default."""
    own_tools: frozenset[str] = frozenset()
    """The tools that the engine executes for the worker."""
