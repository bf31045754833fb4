"""Builds a reply from pydantic-ai stream events. Each part becomes a block, whose index is fixed by its first delta."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pydantic_ai import messages as pydantic_messages

from shopfloor.adapters.models.messages import Signature, pack_signature
from shopfloor.log import Block, TextBlock, ThinkingBlock, ToolUseBlock
from shopfloor.ports import ReplyDelta


class _BlockSource(msgspec.Struct, frozen=True):
    """The source of one block: a part of the response, or only a signature that belongs to the call after it."""

    part: int
    signature: str | None = None


class ReplyBuilder:
    """The reply that is being received."""

    def __init__(self, provider: str, answer_tool: str | None = None) -> None:
        """Start an empty reply.

        `answer_tool` is the tool with which a model without native schema support returns its answer; the input of
        that tool becomes the text of the reply.
        """
        self._provider = provider
        self._answer_tool = answer_tool
        self._sources: list[_BlockSource] = []
        self._block_index_of: dict[int, int] = {}
        self._calls: dict[int, pydantic_messages.ToolCallPart] = {}

    def add(self, event: pydantic_messages.ModelResponseStreamEvent) -> Iterator[ReplyDelta]:
        """Add a stream event and return the deltas that it results in."""
        match event:
            case pydantic_messages.PartStartEvent(index=index, part=pydantic_messages.TextPart() as part):
                yield from self._text_deltas(index, part.content)
            case pydantic_messages.PartStartEvent(index=index, part=pydantic_messages.ThinkingPart() as part):
                yield from self._thinking_deltas(index, part.content, is_signed=bool(part.signature))
            case pydantic_messages.PartStartEvent(index=index, part=pydantic_messages.ToolCallPart() as part):
                self._calls[index] = part
                self._store_call_signature(index, part)
                yield from self._input_deltas(index, _args_text(part.args))
            case pydantic_messages.PartDeltaEvent(index=index, delta=pydantic_messages.TextPartDelta() as delta):
                yield from self._text_deltas(index, delta.content_delta)
            case pydantic_messages.PartDeltaEvent(index=index, delta=pydantic_messages.ThinkingPartDelta() as delta):
                yield from self._thinking_deltas(
                    index, delta.content_delta or "", is_signed=bool(delta.signature_delta)
                )
            case pydantic_messages.PartDeltaEvent(
                index=index, delta=pydantic_messages.ToolCallPartDelta() as delta
            ) if delta.args_delta:
                yield from self._input_deltas(index, _args_text(delta.args_delta))
            case _:
                pass

    def finish(self, parts: Sequence[pydantic_messages.ModelResponsePart]) -> Iterator[ReplyDelta]:
        """Return the deltas held back: with `answer_tool`, the text of a model that answered without calling it."""
        if self._answer_tool is None or any(isinstance(part, pydantic_messages.ToolCallPart) for part in parts):
            return
        for index, part in enumerate(parts):
            if isinstance(part, pydantic_messages.TextPart) and part.content:
                yield ReplyDelta(block=self._block_index(index), kind="text", text=part.content)

    def blocks(self, parts: Sequence[pydantic_messages.ModelResponsePart]) -> list[Block]:
        """Return the blocks of the complete response, in the order of their indexes."""
        return [self._block(source, parts) for source in self._sources]

    def _text_deltas(self, index: int, text: str) -> Iterator[ReplyDelta]:
        if text and self._answer_tool is None:
            yield ReplyDelta(block=self._block_index(index), kind="text", text=text)

    def _thinking_deltas(self, index: int, text: str, *, is_signed: bool) -> Iterator[ReplyDelta]:
        # Redacted thinking consists of its signature only. It gets a block, since it has to be sent back.
        if text or is_signed:
            block_index = self._block_index(index)
            if text:
                yield ReplyDelta(block=block_index, kind="thinking", text=text)

    def _input_deltas(self, index: int, text: str) -> Iterator[ReplyDelta]:
        call = self._calls[index]
        block_index = self._block_index(index)
        if call.tool_name == self._answer_tool:
            if text:
                yield ReplyDelta(block=block_index, kind="text", text=text)
            return
        yield ReplyDelta(
            block=block_index, kind="tool_input", text=text, tool_name=call.tool_name, tool_id=call.tool_call_id
        )

    def _store_call_signature(self, index: int, call: pydantic_messages.ToolCallPart) -> None:
        """Store the signature of a call, as Gemini has it, in an empty thinking block before the call."""
        signature: object = (call.provider_details or {}).get("thought_signature")
        if isinstance(signature, str) and index not in self._block_index_of:
            self._sources.append(_BlockSource(index, pack_signature(self._provider, Signature(None, signature))))

    def _block_index(self, index: int) -> int:
        if index not in self._block_index_of:
            self._block_index_of[index] = len(self._sources)
            self._sources.append(_BlockSource(index))
        return self._block_index_of[index]

    def _block(self, source: _BlockSource, parts: Sequence[pydantic_messages.ModelResponsePart]) -> Block:
        if source.signature is not None:
            return ThinkingBlock(thinking="", signature=source.signature, fidelity="agent_emitted")
        match parts[source.part]:
            case pydantic_messages.ThinkingPart() as part:
                signature = pack_signature(self._provider, Signature(part.id, part.signature))
                return ThinkingBlock(thinking=part.content, signature=signature, fidelity="agent_emitted")
            case pydantic_messages.ToolCallPart() as part if part.tool_name == self._answer_tool:
                return TextBlock(text=_args_text(part.args), fidelity="agent_emitted")
            case pydantic_messages.ToolCallPart() as part:
                return ToolUseBlock(
                    tool_name=part.tool_name,
                    tool_id=part.tool_call_id,
                    tool_input=_call_input(part),
                    fidelity="agent_emitted",
                )
            case part:
                text = part.content if isinstance(part, pydantic_messages.TextPart) else ""
                return TextBlock(text=text, fidelity="agent_emitted")


def _args_text(args: object) -> str:
    """Return arguments as JSON text: some providers send fragments of JSON, some the complete object."""
    if not args:
        return ""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


def _call_input(call: pydantic_messages.ToolCallPart) -> object:
    if not call.args:
        return {}
    if not isinstance(call.args, str):
        return call.args
    try:
        return msgspec.json.decode(call.args)
    except msgspec.DecodeError:
        # Not JSON: passed on unchanged. The engine reports it to the model.
        return call.args
