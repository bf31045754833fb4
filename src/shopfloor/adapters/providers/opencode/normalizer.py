"""The parts that OpenCode's records carry: a tool that was used, a sub-agent's work, a step's tokens."""

from __future__ import annotations

import re

from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.json_access import (
    Record,
    changed_file,
    count_at,
    int_at,
    number_at,
    parse_timestamp,
    record_at,
    records_at,
    text_at,
)
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer, bounded_put
from shopfloor.adapters.providers.opencode.errors import (
    error_note,
    incomplete_stream_error,
    is_permission_denied,
    parse_error,
)
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
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
    UserMessage,
)
from shopfloor.ports import (
    AgentExit,
    AgentReport,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
    UsageDelta,
)
from shopfloor.views import add_usage

SUB_AGENT_TOOL = "task"
INVALID_TOOL = "invalid"
"""What OpenCode calls instead of a tool that there is not."""

_ANSWER = re.compile(r"<task_result>\n?(.*?)\n?</task_result>", re.DOTALL)
_ACTIONS = {"add": "create", "delete": "delete"}
_NEW_FILE = "\n@@ -0,0 "


class ToolPart:
    """A tool that was used: the stream tells of it when it has ended."""

    def __init__(self, part: Record, name: str, call_id: str) -> None:
        self.name = name
        self.call_id = call_id
        self._state = record_at(part, "state")
        self._metadata = record_at(self._state, "metadata")
        self._given = self._state.get("input")
        self._time = record_at(self._state, "time")
        self.began = parse_timestamp(self._time.get("start"))
        self.ended = parse_timestamp(self._time.get("end"))
        self.error = text_at(self._state, "error") if self._state.get("status") == "error" else None
        if self.error is None and name == INVALID_TOOL:
            self.error = text_at(record_at(self._state, "input"), "error")

    def use(self) -> ToolUseBlock:
        return ToolUseBlock(tool_name=self.name, tool_id=self.call_id, tool_input=self._given, fidelity="agent_emitted")

    def call(self) -> ToolCall:
        return ToolCall(name=self.name, call_id=self.call_id, input=self._given, output=None, fidelity="agent_emitted")

    def result(self) -> ToolResult:
        began, ended = int_at(self._time, "start"), int_at(self._time, "end")
        return ToolResult(
            name=self.name,
            call_id=self.call_id,
            input=None,
            output=self._state.get("output"),
            error=self.error,
            duration_ms=ended - began if began is not None and ended is not None and ended >= began else None,
            exit_code=int_at(self._metadata, "exit"),
            files=_changes(self._metadata) or None,
            fidelity="agent_emitted",
        )

    @property
    def child_session_id(self) -> str | None:
        """The session of the sub-agent that it started."""
        return text_at(self._metadata, "sessionId") if self.name == SUB_AGENT_TOOL else None

    def sub_agent_reports(self, child_session_id: str) -> list[AgentReport]:
        """What it did is not in the stream: only that it was, and what it said in the end."""
        given = record_at(self._state, "input")
        named = record_at(self._metadata, "model")
        model = [text_at(named, key) for key in ("providerID", "modelID")]
        started = SubAgentStarted(
            agent=child_session_id,
            name=text_at(given, "subagent_type") or self.name,
            task=text_at(given, "prompt"),
            model="/".join(part for part in model if part) or None,
            at=self.began,
        )
        if self.error is not None:
            failed = run_error(AgentFailed, self.error)
            return [started, SubAgentEnded(agent=child_session_id, status="failed", error=failed, at=self.ended)]
        output = text_at(self._state, "output")
        answer = _ANSWER.search(output or "")
        return [started, SubAgentEnded(agent=child_session_id, text=answer[1] if answer else output, at=self.ended)]


def _changes(metadata: Record) -> list[FileChange]:
    """The files that a tool changed: one that was edited, those of a patch, or one that was written as a whole."""
    changes: list[FileChange] = []
    edited = record_at(metadata, "filediff")
    for file in [edited] if edited else records_at(metadata, "files"):
        path, patch = text_at(file, "file") or text_at(file, "filePath"), text_at(file, "patch")
        action = _ACTIONS.get(text_at(file, "type") or "") or ("create" if _NEW_FILE in (patch or "") else "modify")
        if path is not None:
            changes.append(changed_file(path, action, patch))
    written = text_at(metadata, "filepath")
    if not changes and written is not None and isinstance(metadata.get("exists"), bool):
        changes.append(changed_file(written, "modify" if metadata["exists"] else "create"))
    return changes


def parse_usage(tokens: Record) -> Usage:
    """Its `input` is without what was cached, its `output` without what was thought."""
    reasoning, cache = count_at(tokens, "reasoning"), record_at(tokens, "cache")
    return Usage(
        input=count_at(tokens, "input"),
        output=count_at(tokens, "output") + reasoning,
        cache_read=count_at(cache, "read"),
        cache_write=count_at(cache, "write"),
        reasoning=reasoning,
    )


_GOES_ON = ("tool-calls", "unknown")
"""Why a step ended that another one follows."""


