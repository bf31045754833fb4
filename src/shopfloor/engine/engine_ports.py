"""The ports that the parts of an engine find and record runs by."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from shopfloor.engine.agents.request import AgentRuntime
from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.ports import Audit, Hosts, LogReader, Logs, Models, Processes, Queue, Store


class StoragePorts(msgspec.Struct, frozen=True, kw_only=True):
    """The ports to a storage: all that the engine knows of it."""

    store: Store
    queue: Queue
    hosts: Hosts
    logs: Logs
    reader: LogReader
    audit: Audit


class CallWorker(Protocol):
    """Makes a sub-run, or goes on waiting for the one that the log tells of; gives its output, and what it cost."""

    async def __call__(self, attempt: Attempt, step_try: StepTry, worker: str, given: dict[str, Any]) -> StepResult: ...


class StepContext(msgspec.Struct, frozen=True, kw_only=True):
    models: Models
    processes: Processes
    call_worker: CallWorker
    agents: AgentRuntime
    cwd: str
