"""Normalize the output of `gemini --output-format stream-json`.

Messages of the model come as deltas only; a message is complete when another record follows. Thoughts, retries, exit
codes of commands and the work of sub-agents are not in the stream. A model call that broke off is not taken back: its
deltas stay before those of the next call. Token counts come once, at the end, and include those of sub-agents.
"""

from __future__ import annotations

from typing import NamedTuple

from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.gemini.errors import (
    early_stop_error,
    incomplete_stream_error,
    invalid_answer_error,
    parse_error,
)
from shopfloor.adapters.providers.json_access import (
    Record,
    changed_file,
    count_at,
    parse_timestamp,
    record_at,
    records_at,
    text_at,
)
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer, bounded_put
from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.log import (
    AssistantMessage,
    Block,
    FileChange,
    Initialization,
    Note,
    RunError,
    Status,
    TextBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from shopfloor.ports import (
    AgentExit,
    AgentReport,
    MessageDelta,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
    UsageDelta,
)
from shopfloor.views import add_usage

SUB_AGENT_TOOL = "invoke_agent"
_ENDED_STATUSES = ("success", "error", "cancelled")
EDIT_TOOLS = ("write_file", "replace")


class _Call(NamedTuple):
    name: str
    path: str | None
    """The file that the tool changes."""


class GeminiNormalizer(JsonLinesNormalizer):
    """Normalizer of one process of Gemini CLI."""

    def __init__(self) -> None:
        super().__init__()
        self._session: str | None = None
        self._model: str | None = None
        self._started_at: str | None = None
        """When the process started. It makes message ids unique: a resumed session keeps its id."""
        self._has_prompt = False
        self._message_count = 0
        self._message_id = ""
        """Id of the current message. It stays, even if the id of the session becomes known meanwhile."""
        self._block_count: int | None = None
        """How many blocks of the current message were reported; None between messages."""
        self._chunks: list[str] = []
        self._chunk_at: str | None = None
        self._text: str | None = None
        """The text since the last tool call."""
        self._calls: dict[str, _Call] = {}
        self._last_error: str | None = None
        """The last error message, if nothing came after it."""
        self._models: dict[str, Usage] = {}
        self._usage: Usage | None = None
        self._result: Record | None = None

    def _read(self, record: Record) -> list[AgentReport] | None:
        at = parse_timestamp(record.get("timestamp"))
        if self._started_at is None:
            self._started_at = text_at(record, "timestamp")
        match record.get("type"):
            case "message":
                return self._message(record, at)
            case "init":
                return self._init(record, at)
            case "tool_use":
                return self._tool_use(record, at)
            case "tool_result":
                return self._tool_result(record, at)
            case "error":
                return self._error(record, at)
            case "result":
                return self._handle_result(record)
            case None if "response" in record or "stats" in record:
                return self._handle_document(record)
            case _:
                return None

    def _init(self, record: Record, at: str | None) -> list[AgentReport] | None:
        session = text_at(record, "session_id")
        if session is None:
            return None
        reports = self._flush_text()
        self._session, self._started_at, self._has_prompt = session, text_at(record, "timestamp"), False
        self._block_count, self._text, self._last_error, self._result = None, None, None, None
        model = text_at(record, "model")
        # With such a name Gemini CLI chooses a model for each call.
        self._model = None if model is None or model.startswith("auto") else model
        ready = Initialization(session_id=session, model=model)
        return [*reports, self._note(Note(kind="ready", ready=ready), at)]

    # Messages.

    def _message(self, record: Record, at: str | None) -> list[AgentReport] | None:
        role, text = text_at(record, "role"), text_at(record, "content")
        calls = records_at(record, "toolCalls")
        if calls and role == "assistant":
            if not all(text_at(call, "name") for call in calls):
                return None
            # The format of Gemini CLI's session files. In its stream, tool calls are separate records.
            reports = self._message({**record, "toolCalls": None}, at) if text else []
            return None if reports is None else [*reports, *self._nested_calls(calls, at)]
        if text is None or role not in ("user", "assistant"):
            return None
        if role == "user":
            return self._user(text, at)
        if record.get("delta"):
            return self._delta(text, at)
        # Never seen so far: a complete message, alone or after its deltas.
        reports = [] if "".join(self._chunks) == text else self._flush_text()
        self._chunks.clear()
        self._delta(text, at)
        return [*reports, *self._flush_text()]

    def _nested_calls(self, calls: list[Record], at: str | None) -> list[AgentReport]:
        """Report tool calls inside a message, with the results that they have."""
        reports: list[AgentReport] = []
        results: list[Record] = []
        for number, call in enumerate(calls):
            call_id = text_at(call, "id") or f"{self._current_message_id()}:call:{number}"
            use = {"tool_name": call["name"], "tool_id": call_id, "parameters": call.get("args")}
            reports += self._tool_use(use, at) or []
            status, output = text_at(call, "status"), call.get("result")
            if output is not None or status in _ENDED_STATUSES:
                status = "success" if status in (None, "success") else "error"
                output = text_at(call, "resultDisplay") or output
                results.append({"tool_id": call_id, "status": status, "output": output})
        for result in results:
            reports += self._tool_result(result, at) or []
        return reports

    def _user(self, text: str, at: str | None) -> list[AgentReport]:
        is_prompt, self._has_prompt = not self._has_prompt, True
        message = UserMessage(blocks=[TextBlock(text=text, fidelity="agent_emitted")])
        return [*self._end_message(), TranscriptItem(payload=message, at=at, is_prompt=is_prompt)]

    def _delta(self, text: str, at: str | None) -> list[AgentReport]:
        message_id = self._current_message_id()
        self._chunks.append(text)
        self._chunk_at, self._last_error = at, None
        return (
            [MessageDelta(message_id=message_id, block=self._block_count or 0, kind="text", text=text)] if text else []
        )

    def _current_message_id(self) -> str:
        """Return the id of the current message. Start a message if there is none."""
        if self._block_count is None:
            self._message_count += 1
            self._block_count, self._result = 0, None
            self._message_id = ":".join(filter(None, (self._session, self._started_at, str(self._message_count))))
        return self._message_id

    def _flush_text(self) -> list[AgentReport]:
        """Report the text of the deltas so far as one block."""
        text = "".join(self._chunks)
        self._chunks.clear()
        if not text:
            return []
        self._text = (self._text or "") + text
        return [self._message_report(TextBlock(text=text, fidelity="agent_emitted"), self._chunk_at)]

    def _end_message(self) -> list[AgentReport]:
        """Report the rest of the current message and end it."""
        reports = self._flush_text()
        self._block_count = None
        return reports

    def _message_report(self, block: Block, at: str | None) -> TranscriptItem:
        message_id = self._current_message_id()
        self._block_count = (self._block_count or 0) + 1
        message = AssistantMessage(message_id=message_id, session_id=self._session, model=self._model, blocks=[block])
        return TranscriptItem(payload=message, at=at)

    def _note(self, note: Note, at: str | None) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(session_id=self._session, note=note, blocks=[]), at=at)

    # Tools.

    def _tool_use(self, record: Record, at: str | None) -> list[AgentReport] | None:
        name, tool_input = text_at(record, "tool_name"), record.get("parameters")
        arguments = record_at(record, "parameters")
        if name is None:
            return None
        reports = self._flush_text()
        self._text, self._last_error = None, None
        call_id = text_at(record, "tool_id") or f"{self._current_message_id()}:{self._block_count}"
        path = text_at(arguments, "file_path") if name in EDIT_TOOLS else None
        bounded_put(self._calls, call_id, _Call(name, path))
        use = ToolUseBlock(tool_name=name, tool_id=call_id, tool_input=tool_input, fidelity="agent_emitted")
        call = ToolCall(name=name, call_id=call_id, input=tool_input, output=None, fidelity="agent_emitted")
        reports += [self._message_report(use, at), TranscriptItem(payload=call, at=at)]
        if name == SUB_AGENT_TOOL:
            kind, task = text_at(arguments, "agent_name"), text_at(arguments, "prompt")
            reports.append(SubAgentStarted(agent=call_id, name=kind or name, task=task, at=at))
        return reports

    def _tool_result(self, record: Record, at: str | None) -> list[AgentReport] | None:
        call_id, status = text_at(record, "tool_id"), text_at(record, "status")
        if call_id is None or status not in ("success", "error"):
            return None
        # The ids of calls start with the name of the tool.
        call = self._calls.pop(call_id, None) or _Call(call_id.partition("__")[0], None)
        output, error_record = record.get("output"), record_at(record, "error")
        error = text_at(error_record, "message")
        if status == "error" and error is None:
            error = output if isinstance(output, str) else "the tool failed"
        result = ToolResult(
            name=call.name,
            call_id=call_id,
            input=None,
            output=output,
            error=error,
            files=_changed_files(call) if error is None else None,
            fidelity="agent_emitted",
        )
        reports = self._end_message()
        if call.name == SUB_AGENT_TOOL:
            reports.append(_sub_agent_ended(call_id, output, error, at))
        reports.append(TranscriptItem(payload=result, at=at))
        if text_at(error_record, "type") == "policy_violation":
            reports.append(self._note(Note(kind="denied", message=error), at))
        return reports

    # Errors and the end.

    def _error(self, record: Record, at: str | None) -> list[AgentReport] | None:
        message = text_at(record, "message")
        if message is None:
            return None
        self._last_error = message
        reason = early_stop_error(message)
        note = Note(
            kind="error" if record.get("severity") == "error" or reason else "warning",
            message=message,
            code=reason.code if reason else None,
        )
        return [*self._end_message(), self._note(note, at)]

    def _handle_result(self, record: Record) -> list[AgentReport] | None:
        if record.get("status") not in ("success", "error"):
            return None
        reports = self._end_message()
        self._result = record
        for model, usage in _usage_by_model(record_at(record, "stats")).items():
            self._usage = add_usage(usage, self._usage)
            if model:
                self._models[model] = add_usage(usage, self._models.get(model))
            if usage != Usage():
                reports.append(UsageDelta(usage=usage, model=model or None))
        return reports

    def _handle_document(self, record: Record) -> list[AgentReport] | None:
        """Report the single document of `--output-format json`: the answer and its token counts."""
        self._session = text_at(record, "session_id") or self._session
        stats, error_record = record_at(record, "stats"), record_at(record, "error")
        models = list(record_at(stats, "models"))
        self._model = models[0] if len(models) == 1 else self._model
        text = text_at(record, "response")
        if text:
            self._delta(text, None)
        reports = self._end_message()
        ended = self._handle_result(
            {"status": "error" if error_record else "success", "error": error_record, "stats": stats}
        )
        return [*reports, *(ended or [])]

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        reports = self._end_message()
        status, error = self._outcome(ended)
        return [
            *reports,
            SessionEnded(
                status=status,
                is_final=self._result is not None,
                text=self._text if status == "completed" else None,
                error=error,
                usage=self._usage,
                includes_sub_agents=True,
                models=self._models,
                turns=self._message_count or None,
                session_id=self._session,
                unparsed=self.unparsed,
                at=parse_timestamp((self._result or {}).get("timestamp")),
            ),
        ]

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        result = self._result
        if result is not None and result["status"] == "success":
            error = early_stop_error(self._last_error) if self._last_error is not None else None
            return ("completed", None) if error is None else ("failed", error)
        if ended is not None and ended.cancelled:
            return "cancelled", run_error(ExecutionCancelled, "gemini was stopped")
        if result is None:
            error = incomplete_stream_error(ended, started=self._session is not None)
        elif (message := text_at(record_at(result, "error"), "message")) is not None:
            error = parse_error(text_at(record_at(result, "error"), "type"), message, ended)
        else:
            error = invalid_answer_error(self._last_error)
        return ("cancelled" if error.code == ExecutionCancelled.code else "failed"), error


