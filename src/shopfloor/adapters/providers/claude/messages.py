"""The blocks of a message of Anthropic's API, as the log has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeVar, cast

import msgspec

from shopfloor.adapters.providers.json_access import (
    Json,
    Record,
    changed_file,
    int_at,
    list_at,
    record_at,
    records_at,
    text_at,
)
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import Block, FileChange, StreamBlock, TextBlock, ThinkingBlock, ToolCall, ToolResult, ToolUseBlock
from shopfloor.ports import MAIN_AGENT, AgentReport, MessageDelta

_T = TypeVar("_T")


def bounded_put(kept: dict[str, _T], key: str, value: _T) -> None:
    kept[key] = value
    if len(kept) > OPEN_BRANCHES:
        del kept[next(iter(kept))]


_RESULT = "tool_result"


def content_blocks(message: Record) -> list[Record]:
    """Its blocks. A text alone stands for one. Raises where it is neither."""
    content: Any = message["content"]
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    for block in blocks:
        if not isinstance(block, dict):
            raise TypeError("a block is no object")
    return blocks


def is_tool_result(block: Record) -> bool:
    return text_at(block, "tool_use_id") is not None and (text_at(block, "type") or "").endswith(_RESULT)


def parse_block(block: Record) -> Block:
    """One that is not understood is kept as it came."""
    read = _BLOCKS.get(text_at(block, "type") or "")
    made = read(block) if read is not None else None
    if made is not None:
        return made
    return StreamBlock(fidelity="agent_emitted", chunk=msgspec.json.encode(block).decode(), unparsed=True)


def _said(block: Record) -> Block | None:
    text = text_at(block, "text")
    return None if text is None else TextBlock(fidelity="agent_emitted", text=text)


def _thought(block: Record) -> Block | None:
    text, signature = text_at(block, "thinking"), text_at(block, "signature")
    return None if text is None else ThinkingBlock(fidelity="agent_emitted", thinking=text, signature=signature)


def _hidden_thought(block: Record) -> Block | None:
    """One that nobody may read, to be given back as it is."""
    data = text_at(block, "data")
    return None if data is None else ThinkingBlock(fidelity="agent_emitted", thinking="", signature=data)


def _used(block: Record) -> Block | None:
    tool_id, name = text_at(block, "id"), text_at(block, "name")
    if tool_id is None or name is None:
        return None
    return ToolUseBlock(fidelity="agent_emitted", tool_name=name, tool_id=tool_id, tool_input=block.get("input"))


_BLOCKS: dict[str, Callable[[Record], Block | None]] = {
    "text": _said,
    "thinking": _thought,
    "redacted_thinking": _hidden_thought,
    "tool_use": _used,
    # Of tools that the provider runs itself, in the middle of its answer.
    "server_tool_use": _used,
    "mcp_tool_use": _used,
}


def merge_text_blocks(content: Json) -> Json:
    """What a tool gave: a text, or blocks; such as are all text become one."""
    if not isinstance(content, list):
        return "" if content is None else content
    texts = _texts(content)
    return "\n".join(texts) if len(texts) == len(content) else content


def text_content(content: Json) -> str:
    """The texts in it alone."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(_texts(content))


def _texts(blocks: list[Json]) -> list[str]:
    found = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return [text for text in found if isinstance(text, str)]


