"""What Copilot prints with `--output-format=json`: one event per line, and last a `result`."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from shopfloor.adapters.providers.copilot.calls import Calls
from shopfloor.adapters.providers.copilot.failures import broken_off, call_failure, is_end, session_error
from shopfloor.adapters.providers.copilot.speech import Voice, word
from shopfloor.adapters.providers.lines import LineNormaliser
from shopfloor.adapters.providers.reading import Json, Record, int_at, record_at, run_error, text_at, time_of
from shopfloor.errors import AgentFailed, BudgetExceeded, ExecutionCancelled
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import Initialisation, Note, RunError, Status, TextBlock, UserMessage
from shopfloor.ports import SELF, AgentExit, Ended, Report, SubAgentEnded, SubAgentStarted, Told

_Read = Callable[["CopilotNormaliser", Voice, Record, str | None], list[Report] | None]

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
_PIECES: dict[str, Callable[[Voice, Record], list[Report]]] = {
    "assistant.message_start": Voice.message_started,
    "assistant.message_delta": Voice.text_delta,
    "assistant.reasoning_delta": Voice.thought_delta,
    "assistant.tool_call_delta": Voice.input_delta,
}
"""What is typed has no time of its own, and comes most often."""
_TOLD_ELSEWHERE = ("model_retry", "file_")
"""Kinds of `session.info` that repeat what another event tells."""


class _SubAgent(msgspec.Struct):
    prompt: str | None
    """What it was told to do, until that has been repeated."""
    error: RunError | None = None


class CopilotNormaliser(LineNormaliser):
    """Tokens and money are not in this stream, whoever serves the model."""

    def __init__(self) -> None:
        super().__init__()
        self._voices = {SELF: Voice(SELF)}
        self._calls = Calls()
        self._agents: dict[str, _SubAgent] = {}
        """Those at work."""
        self._ready = self._prompted = False
        self._turns = 0
        self._aborted: str | None = None
        self._error: RunError | None = None
        self._result: Record | None = None

    def _read(self, record: Record) -> list[Report] | None:
        kind = word(record, "type")
        if (typed := _PIECES.get(kind)) is not None:
            data = _data(record)
            return typed(self._voice(record), data)
        if (read := self._READS.get(kind)) is not None:
            data = _data(record)
            return read(self, self._voice(record), data, time_of(record.get("timestamp")))
        if kind == "result":
            return self._ended(record)
        return [] if kind in _HOUSEKEEPING else None

    def _voice(self, record: Record) -> Voice:
        agent = text_at(record, "agentId") or SELF
        voice = self._voices.get(agent)
        if voice is None:
            voice = self._voices[agent] = Voice(agent)
            if len(self._voices) > OPEN_BRANCHES:
                del self._voices[next(key for key in self._voices if key not in (SELF, agent))]
        return voice

    # The session.

    def _tools_updated(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        """The first that is told of a session: it has its tools, and its model."""
        if self._ready:
            return []
        self._ready = True
        return [voice.noted(Note(kind="ready", ready=Initialisation(model=text_at(data, "model"))), at)]

    def _info(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        message = word(data, "message")
        repeats = (text_at(data, "infoType") or "").startswith(_TOLD_ELSEWHERE)
        return [] if repeats else [voice.noted(Note(kind="warning", message=message), at)]

    def _warning(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        if is_end(data):
            return self._failed(voice, data, at)
        return [voice.noted(Note(kind="warning", message=word(data, "message")), at)]

    def _failed(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        error, status = session_error(data, voice.failure), int_at(data, "statusCode")
        message, ends = word(data, "message"), is_end(data)
        kind = "error" if ends else "warning"
        if ends and voice.agent == SELF:
            self._error = error
        elif ends and voice.agent in self._agents:
            self._agents[voice.agent].error = error
        note = Note(kind=kind, message=message, code=error.code, status=status)
        return [*voice.settled("error", at), voice.noted(note, at)]

    def _abort(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        if voice.agent == SELF:
            self._aborted = text_at(data, "reason") or "aborted"
        return voice.turn_over("discarded", at)

    def _idle(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        if voice.agent == SELF and data.get("aborted") is True:
            self._aborted = self._aborted or "aborted"
        return voice.turn_over("discarded", at)

    # Turns.

    def _user(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        """The prompt comes first. What else is said in the user's name, Copilot says."""
        content = word(data, "content")
        if voice.agent == SELF and not self._prompted and text_at(data, "source") is None:
            self._prompted = True
            block = TextBlock(text=content, fidelity="agent_emitted")
            return [Told(payload=UserMessage(blocks=[block]), at=at, is_prompt=True)]
        agent = self._agents.get(voice.agent)
        if agent is not None and agent.prompt == content:
            agent.prompt = None
            return []
        return [_synthetic(voice, data, at)]

    def _turn_started(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        if voice.agent == SELF:
            self._turns += 1
            self._aborted, self._result = None, None
        return voice.turn_over("discarded", at)

    def _message(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        said = voice.message(data, at)
        self._calls.asked(data, voice.agent, at)
        return [*voice.settled("retry", at), *said]

    def _retried(self, voice: Voice, data: Record, at: str | None) -> list[Report]:
        why = text_at(data, "reason")
        discarded = voice.turn_over("discarded", at)
        note = voice.settled("retry", at) or [voice.noted(Note(kind="retry", message=why), at)]
        return [*discarded, *note]

    # Sub-agents.

    def _agent_started(self, voice: Voice, data: Record, at: str | None) -> list[Report] | None:
        if voice.agent == SELF:
            return None
        caller, prompt = self._calls.caller(word(data, "toolCallId"))
        self._agents[voice.agent] = _SubAgent(prompt)
        if len(self._agents) > OPEN_BRANCHES:
            del self._agents[next(iter(self._agents))]
        task, model = prompt or text_at(data, "agentDescription"), text_at(data, "model")
        name = word(data, "agentName")
        return [SubAgentStarted(agent=voice.agent, parent=caller, name=name, task=task, model=model, at=at)]

    def _agent_completed(self, voice: Voice, data: Record, at: str | None) -> list[Report] | None:
        status: Status = "cancelled" if data.get("cancelled") is True else "completed"
        return self._agent_ended(voice, SubAgentEnded(agent=voice.agent, status=status, text=voice.text, at=at))

    def _agent_failed(self, voice: Voice, data: Record, at: str | None) -> list[Report] | None:
        agent, said = self._agents.get(voice.agent), run_error(AgentFailed, word(data, "error"))
        error = (agent and agent.error) or said
        return self._agent_ended(voice, SubAgentEnded(agent=voice.agent, status="failed", error=error, at=at))

    def _agent_ended(self, voice: Voice, ended: SubAgentEnded) -> list[Report] | None:
        if voice.agent == SELF:
            return None
        self._agents.pop(voice.agent, None)
        del self._voices[voice.agent]
        return [*voice.turn_over("discarded", ended.at), *voice.settled("error", ended.at), ended]

    _READS: ClassVar[dict[str, _Read]] = {
        "session.tools_updated": _tools_updated,
        "session.info": _info,
        "session.warning": _warning,
        "session.error": _failed,
        "user.message": _user,
        "system.notification": lambda _, voice, data, at: [_synthetic(voice, data, at)],
        "assistant.turn_start": _turn_started,
        "assistant.turn_retry": _retried,
        "assistant.turn_end": lambda _, voice, __, at: [*voice.turn_over("discarded", at), *voice.settled("error", at)],
        "assistant.idle": _idle,
        "assistant.reasoning": lambda _, voice, data, at: voice.thought(data, at),
        "assistant.message": _message,
        "model.call_failure": lambda _, voice, data, at: voice.failed(call_failure(data), at),
        "tool.execution_start": lambda self, voice, data, at: self._calls.begun(data, voice.agent, at),
        "tool.shell_output": lambda self, _, data, __: self._calls.printed(data),
        "tool.execution_partial_result": lambda self, _, data, __: self._calls.snapshot(data),
        "tool.execution_complete": lambda self, voice, data, at: self._calls.done(data, voice.agent, at),
        "subagent.started": _agent_started,
        "subagent.completed": _agent_completed,
        "subagent.failed": _agent_failed,
        "abort": _abort,
    }

    # The end.

    def _ended(self, record: Record) -> list[Report] | None:
        if int_at(record, "exitCode") is None:
            return None
        self._result = record
        return []

    def _end(self, ended: AgentExit | None) -> list[Report]:
        reports: list[Report] = []
        for voice in self._voices.values():
            reports += [*voice.turn_over("unfinished"), *voice.settled("error", None)]
        status, error = self._outcome(ended)
        last = self._result or {}
        return [
            *reports,
            *self._calls.left(broken=self._result is None),
            Ended(
                status=status,
                is_final=self._result is not None,
                text=self._voices[SELF].text if status == "completed" else None,
                error=error,
                turns=self._turns or None,
                session_id=text_at(last, "sessionId"),
                unparsed=self.unparsed,
                at=time_of(last.get("timestamp")),
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
            return "failed", broken_off(ended, begun=self._ready or self._prompted)
        why = text_at(record_at(self._result or {}, "blocker"), "reason")
        return "failed", run_error(AgentFailed, f"copilot was blocked: {why}" if why else f"exit code {exit_code}")


def _data(record: Record) -> Record:
    data: Json = record["data"]
    if not isinstance(data, dict):
        raise TypeError("data")
    return data


def _synthetic(voice: Voice, data: Record, at: str | None) -> Told:
    """What Copilot tells the model by itself."""
    block = TextBlock(text=word(data, "content"), fidelity="agent_emitted")
    return Told(payload=UserMessage(synthetic=True, blocks=[block]), agent=voice.agent, at=at)
