"""Run a session with `claude-agent-sdk`: own tools in this process, and every message as a JSON line."""

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
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKError,
    PermissionResultAllow,
    PermissionResultDeny,
    ProcessError,
    SdkMcpTool,
    ToolPermissionContext,
    create_sdk_mcp_server,
    query,
)
from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport
from claude_agent_sdk.types import McpSdkServerConfig, McpServerConfig, SandboxSettings, SystemPromptPreset

from shopfloor.adapters.limits import AGENT_LINE_BYTES
from shopfloor.adapters.providers.claude.permissions import approval_settings
from shopfloor.adapters.providers.claude_sdk.launcher import MCP_SERVER_NAME, SessionRequest
from shopfloor.adapters.providers.permission_channel import PermissionChannel
from shopfloor.ports import OwnTool

_Handler = Callable[[dict[str, Any]], Any]
_SANDBOX = {
    "enabled": True,
    "allowUnsandboxedCommands": False,
    # The SDK passes this unknown key on. Without it, commands run unsandboxed where the sandbox cannot start.
    "failIfUnavailable": True,
}
_CONTROL_TYPES = ("control_request", "control_response", "control_cancel_request")
"""Types of messages between the SDK and Claude Code."""


class OwnToolImportError(Exception):
    """The function of an own tool cannot be imported."""


def create_tool_server(tools: Sequence[OwnTool]) -> McpSdkServerConfig:
    """Return an MCP server inside this process that has the worker's own tools. Raises OwnToolImportError."""
    server = create_sdk_mcp_server(MCP_SERVER_NAME, tools=[_create_tool(tool, _load_handler(tool)) for tool in tools])
    # Without `alwaysLoad` the model would have to search for the tools. The SDK passes the unknown key on.
    return cast("McpSdkServerConfig", {**server, "alwaysLoad": True})


def _create_tool(tool: OwnTool, handler: _Handler) -> SdkMcpTool[Any]:
    async def handle(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return _text_result(await _call_handler(handler, arguments))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a handler may raise anything
            message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            return {**_text_result(message), "is_error": True}

    # The SDK takes a schema without these keys for a table of parameters.
    schema: dict[str, Any] = {"properties": {}, **tool.parameters, "type": "object"}
    return SdkMcpTool(name=tool.name, description=tool.description, input_schema=schema, handler=handle)


async def _call_handler(handler: _Handler, arguments: dict[str, Any]) -> Any:
    if inspect.iscoroutinefunction(handler):
        return await handler(arguments)
    # In a thread, so that the session continues meanwhile.
    result = await anyio.to_thread.run_sync(handler, arguments)
    return await result if inspect.isawaitable(result) else result


def _text_result(result: Any) -> dict[str, Any]:
    text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    return {"content": [{"type": "text", "text": text}]}


def _load_handler(tool: OwnTool) -> _Handler:
    module, _, path = tool.handler.rpartition(":")
    try:
        target: Any = reduce(getattr, path.split("."), import_module(module))
    except (Exception, SystemExit) as error:
        raise OwnToolImportError(f"cannot load the tool {tool.name!r}: {type(error).__name__}: {error}") from error
    # A function decorated with `@tool` takes its arguments one by one; its `handle` takes them as one dictionary.
    handler: Any = getattr(target, "handle", target)
    if not callable(handler):
        raise OwnToolImportError(f"cannot load the tool {tool.name!r}: {tool.handler} is not a function")
    return handler


class _RecordingTransport(SubprocessCLITransport):
    """Transport that writes each message of Claude Code to a stream before the SDK reads it.

    It subclasses the only part of the SDK used here that is not public: the SDK's own messages lack types that the SDK
    does not know, and fields that it does not need.
    """

    def __init__(self, prompt: str, options: ClaudeAgentOptions, channel: PermissionChannel) -> None:
        super().__init__(prompt, options)
        self._channel = channel

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        async for message in super().read_messages():
            if message.get("type") not in _CONTROL_TYPES:
                self._channel.write(json.dumps(message).encode() + b"\n")
            yield message


def run_session(session: SessionRequest, stream: BinaryIO) -> int:
    """Run a session to its end and return 0, or 1 if it failed.

    The reason of a failure is in the stream, or in the last line on stderr.
    """
    logging.getLogger("claude_agent_sdk").setLevel(logging.CRITICAL)
    channel = PermissionChannel(stream, sys.stdin.fileno())
    try:
        anyio.run(_query, session.request.prompt, _options(session, channel), channel)
    except ProcessError:
        # Claude Code has given the reason, in its result or on stderr.
        return 1
    except (ClaudeSDKError, OwnToolImportError) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    return 0


async def _query(prompt: str, options: ClaudeAgentOptions, channel: PermissionChannel) -> None:
    failure: ClaudeSDKError | None = None
    async with anyio.create_task_group() as tasks:
        if options.can_use_tool is not None:
            tasks.start_soon(channel.read_answers)
        transport = _RecordingTransport(prompt, options, channel)
        try:
            async for _ in query(prompt=prompt, options=options, transport=transport):
                pass
        except ClaudeSDKError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        # Raised here, because the task group would wrap it.
        raise failure


def _options(session: SessionRequest, channel: PermissionChannel) -> ClaudeAgentOptions:
    request = session.request

    async def can_use_tool(
        tool: str, tool_input: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        denial = await channel.find_denial(tool, tool_input, context.tool_use_id or "")
        return PermissionResultAllow() if denial is None else PermissionResultDeny(message=denial)

    # Without the preset there would be no system prompt.
    system_prompt: SystemPromptPreset = {"type": "preset", "preset": "claude_code"}
    if request.system_prompt is not None:
        system_prompt["append"] = request.system_prompt
    servers: dict[str, McpServerConfig] = (
        {MCP_SERVER_NAME: create_tool_server(request.own_tools)} if request.own_tools else {}
    )
    return ClaudeAgentOptions(
        system_prompt=system_prompt,
        model=request.model,
        max_turns=request.max_turns,
        max_budget_usd=request.max_budget_usd,
        resume=request.resume,
        session_id=request.session_id if request.resume is None else None,
        mcp_servers=servers,
        sandbox=cast("SandboxSettings", _SANDBOX) if request.sandbox else None,
        # Settings in the folder could define hooks or exclude commands, which would run outside the sandbox.
        setting_sources=["user"] if request.sandbox else None,
        include_partial_messages=True,
        max_buffer_size=AGENT_LINE_BYTES,
        can_use_tool=can_use_tool if request.approve else None,
        settings=approval_settings(session.prompted_tools) if request.approve else None,
        # The SDK sets this flag only for a transport of its own.
        extra_args={**session.permissions, **({"permission-prompt-tool": "stdio"} if request.approve else {})},
    )
