"""Normalize the output of `copilot --output-format=json`: one event per line, and a `result` at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from shopfloor.adapters.providers.copilot.errors import (
    call_failure,
    incomplete_stream_error,
    is_terminal,
    session_error,
)
from shopfloor.adapters.providers.copilot.messages import MessageAssembler, OpenToolCalls
from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.json_access import (
    Json,
    Record,
    int_at,
    parse_timestamp,
    record_at,
    required_text,
    text_at,
)
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer, bounded_put
from shopfloor.errors import AgentFailed, BudgetExceeded, ExecutionCancelled
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import Initialization, Note, RunError, Status, TextBlock, UserMessage
from shopfloor.ports import (
    MAIN_AGENT,
    AgentExit,
    AgentReport,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
)

_EventReader = Callable[["CopilotNormalizer", MessageAssembler, Record, str | None], list[AgentReport] | None]

_IGNORED_EVENTS = frozenset(
    {
        "agent.interrupted",
        "assistant.intent",
        "assistant.server_tool_progress",
        "assistant.streaming_delta",
        "capabilities.changed",
        "commands.changed",
        "mcp.tools.list_changed",
        "model.call_final_result",
        "model.call_finished",
        "model.call_start",
        "pending_messages.modified",
        "prompt_cache_break",
        "sandbox.decision",
        "session.background_tasks_changed",
        "session.compaction_start",
        "session.context_changed",
        "session.custom_agents_updated",
        "session.extensions_loaded",
        "session.idle",
        "session.mcp_server_status_changed",
        "session.mcp_servers_loaded",
        "session.mode_changed",
        "session.model_change",
        "session.plan_changed",
        "session.resume",
        "session.shutdown",
        "session.skills_loaded",
        "session.snapshot_rewind",
        "session.start",
        "session.title_changed",
        "session.truncation",
        "session.usage_info",
        "session.usage_record",
        "session.workspace_file_changed",
        "subagent.configured",
        "subagent.deselected",
        "subagent.selected",
        "tool.execution_progress",
        "tool_search.activated",
    }
)
"""Events without messages, tool calls or other content for the log."""
_DELTA_READERS: dict[str, Callable[[MessageAssembler, Record], list[AgentReport]]] = {
    "assistant.message_start": MessageAssembler.message_started,
    "assistant.message_delta": MessageAssembler.text_delta,
    "assistant.reasoning_delta": MessageAssembler.thinking_delta,
    "assistant.tool_call_delta": MessageAssembler.input_delta,
}
"""Delta events. They have no timestamp, and are by far the most frequent."""
_REDUNDANT_INFO_PREFIXES = ("model_retry", "file_")
"""Types of `session.info` that repeat another event."""


class _SubAgent(msgspec.Struct):
    prompt: str | None
    """The prompt of the sub-agent, until the stream has repeated it."""
    error: RunError | None = None


class CopilotNormalizer(JsonLinesNormalizer):
    """Normalizer of one session of Copilot. Its stream has no token counts or costs, with any model provider."""

    def __init__(self) -> None:
        super().__init__()
        self._assemblers = {MAIN_AGENT: MessageAssembler(MAIN_AGENT)}
        self._calls = OpenToolCalls()
        self._agents: dict[str, _SubAgent] = {}
        """The running sub-agents."""
        self._is_ready = self._has_prompt = False
        self._turns = 0
        self._abort_reason: str | None = None
        self._error: RunError | None = None
        self._result: Record | None = None

    def _read(self, record: Record) -> list[AgentReport] | None:
        kind = required_text(record, "type")
        if (read_delta := _DELTA_READERS.get(kind)) is not None:
            data = _data(record)
            return read_delta(self._assembler_of(record), data)
        if (read := self._EVENT_READERS.get(kind)) is not None:
            data = _data(record)
            return read(self, self._assembler_of(record), data, parse_timestamp(record.get("timestamp")))
        if kind == "result":
            return self._handle_result(record)
        return [] if kind in _IGNORED_EVENTS else None

    def _assembler_of(self, record: Record) -> MessageAssembler:
        agent = text_at(record, "agentId") or MAIN_AGENT
        assembler = self._assemblers.get(agent)
        if assembler is None:
            assembler = self._assemblers[agent] = MessageAssembler(agent)
            if len(self._assemblers) > OPEN_BRANCHES:
                del self._assemblers[next(key for key in self._assemblers if key not in (MAIN_AGENT, agent))]
        return assembler

    # The session.

    def _tools_updated(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        """Report that the session is ready: this is its first event with the model."""
        if self._is_ready:
            return []
        self._is_ready = True
        return [assembler.note_report(Note(kind="ready", ready=Initialization(model=text_at(data, "model"))), at)]

    def _info(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        message = required_text(data, "message")
        is_redundant = (text_at(data, "infoType") or "").startswith(_REDUNDANT_INFO_PREFIXES)
        return [] if is_redundant else [assembler.note_report(Note(kind="warning", message=message), at)]

    def _warning(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        if is_terminal(data):
            return self._session_failed(assembler, data, at)
        return [assembler.note_report(Note(kind="warning", message=required_text(data, "message")), at)]

    def _session_failed(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        error, status = session_error(data, assembler.failure), int_at(data, "statusCode")
        message, is_end = required_text(data, "message"), is_terminal(data)
        kind = "error" if is_end else "warning"
        if is_end and assembler.agent == MAIN_AGENT:
            self._error = error
        elif is_end and assembler.agent in self._agents:
            self._agents[assembler.agent].error = error
        note = Note(kind=kind, message=message, code=error.code, status=status)
        return [*assembler.report_failure("error", at), assembler.note_report(note, at)]

    def _handle_abort(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        if assembler.agent == MAIN_AGENT:
            self._abort_reason = text_at(data, "reason") or "aborted"
        return assembler.turn_ended("discarded", at)

    def _handle_idle(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        if assembler.agent == MAIN_AGENT and data.get("aborted") is True:
            self._abort_reason = self._abort_reason or "aborted"
        return assembler.turn_ended("discarded", at)

    # Turns.

    def _user(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        """Report a user message. The first one is the prompt; Copilot itself writes the others in the user's name."""
        content = required_text(data, "content")
        if assembler.agent == MAIN_AGENT and not self._has_prompt and text_at(data, "source") is None:
            self._has_prompt = True
            block = TextBlock(text=content, fidelity="agent_emitted")
            return [TranscriptItem(payload=UserMessage(blocks=[block]), at=at, is_prompt=True)]
        agent = self._agents.get(assembler.agent)
        if agent is not None and agent.prompt == content:
            agent.prompt = None
            return []
        return [_synthetic_message(assembler, data, at)]

    def _turn_started(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        if assembler.agent == MAIN_AGENT:
            self._turns += 1
            self._abort_reason, self._result = None, None
        return assembler.turn_ended("discarded", at)

    def _message(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        message_reports = assembler.message(data, at)
        self._calls.requested(data, assembler.agent, at)
        return [*assembler.report_failure("retry", at), *message_reports]

    def _turn_retried(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        reason = text_at(data, "reason")
        discarded = assembler.turn_ended("discarded", at)
        note = assembler.report_failure("retry", at) or [assembler.note_report(Note(kind="retry", message=reason), at)]
        return [*discarded, *note]

    # Sub-agents.

    def _agent_started(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport] | None:
        if assembler.agent == MAIN_AGENT:
            return None
        caller, prompt = self._calls.caller(required_text(data, "toolCallId"))
        bounded_put(self._agents, assembler.agent, _SubAgent(prompt))
        task, model = prompt or text_at(data, "agentDescription"), text_at(data, "model")
        name = required_text(data, "agentName")
        return [SubAgentStarted(agent=assembler.agent, parent=caller, name=name, task=task, model=model, at=at)]

    def _agent_completed(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport] | None:
        status: Status = "cancelled" if data.get("cancelled") is True else "completed"
        return self._agent_ended(
            assembler, SubAgentEnded(agent=assembler.agent, status=status, text=assembler.text, at=at)
        )

    def _agent_failed(self, assembler: MessageAssembler, data: Record, at: str | None) -> list[AgentReport] | None:
        agent, error = self._agents.get(assembler.agent), run_error(AgentFailed, required_text(data, "error"))
        error = (agent and agent.error) or error
        return self._agent_ended(assembler, SubAgentEnded(agent=assembler.agent, status="failed", error=error, at=at))

    def _agent_ended(self, assembler: MessageAssembler, ended: SubAgentEnded) -> list[AgentReport] | None:
        if assembler.agent == MAIN_AGENT:
            return None
        self._agents.pop(assembler.agent, None)
        del self._assemblers[assembler.agent]
        return [*assembler.turn_ended("discarded", ended.at), *assembler.report_failure("error", ended.at), ended]

    _EVENT_READERS: ClassVar[dict[str, _EventReader]] = {
        "session.tools_updated": _tools_updated,
        "session.info": _info,
        "session.warning": _warning,
        "session.error": _session_failed,
        "user.message": _user,
        "system.notification": lambda _, assembler, data, at: [_synthetic_message(assembler, data, at)],
        "assistant.turn_start": _turn_started,
        "assistant.turn_retry": _turn_retried,
        "assistant.turn_end": lambda _, assembler, __, at: [
            *assembler.turn_ended("discarded", at),
            *assembler.report_failure("error", at),
        ],
        "assistant.idle": _handle_idle,
        "assistant.reasoning": lambda _, assembler, data, at: assembler.thinking(data, at),
        "assistant.message": _message,
        "model.call_failure": lambda _, assembler, data, at: assembler.call_failed(call_failure(data), at),
        "tool.execution_start": lambda self, assembler, data, at: self._calls.started(data, assembler.agent, at),
        "tool.shell_output": lambda self, _, data, __: self._calls.output_chunk(data),
        "tool.execution_partial_result": lambda self, _, data, __: self._calls.snapshot(data),
        "tool.execution_complete": lambda self, assembler, data, at: self._calls.completed(data, assembler.agent, at),
        "subagent.started": _agent_started,
        "subagent.completed": _agent_completed,
        "subagent.failed": _agent_failed,
        "abort": _handle_abort,
    }

    # The end.

    def _handle_result(self, record: Record) -> list[AgentReport] | None:
        if int_at(record, "exitCode") is None:
            return None
        self._result = record
        return []

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        reports: list[AgentReport] = []
        for assembler in self._assemblers.values():
            reports += [*assembler.turn_ended("unfinished"), *assembler.report_failure("error", None)]
        status, error = self._outcome(ended)
        result = self._result or {}
        return [
            *reports,
            *self._calls.flush(is_broken=self._result is None),
            SessionEnded(
                status=status,
                is_final=self._result is not None,
                text=self._assemblers[MAIN_AGENT].text if status == "completed" else None,
                error=error,
                turns=self._turns or None,
                session_id=text_at(result, "sessionId"),
                unparsed=self.unparsed,
                at=parse_timestamp(result.get("timestamp")),
            ),
        ]

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        if self._abort_reason == "autopilot_credit_limit":
            return "failed", run_error(BudgetExceeded, "copilot has used the credits that it was allowed")
        if self._abort_reason is not None:
            # An interrupted session reports exit code 0 all the same.
            return "cancelled", run_error(ExecutionCancelled, "copilot was interrupted")
        exit_code = int_at(self._result or {}, "exitCode")
        if exit_code == 0:
            return "completed", None
        if ended is not None and ended.cancelled:
            return "cancelled", run_error(ExecutionCancelled, "copilot was stopped")
        if self._error is not None:
            return "failed", self._error
        if exit_code is None:
            return "failed", incomplete_stream_error(ended, started=self._is_ready or self._has_prompt)
        reason = text_at(record_at(self._result or {}, "blocker"), "reason")
        return "failed", run_error(
            AgentFailed, f"copilot was blocked: {reason}" if reason else f"exit code {exit_code}"
        )


def _data(record: Record) -> Record:
    data: Json = record["data"]
    if not isinstance(data, dict):
        raise TypeError("data")
    return data


def _synthetic_message(assembler: MessageAssembler, data: Record, at: str | None) -> TranscriptItem:
    """Return a message of Copilot itself to the model."""
    block = TextBlock(text=required_text(data, "content"), fidelity="agent_emitted")
    return TranscriptItem(payload=UserMessage(synthetic=True, blocks=[block]), agent=assembler.agent, at=at)
