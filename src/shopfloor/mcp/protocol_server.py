"""The MCP server on the official SDK: tools, resources and instructions, for all transports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from shopfloor.client import Api
from shopfloor.errors import ShopfloorError
from shopfloor.limits import FILTER_MAX_CHARS
from shopfloor.log import ClientInfo
from shopfloor.mcp.arguments import json_schema
from shopfloor.mcp.instructions import server_instructions
from shopfloor.mcp.limits import MCP_INSTRUCTIONS_SECONDS
from shopfloor.mcp.output import question_options, question_text
from shopfloor.mcp.resources import TEMPLATES, list_results, read_resource
from shopfloor.mcp.session import AskMode, InputRequired
from shopfloor.mcp.tools import TOOLS, Tools, error_output
from shopfloor.mcp.worker_catalog import Worker
from shopfloor.version import __version__

NAME: Final = "shopfloor"
NAME_UNKNOWN: Final = "unknown"
_GREETINGS: Final = frozenset({"initialize", "server/discover"})
_ANSWER: Final = "answer"

T = TypeVar("T")
Context = ServerRequestContext[Any, Request]


class Connection(NamedTuple):
    """The way from a tool call to the HTTP API."""

    api: Api
    page_url: str
    folder: str | None = None
    session_id: str | None = None
    """The session of the agent that calls, where it is known."""


Connect = Callable[[Request | None], Connection]
"""Returns the connection for a request over HTTP, or, without one, for a call over stdio."""


def create_server(connect: Connect) -> Server[Any]:
    """Return the server. Its calls use the API that `connect` returns for each of them."""
    handlers = _Handlers(connect)
    server: Server[Any] = Server(
        NAME,
        version=__version__,
        title="Shopfloor",
        get_tool_input_schema=lambda name: json_schema(TOOLS[name].arguments) if name in TOOLS else None,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        on_list_resources=handlers.list_resources,
        on_list_resource_templates=handlers.list_resource_templates,
        on_read_resource=handlers.read_resource,
    )
    server.middleware.append(handlers.add_instructions)
    return server


class _Handlers:
    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._tools = Tools()

    async def add_instructions(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Add the instructions to the first answer, with the workers that are there now."""
        result = await call_next(ctx)
        if ctx.method not in _GREETINGS or not isinstance(result, dict):
            return result
        workers: list[Worker] = []
        # The tools will report an error, where the model reads it.
        with anyio.move_on_after(MCP_INSTRUCTIONS_SECONDS), suppress(ShopfloorError):
            workers, _ = await self._tools.catalog.listed_workers(self._session(ctx))
        return {**result, "instructions": server_instructions(workers)}

    async def list_tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        del ctx, params
        return types.ListToolsResult(tools=describe_tools())

    async def call_tool(
        self, ctx: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            output = await self._tools.call(self._session(ctx, params), params.name, params.arguments)
        except InputRequired as required:
            return _to_input_required(required)
        except ShopfloorError as error:
            output = error_output(error)
        return types.CallToolResult(
            content=[types.TextContent(text=text) for text in output.parts()], is_error=output.is_error
        )

    async def list_resources(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return await _with_protocol_errors(list_results(self._session(ctx).api, params.cursor if params else None))

    async def list_resource_templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        del ctx, params
        return types.ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def read_resource(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        return await _with_protocol_errors(read_resource(self._session(ctx).api, str(params.uri)))

    def _session(self, ctx: Context, params: types.CallToolRequestParams | None = None) -> _SdkSession:
        return _SdkSession(ctx, self._connect(ctx.request), params)


class _SdkSession:
    """A tool call, as `Session` describes it."""

    def __init__(self, ctx: Context, connection: Connection, params: types.CallToolRequestParams | None) -> None:
        self._ctx = ctx
        self._connection = connection
        self._params = params

    @property
    def api(self) -> Api:
        return self._connection.api

    @property
    def page_url(self) -> str:
        return self._connection.page_url

    @property
    def folder(self) -> str | None:
        return self._connection.folder

    @property
    def client(self) -> ClientInfo | None:
        known = self._ctx.session.client_params
        if known is None:
            return None
        info = known.client_info
        # Codex names its session with each call, Claude Code in the environment of the processes that it starts.
        session_id: Any = (self._ctx.meta or {}).get("sessionId", self._connection.session_id)
        return ClientInfo(
            name=info.name[:FILTER_MAX_CHARS] or NAME_UNKNOWN,
            version=info.version[:FILTER_MAX_CHARS] or None,
            session_id=session_id[:FILTER_MAX_CHARS] or None if isinstance(session_id, str) else None,
        )

    @property
    def ask_mode(self) -> AskMode:
        declared = self._ctx.session.client_capabilities
        elicitation = declared.elicitation if declared else None
        # A client that names no mode has forms: the modes came later.
        if elicitation is None or (elicitation.form is None and elicitation.url is not None):
            return "none"
        if self._ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return "retry"
        return "request" if self._ctx.session.can_send_request else "none"

    @property
    def repeated_run_id(self) -> str | None:
        return self._params.request_state if self._params else None

    def repeated_answer(self, call_id: str) -> tuple[bool, Any]:
        responses = (self._params.input_responses if self._params else None) or {}
        response = responses.get(call_id)
        return response is not None, _to_answer(response) if isinstance(response, types.ElicitResult) else None

    async def ask(self, message: str, options: list[str]) -> Any:
        try:
            result = await self._ctx.session.elicit_form(message, _form(options), self._ctx.request_id)
        except MCPError:
            # The client cannot ask after all; the question is in the output of the tool.
            return None
        return _to_answer(result)

    async def report_progress(self, seconds: float, message: str) -> None:
        await self._ctx.session.report_progress(seconds, message=message)


def _form(options: list[str]) -> dict[str, Any]:
    field: dict[str, Any] = {"type": "string", "title": "Answer"}
    if options:
        field["enum"] = options
    return {"type": "object", "properties": {_ANSWER: field}, "required": [_ANSWER]}


def _to_answer(result: types.ElicitResult) -> Any:
    return (result.content or {}).get(_ANSWER) if result.action == "accept" else None


def _to_input_required(required: InputRequired) -> types.InputRequiredResult:
    form = types.ElicitRequestFormParams(
        message=f"Run {required.run_id[:8]} asks: {question_text(required.call)}",
        requested_schema=_form(question_options(required.call)),
    )
    return types.InputRequiredResult(
        input_requests={required.call["call_id"]: types.ElicitRequest(params=form)}, request_state=required.run_id
    )


@cache
def describe_tools() -> list[types.Tool]:
    """Return the tools as `tools/list` lists them."""
    return [
        types.Tool(
            name=name,
            title=tool.title,
            description=tool.description,
            input_schema=json_schema(tool.arguments),
            annotations=types.ToolAnnotations(
                read_only_hint=tool.is_read_only,
                destructive_hint=tool.is_destructive,
                idempotent_hint=tool.is_idempotent or tool.is_read_only,
                open_world_hint=tool.is_open_world,
            ),
        )
        for name, tool in TOOLS.items()
    ]


async def _with_protocol_errors(result: Awaitable[T]) -> T:
    """Return the result; raise a `ShopfloorError` as an error of the protocol, which resources have instead of text."""
    try:
        return await result
    except ShopfloorError as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise MCPError(types.INVALID_PARAMS, f"{error.message}{hint}", {"code": error.code}) from error
