"""`POST /rpc`: JSON-RPC 2.0 over HTTP, with batches and notifications. `jobs.py` has the methods."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import convert
from shopfloor.errors import Forbidden, InvalidParameter, ShopfloorError
from shopfloor.rpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    RpcError,
    decode_request,
    encode_error,
    encode_result,
    request_id_of,
    split_batch,
)
from shopfloor.rpc import Request as RpcRequest
from shopfloor.server.audit import get_caller
from shopfloor.server.auth import RPC_PATH, require_role
from shopfloor.server.error_handlers import to_public_error
from shopfloor.server.jobs import JOB_METHODS, JobMethod
from shopfloor.server.limits import RPC_BATCH
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import NoParams
from shopfloor.server.request_models import check_depth, read_json_body
from shopfloor.server.response_models import ProblemAnswer
from shopfloor.server.responses import describe_json, schema_ref

FORBIDDEN: Final = -32001
"""The JSON-RPC code if the role of the caller may not do what the method does."""
_SHOWN_CHARS: Final = 100
_RESPONSE: Final = {"$ref": schema_ref("JsonRpcResponse")}
_RESPONSES: Final = {
    **describe_json(ProblemAnswer, "The body is not JSON."),
    "200": {
        "description": "The response; for a batch a list of responses, in the order of the requests.",
        "content": {"application/json": {"schema": {"anyOf": [_RESPONSE, {"type": "array", "items": _RESPONSE}]}}},
    },
    "204": {"description": "The body has notifications only."},
}

operations = Operations()


@operations("POST", RPC_PATH, _RESPONSES, body=Any)
async def call_rpc(request: Request, _: NoParams) -> Response:
    """Call the methods `worker/dispatch`, `list`, `status`, `result`, `cancel` and `delete` by JSON-RPC 2.0.

    The body is a request, `{"jsonrpc": "2.0", "id": 1, "method": "worker/list", "params": {}}`, or a batch: a list of
    requests. A job is a run of any worker. What is no valid request also gets a JSON-RPC response, with an error.
    """
    raw = await read_json_body(request)
    try:
        batch = split_batch(raw, RPC_BATCH)
    except RpcError as error:
        return _respond(encode_error(None, error))
    if batch is None:
        return _respond(await _answer(request, raw))
    answers: list[bytes | None] = [None] * len(batch)

    async def answer(number: int, message: bytes) -> None:
        answers[number] = await _answer(request, message)

    async with anyio.create_task_group() as tasks:
        for number, message in enumerate(batch):
            tasks.start_soon(answer, number, message)
    sent = [item for item in answers if item is not None]
    return _respond(b"[" + b",".join(sent) + b"]" if sent else None)


def _respond(content: bytes | None) -> Response:
    if content is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return Response(content, media_type="application/json")


async def _answer(request: Request, raw: bytes) -> bytes | None:
    """Execute one request and return its response; None for a notification."""
    try:
        call = decode_request(raw)
    except RpcError as error:
        return encode_error(request_id_of(raw) if error.code == INVALID_REQUEST else None, error)
    try:
        result = await _call(request, raw, call)
    except Exception as error:  # noqa: BLE001 - answered, and logged if it is a defect
        failure = error if isinstance(error, RpcError) else _to_rpc_error(to_public_error(error))
        return None if call.is_notification else encode_error(_id_of(call), failure)
    return None if call.is_notification else encode_result(_id_of(call), result)


def _id_of(call: RpcRequest) -> str | int | None:
    return None if call.id is msgspec.UNSET else call.id


async def _call(request: Request, raw: bytes, call: RpcRequest) -> dict[str, Any]:
    method = JOB_METHODS.get(call.method)
    if method is None:
        known = ", ".join(JOB_METHODS)
        raise RpcError(METHOD_NOT_FOUND, f"there is no method {call.method[:_SHOWN_CHARS]!r}; the methods are {known}")
    caller = get_caller(request.scope)
    if caller is not None:
        require_role(caller.role, is_read=method.is_read)
    check_depth(raw)
    return await method.call(request, _convert_params(method, call.params))


def _convert_params(method: JobMethod, params: dict[str, Any]) -> Any:
    try:
        return convert(params, method.params)
    except msgspec.ValidationError as error:
        message, known = str(error), ", ".join(f"`{name}`" for name in method.params.__struct_encode_fields__)
        raise InvalidParameter(f"params: {message[:1].lower()}{message[1:]}", hint=f"they are {known}") from error


def _to_rpc_error(error: ShopfloorError) -> RpcError:
    """Return the JSON-RPC error, whose message has the hint too: a client may show nothing else."""
    is_server_error = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    code = FORBIDDEN if isinstance(error, Forbidden) else INTERNAL_ERROR if is_server_error else INVALID_PARAMS
    message = f"{error.message}; {error.hint}" if error.hint else error.message
    return RpcError(code, message, {"code": error.code, "hint": error.hint})
