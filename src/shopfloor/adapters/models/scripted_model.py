"""The provider `script`: replies from a file, so that a worker can be tried without an account or a network.

docs/testing.md explains the fields of a script. Replies are deterministic, except for the ids of calls.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import anyio
import msgspec

from shopfloor.adapters.limits import SCRIPT_WORD_SECONDS
from shopfloor.adapters.models.scripts import PLACEHOLDER, Script, Scripts, TextChunks, Turn
from shopfloor.errors import ProviderError, RequestRejected, error_class
from shopfloor.log import Block, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, Usage
from shopfloor.ports import ModelRequest, Reply, ReplyDelta

_WORD = re.compile(r"\s*\S+\s*")
_QUOTED_CHARS = 80
"""How much of an unmatched message an error quotes."""


class ScriptedModels:
    """Scripted models: each request is answered by the next matching turn of a script."""

    def __init__(
        self, folders: Sequence[Path], env: Mapping[str, str], *, chunk_seconds: float = SCRIPT_WORD_SECONDS
    ) -> None:
        """Look for scripts in `folders`.

        `chunk_seconds` is the pause before each chunk, unless the script or `SHOPFLOOR_SCRIPT_DELAY_MS` sets another.
        """
        self._scripts = Scripts(folders)
        self._env = env
        self._chunk_seconds = chunk_seconds
        self._failure_counts: dict[tuple[str, int], int] = {}
        """How often each turn has failed, for turns that fail a limited number of times."""

    def check(self, name: str) -> None:
        """Raise `UnknownModel` if the script does not exist or is invalid."""
        self._scripts.get(name)

    async def reply(self, request: ModelRequest, script: str | None = None) -> AsyncGenerator[ReplyDelta | Reply]:
        """Reply from the script that the model names, or from `script`."""
        name = script or request.model.partition("/")[2]
        played = self._scripts.get(name)
        turn, number = _select_turn(name, played, request)
        await anyio.sleep(turn.wait_ms / 1000)
        self._raise_error(turn, (name, number))
        parts = _parts(turn, _values(played, request), request.schema)
        blocks = [block for block, _ in parts]
        pause = self._pause(played, turn)
        output_chunks = 0
        for index, (block, chunks) in enumerate(parts):
            for delta in _deltas(index, block, chunks):
                output_chunks += 1
                await anyio.sleep(pause)
                yield delta
        calls = any(isinstance(block, ToolUseBlock) for block in blocks)
        yield Reply(
            blocks=blocks,
            model=request.model,
            stop_reason=turn.stop_reason or ("tool_use" if calls else "end_turn"),
            usage=_usage(turn) or Usage(input=_count_input_words(request), output=output_chunks),
        )

    def _raise_error(self, turn: Turn, key: tuple[str, int]) -> None:
        error = turn.error
        if error is None:
            return
        failures = self._failure_counts.get(key, 0)
        if error.times is not None and failures >= error.times:
            return
        self._failure_counts[key] = failures + 1
        kind = error_class(error.code)
        if issubclass(kind, ProviderError):
            raise kind(error.message, retry_after=error.retry_after)

    def _pause(self, script: Script, turn: Turn) -> float:
        delay_ms = self._env.get("SHOPFLOOR_SCRIPT_DELAY_MS")
        if delay_ms:
            return float(delay_ms) / 1000
        delay = turn.delay_ms if turn.delay_ms is not None else script.delay_ms
        return self._chunk_seconds if delay is None else delay / 1000


def _select_turn(name: str, script: Script, request: ModelRequest) -> tuple[Turn, int]:
    offered = {tool.name for tool in request.tools}
    turns = [
        (turn, number)
        for number, turn in enumerate(script.turns)
        if all(call.name in offered for call in turn.tool_calls) and _matches(turn, request)
    ]
    if not turns:
        missing = sorted({call.name for turn in script.turns for call in turn.tool_calls} - offered)
        if missing:
            raise RequestRejected(
                f"the script {name!r} calls {', '.join(missing)}, which the step does not offer",
                hint="add the tool to the step, or a turn without this call to the script",
            )
        text = next(iter(_user_texts(request)), "")
        raise RequestRejected(
            f"the script {name!r} has no turn that matches {text[:_QUOTED_CHARS]!r}",
            hint="add a turn without `when`, or with a `when` that matches this message",
        )
    previous_replies = sum(message.role == "assistant" for message in request.messages)
    return turns[min(previous_replies, len(turns) - 1)]


def _matches(turn: Turn, request: ModelRequest) -> bool:
    texts = _user_texts(request)
    return turn.when is None or re.search(turn.when, texts[0] if texts else "") is not None


def _user_texts(request: ModelRequest) -> list[str]:
    """Return the texts of the user's messages, newest first."""
    texts = [
        "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock))
        for message in reversed(request.messages)
        if message.role == "user"
    ]
    return [text for text in texts if text]


