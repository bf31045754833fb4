"""The provider `script`: plays a file, so that a worker can be tried with no account and no network.

docs/testing.md says what a script has. What is said is the same every time, but for the ids of calls.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import anyio
import msgspec

from shopfloor.adapters.models.scripts import PLACEHOLDER, Script, Scripts, TextChunks, Turn
from shopfloor.errors import ProviderError, RequestRejected, error_class
from shopfloor.limits import SCRIPT_WORD_SECONDS
from shopfloor.log import Block, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, Usage
from shopfloor.ports import ModelRequest, Reply, ReplyDelta

_WORD = re.compile(r"\s*\S+\s*")


class ScriptedModels:
    def __init__(
        self, folders: Sequence[Path], env: Mapping[str, str], *, chunk_seconds: float = SCRIPT_WORD_SECONDS
    ) -> None:
        """`chunk_seconds` is the pause before each piece, where neither the script nor `env` says another."""
        self._scripts = Scripts(folders)
        self._env = env
        self._piece_seconds = chunk_seconds
        self._failed: dict[tuple[str, int], int] = {}
        """How often a turn has failed, for those that fail only so many times."""

    def check(self, name: str) -> None:
        self._scripts.get(name)

    async def reply(self, request: ModelRequest, script: str | None = None) -> AsyncGenerator[ReplyDelta | Reply]:
        """Plays the script that the model names, or that one."""
        name = script or request.model.partition("/")[2]
        played = self._scripts.get(name)
        turn, number = _turn(played, request)
        await anyio.sleep(turn.wait_ms / 1000)
        self._fail(turn, (name, number))
        parts = _parts(turn, _values(played, request), request.schema)
        blocks = [block for block, _ in parts]
        pause = self._pause(played, turn)
        words = 0
        for place, (block, pieces) in enumerate(parts):
            for delta in _deltas(place, block, pieces):
                words += 1
                await anyio.sleep(pause)
                yield delta
        calls = any(isinstance(block, ToolUseBlock) for block in blocks)
        yield Reply(
            blocks=blocks,
            model=request.model,
            stop_reason=turn.stop_reason or ("tool_use" if calls else "end_turn"),
            usage=_usage(turn) or Usage(input=_words_read(request), output=words),
        )

    def _fail(self, turn: Turn, key: tuple[str, int]) -> None:
        error = turn.error
        if error is None:
            return
        failed = self._failed.get(key, 0)
        if error.times is not None and failed >= error.times:
            return
        self._failed[key] = failed + 1
        kind = error_class(error.code)
        if issubclass(kind, ProviderError):
            raise kind(error.message, retry_after=error.retry_after)

    def _pause(self, script: Script, turn: Turn) -> float:
        told = self._env.get("SHOPFLOOR_SCRIPT_DELAY_MS")
        if told:
            return float(told) / 1000
        delay = turn.delay_ms if turn.delay_ms is not None else script.delay_ms
        return self._piece_seconds if delay is None else delay / 1000


def _turn(script: Script, request: ModelRequest) -> tuple[Turn, int]:
    offered = {tool.name for tool in request.tools}
    turns = [
        (turn, number)
        for number, turn in enumerate(script.turns)
        if all(call.name in offered for call in turn.tool_calls) and _matches(turn, request)
    ]
    if not turns:
        wanted = sorted({call.name for turn in script.turns for call in turn.tool_calls} - offered)
        missing = f"calls {', '.join(wanted)}, which the thread does not have" if wanted else "has no turn that matches"
        raise RequestRejected(f"the script {missing}")
    said = sum(message.role == "assistant" for message in request.messages)
    return turns[min(said, len(turns) - 1)]


def _matches(turn: Turn, request: ModelRequest) -> bool:
    texts = _user_texts(request)
    return turn.when is None or re.search(turn.when, texts[0] if texts else "") is not None


def _user_texts(request: ModelRequest) -> list[str]:
    """What the user said, the newest first."""
    said = [
        "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock))
        for message in reversed(request.messages)
        if message.role == "user"
    ]
    return [text for text in said if text]


def _usage(turn: Turn) -> Usage | None:
    return None if turn.usage is None else Usage(**msgspec.structs.asdict(turn.usage))


def _values(script: Script, request: ModelRequest) -> dict[str, str]:
    said = _user_texts(request)
    results = [
        _as_text(block.tool_content)
        for message in request.messages[-1:]
        for block in message.blocks
        if isinstance(block, ToolResultBlock)
    ]
    system = request.system or ""
    values = {"last_user": said[0] if said else "", "system": system, "tool_results": "\n\n".join(results)}
    for name, capture in script.captures.items():
        found = (re.search(capture.find, text) for text in [*said, system])
        values[name] = next((match.group(1).strip() for match in found if match), capture.default)
    return values


_Part = tuple[Block, list[str]]
"""A block of the reply, and the pieces that it is sent in."""


def _parts(turn: Turn, values: dict[str, str], schema: dict[str, Any] | None) -> list[_Part]:
    parts: list[_Part] = []
    if pieces := _pieces(turn.thinking, values):
        parts.append((ThinkingBlock(thinking="".join(pieces), fidelity="agent_emitted"), pieces))
    pieces = _pieces(turn.text, values)
    if schema is not None and not turn.tool_calls:
        answer = _example(schema, "".join(pieces)) if turn.answer is None else _filled_in(turn.answer, values)
        pieces = _words(msgspec.json.encode(answer).decode())
    if pieces:
        parts.append((TextBlock(text="".join(pieces), fidelity="agent_emitted"), pieces))
    for call in turn.tool_calls:
        given = _filled_in(call.input, values)
        block = ToolUseBlock(
            tool_name=call.name, tool_id=f"call_{uuid4().hex[:24]}", tool_input=given, fidelity="agent_emitted"
        )
        parts.append((block, _words(msgspec.json.encode(given).decode())))
    return parts


def _deltas(place: int, block: Block, pieces: list[str]) -> list[ReplyDelta]:
    match block:
        case ThinkingBlock():
            return [ReplyDelta(block=place, kind="thinking", text=piece) for piece in pieces]
        case ToolUseBlock(tool_name=name, tool_id=call):
            return [
                ReplyDelta(block=place, kind="tool_input", text=piece, tool_name=name, tool_id=call) for piece in pieces
            ]
        case _:
            return [ReplyDelta(block=place, kind="text", text=piece) for piece in pieces]


def _pieces(said: TextChunks | None, values: dict[str, str]) -> list[str]:
    """The pieces that the script gives, or else the words."""
    if isinstance(said, list):
        return [filled for piece in said if (filled := _filled(piece, values))]
    return _words(_filled(said or "", values).strip())


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _filled(text: str, values: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: values.get(match.group(1), match.group(0)), text)


def _filled_in(value: Any, values: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _filled(value, values)
    if isinstance(value, list):
        return [_filled_in(item, values) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _filled_in(item, values) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _as_text(content: Any) -> str:
    return content if isinstance(content, str) else msgspec.json.format(msgspec.json.encode(content)).decode()


def _words_read(request: ModelRequest) -> int:
    return len((request.system or "").split()) + sum(
        len(_as_text(msgspec.to_builtins(message.blocks)).split()) for message in request.messages
    )


def _example(schema: Mapping[str, Any], text: str) -> Any:
    """Something of that shape, with the script's text wherever a string goes."""
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        return choices[0]
    for several in ("anyOf", "oneOf", "allOf"):
        if schema.get(several):
            return _example(schema[several][0], text)
    kinds: Any = schema.get("type")
    match cast("list[Any]", kinds)[0] if isinstance(kinds, list) else kinds:
        case "array":
            return [_example(schema.get("items") or {"type": "string"}, text)]
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return True
        case "null":
            return None
        case "string":
            return text
        case _:
            return {name: _example(part, text) for name, part in schema.get("properties", {}).items()}
