"""A worker's own tools, as a server inside the process of the session."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import reduce
from importlib import import_module
from typing import Any, cast

import anyio.to_thread
import msgspec
from claude_agent_sdk import SdkMcpTool, create_sdk_mcp_server
from claude_agent_sdk.types import McpSdkServerConfig

from shopfloor.adapters.providers.claude_sdk.asked import SERVER
from shopfloor.ports import OwnTool

_Handler = Callable[[dict[str, Any]], Any]


class ToolUnusable(Exception):
    """A tool whose function is not there."""


def own_tools(tools: Sequence[OwnTool]) -> McpSdkServerConfig:
    """All of them are loaded before anything happens."""
    server = create_sdk_mcp_server(SERVER, tools=[_served(tool, _loaded(tool)) for tool in tools])
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
        raise ToolUnusable(f"the tool {tool.name!r} cannot be used: {type(error).__name__}: {error}") from error
    # What `@tool` makes of a function takes its arguments one by one; its `handle` takes them as they are given.
    handler: Any = getattr(found, "handle", found)
    if not callable(handler):
        raise ToolUnusable(f"the tool {tool.name!r} cannot be used: {tool.handler} is no function")
    return handler
