"""Parts of every API format: server-sent events, some of which carry a piece of the reply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from tests.model_server.script import Failure, Turn

_ELEMENT = re.compile(r"<([a-z][\w-]*)[^>]*>.*?</\1>", re.DOTALL)


class Frame(msgspec.Struct, frozen=True):
    """One server-sent event."""

    data: bytes
    piece: bool = False
    """Whether it carries a piece of the reply. The limits of a turn count these."""


def sse(data: Any, *, event: str | None = None, piece: bool = False) -> Frame:
    name = f"event: {event}\n" if event else ""
    return Frame(name.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n", piece)


def texts_of(content: Any) -> list[str]:
    """Return the texts of a message or of a list of parts, without elements that a program adds (`<environment>…`)."""
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else part.get("text") for part in parts]
    cleaned = [_ELEMENT.sub("", text).strip() for text in texts if isinstance(text, str)]
    return [text for text in cleaned if text]


class Dialect(Protocol):
    """The format of one provider's API. `n` is the number of the request, for ids."""

    def replies(self, body: Any) -> int:
        """Return the number of assistant messages in the thread."""
        ...

    def user_texts(self, body: Any) -> list[str]:
        """Return the texts of the user in the thread, without what a program adds."""
        ...

    def streams(self, path: str, body: Any) -> bool: ...

    def stream(self, turn: Turn, body: Any, n: int) -> Iterator[Frame]: ...

    def document(self, turn: Turn, body: Any, n: int) -> Any: ...

    def error(self, failure: Failure) -> Any: ...

    def error_frame(self, failure: Failure) -> Frame: ...
