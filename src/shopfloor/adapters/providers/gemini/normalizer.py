"""What `gemini --output-format stream-json` prints, as reports.

What the model says comes in pieces alone; the whole is told when something else comes. Thoughts, retries, the exit
codes of commands and the work of sub-agents are not in the stream. A try that broke off is not taken back: its pieces
stay before those of the next. Tokens are told once, at the end, with those of sub-agents.
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
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer
from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.limits import OPEN_BRANCHES
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
_ENDED = ("success", "error", "cancelled")
EDIT_TOOLS = ("write_file", "replace")


class _Call(NamedTuple):
    name: str
    path: str | None
    """The file that it is to change."""


class GeminiNormalizer(JsonLinesNormalizer):
    def __init__(self) -> None:
        super().__init__()
        self._session: str | None = None
        self._model: str | None = None
        self._began: str | None = None
        """When the process did: a resumed session has the same id, and its messages need others."""
        self._prompted = False
        self._messages = 0
        self._message_id = ""
        """Of the message that is being said: what it began under, whatever is learned of the session meanwhile."""
        self._blocks: int | None = None
        """How many of the message that is being said were told; None between messages."""
        self._pieces: list[str] = []
        self._piece_at: str | None = None
        self._text: str | None = None
        """What was said since the last call."""
        self._calls: dict[str, _Call] = {}
        self._trouble: str | None = None
        """What the program said of an error, where nothing came after it."""
        self._models: dict[str, Usage] = {}
        self._usage: Usage | None = None
        self._result: Record | None = None

    def _read(self, record: Record) -> list[AgentReport] | None:
        at = parse_timestamp(record.get("timestamp"))
        if self._began is None:
            self._began = text_at(record, "timestamp")
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
                return self._ended(record)
            case None if "response" in record or "stats" in record:
                return self._answered(record)
            case _:
                return None

    def _init(self, record: Record, at: str | None) -> list[AgentReport] | None:
        session = text_at(record, "session_id")
        if session is None:
            return None
        reports = self._whole()
        self._session, self._began, self._prompted = session, text_at(record, "timestamp"), False
        self._blocks, self._text, self._trouble, self._result = None, None, None, None
        model = text_at(record, "model")
        # By these names it chooses a model for each call.
        self._model = None if model is None or model.startswith("auto") else model
        ready = Initialization(session_id=session, model=model)
        return [*reports, self._noted(Note(kind="ready", ready=ready), at)]

    # What is said.

    def _message(self, record: Record, at: str | None) -> list[AgentReport] | None:
        role, text = text_at(record, "role"), text_at(record, "content")
        calls = records_at(record, "toolCalls")
        if calls and role == "assistant":
            if not all(text_at(call, "name") for call in calls):
                return None
            # In the shape in which it keeps its sessions; its stream has records of their own for them.
            said = self._message({**record, "toolCalls": None}, at) if text else []
            return None if said is None else [*said, *self._nested(calls, at)]
        if text is None or role not in ("user", "assistant"):
            return None
        if role == "user":
            return self._user(text, at)
        if record.get("delta"):
            return self._piece(text, at)
        # None was ever seen. It is the whole: of the pieces before it, or by itself.
        reports = [] if "".join(self._pieces) == text else self._whole()
        self._pieces.clear()
        self._piece(text, at)
        return [*reports, *self._whole()]

    def _nested(self, calls: list[Record], at: str | None) -> list[AgentReport]:
        """Calls inside of a message, with their results where they have them."""
        reports: list[AgentReport] = []
        results: list[Record] = []
        for number, call in enumerate(calls):
            call_id = text_at(call, "id") or f"{self._speaking()}:call:{number}"
            used = {"tool_name": call["name"], "tool_id": call_id, "parameters": call.get("args")}
            reports += self._tool_use(used, at) or []
            status, output = text_at(call, "status"), call.get("result")
            if output is not None or status in _ENDED:
                status = "success" if status in (None, "success") else "error"
                output = text_at(call, "resultDisplay") or output
                results.append({"tool_id": call_id, "status": status, "output": output})
        for result in results:
            reports += self._tool_result(result, at) or []
        return reports

    def _user(self, text: str, at: str | None) -> list[AgentReport]:
        is_prompt, self._prompted = not self._prompted, True
        said = UserMessage(blocks=[TextBlock(text=text, fidelity="agent_emitted")])
        return [*self._over(), TranscriptItem(payload=said, at=at, is_prompt=is_prompt)]

    def _piece(self, text: str, at: str | None) -> list[AgentReport]:
        message_id = self._speaking()
        self._pieces.append(text)
        self._piece_at, self._trouble = at, None
        return [MessageDelta(message_id=message_id, block=self._blocks or 0, kind="text", text=text)] if text else []

    def _speaking(self) -> str:
        if self._blocks is None:
            self._messages += 1
            self._blocks, self._result = 0, None
            self._message_id = ":".join(filter(None, (self._session, self._began, str(self._messages))))
        return self._message_id

    def _whole(self) -> list[AgentReport]:
        """The text whose pieces came."""
        text = "".join(self._pieces)
        self._pieces.clear()
        if not text:
            return []
        self._text = (self._text or "") + text
        return [self._said(TextBlock(text=text, fidelity="agent_emitted"), self._piece_at)]

    def _over(self) -> list[AgentReport]:
        """What is left of the message, of which nothing more will come."""
        reports = self._whole()
        self._blocks = None
        return reports

    def _said(self, block: Block, at: str | None) -> TranscriptItem:
        message_id = self._speaking()
        self._blocks = (self._blocks or 0) + 1
        message = AssistantMessage(message_id=message_id, session_id=self._session, model=self._model, blocks=[block])
        return TranscriptItem(payload=message, at=at)

    def _noted(self, note: Note, at: str | None) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(session_id=self._session, note=note, blocks=[]), at=at)

    # What is done.

    def _tool_use(self, record: Record, at: str | None) -> list[AgentReport] | None:
        name, given, asked = text_at(record, "tool_name"), record.get("parameters"), record_at(record, "parameters")
        if name is None:
            return None
        reports = self._whole()
        self._text, self._trouble = None, None
        call_id = text_at(record, "tool_id") or f"{self._speaking()}:{self._blocks}"
        self._calls[call_id] = _Call(name, text_at(asked, "file_path") if name in EDIT_TOOLS else None)
        if len(self._calls) > OPEN_BRANCHES:
            del self._calls[next(iter(self._calls))]
        used = ToolUseBlock(tool_name=name, tool_id=call_id, tool_input=given, fidelity="agent_emitted")
        call = ToolCall(name=name, call_id=call_id, input=given, output=None, fidelity="agent_emitted")
        reports += [self._said(used, at), TranscriptItem(payload=call, at=at)]
        if name == SUB_AGENT_TOOL:
            kind, task = text_at(asked, "agent_name"), text_at(asked, "prompt")
            reports.append(SubAgentStarted(agent=call_id, name=kind or name, task=task, at=at))
        return reports

    def _tool_result(self, record: Record, at: str | None) -> list[AgentReport] | None:
        call_id, status = text_at(record, "tool_id"), text_at(record, "status")
        if call_id is None or status not in ("success", "error"):
            return None
        # Its ids begin with the tool's name.
        call = self._calls.pop(call_id, None) or _Call(call_id.partition("__")[0], None)
        output, failed = record.get("output"), record_at(record, "error")
        error = text_at(failed, "message")
        if status == "error" and error is None:
            error = output if isinstance(output, str) else "the tool failed"
        result = ToolResult(
            name=call.name,
            call_id=call_id,
            input=None,
            output=output,
            error=error,
            files=_changes(call) if error is None else None,
            fidelity="agent_emitted",
        )
        reports = self._over()
        if call.name == SUB_AGENT_TOOL:
            reports.append(_sub_agent(call_id, output, error, at))
        reports.append(TranscriptItem(payload=result, at=at))
        if text_at(failed, "type") == "policy_violation":
            reports.append(self._noted(Note(kind="denied", message=error), at))
        return reports

    # What goes wrong, and the end.

    def _error(self, record: Record, at: str | None) -> list[AgentReport] | None:
        message = text_at(record, "message")
        if message is None:
            return None
        self._trouble = message
        reason = early_stop_error(message)
        note = Note(
            kind="error" if record.get("severity") == "error" or reason else "warning",
            message=message,
            code=reason.code if reason else None,
        )
        return [*self._over(), self._noted(note, at)]

    def _ended(self, record: Record) -> list[AgentReport] | None:
        if record.get("status") not in ("success", "error"):
            return None
        reports = self._over()
        self._result = record
        for model, used in _usages(record_at(record, "stats")).items():
            self._usage = add_usage(used, self._usage)
            if model:
                self._models[model] = add_usage(used, self._models.get(model))
            if used != Usage():
                reports.append(UsageDelta(usage=used, model=model or None))
        return reports

    def _answered(self, record: Record) -> list[AgentReport] | None:
        """The one document of `--output-format json`: the answer, and what it took."""
        self._session = text_at(record, "session_id") or self._session
        stats, failed = record_at(record, "stats"), record_at(record, "error")
        models = list(record_at(stats, "models"))
        self._model = models[0] if len(models) == 1 else self._model
        text = text_at(record, "response")
        if text:
            self._piece(text, None)
        reports = self._over()
        ended = self._ended({"status": "error" if failed else "success", "error": failed, "stats": stats})
        return [*reports, *(ended or [])]

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        reports = self._over()
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
                turns=self._messages or None,
                session_id=self._session,
                unparsed=self.unparsed,
                at=parse_timestamp((self._result or {}).get("timestamp")),
            ),
        ]

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        result = self._result
        if result is not None and result["status"] == "success":
            error = early_stop_error(self._trouble) if self._trouble is not None else None
            return ("completed", None) if error is None else ("failed", error)
        if ended is not None and ended.cancelled:
            return "cancelled", run_error(ExecutionCancelled, "gemini was stopped")
        if result is None:
            error = incomplete_stream_error(ended, started=self._session is not None)
        elif (said := text_at(record_at(result, "error"), "message")) is not None:
            error = parse_error(text_at(record_at(result, "error"), "type"), said, ended)
        else:
            error = invalid_answer_error(self._trouble)
        return ("cancelled" if error.code == ExecutionCancelled.code else "failed"), error


def _changes(call: _Call) -> list[FileChange] | None:
    """Whether the file was there before is not told."""
    return [changed_file(call.path, None)] if call.path is not None else None


def _sub_agent(call_id: str, output: object, error: str | None, at: str | None) -> SubAgentEnded:
    if error is not None:
        return SubAgentEnded(agent=call_id, status="failed", error=run_error(AgentFailed, error), at=at)
    return SubAgentEnded(agent=call_id, text=output if isinstance(output, str) else None, at=at)


def _usages(stats: Record) -> dict[str, Usage]:
    """By model; under no name where it names none."""
    told = record_at(stats, "models")
    models = {model: record_at(told, model) for model in told}
    if not models and stats:
        models = {"": stats}
    return {model: _usage(numbers) for model, numbers in models.items()}


def _usage(numbers: Record) -> Usage:
    if isinstance(numbers.get("tokens"), dict):
        return _tokens(record_at(numbers, "tokens"))
    cached, output = count_at(numbers, "cached"), count_at(numbers, "output_tokens")
    fresh = count_at(numbers, "input") if "input" in numbers else max(0, count_at(numbers, "input_tokens") - cached)
    # Thoughts are in the total alone.
    thoughts = max(0, count_at(numbers, "total_tokens") - fresh - cached - output)
    return Usage(input=fresh, output=output + thoughts, cache_read=cached, reasoning=thoughts)


def _tokens(numbers: Record) -> Usage:
    """As `--output-format json` names them: `prompt` is with what was cached."""
    cached, thoughts = count_at(numbers, "cached"), count_at(numbers, "thoughts")
    return Usage(
        input=max(0, count_at(numbers, "prompt") - cached) + count_at(numbers, "tool"),
        output=count_at(numbers, "candidates") + thoughts,
        cache_read=cached,
        reasoning=thoughts,
    )
