"""Tools that the agent called, until their results are there."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, cast

import msgspec

from shopfloor.adapters.providers.claude.bounded import keep
from shopfloor.adapters.providers.claude.files import PATHS, changed_files
from shopfloor.adapters.providers.claude.messages import joined, said_in
from shopfloor.adapters.providers.reading import Record, text_at
from shopfloor.log import ToolCall, ToolResult, ToolUseBlock
from shopfloor.ports import SELF

SUB_AGENT_TOOLS = frozenset({"Agent", "Task"})
"""The same tool. Claude Code lists it under its old name, and newer versions call it by the new one."""

_EXIT_CODE = re.compile(r"Exit code (\d{1,5})\b")
_SHELLS = frozenset({"Bash", "PowerShell"})


class Call(msgspec.Struct, frozen=True):
    name: str = ""
    """Empty where the call was not in the stream, only its result."""
    agent: str = SELF
    at: str | None = None
    path: str | None = None
    """The file that it is to change."""
    task: Record = {}
    """What a sub-agent is asked for."""


class Calls:
    def __init__(self) -> None:
        self._open: dict[str, Call] = {}

    def begin(self, use: ToolUseBlock, agent: str, at: str | None) -> ToolCall:
        given: Any = use.tool_input
        asked = cast("Record", given) if isinstance(given, dict) else {}
        call = Call(
            name=use.tool_name,
            agent=agent,
            at=at,
            path=text_at(asked, PATHS[use.tool_name]) if use.tool_name in PATHS else None,
            task=asked if use.tool_name in SUB_AGENT_TOOLS else {},
        )
        keep(self._open, use.tool_id, call)
        return ToolCall(name=use.tool_name, call_id=use.tool_id, input=given, output=None, fidelity="agent_emitted")

    def get(self, call_id: str) -> Call:
        return self._open.get(call_id) or Call()

    def end(self, block: Record, structured: Record, at: str | None) -> ToolResult:
        """What the block of a result tells. `structured` is what the program itself knows of it."""
        call_id: str = block["tool_use_id"]
        call = self._open.pop(call_id, None) or Call()
        output = joined(block.get("content"))
        error = (said_in(output) or "error") if block.get("is_error") is True else None
        exit_code = _EXIT_CODE.match(error) if error is not None and call.name in _SHELLS else None
        return ToolResult(
            name=call.name,
            call_id=call_id,
            input=None,
            output=output,
            error=error,
            duration_ms=_ms_between(call.at, at),
            exit_code=int(exit_code[1]) if exit_code else None,
            files=changed_files(call.path, structured, output) if error is None else None,
            fidelity="agent_emitted",
        )


def _ms_between(began: str | None, ended: str | None) -> int | None:
    if began is None or ended is None:
        return None
    took = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    return max(0, round(took.total_seconds() * 1000))
