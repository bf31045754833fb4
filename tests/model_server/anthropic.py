"""The Anthropic Messages API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from tests.model_server.frames import Frame, sse, texts_of
from tests.model_server.script import Failure, Text, Thinking, Tokens, ToolUse, Turn, call_id, chunks


class Anthropic:
    def replies(self, body: Any) -> int:
        return sum(message.get("role") == "assistant" for message in body.get("messages", []))

    def user_texts(self, body: Any) -> list[str]:
        users = [message for message in body.get("messages", []) if message.get("role") == "user"]
        return [text for message in users for text in texts_of(message.get("content"))]

    def streams(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def stream(self, turn: Turn, body: Any, n: int) -> Iterator[Frame]:
        # The output is not known at the start of a message: one token is reported there, and the total at the end.
        started = {**_usage(turn.usage), "output_tokens": 1}
        message = {**self._message(turn, body, n), "content": [], "stop_reason": None, "usage": started}
        yield _event({"type": "message_start", "message": message})
        yield _event({"type": "ping"})
        for index, reply_part in enumerate(turn.say):
            match reply_part:
                case Text():
                    start: dict[str, Any] = {"type": "text", "text": ""}
                    deltas = [{"type": "text_delta", "text": piece} for piece in chunks(reply_part.text, turn.chunk)]
                case Thinking():
                    start = {"type": "thinking", "thinking": "", "signature": ""}
                    pieces = chunks(reply_part.thinking, turn.chunk)
                    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
                    deltas.append({"type": "signature_delta", "signature": reply_part.signature})
                case ToolUse():
                    start = {"type": "tool_use", "id": call_id(turn, index, n), "name": reply_part.name, "input": {}}
                    pieces = chunks(msgspec.json.encode(reply_part.input).decode(), turn.chunk)
                    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces]]
            yield _event({"type": "content_block_start", "index": index, "content_block": start})
            for delta in deltas:
                yield _event({"type": "content_block_delta", "index": index, "delta": delta}, piece=True)
            yield _event({"type": "content_block_stop", "index": index})
        stop = {"stop_reason": _stop(turn), "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": stop, "usage": _usage(turn.usage)})
        yield _event({"type": "message_stop"})

    def document(self, turn: Turn, body: Any, n: int) -> Any:
        return self._message(turn, body, n)

    def error(self, failure: Failure) -> Any:
        return {"type": "error", "error": {"type": failure.type, "message": failure.message}, "request_id": "req_1"}

    def error_frame(self, failure: Failure) -> Frame:
        return _event(self.error(failure))

    def _message(self, turn: Turn, body: Any, n: int) -> dict[str, Any]:
        content: list[Any] = []
        for index, reply_part in enumerate(turn.say):
            match reply_part:
                case Text():
                    content.append({"type": "text", "text": reply_part.text})
                case Thinking():
                    content.append(
                        {"type": "thinking", "thinking": reply_part.thinking, "signature": reply_part.signature}
                    )
                case ToolUse():
                    call = call_id(turn, index, n)
                    content.append({"type": "tool_use", "id": call, "name": reply_part.name, "input": reply_part.input})
        return {
            "id": f"msg_{n:024}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "none"),
            "content": content,
            "stop_reason": _stop(turn),
            "stop_sequence": None,
            "usage": _usage(turn.usage),
        }


def _event(data: dict[str, Any], *, piece: bool = False) -> Frame:
    return sse(data, event=data["type"], piece=piece)


def _stop(turn: Turn) -> str:
    calls = any(isinstance(reply_part, ToolUse) for reply_part in turn.say)
    return turn.stop_reason or ("tool_use" if calls else "end_turn")


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input - tokens.cache_read - tokens.cache_write,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_write,
        "output_tokens": tokens.output,
    }