class OpenCodeNormalizer(JsonLinesNormalizer):
    def __init__(self) -> None:
        super().__init__()
        self._session: str | None = None
        self._ready: str | None = None
        """The session that was said to be ready."""
        self._seen: dict[str, None] = {}
        """The newest parts, and sub-agents, that were told of."""
        self._steps = 0
        self._usage: Usage | None = None
        self._cost = 0.0
        self._reason: str | None = None
        """Why the last step ended; None while one is open."""
        self._texts: list[str] = []
        """Of the step."""
        self._error: RunError | None = None
        """What went wrong, where nothing came after it."""
        self._refused: str | None = None
        """The tool of this step that was not allowed, in OpenCode's words."""
        self._at: str | None = None

    def _read(self, record: Record) -> list[AgentReport] | None:
        session, at = text_at(record, "sessionID"), parse_timestamp(record.get("timestamp"))
        if session is None:
            return None
        self._session = session
        reports = self._record(record, at)
        if reports is None:
            return None
        self._at = at or self._at
        if session == self._ready:
            return reports
        self._ready = session
        return [self._noted(Note(kind="ready", ready=Initialization(session_id=session)), at), *reports]

    def _record(self, record: Record, at: str | None) -> list[AgentReport] | None:
        kind, part = record.get("type"), record_at(record, "part")
        if kind == "error":
            said = text_at(record, "error")
            return self._failed(record_at(record, "error") if said is None else {"message": said}, at)
        if not part:
            return None
        match kind:
            case "step_start":
                self._step_started()
                return []
            case "text" | "reasoning":
                text = text_at(part, "text")
                return None if text is None else self._said(kind, part, text, at)
            case "tool_use":
                return self._tool(part, at)
            case "step_finish":
                return self._step_ended(part)
            case _:
                return None

    def _step_started(self) -> None:
        self._reason, self._error, self._refused = None, None, None
        self._texts.clear()

    # What is said and done.

    def _said(self, kind: str, part: Record, text: str, at: str | None) -> list[AgentReport]:
        if self._again(part):
            return []
        if part.get("synthetic") is True:
            # In the user's name: for example that it shall go on after the thread was made shorter.
            said = UserMessage(synthetic=True, blocks=[TextBlock(text=text, fidelity="agent_emitted")])
            return [TranscriptItem(payload=said, at=at)]
        if kind == "reasoning":
            return [self._message(part, ThinkingBlock(thinking=text, fidelity="agent_emitted"), at)]
        self._texts.append(text)
        return [self._message(part, TextBlock(text=text, fidelity="agent_emitted"), at)]

    def _tool(self, part: Record, at: str | None) -> list[AgentReport] | None:
        name, call_id = text_at(part, "tool"), text_at(part, "callID") or text_at(part, "id")
        state = record_at(part, "state")
        if name is None or call_id is None or state.get("status") not in ("completed", "error"):
            return None
        if self._again(part) or "compacted" in record_at(state, "time"):
            # It is told again when its output is dropped from the thread, even in a later process.
            return []
        tool = ToolPart(part, name, call_id)
        began, ended = tool.began or at, tool.ended or at
        reports: list[AgentReport] = [
            self._message(part, tool.use(), began),
            TranscriptItem(payload=tool.call(), at=began),
        ]
        if tool.child_session_id is not None and self._is_new(tool.child_session_id):
            reports += tool.sub_agent_reports(tool.child_session_id)
        reports.append(TranscriptItem(payload=tool.result(), at=ended))
        if is_permission_denied(tool.error):
            self._refused = tool.error
            reports.append(self._noted(Note(kind="denied", message=tool.error), ended))
        return reports

    def _step_ended(self, part: Record) -> list[AgentReport] | None:
        reason = text_at(part, "reason")
        if reason is None:
            return None
        used, cost = parse_usage(record_at(part, "tokens")), number_at(part, "cost") or 0.0
        if self._again(part):
            return []
        self._reason = reason
        self._steps += 1
        self._usage = add_usage(used, self._usage)
        self._cost += max(0.0, cost)
        # It says 0 of what it knows no price of.
        return [UsageDelta(usage=used, cost_usd=cost if cost > 0 else None)]

    def _failed(self, error: Record, at: str | None) -> list[AgentReport]:
        self._error = parse_error(error)
        return [self._noted(error_note(error, self._error), at)]

    def _again(self, part: Record) -> bool:
        """Whether this part was told of before."""
        part_id = text_at(part, "id")
        return part_id is not None and not self._is_new(part_id)

    def _is_new(self, name: str) -> bool:
        if name in self._seen:
            return False
        bounded_put(self._seen, name, None)
        return True

    def _message(self, part: Record, block: Block, at: str | None) -> TranscriptItem:
        message_id = text_at(part, "messageID")
        return TranscriptItem(
            payload=AssistantMessage(message_id=message_id, session_id=self._session, blocks=[block]), at=at
        )

    def _noted(self, note: Note, at: str | None) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(session_id=self._session, note=note, blocks=[]), at=at)

    # The end.

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        status, error = self._outcome(ended)
        return [
            SessionEnded(
                status=status,
                is_final=self._is_final,
                text="\n".join(self._texts) or None if status == "completed" else None,
                error=error,
                usage=self._usage,
                cost_usd=round(self._cost, 10) if self._cost > 0 else None,
                turns=self._steps or None,
                session_id=self._session,
                unparsed=self.unparsed,
                at=self._at,
            )
        ]

    @property
    def _is_final(self) -> bool:
        """Whether the last step asked for no more tools. OpenCode has no other final record."""
        return self._error is None and self._reason is not None and self._reason not in _GOES_ON

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        cancelled = ended is not None and ended.cancelled
        if self._is_final:
            return "completed", None
        if cancelled or (self._error is not None and self._error.code == ExecutionCancelled.code):
            return "cancelled", run_error(ExecutionCancelled, "opencode was stopped")
        if self._error is not None:
            return "failed", self._error
        if self._refused is not None and self._reason is not None:
            return "failed", run_error(AgentFailed, f"opencode went no further: {self._refused}")
        return "failed", incomplete_stream_error(ended, started=self._session is not None)
