"""JSON-RPC 2.0: requests, responses and errors as bytes. Knows nothing of runs or transports."""

from shopfloor.rpc.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    ProtocolError,
    Request,
    RpcError,
    decode_request,
    decode_response,
    encode_error,
    encode_request,
    encode_result,
    request_id_of,
    split_batch,
)

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "ProtocolError",
    "Request",
    "RpcError",
    "decode_request",
    "decode_response",
    "encode_error",
    "encode_request",
    "encode_result",
    "request_id_of",
    "split_batch",
]
