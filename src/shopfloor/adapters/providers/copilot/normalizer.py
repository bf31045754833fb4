"""What Copilot prints with `--output-format=json`: one event per line, and last a `result`."""

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
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer
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

_Read = Callable[["CopilotNormalizer", MessageAssembler, Record, str | None], list[AgentReport] | None]

_HOUSEKEEPING = frozenset(
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
"""Kinds of records that carry nothing of what was said or done."""
_PIECES: dict[str, Callable[[MessageAssembler, Record], list[AgentReport]]] = {
    "assistant.message_start": MessageAssembler.message_started,
    "assistant.message_delta": MessageAssembler.text_delta,
    "assistant.reasoning_delta": MessageAssembler.thinking_delta,
    "assistant.tool_call_delta": MessageAssembler.input_delta,
}
"""What is typed has no time of its own, and comes most often."""
_TOLD_ELSEWHERE = ("model_retry", "file_")
"""Kinds of `session.info` that repeat what another event tells."""


class _SubAgent(msgspec.Struct):
    prompt: str | None
    """What it was told to do, until that has been repeated."""
    error: RunError | None = None


class CopilotNormalizer(JsonLinesNormalizer):
    """Tokens and money are not in this stream, whoever serves the model."""

    def __init__(self) -> None:
        super().__init__()
        self._voices = {MAIN_AGENT: MessageAssembler(MAIN_AGENT)}
        self._calls = OpenToolCalls()
        self._agents: dict[str, _SubAgent] = {}
        """Those at work."""
        self._ready = self._prompted = False
        self._turns = 0
        self._aborted: str | None = None
        self._error: RunError | None = None
        self._result: Record | None = None

    def _read(self, record: Record) -> list[AgentReport] | None:
        kind = required_text(record, "type")
        if (typed := _PIECES.get(kind)) is not None:
            data = _data(record)
            return typed(self._voice(record), data)
        if (read := self._READS.get(kind)) is not None:
            data = _data(record)
            return read(self, self._voice(record), data, parse_timestamp(record.get("timestamp")))
        if kind == "result":
            return self._ended(record)
        return [] if kind in _HOUSEKEEPING else None

    def _voice(self, record: Record) -> MessageAssembler:
        agent = text_at(record, "agentId") or MAIN_AGENT
        voice = self._voices.get(agent)
        if voice is None:
            voice = self._voices[agent] = MessageAssembler(agent)
            if len(self._voices) > OPEN_BRANCHES:
                del self._voices[next(key for key in self._voices if key not in (MAIN_AGENT, agent))]
        return voice

    # The session.

    def _tools_updated(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        """The first that is told of a session: it has its tools, and its model."""
        if self._ready:
            return []
        self._ready = True
        return [voice.note_report(Note(kind="ready", ready=Initialization(model=text_at(data, "model"))), at)]

    def _info(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        message = required_text(data, "message")
        repeats = (text_at(data, "infoType") or "").startswith(_TOLD_ELSEWHERE)
        return [] if repeats else [voice.note_report(Note(kind="warning", message=message), at)]

    def _warning(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        if is_terminal(data):
            return self._failed(voice, data, at)
        return [voice.note_report(Note(kind="warning", message=required_text(data, "message")), at)]

    def _failed(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        error, status = session_error(data, voice.failure), int_at(data, "statusCode")
        message, ends = required_text(data, "message"), is_terminal(data)
        kind = "error" if ends else "warning"
        if ends and voice.agent == MAIN_AGENT:
            self._error = error
        elif ends and voice.agent in self._agents:
            self._agents[voice.agent].error = error
        note = Note(kind=kind, message=message, code=error.code, status=status)
        return [*voice.report_failure("error", at), voice.note_report(note, at)]

    def _abort(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        if voice.agent == MAIN_AGENT:
            self._aborted = text_at(data, "reason") or "aborted"
        return voice.turn_ended("discarded", at)

    def _idle(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        if voice.agent == MAIN_AGENT and data.get("aborted") is True:
            self._aborted = self._aborted or "aborted"
        return voice.turn_ended("discarded", at)

    # Turns.

    def _user(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        """The prompt comes first. What else is said in the user's name, Copilot says."""
        content = required_text(data, "content")
        if voice.agent == MAIN_AGENT and not self._prompted and text_at(data, "source") is None:
            self._prompted = True
            block = TextBlock(text=content, fidelity="agent_emitted")
            return [TranscriptItem(payload=UserMessage(blocks=[block]), at=at, is_prompt=True)]
        agent = self._agents.get(voice.agent)
        if agent is not None and agent.prompt == content:
            agent.prompt = None
            return []
        return [_synthetic(voice, data, at)]

    def _turn_started(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        if voice.agent == MAIN_AGENT:
            self._turns += 1
            self._aborted, self._result = None, None
        return voice.turn_ended("discarded", at)

    def _message(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        said = voice.message(data, at)
        self._calls.requested(data, voice.agent, at)
        return [*voice.report_failure("retry", at), *said]

    def _retried(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport]:
        why = text_at(data, "reason")
        discarded = voice.turn_ended("discarded", at)
        note = voice.report_failure("retry", at) or [voice.note_report(Note(kind="retry", message=why), at)]
        return [*discarded, *note]

    # Sub-agents.

    def _agent_started(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport] | None:
        if voice.agent == MAIN_AGENT:
            return None
        caller, prompt = self._calls.caller(required_text(data, "toolCallId"))
        self._agents[voice.agent] = _SubAgent(prompt)
        if len(self._agents) > OPEN_BRANCHES:
            del self._agents[next(iter(self._agents))]
        task, model = prompt or text_at(data, "agentDescription"), text_at(data, "model")
        name = required_text(data, "agentName")
        return [SubAgentStarted(agent=voice.agent, parent=caller, name=name, task=task, model=model, at=at)]

    def _agent_completed(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport] | None:
        status: Status = "cancelled" if data.get("cancelled") is True else "completed"
        return self._agent_ended(voice, SubAgentEnded(agent=voice.agent, status=status, text=voice.text, at=at))

    def _agent_failed(self, voice: MessageAssembler, data: Record, at: str | None) -> list[AgentReport] | None:
        agent, said = self._agents.get(voice.agent), run_error(AgentFailed, required_text(data, "error"))
        error = (agent and agent.error) or said
        return self._agent_ended(voice, SubAgentEnded(agent=voice.agent, status="failed", error=error, at=at))

    def _agent_ended(self, voice: MessageAssembler, ended: SubAgentEnded) -> list[AgentReport] | None:
        if voice.agent == MAIN_AGENT:
            return None
        self._agents.pop(voice.agent, None)
        del self._voices[voice.agent]
        return [*voice.turn_ended("discarded", ended.at), *voice.report_failure("error", ended.at), ended]

    _READS: ClassVar[dict[str, _Read]] = {
        "session.tools_updated": _tools_updated,
        "session.info": _info,
        "session.warning": _warning,
        "session.error": _failed,
        "user.message": _user,
        "system.notification": lambda _, voice, data, at: [_synthetic(voice, data, at)],
        "assistant.turn_start": _turn_started,
        "assistant.turn_retry": _retried,
        "assistant.turn_end": lambda _, voice, __, at: [
            *voice.turn_ended("discarded", at),
            *voice.report_failure("error", at),
        ],
        "assistant.idle": _idle,
        "assistant.reasoning": lambda _, voice, data, at: voice.thought(data, at),
        "assistant.message": _message,
        "model.call_failure": lambda _, voice, data, at: voice.failed(call_failure(data), at),
        "tool.execution_start": lambda self, voice, data, at: self._calls.started(data, voice.agent, at),
        "tool.shell_output": lambda self, _, data, __: self._calls.printed(data),
        "tool.execution_partial_result": lambda self, _, data, __: self._calls.snapshot(data),
        "tool.execution_complete": lambda self, voice, data, at: self._calls.completed(data, voice.agent, at),
        "subagent.started": _agent_started,
        "subagent.completed": _agent_completed,
        "subagent.failed": _agent_failed,
        "abort": _abort,
    }

    # The end.

    def _ended(self, record: Record) -> list[AgentReport] | None:
        if int_at(record, "exitCode") is None:
            return None
        self._result = record
        return []

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        reports: list[AgentReport] = []
        for voice in self._voices.values():
            reports += [*voice.turn_ended("unfinished"), *voice.report_failure("error", None)]
        status, error = self._outcome(ended)
        last = self._result or {}
        return [
            *reports,
            *self._calls.flush(broken=self._result is None),
            SessionEnded(
                status=status,
                is_final=self._result is not None,
                text=self._voices[MAIN_AGENT].text if status == "completed" else None,
                error=error,
                turns=self._turns or None,
                session_id=text_at(last, "sessionId"),
                unparsed=self.unparsed,
                at=parse_timestamp(last.get("timestamp")),
            ),
        ]

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        if self._aborted == "autopilot_credit_limit":
            return "failed", run_error(BudgetExceeded, "copilot has used the credits that it was allowed")
        if self._aborted is not None:
            # It was interrupted, and says exit code 0 all the same.
            return "cancelled", run_error(ExecutionCancelled, "copilot was interrupted")
        exit_code = int_at(self._result or {}, "exitCode")
        if exit_code == 0:
            return "completed", None
        if ended is not None and ended.cancelled:
            return "cancelled", run_error(ExecutionCancelled, "copilot was stopped")
        if self._error is not None:
            return "failed", self._error
        if exit_code is None:
            return "failed", incomplete_stream_error(ended, started=self._ready or self._prompted)
        why = text_at(record_at(self._result or {}, "blocker"), "reason")
        return "failed", run_error(AgentFailed, f"copilot was blocked: {why}" if why else f"exit code {exit_code}")


def _data(record: Record) -> Record:
    data: Json = record["data"]
    if not isinstance(data, dict):
        raise TypeError("data")
    return data


def _synthetic(voice: MessageAssembler, data: Record, at: str | None) -> TranscriptItem:
    """What Copilot tells the model by itself."""
    block = TextBlock(text=required_text(data, "content"), fidelity="agent_emitted")
    return TranscriptItem(payload=UserMessage(synthetic=True, blocks=[block]), agent=voice.agent, at=at)
