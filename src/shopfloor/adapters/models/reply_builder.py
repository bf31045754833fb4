"""A reply as it comes: pydantic-ai's parts become our blocks, each with one place from its first piece to the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from pydantic_ai import messages as theirs

from shopfloor.adapters.models.messages import Signature, pack_signature
from shopfloor.log import Block, TextBlock, ThinkingBlock, ToolUseBlock
from shopfloor.ports import ReplyDelta


class _Place(msgspec.Struct, frozen=True):
    """What stands at one place of the reply: a part, or only a signature that belongs to the call after it."""

    part: int
    signature: str | None = None


class ReplyBuilder:
    """`answer_tool` names the tool by which a model gives an answer of a schema where it has no other way."""

    def __init__(self, provider: str, answer_tool: str | None = None) -> None:
        self._provider = provider
        self._answer_tool = answer_tool
        self._places: list[_Place] = []
        self._place_of: dict[int, int] = {}
        self._calls: dict[int, theirs.ToolCallPart] = {}

    def add(self, event: theirs.ModelResponseStreamEvent) -> Iterator[ReplyDelta]:
        match event:
            case theirs.PartStartEvent(index=index, part=theirs.TextPart() as part):
                yield from self._text(index, part.content)
            case theirs.PartStartEvent(index=index, part=theirs.ThinkingPart() as part):
                yield from self._thought(index, part.content, signed=bool(part.signature))
            case theirs.PartStartEvent(index=index, part=theirs.ToolCallPart() as part):
                self._calls[index] = part
                self._keep_signature(index, part)
                yield from self._input(index, _piece(part.args))
            case theirs.PartDeltaEvent(index=index, delta=theirs.TextPartDelta() as delta):
                yield from self._text(index, delta.content_delta)
            case theirs.PartDeltaEvent(index=index, delta=theirs.ThinkingPartDelta() as delta):
                yield from self._thought(index, delta.content_delta or "", signed=bool(delta.signature_delta))
            case theirs.PartDeltaEvent(index=index, delta=theirs.ToolCallPartDelta() as delta) if delta.args_delta:
                yield from self._input(index, _piece(delta.args_delta))
            case _:
                pass

    def finish(self, parts: Sequence[theirs.ModelResponsePart]) -> Iterator[ReplyDelta]:
        """What was held back: with `answer_tool`, the words of a model that answered without it."""
        if self._answer_tool is None or any(isinstance(part, theirs.ToolCallPart) for part in parts):
            return
        for index, part in enumerate(parts):
            if isinstance(part, theirs.TextPart) and part.content:
                yield ReplyDelta(block=self._at(index), kind="text", text=part.content)

    def blocks(self, parts: Sequence[theirs.ModelResponsePart]) -> list[Block]:
        return [self._block(place, parts) for place in self._places]

    def _text(self, index: int, text: str) -> Iterator[ReplyDelta]:
        if text and self._answer_tool is None:
            yield ReplyDelta(block=self._at(index), kind="text", text=text)

    def _thought(self, index: int, text: str, *, signed: bool) -> Iterator[ReplyDelta]:
        # A thought may be secret and be nothing but its signature: it has a place, since it has to be sent back.
        if text or signed:
            place = self._at(index)
            if text:
                yield ReplyDelta(block=place, kind="thinking", text=text)

    def _input(self, index: int, piece: str) -> Iterator[ReplyDelta]:
        call = self._calls[index]
        place = self._at(index)
        if call.tool_name == self._answer_tool:
            if piece:
                yield ReplyDelta(block=place, kind="text", text=piece)
            return
        yield ReplyDelta(
            block=place, kind="tool_input", text=piece, tool_name=call.tool_name, tool_id=call.tool_call_id
        )

    def _keep_signature(self, index: int, call: theirs.ToolCallPart) -> None:
        """Gemini signs calls. Our calls have no room for it, so a thought without words goes before."""
        signature: object = (call.provider_details or {}).get("thought_signature")
        if isinstance(signature, str) and index not in self._place_of:
            self._places.append(_Place(index, pack_signature(self._provider, Signature(None, signature))))

    def _at(self, index: int) -> int:
        if index not in self._place_of:
            self._place_of[index] = len(self._places)
            self._places.append(_Place(index))
        return self._place_of[index]

    def _block(self, place: _Place, parts: Sequence[theirs.ModelResponsePart]) -> Block:
        if place.signature is not None:
            return ThinkingBlock(thinking="", signature=place.signature, fidelity="agent_emitted")
        match parts[place.part]:
            case theirs.ThinkingPart() as part:
                signature = pack_signature(self._provider, Signature(part.id, part.signature))
                return ThinkingBlock(thinking=part.content, signature=signature, fidelity="agent_emitted")
            case theirs.ToolCallPart() as part if part.tool_name == self._answer_tool:
                return TextBlock(text=_piece(part.args), fidelity="agent_emitted")
            case theirs.ToolCallPart() as part:
                return ToolUseBlock(
                    tool_name=part.tool_name,
                    tool_id=part.tool_call_id,
                    tool_input=_input_of(part),
                    fidelity="agent_emitted",
                )
            case part:
                text = part.content if isinstance(part, theirs.TextPart) else ""
                return TextBlock(text=text, fidelity="agent_emitted")


def _piece(args: object) -> str:
    """A piece of a call's input as JSON: some providers send text in pieces, some the whole as an object."""
    if not args:
        return ""
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


def _input_of(call: theirs.ToolCallPart) -> object:
    if not call.args:
        return {}
    if not isinstance(call.args, str):
        return call.args
    try:
        return msgspec.json.decode(call.args)
    except msgspec.DecodeError:
        # Not JSON: the engine tells the model so; here nothing is lost.
        return call.args
