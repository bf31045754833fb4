"""Messages of Claude Code: content blocks, streamed deltas, open tool calls and the files that tools change."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, cast

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
from shopfloor.adapters.providers.jsonl import bounded_put
from shopfloor.log import Block, FileChange, StreamBlock, TextBlock, ThinkingBlock, ToolCall, ToolResult, ToolUseBlock
from shopfloor.ports import MAIN_AGENT, AgentReport, MessageDelta

_TOOL_RESULT_SUFFIX = "tool_result"
_Kind = Literal["text", "thinking", "tool_input"]
_DELTA_FIELDS: dict[str | None, tuple[_Kind, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "input_json_delta": ("tool_input", "partial_json"),
}
"""For each type of delta: the kind of block that it extends, and the field that holds its text."""
FILE_PATH_INPUTS = {
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
"""The tools that change a file, and the input that names the file."""
_NO_FILE = "/dev/null"
_FILE_CREATED_PREFIX = "File created"
SUB_AGENT_TOOLS = frozenset({"Agent", "Task"})
"""Two names of the same tool: Claude Code lists the old name, and newer versions call it by the new one."""
_EXIT_CODE = re.compile(r"Exit code (\d{1,5})\b")
_SHELLS = frozenset({"Bash", "PowerShell"})


def content_blocks(message: Record) -> list[Record]:
    """Return the content blocks of a message.

    Text content counts as one text block. Raises TypeError for anything else.
    """
    content: Any = message["content"]
    blocks: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    for block in blocks:
        if not isinstance(block, dict):
            raise TypeError("a content block is not an object")
    return blocks


def is_tool_result(block: Record) -> bool:
    """Return whether a block is the result of a tool."""
    return text_at(block, "tool_use_id") is not None and (text_at(block, "type") or "").endswith(_TOOL_RESULT_SUFFIX)


def parse_block(block: Record) -> Block:
    """Convert a block. A block that is not understood is kept verbatim, as a StreamBlock."""
    parse = _BLOCK_PARSERS.get(text_at(block, "type") or "")
    parsed = parse(block) if parse is not None else None
    if parsed is not None:
        return parsed
    return StreamBlock(fidelity="agent_emitted", chunk=msgspec.json.encode(block).decode(), unparsed=True)


def _parse_text(block: Record) -> Block | None:
    text = text_at(block, "text")
    return None if text is None else TextBlock(fidelity="agent_emitted", text=text)


def _parse_thinking(block: Record) -> Block | None:
    text, signature = text_at(block, "thinking"), text_at(block, "signature")
    return None if text is None else ThinkingBlock(fidelity="agent_emitted", thinking=text, signature=signature)


def _parse_redacted_thinking(block: Record) -> Block | None:
    """Keep the encrypted data as the signature: the provider wants it back."""
    data = text_at(block, "data")
    return None if data is None else ThinkingBlock(fidelity="agent_emitted", thinking="", signature=data)


def _parse_tool_use(block: Record) -> Block | None:
    tool_id, name = text_at(block, "id"), text_at(block, "name")
    if tool_id is None or name is None:
        return None
    return ToolUseBlock(fidelity="agent_emitted", tool_name=name, tool_id=tool_id, tool_input=block.get("input"))


_BLOCK_PARSERS: dict[str, Callable[[Record], Block | None]] = {
    "text": _parse_text,
    "thinking": _parse_thinking,
    "redacted_thinking": _parse_redacted_thinking,
    "tool_use": _parse_tool_use,
    # Tools that the provider itself runs, in the middle of its answer.
    "server_tool_use": _parse_tool_use,
    "mcp_tool_use": _parse_tool_use,
}


def merge_text_blocks(content: Json) -> Json:
    """Join the output of a tool to one text if all its blocks are text; return any other output as it is."""
    if not isinstance(content, list):
        return "" if content is None else content
    texts = _texts(content)
    return "\n".join(texts) if len(texts) == len(content) else content


def text_content(content: Json) -> str:
    """Return the text in some content, without its other blocks."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(_texts(content))


def _texts(blocks: list[Json]) -> list[str]:
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return [text for text in texts if isinstance(text, str)]


class _OpenMessage(msgspec.Struct):
    """The message that an agent is streaming."""

    message_id: str
    tools: dict[str, tuple[str | None, str | None]] = {}
    """Names and ids of tools, by the index of their block."""


