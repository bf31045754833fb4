"""A conversation with Claude by the package, and all of it as lines of JSON."""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from functools import reduce
from importlib import import_module
from typing import Any, BinaryIO, cast

import anyio
import anyio.to_thread
import msgspec
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKError, ProcessError, SdkMcpTool, create_sdk_mcp_server, query
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import McpSdkServerConfig, McpServerConfig, SandboxSettings, SystemPromptPreset

from shopfloor.adapters.providers.claude_sdk.launcher import MCP_SERVER_NAME, SessionRequest
from shopfloor.limits import AGENT_LINE_BYTES
from shopfloor.ports import OwnTool

_Handler = Callable[[dict[str, Any]], Any]


class OwnToolImportError(Exception):
    """A tool whose function is not there."""


def own_tools(tools: Sequence[OwnTool]) -> McpSdkServerConfig:
    """All of them are loaded before anything happens."""
    server = create_sdk_mcp_server(MCP_SERVER_NAME, tools=[_served(tool, _loaded(tool)) for tool in tools])
    # Else the model would have to search for them. The package does not know it and passes it on.
    return cast("McpSdkServerConfig", {**server, "alwaysLoad": True})


def _served(tool: OwnTool, handler: _Handler) -> SdkMcpTool[Any]:
    async def handle(given: dict[str, Any]) -> dict[str, Any]:
        try:
            return _said(await _called(handler, given))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a handler may raise anything; the model is told
            said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return {**_said(said), "is_error": True}

    # A schema without these is taken for a table of parameters.
    schema: dict[str, Any] = {"properties": {}, **tool.parameters, "type": "object"}
    return SdkMcpTool(name=tool.name, description=tool.description, input_schema=schema, handler=handle)


async def _called(handler: _Handler, given: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(handler):
        return await handler(given)
    # Not in the loop: the conversation goes on meanwhile.
    result = await anyio.to_thread.run_sync(handler, given)
    return await result if inspect.isawaitable(result) else result


def _said(result: Any) -> dict[str, Any]:
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    return {"content": [{"type": "text", "text": text}]}


def _loaded(tool: OwnTool) -> _Handler:
    module, _, path = tool.handler.rpartition(":")
    try:
        found: Any = reduce(getattr, path.split("."), import_module(module))
    except (Exception, SystemExit) as error:
        raise OwnToolImportError(f"the tool {tool.name!r} cannot be used: {type(error).__name__}: {error}") from error
    # What `@tool` makes of a function takes its arguments one by one; its `handle` takes them as they are given.
    handler: Any = getattr(found, "handle", found)
    if not callable(handler):
        raise OwnToolImportError(f"the tool {tool.name!r} cannot be used: {tool.handler} is no function")
    return handler


# The one thing of the package that is not public. Its messages are a part of what Claude Code says: kinds that it does
# not know, and fields that it does not need, are not in them.

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


def run_session(asked: SessionRequest, stream: BinaryIO) -> int:
    """Until it has ended: 0 where that went well. What went wrong is in the stream, or the last line on stderr."""
    logging.getLogger("claude_agent_sdk").setLevel(logging.CRITICAL)
    try:
        anyio.run(_converse, asked.request.prompt, _options(asked), stream)
    except ProcessError:
        # The program has said why: by its result, or on stderr.
        return 1
    except (ClaudeSDKError, OwnToolImportError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    return 0


async def _converse(prompt: str, options: ClaudeAgentOptions, stream: BinaryIO) -> None:
    async for _ in query(prompt=prompt, options=options, transport=_Overheard(prompt, options, stream)):
        pass


def _options(asked: SessionRequest) -> ClaudeAgentOptions:
    request = asked.request
    # Without the preset there would be no system prompt at all.
    system_prompt: SystemPromptPreset = {"type": "preset", "preset": "claude_code"}
    if request.system_prompt is not None:
        system_prompt["append"] = request.system_prompt
    servers: dict[str, McpServerConfig] = {MCP_SERVER_NAME: own_tools(request.own_tools)} if request.own_tools else {}
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
