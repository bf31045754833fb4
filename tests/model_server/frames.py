"""What every dialect is made of: server-sent events, some of which carry a piece of the reply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from tests.model_server.script import Failure, Turn

_ELEMENT = re.compile(r"<([a-z][\w-]*)[^>]*>.*?</\1>", re.DOTALL)


class Frame(msgspec.Struct, frozen=True):
    data: bytes
    piece: bool = False
    """Whether it carries a piece of what is said, which is what turns count."""


def sse(data: Any, *, event: str | None = None, piece: bool = False) -> Frame:
    name = f"event: {event}\n" if event else ""
    return Frame(name.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n", piece)


def words(content: Any) -> list[str]:
    """The texts of a message, or of a list of parts; elements like `<environment>…</environment>` are a program's."""
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else part.get("text") for part in parts]
    bare = [_ELEMENT.sub("", text).strip() for text in texts if isinstance(text, str)]
    return [text for text in bare if text]


class Dialect(Protocol):
    """How one provider's API says a turn. `n` is the request's number, for ids."""

    def replies(self, body: Any) -> int:
        """How many messages of the assistant's the thread has."""
        ...

    def said(self, body: Any) -> list[str]:
        """What the user said in the thread, without what a program put around it."""
        ...

    def streams(self, path: str, body: Any) -> bool: ...

    def stream(self, turn: Turn, body: Any, n: int) -> Iterator[Frame]: ...

    def whole(self, turn: Turn, body: Any, n: int) -> Any: ...

    def error(self, failure: Failure) -> Any: ...

    def error_frame(self, failure: Failure) -> Frame: ...
