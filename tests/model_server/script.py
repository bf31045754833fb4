"""Scripts of the server: a list of turns. Each request gets the first turn that matches and is not used up."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec

_AGENT_ID = re.compile(r"agent_id\W+([0-9a-f-]{36})")


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Text(_Part, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str


class Thinking(_Part, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = "c2lnbmVk"


class ToolUse(_Part, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    name: str
    input: dict[str, Any] = {}
    id: str | None = None
    """Generated if it is None."""
    signature: str | None = None
    """Gemini only: base64."""
    text: str | None = None
    """Responses API only, instead of `input`: the input of a tool that takes text."""
    namespace: str | None = None
    """Responses API only: the namespace of the tool."""


ReplyPart = Text | Thinking | ToolUse


class Tokens(_Part, frozen=True, kw_only=True):
    """Token counts: `input` includes cached tokens, `output` includes thinking."""

    input: int = 100
    output: int = 20
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Failure(_Part, frozen=True, kw_only=True):
    """A response with an error status; or, with `fail_after`, an error event in a stream."""

    status: int = 500
    type: str = "api_error"
    message: str = "something went wrong"
    headers: dict[str, str] = {}
    body: str | None = None
    """The body, instead of an error in the format of the provider."""


class Turn(_Part, frozen=True, kw_only=True):
    """A reply of the model: when it is used, what it says, how, and what goes wrong."""

    say: list[ReplyPart] = []
    # When the turn matches.
    times: int = 1
    """How many requests it answers; 0 for any number."""
    path: str | None = None
    """Only if the path contains this."""
    match: str | None = None
    """Only if the body contains this."""
    replies_before: int | None = None
    """Only if the thread has this many assistant messages."""
    tools: bool | None = None
    """Only if the request offers tools; if False, only if it offers none."""
    # How the reply is sent.
    fill: bool = False
    """Whether to fill placeholders: `{asked}` is all that the user has said, `{n}` the number of the request,
    `{agent_id}` the last agent that the thread mentions."""
    chunk: int = 12
    """Characters in a piece."""
    wait: float = 0
    """Seconds before the first byte."""
    pause: float = 0
    """Seconds before each piece."""
    stop_reason: str | None = None
    """Instead of the provider's usual value."""
    usage: Tokens = Tokens()
    # What goes wrong.
    fail: Failure | None = None
    """Fail instead of answering."""
    fail_after: int | None = None
    """With `fail`: send the failure as an event of the stream, after this many pieces."""
    hang_after: int | None = None
    """Send nothing more after this many pieces, until the client disconnects or the script is replaced."""
    cut_after: int | None = None
    """Drop the connection after this many pieces."""
    end_after: int | None = None
    """End the stream after this many pieces, as if it were complete."""
    garbage_after: int | None = None
    """Send garbage after this many pieces."""
    garbage: str = "event: content_block_delta\ndata: {not json\n\n"


class Script(_Part, frozen=True, kw_only=True):
    turns: list[Turn] = []


class RecordedRequest(_Part, frozen=True, kw_only=True):
    """A request that the server received."""

    n: int
    path: str
    body: Any
    headers: dict[str, str]
    turn: int | None
    """Index of the turn that answered it."""
    end: str = "open"
    """`open`, `done`, `left` if the client disconnected first, or the fault of the turn (`cut`)."""


class ScriptPlayer:
    """Plays a script and records the requests."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[RecordedRequest] = []
        self.replaced = asyncio.Event()
        """Set when the script is replaced: turns that hang then end."""
        self._used = [0] * len(script.turns)

    def next_turn(
        self, path: str, body: Any, headers: dict[str, str], *, replies: int, user_texts: list[str]
    ) -> tuple[int, Turn | None]:
        text = msgspec.json.encode(body).decode()
        turns = enumerate(self.script.turns)
        number = next((n for n, turn in turns if self._matches(n, turn, path, body, text, replies)), None)
        n = len(self.requests)
        self.requests.append(RecordedRequest(n=n, path=path, body=body, headers=headers, turn=number))
        if number is None:
            return n, None
        self._used[number] += 1
        turn = self.script.turns[number]
        if turn.fill:
            agents = _AGENT_ID.findall(text)
            values = {"{asked}": " | ".join(user_texts), "{n}": str(n), "{agent_id}": agents[-1] if agents else ""}
            turn = fill_placeholders(turn, values)
        return n, turn

    def ended(self, n: int, ending: str) -> None:
        self.requests[n] = msgspec.structs.replace(self.requests[n], end=ending)

    def _matches(self, n: int, turn: Turn, path: str, body: Any, text: str, replies: int) -> bool:
        return (
            (turn.times == 0 or self._used[n] < turn.times)
            and (turn.path is None or turn.path in path)
            and (turn.match is None or turn.match in text)
            and (turn.replies_before is None or turn.replies_before == replies)
            and (turn.tools is None or turn.tools == bool(body.get("tools")))
        )


def fill_placeholders(turn: Turn, values: dict[str, str]) -> Turn:
    """Return the turn with all placeholders in its texts replaced."""

    def fill(value: Any) -> Any:
        match value:
            case str():
                for placeholder, replacement in values.items():
                    value = value.replace(placeholder, replacement)
                return value
            case dict():
                return {key: fill(item) for key, item in value.items()}
            case list():
                return [fill(item) for item in value]
            case _:
                return value

    return msgspec.structs.replace(turn, say=msgspec.convert(fill(msgspec.to_builtins(turn.say)), list[ReplyPart]))


def chunks(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def call_id(turn: Turn, index: int, n: int) -> str:
    part = turn.say[index]
    assert isinstance(part, ToolUse)
    return part.id or f"call_{n}_{index}"
