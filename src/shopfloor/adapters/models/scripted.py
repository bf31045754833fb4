"""The provider `script`: plays a file word by word, so that a worker can be tried with no account and no network.

    captures:                       # values found in the last user's text, else in earlier ones, else in the system's
      TOPIC: {find: 'Topic: (.+)', default: 'nothing in particular'}
    delay_ms: 20                    # per word; SHOPFLOOR_SCRIPT_DELAY_MS wins
    turns:                          # chosen by how many assistant messages the thread has; the last one repeats
      - thinking: Where to look?    # optional
        tool_calls: [{name: web-search, input: {query: '{{TOPIC}}'}}]
      - text: |
          Notes on {{TOPIC}}: {{tool_results}}
        answer: {topic: '{{TOPIC}}'}   # optional: said instead of the text where the answer has to be of a schema
        delay_ms: 5                    # optional
        error: {code: rate_limit_error, retry_after: 0.5, times: 1}   # optional: raised instead, so many times

`{{last_user}}`, `{{system}}` and `{{tool_results}}` are always there. A turn whose tools the thread does not have is
passed over. What is said is the same every time, but for the ids of calls.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import anyio
import msgspec

from shopfloor.adapters.models.scripts import Script, Scripts, Turn
from shopfloor.errors import ProviderError, RequestRejected, RunFailed, error_of
from shopfloor.limits import SCRIPT_WORD_SECONDS
from shopfloor.log import Block, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock, Usage
from shopfloor.ports import ModelRequest, Reply, ReplyDelta

_PIECE = re.compile(r"\s*\S+\s*")
_PLACE = re.compile(r"\{\{\s*(\w+)\s*\}\}")


class ScriptedModels:
    def __init__(self, folders: Sequence[Path], env: Mapping[str, str]) -> None:
        self._scripts = Scripts(folders)
        self._env = env
        self._failed: dict[tuple[str, int], int] = {}
        """How often a turn has failed, for those that fail only so many times."""

    def check(self, name: str) -> None:
        self._scripts.get(name)

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ReplyDelta | Reply]:
        name = request.model.partition("/")[2]
        script = self._scripts.get(name)
        turn, number = _turn(script, request)
        self._fail(turn, (name, number))
        blocks = _blocks(turn, _values(script, request), request.schema)
        pause = self._pause(script, turn)
        words = 0
        for place, block in enumerate(blocks):
            for delta in _deltas(place, block):
                words += 1
                await anyio.sleep(pause)
                yield delta
        calls = any(isinstance(block, ToolUseBlock) for block in blocks)
        yield Reply(
            blocks=blocks,
            model=request.model,
            stop_reason="tool_use" if calls else "end_turn",
            usage=Usage(input=_words_read(request), output=words),
        )

    def _fail(self, turn: Turn, key: tuple[str, int]) -> None:
        error = turn.error
        if error is None:
            return
        failed = self._failed.get(key, 0)
        if error.times is not None and failed >= error.times:
            return
        self._failed[key] = failed + 1
        kind = error_of(error.code)
        if not issubclass(kind, RunFailed):
            raise RequestRejected(f"the script fails with {error.code!r}, which is no error of a provider")
        raise kind(error.message, retry_after=error.retry_after)

    def _pause(self, script: Script, turn: Turn) -> float:
        told = self._env.get("SHOPFLOOR_SCRIPT_DELAY_MS")
        if told:
            return float(told) / 1000
        delay = turn.delay_ms if turn.delay_ms is not None else script.delay_ms
        return SCRIPT_WORD_SECONDS if delay is None else delay / 1000


def _turn(script: Script, request: ModelRequest) -> tuple[Turn, int]:
    offered = {tool.name for tool in request.tools}
    turns = [
        (turn, number)
        for number, turn in enumerate(script.turns)
        if all(call.name in offered for call in turn.tool_calls)
    ]
    if not turns:
        wanted = sorted({call.name for turn in script.turns for call in turn.tool_calls} - offered)
        raise ProviderError(f"the script calls {', '.join(wanted)}, which the thread does not have")
    said = sum(message.role == "assistant" for message in request.messages)
    return turns[min(said, len(turns) - 1)]


def _values(script: Script, request: ModelRequest) -> dict[str, str]:
    said = [
        "\n".join(block.text for block in message.blocks if isinstance(block, TextBlock))
        for message in reversed(request.messages)
        if message.role == "user"
    ]
    said = [text for text in said if text]
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


def _blocks(turn: Turn, values: dict[str, str], schema: dict[str, Any] | None) -> list[Block]:
    blocks: list[Block] = []
    if turn.thinking:
        blocks.append(ThinkingBlock(thinking=_filled(turn.thinking, values).strip(), fidelity="agent_emitted"))
    text = _filled(turn.text or "", values).strip()
    if schema is not None and not turn.tool_calls:
        answer = _example(schema, text) if turn.answer is None else _filled_in(turn.answer, values)
        text = msgspec.json.encode(answer).decode()
    if text:
        blocks.append(TextBlock(text=text, fidelity="agent_emitted"))
    blocks.extend(
        ToolUseBlock(
            tool_name=call.name,
            tool_id=f"call_{uuid4().hex[:24]}",
            tool_input=_filled_in(call.input, values),
            fidelity="agent_emitted",
        )
        for call in turn.tool_calls
    )
    return blocks


def _deltas(place: int, block: Block) -> list[ReplyDelta]:
    match block:
        case ThinkingBlock():
            return [ReplyDelta(block=place, kind="thinking", text=word) for word in _pieces(block.thinking)]
        case ToolUseBlock(tool_name=name, tool_id=call, tool_input=given):
            pieces = _pieces(msgspec.json.encode(given).decode())
            return [
                ReplyDelta(block=place, kind="tool_input", text=piece, tool_name=name, tool_id=call) for piece in pieces
            ]
        case TextBlock():
            return [ReplyDelta(block=place, kind="text", text=word) for word in _pieces(block.text)]
        case _:
            return []


def _pieces(text: str) -> list[str]:
    return _PIECE.findall(text)


def _filled(text: str, values: dict[str, str]) -> str:
    return _PLACE.sub(lambda match: values.get(match.group(1), match.group(0)), text)


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
