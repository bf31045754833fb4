"""Deltas: text as it is being typed, for live viewers. The log gets the same text as pieces and as the whole."""

from __future__ import annotations

import msgspec

from shopfloor.log.blocks import PieceKind


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a block of a message that is still being made."""

    after: int
    """The `seq` of the last event before it."""
    path: str
    """The step."""
    iteration: int = 0
    message_id: str
    """The `message_id` that the whole message will have in the log."""
    block: int
    """Which of the message's blocks, from 0."""
    kind: PieceKind
    """What it is a piece of."""
    offset: int
    """How many characters of that block came before."""
    text: str
    """The piece; for `tool_input` a piece of JSON."""
    tool_name: str | None = None
    """For `tool_input`: the tool."""
    tool_id: str | None = None
    """For `tool_input`: the call."""
