"""Sub-agents of Claude Code, whose records are in the same stream. Their keys are the ids of the calls that start them.

The call of a sub-agent in the background gets its result at once; the end of the sub-agent is a task notification.
A sub-agent that ended and is sent another message continues under its old call, although the record of its start names
the new call. Here it is another sub-agent, found by the id that Claude Code gave it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from shopfloor.adapters.providers.claude.messages import SUB_AGENT_TOOLS, OpenToolCall, text_content
from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.json_access import Record, list_at, parse_timestamp, record_at, text_at
from shopfloor.adapters.providers.jsonl import bounded_put
from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.log import RunError, Status, ToolResult
from shopfloor.ports import MAIN_AGENT, AgentReport, SubAgentEnded, SubAgentStarted

_SUB_AGENT_TASK_TYPE = "local_agent"
_STATUSES: dict[str | None, Status] = {"completed": "completed", "failed": "failed", "stopped": "cancelled"}


class _SubAgent(msgspec.Struct):
    task: str | None
    """Its prompt, until the stream has repeated the prompt."""
    in_background: bool = False
    is_ended: bool = False
    ended_at: str | None = None
    error: RunError | None = None


class SubAgents:
    """The sub-agents of a session. `get_call` returns the open tool call with an id."""

    def __init__(self, get_call: Callable[[str], OpenToolCall]) -> None:
        self._get_call = get_call
        self._agents: dict[str, _SubAgent] = {}
        self._by_id: dict[str, str] = {}
        """Keys of sub-agents, by the ids that Claude Code gave them."""

    def __bool__(self) -> bool:
        return bool(self._agents)

    def key_of(self, record: Record) -> str:
        """Return the key of the agent that a record belongs to."""
        if self._by_id and (agent_id := text_at(record, "agent_id")) in self._by_id:
            return self._by_id[agent_id]
        return text_at(record, "parent_tool_use_id") or MAIN_AGENT

    def ensure_started(self, key: str, record: Record, at: str | None) -> list[AgentReport]:
        """Report the start of a sub-agent at its first record."""
        return [] if key == MAIN_AGENT or key in self._agents else [self._begin(key, self._get_call(key), record, at)]

    def is_task(self, key: str, text: str) -> bool:
        """Return whether a message to a sub-agent is its first prompt, which `SubAgentStarted` already carries."""
        agent = self._agents.get(key)
        if agent is None or agent.task is None or agent.task != text:
            return False
        agent.task = None
        return True

    def record_error(self, key: str, error: RunError) -> None:
        """Remember the error of a sub-agent, for the report of its end."""
        if key in self._agents:
            self._agents[key].error = error

    # Tasks of Claude Code: sub-agents, and commands in the background.

    def task_started(self, record: Record) -> list[AgentReport]:
        """Report the start of a sub-agent. Other tasks give no reports."""
        task = text_at(record, "task_id")
        key = text_at(record, "tool_use_id") or task
        if key is None or not (record.get("task_type") == _SUB_AGENT_TASK_TYPE or text_at(record, "subagent_type")):
            return []
        if task is not None:
            bounded_put(self._by_id, task, key)
        reports = self.ensure_started(key, record, None)
        self._agents[key].in_background = record.get("is_backgrounded") is True
        return reports

    def task_updated(self, record: Record) -> list[AgentReport]:
        """Note when a task ended, and whether it went to the background."""
        agent = self._agents.get(self._by_id.get(text_at(record, "task_id") or "", MAIN_AGENT))
        patch = record_at(record, "patch")
        if agent is not None:
            agent.ended_at = parse_timestamp(patch.get("end_time")) or agent.ended_at
            agent.in_background = agent.in_background or patch.get("is_backgrounded") is True
        return []

    def task_ended(self, record: Record) -> list[AgentReport] | None:
        """Report the end of a sub-agent; None if the task is a command in the background."""
        key = self._by_id.get(text_at(record, "task_id") or "") or text_at(record, "tool_use_id")
        agent = self._agents.get(key) if key is not None else None
        if key is None or agent is None:
            return None
        return self._end(
            key, _STATUSES.get(text_at(record, "status"), "failed"), text_at(record, "summary"), agent.ended_at
        )

    def call_completed(
        self, call: OpenToolCall, result: ToolResult, structured: Record, at: str | None
    ) -> list[AgentReport]:
        """Report the end of a sub-agent whose call has a result.

        Older versions write no task records. A sub-agent that used no tools then leaves nothing but this result.
        """
        if call.name not in SUB_AGENT_TOOLS:
            return []
        key, agent = result.call_id, self._agents.get(result.call_id)
        if agent is None and result.error is not None:
            # The call failed before a sub-agent started.
            return []
        reports: list[AgentReport] = [] if agent is not None else [self._begin(key, call, {}, None)]
        if structured.get("isAsync") is True:
            self._agents[key].in_background = True
        if self._agents[key].in_background:
            return reports
        if result.error is not None:
            return self._end(key, "failed", result.error, at)
        # Notes of Claude Code come first: the last block is the answer.
        answer = list_at(structured, "content")[-1:]
        return [*reports, *self._end(key, "completed", text_content(answer or result.output), at)]

    def _begin(self, key: str, call: OpenToolCall, record: Record, at: str | None) -> SubAgentStarted:
        parent = call.agent if call.name else self._by_id.get(text_at(record, "parent_task_id") or "", MAIN_AGENT)
        arguments = call.sub_agent_input
        task = text_at(record, "prompt") or text_at(arguments, "prompt")
        name = text_at(record, "subagent_type") or text_at(arguments, "subagent_type") or call.name or "agent"
        bounded_put(self._agents, key, _SubAgent(task=task))
        return SubAgentStarted(
            agent=key, parent=parent, name=name, task=task, model=text_at(arguments, "model"), at=at or call.at
        )

    def _end(self, key: str, status: Status, text: str | None, at: str | None) -> list[AgentReport]:
        agent = self._agents[key]
        if agent.is_ended:
            return []
        agent.is_ended = True
        if status == "completed":
            return [SubAgentEnded(agent=key, text=text, at=at)]
        kind = AgentFailed if status == "failed" else ExecutionCancelled
        error = (agent.error if status == "failed" else None) or run_error(
            kind, text or "the sub-agent did not complete"
        )
        return [SubAgentEnded(agent=key, status=status, error=error, at=at)]
