"""A model's answer as it is being put together, and what is told of it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import msgspec

from shopfloor.adapters.providers.reading import Record
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
from shopfloor.ports import Report, Spent, Told, Typed

Kind = Literal["text", "thinking", "tool_input"]


class Part(msgspec.Struct, kw_only=True):
    """A block of which pieces come."""

    kind: Kind
    place: int
    pieces: list[str] = []
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
        return "".join(self.pieces)

    def block(self, *, over: bool) -> Block | None:
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
                if over or self.whole:
                    return tool_use(self.name, self.tool_id, text if self.is_text else given(text))
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
        self._parts: dict[Hashable, Part] = {}
        self._places = 0
        self._size = 0

    # Pieces.

    def part(self, key: Hashable, kind: Kind) -> Part:
        """The block with this key; it gets the next place where it is new."""
        if key not in self._parts:
            if self._places >= OPEN_BRANCHES:
                raise IndexError("too many blocks")
            self._parts[key] = Part(kind=kind, place=self._places)
            self._places += 1
        return self._parts[key]

    def known(self, key: Hashable) -> Part:
        return self._parts[key]

    def closed(self, key: Hashable) -> None:
        """No more pieces come of it."""
        if key in self._parts:
            self._parts[key].whole = True

    def put(self, key: Hashable, block: Block) -> None:
        """A block that came in one, instead of the pieces of it that there are."""
        part = self.part(key, "text")
        part.made, part.whole = block, True
        part.pieces.clear()
        self._size += len(msgspec.json.encode(block))

    def typed(self, part: Part, text: str) -> list[Report]:
        if not text:
            return []
        reports = self.too_long()
        part.pieces.append(text)
        self._size += len(text)
        is_tool = part.kind == "tool_input"
        typed = Typed(
            message_id=self.message_id or "",
            block=part.place,
            kind=part.kind,
            text=text,
            tool_name=part.name if is_tool else None,
            tool_id=part.tool_id if is_tool else None,
        )
        return [*reports, typed]

    # The whole.

    def told(self, *, unfinished: bool = False) -> list[Report]:
        """The message of all that came, the calls that it asks for, and what it cost."""
        made = [part.block(over=not unfinished) for part in self._parts.values()]
        self._parts.clear()
        return self.said([block for block in made if block is not None], unfinished=unfinished)

    def said(self, blocks: Sequence[Block], *, unfinished: bool = False) -> list[Report]:
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
            reports.append(Spent(usage=self.usage, model=self.model))
        return reports

    def too_long(self) -> list[Report]:
        """What came so far of a message that is too long to be kept: pieces of one message share its id."""
        if self._size <= AGENT_LINE_BYTES:
            return []
        made = [part.block(over=False) for part in self._parts.values()]
        blocks = [block for block in made if block is not None]
        self._parts = {key: part for key, part in self._parts.items() if not part.whole}
        for part in self._parts.values():
            part.pieces.clear()
        self._size = 0
        return self._with_calls(AssistantMessage(message_id=self.message_id, model=self.model, blocks=blocks))

    def _with_calls(self, message: AssistantMessage) -> list[Report]:
        self.text = "".join(block.text for block in message.blocks if isinstance(block, TextBlock)) or self.text
        results, self.results = self.results, []
        reports: list[Report] = [Told(payload=message)]
        for block in message.blocks:
            if isinstance(block, ToolUseBlock):
                reports.append(_call(block))
                reports += [Told(payload=result) for result in results if result.call_id == block.tool_id]
                results = [result for result in results if result.call_id != block.tool_id]
        return [*reports, *(Told(payload=result) for result in results)]

    def not_understood(self, block: Record) -> StreamBlock:
        """A block of a kind that we do not know, in its place."""
        self.unparsed += 1
        chunk = msgspec.json.encode(block).decode()
        return StreamBlock(chunk=chunk, unparsed=True, fidelity="agent_emitted")


def tool_use(name: str, tool_id: str, tool_input: Any) -> ToolUseBlock:
    return ToolUseBlock(tool_name=name, tool_id=tool_id, tool_input=tool_input, fidelity="agent_emitted")


def tool_result(name: str, call_id: str, output: Any, error: str | None = None) -> ToolResult:
    return ToolResult(name=name, call_id=call_id, input=None, output=output, error=error, fidelity="agent_emitted")


def given(text: str) -> Any:
    """What a tool is given, out of the JSON that the model wrote; the text itself where it is none."""
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _call(block: ToolUseBlock) -> Told:
    name, call_id = block.tool_name, block.tool_id
    return Told(
        payload=ToolCall(name=name, call_id=call_id, input=block.tool_input, output=None, fidelity="agent_emitted")
    )