def _changed_files(call: _Call) -> list[FileChange] | None:
    """Return the file that a call changed. The stream does not show whether the file existed before."""
    return [changed_file(call.path, None)] if call.path is not None else None


def _sub_agent_ended(call_id: str, output: object, error: str | None, at: str | None) -> SubAgentEnded:
    if error is not None:
        return SubAgentEnded(agent=call_id, status="failed", error=run_error(AgentFailed, error), at=at)
    return SubAgentEnded(agent=call_id, text=output if isinstance(output, str) else None, at=at)


def _usage_by_model(stats: Record) -> dict[str, Usage]:
    """Return the tokens by model; under "" if no model is named."""
    stats_by_model = record_at(stats, "models")
    models = {model: record_at(stats_by_model, model) for model in stats_by_model}
    if not models and stats:
        models = {"": stats}
    return {model: _model_usage(counts) for model, counts in models.items()}


def _model_usage(counts: Record) -> Usage:
    if isinstance(counts.get("tokens"), dict):
        return _usage_of_tokens(record_at(counts, "tokens"))
    cached, output = count_at(counts, "cached"), count_at(counts, "output_tokens")
    fresh = count_at(counts, "input") if "input" in counts else max(0, count_at(counts, "input_tokens") - cached)
    # Only the total includes thinking tokens.
    thoughts = max(0, count_at(counts, "total_tokens") - fresh - cached - output)
    return Usage(input=fresh, output=output + thoughts, cache_read=cached, reasoning=thoughts)


def _usage_of_tokens(counts: Record) -> Usage:
    """Convert the counts of `--output-format json`, in which `prompt` includes cached tokens."""
    cached, thoughts = count_at(counts, "cached"), count_at(counts, "thoughts")
    return Usage(
        input=max(0, count_at(counts, "prompt") - cached) + count_at(counts, "tool"),
        output=count_at(counts, "candidates") + thoughts,
        cache_read=cached,
        reasoning=thoughts,
    )