_Kind = Literal["text", "thinking", "tool_input"]
_PIECES: dict[str | None, tuple[_Kind, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("tool_input", "partial_json"),
}
"""What each delta is a piece of, and where it has it."""


class _Open(msgspec.Struct):
    """The message that somebody is typing."""

    message_id: str
    tools: dict[str, tuple[str | None, str | None]] = {}
    """The names and ids of tools, by the number of their block."""


class MessageDeltas:
    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def message_started(self, agent: str, message: Record) -> None:
        bounded_put(self._open, agent, _Open(text_at(message, "id") or "", {}))

    def block_started(self, agent: str, event: Record) -> None:
        block, message = record_at(event, "content_block"), self._open.get(agent)
        if message is not None and text_at(block, "name") is not None:
            bounded_put(message.tools, str(event["index"]), (text_at(block, "name"), text_at(block, "id")))

    def block_delta(self, agent: str, event: Record) -> list[AgentReport]:
        message = self._open.get(agent)
        if message is None:
            # Nobody could tell what it is a piece of. Its whole will be told.
            return []
        kind, text = _piece(event["delta"])
        if text is None:
            return []
        block = event["index"]
        name, tool_id = message.tools.get(str(block), (None, None))
        if not text:
            return []
        return [
            MessageDelta(
                message_id=message.message_id,
                block=int(block),
                kind=kind,
                text=text,
                tool_name=name,
                tool_id=tool_id,
                agent=agent,
            )
        ]


def _piece(delta: Json) -> tuple[_Kind, str | None]:
    """What has come, and of what; no text where it is nothing that is typed."""
    if not isinstance(delta, dict):
        return "text", None
    kind, key = _PIECES.get(text_at(delta, "type"), ("text", None))
    return kind, None if key is None else text_at(delta, key)


FILE_PATH_INPUTS = {
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
"""The tools that change a file, and where their input names it."""

_NOWHERE = "/dev/null"
_CREATED = "File created"


def changed_files(path: str | None, structured: Record, output: object) -> list[FileChange] | None:
    """`path` is what the call named. A sub-agent's results have no structured part: then that is all that is known."""
    if "structuredPatch" in structured and (changed := text_at(structured, "filePath")) is not None:
        return [_patched(changed, structured)]
    if path is None:
        return None
    created = isinstance(output, str) and output.startswith(_CREATED)
    return [changed_file(path, "create" if created else "modify")]


def _patched(path: str, structured: Record) -> FileChange:
    is_new = structured.get("originalFile") is None
    hunks = records_at(structured, "structuredPatch")
    content = text_at(structured, "content")
    if is_new and not hunks and content is not None:
        hunks = [_whole(content)]
    lines = [f"--- {_NOWHERE if is_new else path}", f"+++ {path}"]
    for hunk in hunks:
        old, new = (f"{int_at(hunk, f'{side}Start')},{int_at(hunk, f'{side}Lines')}" for side in ("old", "new"))
        lines += [f"@@ -{old} +{new} @@", *(line for line in list_at(hunk, "lines") if isinstance(line, str))]
    return changed_file(path, "create" if is_new else "modify", "\n".join(lines) + "\n" if hunks else None)


def _whole(content: str) -> Record:
    lines = [f"+{line}" for line in content.split("\n")]
    if lines[-1] == "+":
        lines.pop()
    else:
        lines.append("\\ No newline at end of file")
    count = sum(line.startswith("+") for line in lines)
    return {"oldStart": 0, "oldLines": 0, "newStart": 1 if count else 0, "newLines": count, "lines": lines}


SUB_AGENT_TOOLS = frozenset({"Agent", "Task"})
"""The same tool. Claude Code lists it under its old name, and newer versions call it by the new one."""

_EXIT_CODE = re.compile(r"Exit code (\d{1,5})\b")
_SHELLS = frozenset({"Bash", "PowerShell"})


class OpenToolCall(msgspec.Struct, frozen=True):
    name: str = ""
    """Empty where the call was not in the stream, only its result."""
    agent: str = MAIN_AGENT
    at: str | None = None
    path: str | None = None
    """The file that it is to change."""
    task: Record = {}
    """What a sub-agent is asked for."""


class OpenToolCalls:
    def __init__(self) -> None:
        self._open: dict[str, OpenToolCall] = {}

    def begin(self, use: ToolUseBlock, agent: str, at: str | None) -> ToolCall:
        given: Any = use.tool_input
        asked = cast("Record", given) if isinstance(given, dict) else {}
        call = OpenToolCall(
            name=use.tool_name,
            agent=agent,
            at=at,
            path=text_at(asked, FILE_PATH_INPUTS[use.tool_name]) if use.tool_name in FILE_PATH_INPUTS else None,
            task=asked if use.tool_name in SUB_AGENT_TOOLS else {},
        )
        bounded_put(self._open, use.tool_id, call)
        return ToolCall(name=use.tool_name, call_id=use.tool_id, input=given, output=None, fidelity="agent_emitted")

    def get(self, call_id: str) -> OpenToolCall:
        return self._open.get(call_id) or OpenToolCall()

    def end(self, block: Record, structured: Record, at: str | None) -> ToolResult:
        """What the block of a result tells. `structured` is what the program itself knows of it."""
        call_id: str = block["tool_use_id"]
        call = self._open.pop(call_id, None) or OpenToolCall()
        output = merge_text_blocks(block.get("content"))
        error = (text_content(output) or "error") if block.get("is_error") is True else None
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
