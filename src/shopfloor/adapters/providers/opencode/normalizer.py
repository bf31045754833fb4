"""Normalize the output of `opencode run --format json`.

The stream has no start and no end record, no model, no prompt and no deltas. A tool appears once, when it has ended; a
tool that runs when the process is killed leaves no trace. Retries are silent. The work and the tokens of sub-agents are
not in the stream. A step that requests no tools is the last one, and its text is the answer.
"""

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
"""The tool that OpenCode calls in place of a tool that does not exist."""

_TASK_RESULT = re.compile(r"<task_result>\n?(.*?)\n?</task_result>", re.DOTALL)
_ACTIONS = {"add": "create", "delete": "delete"}
_NEW_FILE = "\n@@ -0,0 "
_NON_FINAL_REASONS = ("tool-calls", "unknown")
"""The reasons of steps that another step follows."""


class ToolPart:
    """A tool call that has ended, as its part of a record describes it."""

    def __init__(self, part: Record, name: str, call_id: str) -> None:
        self.name = name
        self.call_id = call_id
        self._state = record_at(part, "state")
        self._metadata = record_at(self._state, "metadata")
        self._input = self._state.get("input")
        self._time = record_at(self._state, "time")
        self.started_at = parse_timestamp(self._time.get("start"))
        self.ended_at = parse_timestamp(self._time.get("end"))
        self.error = text_at(self._state, "error") if self._state.get("status") == "error" else None
        if self.error is None and name == INVALID_TOOL:
            self.error = text_at(record_at(self._state, "input"), "error")

    def use(self) -> ToolUseBlock:
        """Return the block of the message that requests the call."""
        return ToolUseBlock(tool_name=self.name, tool_id=self.call_id, tool_input=self._input, fidelity="agent_emitted")

    def call(self) -> ToolCall:
        """Return the log entry of the call."""
        return ToolCall(name=self.name, call_id=self.call_id, input=self._input, output=None, fidelity="agent_emitted")

    def result(self) -> ToolResult:
        """Return the log entry of the result."""
        return ToolResult(
            name=self.name,
            call_id=self.call_id,
            input=None,
            output=self._state.get("output"),
            error=self.error,
            duration_ms=_duration_ms(self._time),
            exit_code=int_at(self._metadata, "exit"),
            files=_changed_files(self._metadata) or None,
            fidelity="agent_emitted",
        )

    @property
    def child_session_id(self) -> str | None:
        """The session of the sub-agent that the call started."""
        return text_at(self._metadata, "sessionId") if self.name == SUB_AGENT_TOOL else None

    def sub_agent_reports(self, child_session_id: str) -> list[AgentReport]:
        """Report the start and the end of the sub-agent. Its work is not in the stream."""
        arguments = record_at(self._state, "input")
        model_record = record_at(self._metadata, "model")
        model = [text_at(model_record, key) for key in ("providerID", "modelID")]
        started = SubAgentStarted(
            agent=child_session_id,
            name=text_at(arguments, "subagent_type") or self.name,
            task=text_at(arguments, "prompt"),
            model="/".join(part for part in model if part) or None,
            at=self.started_at,
        )
        if self.error is not None:
            error = run_error(AgentFailed, self.error)
            return [started, SubAgentEnded(agent=child_session_id, status="failed", error=error, at=self.ended_at)]
        output = text_at(self._state, "output")
        answer = _TASK_RESULT.search(output or "")
        text = answer[1] if answer else output
        return [started, SubAgentEnded(agent=child_session_id, text=text, at=self.ended_at)]


def _duration_ms(time: Record) -> int | None:
    start, end = int_at(time, "start"), int_at(time, "end")
    return end - start if start is not None and end is not None and end >= start else None


def _changed_files(metadata: Record) -> list[FileChange]:
    """Return the files that a tool changed: the file of an edit, the files of a patch, or a file that was written."""
    changes: list[FileChange] = []
    edited = record_at(metadata, "filediff")
    for file in [edited] if edited else records_at(metadata, "files"):
        path, patch = text_at(file, "file") or text_at(file, "filePath"), text_at(file, "patch")
        action = _ACTIONS.get(text_at(file, "type") or "") or ("create" if _NEW_FILE in (patch or "") else "modify")
        if path is not None:
            changes.append(changed_file(path, action, patch))
    written_path = text_at(metadata, "filepath")
    if not changes and written_path is not None and isinstance(metadata.get("exists"), bool):
        changes.append(changed_file(written_path, "modify" if metadata["exists"] else "create"))
    return changes


def parse_usage(tokens: Record) -> Usage:
    """Convert OpenCode's counts, in which `input` excludes cached tokens, and `output` excludes thinking."""
    reasoning, cache = count_at(tokens, "reasoning"), record_at(tokens, "cache")
    return Usage(
        input=count_at(tokens, "input"),
        output=count_at(tokens, "output") + reasoning,
        cache_read=count_at(cache, "read"),
        cache_write=count_at(cache, "write"),
        reasoning=reasoning,
    )


