"""Messages as they are being typed: events of Anthropic's streaming API, as the program passes them on."""

from __future__ import annotations

import msgspec

from shopfloor.adapters.providers.claude.bounded import keep
from shopfloor.adapters.providers.reading import Record, record_at, text_at
from shopfloor.ports import Report, Typed


class _Open(msgspec.Struct):
    """The message that somebody is typing."""

    message_id: str
    tools: dict[str, tuple[str | None, str | None]] = {}
    """The names and ids of tools, by the number of their block."""


class Typing:
    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def started(self, agent: str, message: Record) -> None:
        keep(self._open, agent, _Open(text_at(message, "id") or "", {}))

    def block_started(self, agent: str, event: Record) -> None:
        block, message = record_at(event, "content_block"), self._open.get(agent)
        if message is not None and text_at(block, "name") is not None:
            keep(message.tools, str(event["index"]), (text_at(block, "name"), text_at(block, "id")))

    def grew(self, agent: str, event: Record) -> list[Report]:
        message = self._open.get(agent)
        if message is None:
            # Nobody could tell what it is a piece of. Its whole will be told.
            return []
        match event["delta"]:
            case {"type": "text_delta", "text": str(text)}:
                kind = "text"
            case {"type": "thinking_delta", "thinking": str(text)}:
                kind = "thinking"
            case {"type": "input_json_delta", "partial_json": str(text)}:
                kind = "tool_input"
            case _:
                return []
        name, tool_id = message.tools.get(str(event["index"]), (None, None))
        if not text:
            return []
        return [
            Typed(
                message_id=message.message_id,
                block=int(event["index"]),
                kind=kind,
                text=text,
                tool_name=name,
                tool_id=tool_id,
                agent=agent,
            )
        ]
