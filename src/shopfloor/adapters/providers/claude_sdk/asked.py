"""What the program of a session is told by stdin."""

from __future__ import annotations

import msgspec

from shopfloor.ports import AgentRequest

SERVER = "shopfloor"
"""Under this name Claude sees a worker's own tools: `mcp__shopfloor__<name>`."""
NO_PACKAGE = 69
"""The exit code of a session without the package: EX_UNAVAILABLE."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    request: AgentRequest
    permissions: dict[str, str | None]
    """What it may do, as flags of Claude Code without their dashes; None for one that takes no value."""
    path: list[str]
    """Where whoever asks finds Python modules: a worker's own tools may be in any of these."""