class MessageDeltas:
    """Convert the events of Anthropic's streaming API, as Claude Code forwards them, to deltas of messages."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenMessage] = {}

    def message_started(self, agent: str, message: Record) -> None:
        """Remember the message that the following events of this agent extend."""
        bounded_put(self._open, agent, _OpenMessage(text_at(message, "id") or "", {}))

    def block_started(self, agent: str, event: Record) -> None:
        """Remember the tool that a block calls, for its deltas."""
        block, message = record_at(event, "content_block"), self._open.get(agent)
        if message is not None and text_at(block, "name") is not None:
            bounded_put(message.tools, str(event["index"]), (text_at(block, "name"), text_at(block, "id")))

    def block_delta(self, agent: str, event: Record) -> list[AgentReport]:
        """Return the delta of a block, or nothing if the event carries no text."""
        message = self._open.get(agent)
        if message is None:
            # The delta belongs to an unknown message. Its complete message follows in the stream.
            return []
        kind, text = _parse_delta(event["delta"])
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


def _parse_delta(delta: Json) -> tuple[_Kind, str | None]:
    """Return the kind and the text of a delta. The text is None if the delta carries none."""
    if not isinstance(delta, dict):
        return "text", None
    kind, key = _DELTA_FIELDS.get(text_at(delta, "type"), ("text", None))
    return kind, None if key is None else text_at(delta, key)


def changed_files(path: str | None, structured: Record, output: object) -> list[FileChange] | None:
    """Return the files that a tool changed, as far as its result shows.

    `path` is the file that the call named. It is all that is known of a sub-agent's call, whose result has no
    structured part.
    """
    if "structuredPatch" in structured and (changed := text_at(structured, "filePath")) is not None:
        return [_patched_file(changed, structured)]
    if path is None:
        return None
    created = isinstance(output, str) and output.startswith(_FILE_CREATED_PREFIX)
    return [changed_file(path, "create" if created else "modify")]


def _patched_file(path: str, structured: Record) -> FileChange:
    is_new = structured.get("originalFile") is None
    hunks = records_at(structured, "structuredPatch")
    content = text_at(structured, "content")
    if is_new and not hunks and content is not None:
        hunks = [_new_file_hunk(content)]
    lines = [f"--- {_NO_FILE if is_new else path}", f"+++ {path}"]
    for hunk in hunks:
        old, new = (f"{int_at(hunk, f'{side}Start')},{int_at(hunk, f'{side}Lines')}" for side in ("old", "new"))
        lines += [f"@@ -{old} +{new} @@", *(line for line in list_at(hunk, "lines") if isinstance(line, str))]
    return changed_file(path, "create" if is_new else "modify", "\n".join(lines) + "\n" if hunks else None)


def _new_file_hunk(content: str) -> Record:
    lines = [f"+{line}" for line in content.split("\n")]
    if lines[-1] == "+":
        lines.pop()
    else:
        lines.append("\\ No newline at end of file")
    count = sum(line.startswith("+") for line in lines)
    return {"oldStart": 0, "oldLines": 0, "newStart": 1 if count else 0, "newLines": count, "lines": lines}


class OpenToolCall(msgspec.Struct, frozen=True):
    """A tool call without a result so far."""

    name: str = ""
    """Empty if the stream has the result of the call, but not the call."""
    agent: str = MAIN_AGENT
    at: str | None = None
    path: str | None = None
    """The file that the tool changes."""
    sub_agent_input: Record = {}
    """The input of the call, if it starts a sub-agent."""


class OpenToolCalls:
    """The tool calls that wait for their results, by call id."""

    def __init__(self) -> None:
        self._open: dict[str, OpenToolCall] = {}

    def begin(self, use: ToolUseBlock, agent: str, at: str | None) -> ToolCall:
        """Remember a call and return its log entry."""
        tool_input: Any = use.tool_input
        arguments = cast("Record", tool_input) if isinstance(tool_input, dict) else {}
        call = OpenToolCall(
            name=use.tool_name,
            agent=agent,
            at=at,
            path=text_at(arguments, FILE_PATH_INPUTS[use.tool_name]) if use.tool_name in FILE_PATH_INPUTS else None,
            sub_agent_input=arguments if use.tool_name in SUB_AGENT_TOOLS else {},
        )
        bounded_put(self._open, use.tool_id, call)
        return ToolCall(
            name=use.tool_name, call_id=use.tool_id, input=tool_input, output=None, fidelity="agent_emitted"
        )

    def get(self, call_id: str) -> OpenToolCall:
        """Return an open call. A call that is not known has an empty name."""
        return self._open.get(call_id) or OpenToolCall()

    def end(self, block: Record, structured: Record, at: str | None) -> ToolResult:
        """Close a call and return its result. `structured` is the result as Claude Code itself records it."""
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


def _ms_between(started_at: str | None, ended_at: str | None) -> int | None:
    if started_at is None or ended_at is None:
        return None
    elapsed = datetime.fromisoformat(ended_at) - datetime.fromisoformat(started_at)
    return max(0, round(elapsed.total_seconds() * 1000))