def _usage(turn: Turn) -> Usage | None:
    return None if turn.usage is None else Usage(**msgspec.structs.asdict(turn.usage))


def _values(script: Script, request: ModelRequest) -> dict[str, str]:
    texts = _user_texts(request)
    results = [
        _as_text(block.tool_content)
        for message in request.messages[-1:]
        for block in message.blocks
        if isinstance(block, ToolResultBlock)
    ]
    system = request.system or ""
    values = {"last_user": texts[0] if texts else "", "system": system, "tool_results": "\n\n".join(results)}
    for name, capture in script.captures.items():
        found = (re.search(capture.find, text) for text in [*texts, system])
        values[name] = next((match.group(1).strip() for match in found if match), capture.default)
    return values


_Part = tuple[Block, list[str]]
"""A block of the reply, and the chunks in which it is sent."""


def _parts(turn: Turn, values: dict[str, str], schema: dict[str, Any] | None) -> list[_Part]:
    parts: list[_Part] = []
    if chunks := _split_chunks(turn.thinking, values):
        parts.append((ThinkingBlock(thinking="".join(chunks), fidelity="agent_emitted"), chunks))
    chunks = _split_chunks(turn.text, values)
    if schema is not None and not turn.tool_calls:
        answer = _example(schema, "".join(chunks)) if turn.answer is None else _fill_value(turn.answer, values)
        chunks = _split_words(msgspec.json.encode(answer).decode())
    if chunks:
        parts.append((TextBlock(text="".join(chunks), fidelity="agent_emitted"), chunks))
    for call in turn.tool_calls:
        tool_input = _fill_value(call.input, values)
        block = ToolUseBlock(
            tool_name=call.name, tool_id=f"call_{uuid4().hex[:24]}", tool_input=tool_input, fidelity="agent_emitted"
        )
        parts.append((block, _split_words(msgspec.json.encode(tool_input).decode())))
    return parts


def _deltas(index: int, block: Block, chunks: list[str]) -> list[ReplyDelta]:
    match block:
        case ThinkingBlock():
            return [ReplyDelta(block=index, kind="thinking", text=chunk) for chunk in chunks]
        case ToolUseBlock(tool_name=name, tool_id=call):
            return [
                ReplyDelta(block=index, kind="tool_input", text=chunk, tool_name=name, tool_id=call) for chunk in chunks
            ]
        case _:
            return [ReplyDelta(block=index, kind="text", text=chunk) for chunk in chunks]


def _split_chunks(text: TextChunks | None, values: dict[str, str]) -> list[str]:
    """Return the chunks in the script, or else the words of its text."""
    if isinstance(text, list):
        return [filled for chunk in text if (filled := _fill_text(chunk, values))]
    return _split_words(_fill_text(text or "", values).strip())


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text)


def _fill_text(text: str, values: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda match: values.get(match.group(1), match.group(0)), text)


def _fill_value(value: Any, values: dict[str, str]) -> Any:
    if isinstance(value, str):
        return _fill_text(value, values)
    if isinstance(value, list):
        return [_fill_value(item, values) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: _fill_value(item, values) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _as_text(content: Any) -> str:
    return content if isinstance(content, str) else msgspec.json.format(msgspec.json.encode(content)).decode()


def _count_input_words(request: ModelRequest) -> int:
    return len((request.system or "").split()) + sum(
        len(_as_text(msgspec.to_builtins(message.blocks)).split()) for message in request.messages
    )


def _example(schema: Mapping[str, Any], text: str) -> Any:
    """Return a value that matches the schema, with the script's text for every string."""
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        return choices[0]
    for keyword in ("anyOf", "oneOf", "allOf"):
        if schema.get(keyword):
            return _example(schema[keyword][0], text)
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
