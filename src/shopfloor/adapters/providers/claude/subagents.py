"""Sub-agents: each is known by the call that asked for it, and what it does is in the same stream.

One that works in the background gets the result of its call at once, and ends with a notice. One that is sent another
message when it has ended goes on under its old call, though the notice of its start names the new one: to us that is
another sub-agent, found by the id that the program gave it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shopfloor.adapters.providers.claude.messages import SUB_AGENT_TOOLS, OpenToolCall, bounded_put, text_content
from shopfloor.adapters.providers.json_access import Record, list_at, parse_timestamp, record_at, run_error, text_at
from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.log import RunError, Status, ToolResult
from shopfloor.ports import MAIN_AGENT, AgentReport, SubAgentEnded, SubAgentStarted

_KIND = "local_agent"
_ENDS: dict[str | None, Status] = {"completed": "completed", "failed": "failed", "stopped": "cancelled"}


class _SubAgent(msgspec.Struct):
    task: str | None
    """What it was told to do, until that has been repeated."""
    in_background: bool = False
    over: bool = False
    ended_at: str | None = None
    error: RunError | None = None


class SubAgents:
    def __init__(self, call_of: Callable[[str], OpenToolCall]) -> None:
        self._call_of = call_of
        self._agents: dict[str, _SubAgent] = {}
        self._by_id: dict[str, str] = {}
        """The keys of those whose own ids are known."""

    def __bool__(self) -> bool:
        return bool(self._agents)

    def key_of(self, record: Record) -> str:
        """Whose record it is."""
        if self._by_id and (own_id := text_at(record, "agent_id")) in self._by_id:
            return self._by_id[own_id]
        return text_at(record, "parent_tool_use_id") or MAIN_AGENT

    def ensure_started(self, key: str, record: Record, at: str | None) -> list[AgentReport]:
        """Something of it is in the stream: where that is the first, then it begins."""
        return [] if key == MAIN_AGENT or key in self._agents else [self._begin(key, self._call_of(key), record, at)]

    def is_task(self, key: str, text: str) -> bool:
        """Whether a message to it is what it was asked for at first. That was told with its start."""
        agent = self._agents.get(key)
        if agent is None or agent.task is None or agent.task != text:
            return False
        agent.task = None
        return True

    def failed(self, key: str, error: RunError) -> None:
        if key in self._agents:
            self._agents[key].error = error

    # What the program tells of its tasks, among which are commands in the background.

    def task_started(self, record: Record) -> list[AgentReport]:
        task = text_at(record, "task_id")
        key = text_at(record, "tool_use_id") or task
        if key is None or not (record.get("task_type") == _KIND or text_at(record, "subagent_type")):
            return []
        if task is not None:
            bounded_put(self._by_id, task, key)
        reports = self.ensure_started(key, record, None)
        self._agents[key].in_background = record.get("is_backgrounded") is True
        return reports

    def task_updated(self, record: Record) -> list[AgentReport]:
        agent = self._agents.get(self._by_id.get(text_at(record, "task_id") or "", MAIN_AGENT))
        patch = record_at(record, "patch")
        if agent is not None:
            agent.ended_at = parse_timestamp(patch.get("end_time")) or agent.ended_at
            agent.in_background = agent.in_background or patch.get("is_backgrounded") is True
        return []

    def task_ended(self, record: Record) -> list[AgentReport] | None:
        """None where it is no sub-agent: a command in the background."""
        key = self._by_id.get(text_at(record, "task_id") or "") or text_at(record, "tool_use_id")
        agent = self._agents.get(key) if key is not None else None
        if key is None or agent is None:
            return None
        return self._end(
            key, _ENDS.get(text_at(record, "status"), "failed"), text_at(record, "summary"), agent.ended_at
        )

    def call_completed(
        self, call: OpenToolCall, result: ToolResult, structured: Record, at: str | None
    ) -> list[AgentReport]:
        """Its call has a result. Older versions have no notices, and nothing but that where it only spoke."""
        if call.name not in SUB_AGENT_TOOLS:
            return []
        key, agent = result.call_id, self._agents.get(result.call_id)
        if agent is None and result.error is not None:
            # It never came to be.
            return []
        reports: list[AgentReport] = [] if agent is not None else [self._begin(key, call, {}, None)]
        if structured.get("isAsync") is True:
            self._agents[key].in_background = True
        if self._agents[key].in_background:
            return reports
        if result.error is not None:
            return self._end(key, "failed", result.error, at)
        # The program's own notes come first.
        last = list_at(structured, "content")[-1:]
        return [*reports, *self._end(key, "completed", text_content(last or result.output), at)]

    def _begin(self, key: str, call: OpenToolCall, record: Record, at: str | None) -> SubAgentStarted:
        parent = call.agent if call.name else self._by_id.get(text_at(record, "parent_task_id") or "", MAIN_AGENT)
        task = text_at(record, "prompt") or text_at(call.task, "prompt")
        name = text_at(record, "subagent_type") or text_at(call.task, "subagent_type") or call.name or "agent"
        bounded_put(self._agents, key, _SubAgent(task=task))
        return SubAgentStarted(
            agent=key, parent=parent, name=name, task=task, model=text_at(call.task, "model"), at=at or call.at
        )

    def _end(self, key: str, status: Status, said: str | None, at: str | None) -> list[AgentReport]:
        agent = self._agents[key]
        if agent.over:
            return []
        agent.over = True
        if status == "completed":
            return [SubAgentEnded(agent=key, text=said, at=at)]
        kind = AgentFailed if status == "failed" else ExecutionCancelled
        error = (agent.error if status == "failed" else None) or run_error(
            kind, said or "the sub-agent did not end well"
        )
        return [SubAgentEnded(agent=key, status=status, error=error, at=at)]