class OpenCodeNormalizer(JsonLinesNormalizer):
    """Normalizer of one session of OpenCode."""

    def __init__(self) -> None:
        super().__init__()
        self._session: str | None = None
        self._announced_session: str | None = None
        """The session that a `ready` note was reported for."""
        self._seen: dict[str, None] = {}
        """Ids of the newest parts and sub-agents that were reported."""
        self._steps = 0
        self._usage: Usage | None = None
        self._cost = 0.0
        self._reason: str | None = None
        """Why the last step ended; None while a step is open."""
        self._step_texts: list[str] = []
        """The texts of the current step."""
        self._error: RunError | None = None
        """The last error, if nothing came after it."""
        self._denial: str | None = None
        """OpenCode's message about a tool of this step that was not allowed."""
        self._at: str | None = None

    def _read(self, record: Record) -> list[AgentReport] | None:
        session, at = text_at(record, "sessionID"), parse_timestamp(record.get("timestamp"))
        if session is None:
            return None
        self._session = session
        reports = self._read_part(record, at)
        if reports is None:
            return None
        self._at = at or self._at
        if session == self._announced_session:
            return reports
        self._announced_session = session
        return [self._note(Note(kind="ready", ready=Initialization(session_id=session)), at), *reports]

    def _read_part(self, record: Record, at: str | None) -> list[AgentReport] | None:
        kind, part = record.get("type"), record_at(record, "part")
        if kind == "error":
            message = text_at(record, "error")
            return self._handle_error(record_at(record, "error") if message is None else {"message": message}, at)
        if not part:
            return None
        match kind:
            case "step_start":
                self._step_started()
                return []
            case "text" | "reasoning":
                text = text_at(part, "text")
                return None if text is None else self._text(kind, part, text, at)
            case "tool_use":
                return self._tool(part, at)
            case "step_finish":
                return self._step_ended(part)
            case _:
                return None

    def _step_started(self) -> None:
        self._reason, self._error, self._denial = None, None, None
        self._step_texts.clear()

    # Messages and tools.

    def _text(self, kind: str, part: Record, text: str, at: str | None) -> list[AgentReport]:
        if self._is_repeat(part):
            return []
        if part.get("synthetic") is True:
            # A message in the user's name, for example to continue after the thread was compacted.
            message = UserMessage(synthetic=True, blocks=[TextBlock(text=text, fidelity="agent_emitted")])
            return [TranscriptItem(payload=message, at=at)]
        if kind == "reasoning":
            return [self._message(part, ThinkingBlock(thinking=text, fidelity="agent_emitted"), at)]
        self._step_texts.append(text)
        return [self._message(part, TextBlock(text=text, fidelity="agent_emitted"), at)]

    def _tool(self, part: Record, at: str | None) -> list[AgentReport] | None:
        name, call_id = text_at(part, "tool"), text_at(part, "callID") or text_at(part, "id")
        state = record_at(part, "state")
        if name is None or call_id is None or state.get("status") not in ("completed", "error"):
            return None
        if self._is_repeat(part) or "compacted" in record_at(state, "time"):
            # OpenCode repeats a tool when it drops the tool's output from the thread, even in a later process.
            return []
        tool = ToolPart(part, name, call_id)
        started_at, ended_at = tool.started_at or at, tool.ended_at or at
        reports: list[AgentReport] = [
            self._message(part, tool.use(), started_at),
            TranscriptItem(payload=tool.call(), at=started_at),
        ]
        if tool.child_session_id is not None and self._is_new(tool.child_session_id):
            reports += tool.sub_agent_reports(tool.child_session_id)
        reports.append(TranscriptItem(payload=tool.result(), at=ended_at))
        if is_permission_denied(tool.error):
            self._denial = tool.error
            reports.append(self._note(Note(kind="denied", message=tool.error), ended_at))
        return reports

    def _step_ended(self, part: Record) -> list[AgentReport] | None:
        reason = text_at(part, "reason")
        if reason is None:
            return None
        usage, cost = parse_usage(record_at(part, "tokens")), number_at(part, "cost") or 0.0
        if self._is_repeat(part):
            return []
        self._reason = reason
        self._steps += 1
        self._usage = add_usage(usage, self._usage)
        self._cost += max(0.0, cost)
        # OpenCode reports a cost of 0 for a model whose price it does not know.
        return [UsageDelta(usage=usage, cost_usd=cost if cost > 0 else None)]

    def _handle_error(self, error: Record, at: str | None) -> list[AgentReport]:
        self._error = parse_error(error)
        return [self._note(error_note(error, self._error), at)]

    def _is_repeat(self, part: Record) -> bool:
        """Return whether this part was reported before."""
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

    def _note(self, note: Note, at: str | None) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(session_id=self._session, note=note, blocks=[]), at=at)

    # The end.

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        status, error = self._outcome(ended)
        return [
            SessionEnded(
                status=status,
                is_final=self._is_final,
                text="\n".join(self._step_texts) or None if status == "completed" else None,
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
        """Whether the last step requested no more tools. OpenCode has no other final record."""
        return self._error is None and self._reason is not None and self._reason not in _NON_FINAL_REASONS

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        cancelled = ended is not None and ended.cancelled
        if self._is_final:
            return "completed", None
        if cancelled or (self._error is not None and self._error.code == ExecutionCancelled.code):
            return "cancelled", run_error(ExecutionCancelled, "opencode was stopped")
        if self._error is not None:
            return "failed", self._error
        if self._denial is not None and self._reason is not None:
            return "failed", run_error(AgentFailed, f"opencode went no further: {self._denial}")
        return "failed", incomplete_stream_error(ended, started=self._session is not None)
