"""Messages as they are being typed: events of Anthropic's streaming API, as the program passes them on."""

from __future__ import annotations

from typing import Literal

import msgspec

from shopfloor.adapters.providers.claude.bounded import keep
from shopfloor.adapters.providers.reading import Json, Record, record_at, text_at
from shopfloor.ports import Report, Typed

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
        kind, text = _piece(event["delta"])
        if text is None:
            return []
        block = event["index"]
        name, tool_id = message.tools.get(str(block), (None, None))
        if not text:
            return []
        return [
            Typed(
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
