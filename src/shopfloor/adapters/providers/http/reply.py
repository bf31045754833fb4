"""A model's answer as it is being put together, and what is told of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import msgspec

from shopfloor.adapters.providers.json_access import Record, records_at, text_at
from shopfloor.limits import AGENT_LINE_BYTES, OPEN_BRANCHES
from shopfloor.log import (
    AssistantMessage,
    Block,
    Note,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
)
from shopfloor.ports import AgentReport, MessageDelta, TranscriptItem, UsageDelta

REFUSED = "refusal"

_CALL = "_call"
_GAVE = ("output", "outputs", "result", "results", "error")
_NOT_GIVEN = ("type", "id", "call_id", "status", "name", "server_label", *_GAVE)
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
"""Tools that the provider runs itself."""


def is_call(item: Record) -> bool:
    return str(item["type"]).endswith(_CALL)


def call_name(item: Record) -> str:
    """Tools of the provider's own have no name but their item's."""
    return text_at(item, "name") or str(item["type"])


def call_id(item: Record) -> str:
    return text_at(item, "call_id") or str(item["id"])


def parse_blocks(item: Record, reply: Reply) -> list[Block]:
    match item["type"]:
        case "message":
            return [_said(part, reply) for part in records_at(item, "content")]
        case "reasoning":
            return _thought(item)
        case _ if is_call(item):
            return [tool_use(call_name(item), call_id(item), _given(item))]
        case _:
            return [reply.unparsed_block(item)]


def parse_results(item: Record) -> list[ToolResult]:
    """What a tool gave that the provider runs itself."""
    gave: dict[str, Any] = {key: item[key] for key in _GAVE if item.get(key) is not None}
    if item["type"] not in _HOSTED or (not gave and item.get("status") != "completed"):
        return []
    error = gave.pop("error", None)
    output = next(iter(gave.values())) if len(gave) == 1 else gave or {"status": item.get("status")}
    return [tool_result(call_name(item), call_id(item), output, None if error is None else str(error))]


def _said(part: Record, reply: Reply) -> Block:
    match part.get("type"):
        case "output_text":
            return TextBlock(text=str(part["text"]), fidelity="agent_emitted")
        case "refusal":
            reply.stop_reason = REFUSED
            return TextBlock(text=str(part["refusal"]), fidelity="agent_emitted")
        case _:
            return reply.unparsed_block(part)


def _thought(item: Record) -> list[Block]:
    parts = [text_at(part, "text") or "" for key in ("summary", "content") for part in records_at(item, key)]
    thought, signature = "\n\n".join(part for part in parts if part), text_at(item, "encrypted_content")
    if not thought and signature is None:
        return []
    return [ThinkingBlock(thinking=thought, signature=signature, fidelity="agent_emitted")]


def _given(item: Record) -> Any:
    if (arguments := text_at(item, "arguments")) is not None:
        return parse_tool_input(arguments)
    if "input" in item:
        return item["input"]
    return {key: value for key, value in item.items() if key not in _NOT_GIVEN}


Kind = Literal["text", "thinking", "tool_input"]


class PartialBlock(msgspec.Struct, kw_only=True):
    """A block of which pieces come."""

    kind: Kind
    index: int
    chunks: list[str] = []
    signature: str | None = None
    name: str = ""
    tool_id: str = ""
    is_text: bool = False
    """For the input of a tool that takes a text, and no JSON."""
    whole: bool = False
    made: Block | None = None
    """The block itself, where it came in one."""

    @property
    def text(self) -> str:
        return "".join(self.chunks)

    def block(self, *, is_complete: bool) -> Block | None:
        if self.made is not None:
            return self.made
        text = self.text
        match self.kind:
            case "text":
                return TextBlock(text=text, fidelity="agent_emitted") if text else None
            case "thinking":
                if not text and self.signature is None:
                    return None
                return ThinkingBlock(thinking=text, signature=self.signature, fidelity="agent_emitted")
            case "tool_input":
                if is_complete or self.whole:
                    return tool_use(self.name, self.tool_id, text if self.is_text else parse_tool_input(text))
                # It was not asked to the end: no call comes of it, so it must not look like one.
                return StreamBlock(chunk=text, fidelity="agent_emitted")


class Reply:
    def __init__(self) -> None:
        self.message_id: str | None = None
        self.model: str | None = None
        self.stop_reason: str | None = None
        self.usage: Usage | None = None
        self.text: str | None = None
        self.unparsed = 0
        self.results: list[ToolResult] = []
        """What tools gave that the provider runs itself."""
        self._parts: dict[Hashable, PartialBlock] = {}
        self._places = 0
        self._size = 0

    # Pieces.

    def part(self, key: Hashable, kind: Kind) -> PartialBlock:
        """The block with this key; it gets the next place where it is new."""
        if key not in self._parts:
            if self._places >= OPEN_BRANCHES:
                raise IndexError("too many blocks")
            self._parts[key] = PartialBlock(kind=kind, index=self._places)
            self._places += 1
        return self._parts[key]

    def get_part(self, key: Hashable) -> PartialBlock:
        return self._parts[key]

    def close_part(self, key: Hashable) -> None:
        """No more pieces come of it."""
        if key in self._parts:
            self._parts[key].whole = True

    def set_block(self, key: Hashable, block: Block) -> None:
        """A block that came in one, instead of the pieces of it that there are."""
        part = self.part(key, "text")
        part.made, part.whole = block, True
        part.chunks.clear()
        self._size += len(msgspec.json.encode(block))

    def typed(self, part: PartialBlock, text: str) -> list[AgentReport]:
        if not text:
            return []
        reports = self.flush_if_too_long()
        part.chunks.append(text)
        self._size += len(text)
        is_tool = part.kind == "tool_input"
        typed = MessageDelta(
            message_id=self.message_id or "",
            block=part.index,
            kind=part.kind,
            text=text,
            tool_name=part.name if is_tool else None,
            tool_id=part.tool_id if is_tool else None,
        )
        return [*reports, typed]

    # The whole.

    def told(self, *, unfinished: bool = False) -> list[AgentReport]:
        """The message of all that came, the calls that it asks for, and what it cost."""
        made = [part.block(is_complete=not unfinished) for part in self._parts.values()]
        self._parts.clear()
        return self.message_reports([block for block in made if block is not None], unfinished=unfinished)

    def message_reports(self, blocks: Sequence[Block], *, unfinished: bool = False) -> list[AgentReport]:
        message = AssistantMessage(
            message_id=self.message_id,
            model=self.model,
            usage=self.usage,
            stop_reason=self.stop_reason,
            note=Note(kind="warning", message="unfinished") if unfinished else None,
            blocks=list(blocks),
        )
        reports = self._with_calls(message) if blocks or not unfinished else []
        if self.usage is not None:
            reports.append(UsageDelta(usage=self.usage, model=self.model))
        return reports

    def flush_if_too_long(self) -> list[AgentReport]:
        """What came so far of a message that is too long to be kept: pieces of one message share its id."""
        if self._size <= AGENT_LINE_BYTES:
            return []
        made = [part.block(is_complete=False) for part in self._parts.values()]
        blocks = [block for block in made if block is not None]
        self._parts = {key: part for key, part in self._parts.items() if not part.whole}
        for part in self._parts.values():
            part.chunks.clear()
        self._size = 0
        return self._with_calls(AssistantMessage(message_id=self.message_id, model=self.model, blocks=blocks))

    def _with_calls(self, message: AssistantMessage) -> list[AgentReport]:
        self.text = "".join(block.text for block in message.blocks if isinstance(block, TextBlock)) or self.text
        results, self.results = self.results, []
        reports: list[AgentReport] = [TranscriptItem(payload=message)]
        for block in message.blocks:
            if isinstance(block, ToolUseBlock):
                reports.append(_call(block))
                reports += [TranscriptItem(payload=result) for result in results if result.call_id == block.tool_id]
                results = [result for result in results if result.call_id != block.tool_id]
        return [*reports, *(TranscriptItem(payload=result) for result in results)]

    def unparsed_block(self, block: Record) -> StreamBlock:
        """A block of a kind that we do not know, in its place."""
        self.unparsed += 1
        chunk = msgspec.json.encode(block).decode()
        return StreamBlock(chunk=chunk, unparsed=True, fidelity="agent_emitted")


def tool_use(name: str, tool_id: str, tool_input: Any) -> ToolUseBlock:
    return ToolUseBlock(tool_name=name, tool_id=tool_id, tool_input=tool_input, fidelity="agent_emitted")


def tool_result(name: str, call_id: str, output: Any, error: str | None = None) -> ToolResult:
    return ToolResult(name=name, call_id=call_id, input=None, output=output, error=error, fidelity="agent_emitted")


def parse_tool_input(text: str) -> Any:
    """What a tool is given, out of the JSON that the model wrote; the text itself where it is none."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _call(block: ToolUseBlock) -> TranscriptItem:
    name, call_id = block.tool_name, block.tool_id
    return TranscriptItem(
        payload=ToolCall(name=name, call_id=call_id, input=block.tool_input, output=None, fidelity="agent_emitted")
    )
