"""JSON-RPC 2.0 over HTTP: POST /mcp."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from plugin.service import InvalidParams, Params, WorkerService
from plugin.settings import REQUEST_BYTES

PROTOCOL_VERSION = "2025-06-18"
SECRET_VARIABLE = "SHOPFLOOR_PLUGIN_SECRET"  # noqa: S105 - the name of a variable
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603

Method = Callable[[Params], Awaitable[Params]]


def create_app(service: WorkerService, name: str, version: str) -> Starlette:
    """Create the ASGI app. Requests need the secret of the environment, if there is one."""
    methods = _methods(service, name, version)
    secret = os.environ.pop(SECRET_VARIABLE, None)  # popped: the agent's processes must not inherit it

    async def post(request: Request) -> Response:
        if secret is not None and not _is_allowed(request, secret):
            return JSONResponse({"error": "missing or wrong secret"}, status_code=401)
        body = await _read_body(request)
        if body is None:
            return _error(None, INVALID_REQUEST, f"the request is larger than {REQUEST_BYTES} bytes")
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return _error(None, PARSE_ERROR, "the request is not JSON")
        return await _answer(message, methods)

    return Starlette(routes=[Route("/mcp", post, methods=["POST"])])


def _methods(service: WorkerService, name: str, version: str) -> dict[str, Method]:
    async def initialize(_: Params) -> Params:
        capabilities: Params = {"tools": {}, "worker": {}}
        info = {"name": name, "version": version}
        return {"protocolVersion": PROTOCOL_VERSION, "capabilities": capabilities, "serverInfo": info}

    async def list_tools(_: Params) -> Params:
        return {"tools": []}

    async def call_tool(params: Params) -> Params:
        raise InvalidParams(f"there is no tool {params.get('name')!r}: this plugin has none")

    async def ping(_: Params) -> Params:
        return {}

    return {
        "initialize": initialize,
        "ping": ping,
        "tools/list": list_tools,
        "tools/call": call_tool,
        "worker/dispatch": service.dispatch,
        "worker/list": service.list,
        "worker/status": service.status,
        "worker/result": service.result,
        "worker/cancel": service.cancel,
        "worker/delete": service.delete,
    }


async def _answer(message: Any, methods: dict[str, Method]) -> Response:
    if not isinstance(message, dict) or not isinstance(cast("Params", message).get("method"), str):
        return _error(None, INVALID_REQUEST, "not a JSON-RPC request")
    request = cast("Params", message)
    if "id" not in request:
        return Response(status_code=202)  # a notification, such as notifications/initialized
    method = methods.get(request["method"])
    if method is None:
        return _error(request["id"], METHOD_NOT_FOUND, f"there is no method {request['method']!r}")
    params: Any = request.get("params", {})
    if not isinstance(params, dict):
        return _error(request["id"], INVALID_PARAMS, "params must be an object")
    try:
        result = await method(cast("Params", params))
    except InvalidParams as error:
        return _error(request["id"], INVALID_PARAMS, str(error))
    except OSError as error:
        return _error(request["id"], INTERNAL_ERROR, f"the job's files cannot be written: {error.strerror or error}")
    return JSONResponse({"jsonrpc": "2.0", "id": request["id"], "result": result})


async def _read_body(request: Request) -> bytes | None:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > REQUEST_BYTES:
            return None
    return bytes(body)


def _error(request_id: Any, code: int, message: str) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def _is_allowed(request: Request, secret: str) -> bool:
    return hmac.compare_digest(request.headers.get("authorization", "").encode(), f"Bearer {secret}".encode())
