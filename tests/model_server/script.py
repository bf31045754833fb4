"""What the server answers: turns, of which each request gets the first that fits and is not used up."""

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
    """Made up where it is left out."""
    signature: str | None = None
    """Gemini only: base64."""
    text: str | None = None
    """Responses only, instead of `input`: what a tool is given that takes text."""
    namespace: str | None = None
    """Responses only: the group that the tool is in."""


ReplyPart = Text | Thinking | ToolUse


class Tokens(_Part, frozen=True, kw_only=True):
    """In our terms: `input` is all that was read, `output` all that was written."""

    input: int = 100
    output: int = 20
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Failure(_Part, frozen=True, kw_only=True):
    """An answer with a status; or, with `after`, an error event after that many pieces of a stream that began well."""

    status: int = 500
    type: str = "api_error"
    message: str = "something went wrong"
    headers: dict[str, str] = {}
    body: str | None = None
    """Instead of the provider's own shape of an error."""


class Turn(_Part, frozen=True, kw_only=True):
    say: list[ReplyPart] = []
    # When it fits.
    times: int = 1
    """How many requests it answers; 0 for any number."""
    path: str | None = None
    """Only where the address has this in it."""
    match: str | None = None
    """Only where the body has this in it."""
    replies_before: int | None = None
    """Only where the thread has so many messages of the assistant's."""
    tools: bool | None = None
    """Only where the request offers tools; or, with false, where it offers none."""
    # How it is said.
    fill: bool = False
    """Whether what is said has words in braces: `{requests}` is all that the user has said, `{n}` the request's number,
    `{agent_id}` the agent that the thread told of last."""
    chunk: int = 12
    """Characters in a piece."""
    wait: float = 0
    """Seconds before the first byte."""
    pause: float = 0
    """Seconds before each piece."""
    stop_reason: str | None = None
    """Instead of the provider's word for what the turn does."""
    usage: Tokens = Tokens()
    # What goes wrong.
    fail: Failure | None = None
    """Instead of an answer."""
    fail_after: int | None = None
    """With `fail`: as an event in the stream, after so many pieces."""
    hang_after: int | None = None
    """Says nothing more after so many pieces, until whoever asked has gone or there is another script."""
    cut_after: int | None = None
    """Drops the connection after so many pieces."""
    end_after: int | None = None
    """Ends the stream after so many pieces, as if it were whole."""
    garbage_after: int | None = None
    """Says nonsense after so many pieces."""
    garbage: str = "event: content_block_delta\ndata: {not json\n\n"


class Script(_Part, frozen=True, kw_only=True):
    turns: list[Turn] = []


class RecordedRequest(_Part, frozen=True, kw_only=True):
    """A request, as it was recorded."""

    n: int
    path: str
    body: Any
    headers: dict[str, str]
    turn: int | None
    """Which of the script's turns answered."""
    end: str = "open"
    """`open`, `done`, `left` where whoever asked went away first, or what the script made of it."""


class ScriptPlayer:
    """A script that is being played, and what was asked meanwhile."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[RecordedRequest] = []
        self.over = asyncio.Event()
        """Set when there is another script: then nobody hangs any more."""
        self._used = [0] * len(script.turns)

    def ask(
        self, path: str, body: Any, headers: dict[str, str], *, replies: int, said: list[str]
    ) -> tuple[int, Turn | None]:
        text = msgspec.json.encode(body).decode()
        turns = enumerate(self.script.turns)
        number = next((n for n, turn in turns if self._fits(n, turn, path, body, text, replies)), None)
        n = len(self.requests)
        self.requests.append(RecordedRequest(n=n, path=path, body=body, headers=headers, turn=number))
        if number is None:
            return n, None
        self._used[number] += 1
        turn = self.script.turns[number]
        if turn.fill:
            agents = _AGENT_ID.findall(text)
            words = {"{asked}": " | ".join(said), "{n}": str(n), "{agent_id}": agents[-1] if agents else ""}
            turn = filled(turn, words)
        return n, turn

    def ended(self, n: int, how: str) -> None:
        self.requests[n] = msgspec.structs.replace(self.requests[n], end=how)

    def _fits(self, n: int, turn: Turn, path: str, body: Any, text: str, replies: int) -> bool:
        return (
            (turn.times == 0 or self._used[n] < turn.times)
            and (turn.path is None or turn.path in path)
            and (turn.match is None or turn.match in text)
            and (turn.replies_before is None or turn.replies_before == replies)
            and (turn.tools is None or turn.tools == bool(body.get("tools")))
        )


def filled(turn: Turn, words: dict[str, str]) -> Turn:
    """The turn with each of these words replaced in what it says."""

    def fill(value: Any) -> Any:
        match value:
            case str():
                for word, meaning in words.items():
                    value = value.replace(word, meaning)
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


def call_id(turn: Turn, place: int, n: int) -> str:
    said = turn.say[place]
    assert isinstance(said, ToolUse)
    return said.id or f"call_{n}_{place}"
