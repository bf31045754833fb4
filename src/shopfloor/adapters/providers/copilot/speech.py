"""What one agent says: whole messages, and the pieces of those that are being made."""

from __future__ import annotations

from typing import Literal

import msgspec

from shopfloor.adapters.providers.reading import Record, records_at, text_at
from shopfloor.limits import AGENT_LINE_BYTES, OPEN_BRANCHES
from shopfloor.log import AssistantMessage, Block, Note, StreamBlock, TextBlock, ThinkingBlock, ToolUseBlock
from shopfloor.ports import Report, Told, Typed

_Kind = Literal["text", "thinking", "tool_input"]


class _Draft(msgspec.Struct):
    """What has been typed of something whose whole has not come."""

    kind: _Kind
    name: str | None = None
    parts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.parts)


def word(data: Record, key: str) -> str:
    """What a record must have as text."""
    value = data[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


class Voice:
    """The session's own, or a sub-agent's.

    A thought is typed under an id of its own, before its message has one: so it is told as a message of its own. Pieces
    whose whole never comes are what a call had said that broke off, or that Copilot threw away: they are told when that
    is clear, for they were said.
    """

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.text: str | None = None
        """Its last answer."""
        self.failure: Note | None = None
        """The last call to the model, where it failed."""
        self._settled = True
        self._drafts: dict[str, _Draft] = {}
        self._size = 0
        self._message: str | None = None
        self._thoughts: set[str] = set()

    # Pieces.

    def message_started(self, data: Record) -> list[Report]:
        self._message = word(data, "messageId")
        return []

    def text_delta(self, data: Record) -> list[Report]:
        message_id, text = word(data, "messageId"), word(data, "deltaContent")
        dropped = self._keep(message_id, "text", text)
        return [*dropped, Typed(message_id=message_id, block=0, kind="text", text=text, agent=self.agent)]

    def thought_delta(self, data: Record) -> list[Report]:
        thought_id, text = word(data, "reasoningId"), word(data, "deltaContent")
        dropped = self._keep(thought_id, "thinking", text)
        return [*dropped, Typed(message_id=thought_id, block=0, kind="thinking", text=text, agent=self.agent)]

    def input_delta(self, data: Record) -> list[Report]:
        call_id, text, name = word(data, "toolCallId"), word(data, "inputDelta"), text_at(data, "toolName")
        reports = self._keep(call_id, "tool_input", text, name)
        if self._message is None:
            # A message without a text has no id before it is whole: there is nothing to type this under.
            return reports
        block = 1 + [key for key, draft in self._drafts.items() if draft.kind == "tool_input"].index(call_id)
        typed = Typed(
            message_id=self._message,
            block=block,
            kind="tool_input",
            text=text,
            tool_name=name,
            tool_id=call_id,
            agent=self.agent,
        )
        return [*reports, typed]

    def _keep(self, key: str, kind: _Kind, text: str, name: str | None = None) -> list[Report]:
        reports: list[Report] = []
        if self._size > AGENT_LINE_BYTES or len(self._drafts) >= OPEN_BRANCHES:
            # Its whole would be no line that is read: there will be none.
            reports = self.unfinished("discarded")
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = _Draft(kind=kind, name=name)
        draft.parts.append(text)
        self._size += len(text)
        return reports

    # Wholes.

    def message(self, data: Record, at: str | None) -> list[Report]:
        message_id, content, model = word(data, "messageId"), word(data, "content"), text_at(data, "model")
        requests = records_at(data, "toolRequests")
        uses: list[Block] = [_tool_use(request) for request in requests]
        reports: list[Report] = []
        blocks: list[Block] = []
        thought = text_at(data, "reasoningText")
        if thought and self._is_new(thought):
            block = _thinking(thought, text_at(data, "reasoningOpaque"))
            typed_as = self._typed_as(thought)
            if typed_as is None:
                blocks.append(block)
            else:
                reports.append(self.told(AssistantMessage(message_id=typed_as, model=model, blocks=[block]), at))
        if content:
            self.text = content
            blocks.append(TextBlock(text=content, fidelity="agent_emitted"))
        blocks += uses
        self._drafts.pop(message_id, None)
        for request in requests:
            self._drafts.pop(request["toolCallId"], None)
        self._message = None
        if blocks:
            # What Copilot itself asks for in the model's name, as to read what a sub-agent gave, is of no model's call.
            synthetic = model is None and "apiCallId" not in data
            message = AssistantMessage(message_id=message_id, model=model, synthetic=synthetic, blocks=blocks)
            reports.append(self.told(message, at))
        return reports

    def thought(self, data: Record, at: str | None) -> list[Report]:
        """A whole thought. Mostly its message had it already."""
        thought_id, content = word(data, "reasoningId"), word(data, "content")
        self._drafts.pop(thought_id, None)
        if not content or not self._is_new(content):
            return []
        return [self.told(AssistantMessage(message_id=thought_id, blocks=[_thinking(content)]), at)]

    def _is_new(self, thought: str) -> bool:
        """A thought comes twice in its turn: in a message, and as an event of its own."""
        if thought in self._thoughts:
            return False
        if len(self._thoughts) >= OPEN_BRANCHES:
            self._thoughts.clear()
        self._thoughts.add(thought)
        return True

    def _typed_as(self, thought: str) -> str | None:
        """The id under which a thought was typed."""
        open_thoughts = [key for key, draft in self._drafts.items() if draft.kind == "thinking"]
        same = [key for key in open_thoughts if self._drafts[key].text == thought]
        found = same[0] if same else open_thoughts[0] if len(open_thoughts) == 1 else None
        if found is not None:
            del self._drafts[found]
        return found

    # Turns.

    def turn_over(self, why: str, at: str | None = None) -> list[Report]:
        """No whole will come any more of what was typed so far."""
        reports = self.unfinished(why, at)
        self._thoughts.clear()
        self._message = None
        return reports

    def unfinished(self, why: str, at: str | None = None) -> list[Report]:
        drafts, self._drafts, self._size = self._drafts, {}, 0
        return [self.told(_unfinished(key, draft, why), at) for key, draft in drafts.items() if draft.text]

    def failed(self, failure: Note, at: str | None) -> list[Report]:
        """A call to the model failed. Whether it is made again is told later; one before this one evidently was."""
        before = self.settled("retry", at)
        self.failure, self._settled = failure, False
        return before

    def settled(self, kind: Literal["retry", "error"], at: str | None) -> list[Report]:
        """What to tell of a call that failed, now that it is clear whether it is made again."""
        if self.failure is None or self._settled:
            return []
        self._settled = True
        return [self.noted(msgspec.structs.replace(self.failure, kind=kind), at)]

    def noted(self, note: Note, at: str | None) -> Told:
        return self.told(AssistantMessage(note=note, blocks=[]), at)

    def told(self, message: AssistantMessage, at: str | None) -> Told:
        return Told(payload=message, agent=self.agent, at=at)


def _tool_use(request: Record) -> ToolUseBlock:
    return ToolUseBlock(
        tool_name=word(request, "name"),
        tool_id=word(request, "toolCallId"),
        tool_input=request.get("arguments"),
        fidelity="agent_emitted",
    )


def _thinking(thought: str, signature: str | None = None) -> ThinkingBlock:
    return ThinkingBlock(thinking=thought, signature=signature, fidelity="agent_emitted")


def _unfinished(key: str, draft: _Draft, why: str) -> AssistantMessage:
    match draft.kind:
        case "text":
            block: Block = TextBlock(text=draft.text, fidelity="agent_emitted")
        case "thinking":
            block = _thinking(draft.text)
        case "tool_input":
            # No call came of it, so it must not look like one.
            block, why = StreamBlock(chunk=draft.text, fidelity="agent_emitted"), f"{why}: a call of {draft.name}"
    return AssistantMessage(message_id=key, blocks=[block], note=Note(kind="warning", message=why))
