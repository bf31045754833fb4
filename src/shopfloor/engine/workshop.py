"""The ports that the steps of a run reach the world by."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from shopfloor.engine.agents.asking import AgentDesk
from shopfloor.engine.attempt import Attempt, StepResult, Trying
from shopfloor.ports import Models, Processes


class CallWorker(Protocol):
    """Makes a sub-run, or goes on waiting for the one that the log tells of; gives its output, and what it cost."""

    async def __call__(self, attempt: Attempt, trying: Trying, worker: str, given: dict[str, Any]) -> StepResult: ...


class Workshop(msgspec.Struct, frozen=True, kw_only=True):
    models: Models
    processes: Processes
    call_worker: CallWorker
    agents: AgentDesk
    cwd: str
