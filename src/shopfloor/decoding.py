"""Thread-safe typed decoding with msgspec.

msgspec stores its information about a Struct on the class while still collecting it. A second thread that decodes the
same Struct for the first time meanwhile uses incomplete information, and the process crashes. So only one thread at a
time builds decoders, and nothing else in Shopfloor calls `msgspec.json.Decoder`, `msgspec.json.decode(type=…)` or
`msgspec.convert`.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
# Reentrant: the `__post_init__` of a Struct may decode too.
_build_lock = threading.RLock()


@overload
def json_decoder(type_: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(type_: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    """Return a JSON decoder for a type. Reuse the decoder: building it takes much longer than using it."""
    with _build_lock:
        return msgspec.json.Decoder(type_)


@overload
def convert(value: Any, type_: type[T], *, strict: bool = True) -> T: ...
@overload
def convert(value: Any, type_: Any, *, strict: bool = True) -> Any: ...
def convert(value: Any, type_: Any, *, strict: bool = True) -> Any:
    """Convert plain values to a type. Raises `msgspec.ValidationError`."""
    with _build_lock:
        return msgspec.convert(value, type_, strict=strict)


@overload
def decode_json(raw: bytes | str, type_: type[T]) -> T: ...
@overload
def decode_json(raw: bytes | str, type_: Any) -> Any: ...
def decode_json(raw: bytes | str, type_: Any) -> Any:
    """Decode one JSON document. Raises `msgspec.MsgspecError`. For many values of a type, reuse a `json_decoder`."""
    with _build_lock:
        return msgspec.json.decode(raw, type=type_)
