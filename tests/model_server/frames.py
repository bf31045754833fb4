"""What every dialect is made of: server-sent events, some of which carry a piece of the reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from tests.model_server.script import Failure, Turn


class Frame(msgspec.Struct, frozen=True):
    data: bytes
    piece: bool = False
    """Whether it carries a piece of what is said, which is what turns count."""


def sse(data: Any, *, event: str | None = None, piece: bool = False) -> Frame:
    name = f"event: {event}\n" if event else ""
    return Frame(name.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n", piece)


class Dialect(Protocol):
    """How one provider's API says a turn. `n` is the request's number, for ids."""

    def replies(self, body: Any) -> int:
        """How many messages of the assistant's the thread has."""
        ...

    def streams(self, path: str, body: Any) -> bool: ...

    def stream(self, turn: Turn, body: Any, n: int) -> Iterator[Frame]: ...

    def whole(self, turn: Turn, body: Any, n: int) -> Any: ...

    def error(self, failure: Failure) -> Any: ...

    def error_frame(self, failure: Failure) -> Frame: ...
