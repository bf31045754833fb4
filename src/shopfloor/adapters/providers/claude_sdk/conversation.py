"""A conversation with Claude by the package, and all of it as lines of JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any, BinaryIO, cast

import anyio
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKError, ProcessError, query

# The one thing of the package that is not public. Its messages are a part of what Claude Code says: kinds that it does
# not know, and fields that it does not need, are not in them.
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import McpServerConfig, SandboxSettings, SystemPromptPreset

from shopfloor.adapters.providers.claude_sdk.asked import SERVER, Asked
from shopfloor.adapters.providers.claude_sdk.own_tools import ToolUnusable, own_tools
from shopfloor.limits import AGENT_LINE_BYTES

_SANDBOX = {
    "enabled": True,
    "allowUnsandboxedCommands": False,
    # The package does not know it and passes it on. Without it, commands run in no sandbox where none can start.
    "failIfUnavailable": True,
}
_BETWEEN_THEM = ("control_request", "control_response", "control_cancel_request")
"""What the package and the program say to each other."""


class _Overheard(SubprocessCLITransport):
    """What the program says is written down before anybody else reads it."""

    def __init__(self, prompt: str, options: ClaudeAgentOptions, stream: BinaryIO) -> None:
        super().__init__(prompt, options)
        self._stream = stream

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for message in super().read_messages():
            if message.get("type") not in _BETWEEN_THEM:
                self._stream.write(json.dumps(message).encode() + b"\n")
                self._stream.flush()
            yield message


def converse(asked: Asked, stream: BinaryIO) -> int:
    """Until it has ended: 0 where that went well. What went wrong is in the stream, or the last line on stderr."""
    logging.getLogger("claude_agent_sdk").setLevel(logging.CRITICAL)
    try:
        anyio.run(_converse, asked.request.prompt, _options(asked), stream)
    except ProcessError:
        # The program has said why: by its result, or on stderr.
        return 1
    except (ClaudeSDKError, ToolUnusable) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    return 0


async def _converse(prompt: str, options: ClaudeAgentOptions, stream: BinaryIO) -> None:
    async for _ in query(prompt=prompt, options=options, transport=_Overheard(prompt, options, stream)):
        pass


def _options(asked: Asked) -> ClaudeAgentOptions:
    request = asked.request
    # Without the preset there would be no system prompt at all.
    system_prompt: SystemPromptPreset = {"type": "preset", "preset": "claude_code"}
    if request.system_prompt is not None:
        system_prompt["append"] = request.system_prompt
    servers: dict[str, McpServerConfig] = {SERVER: own_tools(request.own_tools)} if request.own_tools else {}
    return ClaudeAgentOptions(
        system_prompt=system_prompt,
        model=request.model,
        max_turns=request.max_turns,
        max_budget_usd=request.max_budget_usd,
        resume=request.resume,
        session_id=request.session_id if request.resume is None else None,
        mcp_servers=servers,
        sandbox=cast("SandboxSettings", _SANDBOX) if request.sandbox else None,
        # Settings in the folder could have hooks, or exclude commands: they would be out of the sandbox.
        setting_sources=["user"] if request.sandbox else None,
        include_partial_messages=True,
        max_buffer_size=AGENT_LINE_BYTES,
        extra_args=asked.permissions,
    )
