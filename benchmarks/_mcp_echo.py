"""An MCP server of the bare SDK with one tool, `echo`: over stdio, or with `http` on a free port that it prints."""

from __future__ import annotations

import socket
import sys

import anyio
import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def list_tools(ctx: ServerRequestContext, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=_SCHEMA)])


async def call_tool(ctx: ServerRequestContext, params: types.CallToolRequestParams) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=str((params.arguments or {})["text"]))])


server = Server("echo", on_list_tools=list_tools, on_call_tool=call_tool)


async def serve() -> None:
    async with stdio_server() as (received, sent):
        await server.run(received, sent, server.create_initialization_options())


if sys.argv[1:] == ["http"]:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[listener])
else:
    anyio.run(serve, backend_options={"use_uvloop": True})
