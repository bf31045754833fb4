"""The parts that OpenCode's records carry: a tool that was used, a sub-agent's work, a step's tokens."""

from __future__ import annotations

import re

from shopfloor.adapters.providers.reading import (
    Record,
    changed_file,
    count_at,
    int_at,
    record_at,
    records_at,
    run_error,
    text_at,
    time_of,
)
from shopfloor.errors import AgentFailed
from shopfloor.log import FileChange, ToolCall, ToolResult, ToolUseBlock, Usage
from shopfloor.ports import Report, SubAgentEnded, SubAgentStarted

SUB_AGENT = "task"
INVALID = "invalid"
"""What OpenCode calls instead of a tool that there is not."""

_ANSWER = re.compile(r"<task_result>\n?(.*?)\n?</task_result>", re.DOTALL)
_ACTIONS = {"add": "create", "delete": "delete"}
_NEW_FILE = "\n@@ -0,0 "


class Tool:
    """A tool that was used: the stream tells of it when it has ended."""

    def __init__(self, part: Record, name: str, call_id: str) -> None:
        self.name = name
        self.call_id = call_id
        self._state = record_at(part, "state")
        self._metadata = record_at(self._state, "metadata")
        self._given = self._state.get("input")
        self._time = record_at(self._state, "time")
        self.began = time_of(self._time.get("start"))
        self.ended = time_of(self._time.get("end"))
        self.error = text_at(self._state, "error") if self._state.get("status") == "error" else None
        if self.error is None and name == INVALID:
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
    def child(self) -> str | None:
        """The session of the sub-agent that it started."""
        return text_at(self._metadata, "sessionId") if self.name == SUB_AGENT else None

    def sub_agent(self, child: str) -> list[Report]:
        """What it did is not in the stream: only that it was, and what it said in the end."""
        given = record_at(self._state, "input")
        named = record_at(self._metadata, "model")
        model = [text_at(named, key) for key in ("providerID", "modelID")]
        started = SubAgentStarted(
            agent=child,
            name=text_at(given, "subagent_type") or self.name,
            task=text_at(given, "prompt"),
            model="/".join(part for part in model if part) or None,
            at=self.began,
        )
        if self.error is not None:
            failed = run_error(AgentFailed, self.error)
            return [started, SubAgentEnded(agent=child, status="failed", error=failed, at=self.ended)]
        output = text_at(self._state, "output")
        answer = _ANSWER.search(output or "")
        return [started, SubAgentEnded(agent=child, text=answer[1] if answer else output, at=self.ended)]


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


def usage_of(tokens: Record) -> Usage:
    """Its `input` is without what was cached, its `output` without what was thought."""
    reasoning, cache = count_at(tokens, "reasoning"), record_at(tokens, "cache")
    return Usage(
        input=count_at(tokens, "input"),
        output=count_at(tokens, "output") + reasoning,
        cache_read=count_at(cache, "read"),
        cache_write=count_at(cache, "write"),
        reasoning=reasoning,
    )
