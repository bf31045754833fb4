"""The messages of JSON-RPC 2.0, as bytes."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shopfloor.decoding import json_decoder

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603

RequestId = str | int | None
_encode = msgspec.json.Encoder().encode


class RpcError(Exception):
    """An error of JSON-RPC: one that the other side answered, or one to answer with."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ProtocolError(Exception):
    """An answer that is not a JSON-RPC response to this request."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request, or a notification if it has no `id`."""

    method: str
    params: dict[str, Any] = {}
    id: RequestId | msgspec.UnsetType = msgspec.UNSET
    jsonrpc: str = ""

    @property
    def is_notification(self) -> bool:
        """Whether the sender expects no response."""
        return self.id is msgspec.UNSET


class _Error(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class _Response(msgspec.Struct, frozen=True, kw_only=True):
    jsonrpc: str
    id: RequestId = None
    result: Any = msgspec.UNSET
    error: _Error | None = None


class _Identified(msgspec.Struct, frozen=True):
    id: RequestId = None


_decode_response = json_decoder(_Response).decode
_decode_request = json_decoder(Request).decode
_decode_batch = json_decoder(list[msgspec.Raw]).decode
_decode_id = json_decoder(_Identified).decode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_WHITESPACE = b" \t\r\n"


def encode_request(request_id: RequestId, method: str, params: dict[str, Any]) -> bytes:
    """Encode a request."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def decode_response(raw: bytes, request_id: RequestId) -> Any:
    """Return the result of a response. Raises `RpcError` for an error, `ProtocolError` for anything else."""
    try:
        response = _decode_response(raw)
    except _UNREADABLE as error:
        raise ProtocolError(f"not a JSON-RPC response: {error}") from error
    if response.jsonrpc != "2.0":
        raise ProtocolError(f"not a JSON-RPC 2.0 response: jsonrpc is {response.jsonrpc!r}")
    if response.error is not None:
        raise RpcError(response.error.code, response.error.message, response.error.data)
    if response.id != request_id:
        raise ProtocolError(f"a response to another request: id is {response.id!r}, expected {request_id!r}")
    if response.result is msgspec.UNSET:
        raise ProtocolError("a response without result and error")
    return response.result


def split_batch(raw: bytes, limit: int) -> list[bytes] | None:
    """Return the messages of a batch, not decoded yet; None if this is one message.

    Raises `RpcError` for a batch that is not JSON, is empty, or has more than `limit` messages.
    """
    if not raw.lstrip(_WHITESPACE).startswith(b"["):
        return None
    try:
        messages = [bytes(message) for message in _decode_batch(raw)]
    except _UNREADABLE as error:
        raise RpcError(PARSE_ERROR, f"not JSON: {error}") from error
    if not 0 < len(messages) <= limit:
        raise RpcError(INVALID_REQUEST, f"a batch must have 1 to {limit} requests, got {len(messages)}")
    return messages


def request_id_of(raw: bytes) -> RequestId:
    """Return the id of a request that may be malformed otherwise; None if it has no valid id."""
    try:
        return _decode_id(raw).id
    except _UNREADABLE:
        return None


def decode_request(raw: bytes) -> Request:
    """Decode a request. Raises `RpcError` with the code to answer."""
    try:
        request = _decode_request(raw)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_REQUEST, f"not a JSON-RPC request: {error}") from error
    except _UNREADABLE as error:
        raise RpcError(PARSE_ERROR, f"not JSON: {error}") from error
    if request.jsonrpc != "2.0":
        raise RpcError(INVALID_REQUEST, f'jsonrpc must be "2.0", got {request.jsonrpc!r}')
    return request


def encode_result(request_id: RequestId, result: Any) -> bytes:
    """Encode a response with a result."""
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_error(request_id: RequestId, error: RpcError) -> bytes:
    """Encode a response with an error."""
    shown = _Error(code=error.code, message=error.message, data=error.data)
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": shown})
