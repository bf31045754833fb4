"""OpenAI's Chat Completions, as every OpenAI-compatible endpoint speaks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from tests.model_server.frames import Frame, sse, texts_of
from tests.model_server.script import Failure, Text, Thinking, Tokens, ToolUse, Turn, call_id, chunks


class OpenAIChat:
    def replies(self, body: Any) -> int:
        return sum(message.get("role") == "assistant" for message in body.get("messages", []))

    def user_texts(self, body: Any) -> list[str]:
        users = [message for message in body.get("messages", []) if message.get("role") == "user"]
        return [text for message in users for text in texts_of(message.get("content"))]

    def streams(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def stream(self, turn: Turn, body: Any, n: int) -> Iterator[Frame]:
        head = {"id": f"chatcmpl-{n}", "object": "chat.completion.chunk", "created": 1, "model": body.get("model")}

        def piece(delta: dict[str, Any], finish: str | None = None, *, counts: bool = True) -> Frame:
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
            return sse({**head, "choices": [choice], "usage": None}, piece=counts)

        yield piece({"role": "assistant", "content": ""}, counts=False)
        calls = 0
        for index, reply_part in enumerate(turn.say):
            match reply_part:
                case Text():
                    yield from (piece({"content": part}) for part in chunks(reply_part.text, turn.chunk))
                case Thinking():
                    yield from (piece({"reasoning_content": part}) for part in chunks(reply_part.thinking, turn.chunk))
                case ToolUse():
                    named = {"name": reply_part.name, "arguments": ""}
                    call = {"index": calls, "id": call_id(turn, index, n), "type": "function", "function": named}
                    yield piece({"tool_calls": [call]})
                    for part in chunks(msgspec.json.encode(reply_part.input).decode(), turn.chunk):
                        yield piece({"tool_calls": [{"index": calls, "function": {"arguments": part}}]})
                    calls += 1
        yield piece({}, _stop(turn), counts=False)
        if (body.get("stream_options") or {}).get("include_usage"):
            yield sse({**head, "choices": [], "usage": _usage(turn.usage)})
        yield Frame(b"data: [DONE]\n\n")

    def document(self, turn: Turn, body: Any, n: int) -> Any:
        calls = [
            {
                "id": call_id(turn, index, n),
                "type": "function",
                "function": {"name": reply_part.name, "arguments": msgspec.json.encode(reply_part.input).decode()},
            }
            for index, reply_part in enumerate(turn.say)
            if isinstance(reply_part, ToolUse)
        ]
        text = "".join(reply_part.text for reply_part in turn.say if isinstance(reply_part, Text))
        message = {"role": "assistant", "content": text or None, "tool_calls": calls or None}
        return {
            "id": f"chatcmpl-{n}",
            "object": "chat.completion",
            "created": 1,
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": _stop(turn), "logprobs": None}],
            "usage": _usage(turn.usage),
        }

    def error(self, failure: Failure) -> Any:
        return {"error": {"message": failure.message, "type": failure.type, "param": None, "code": None}}

    def error_frame(self, failure: Failure) -> Frame:
        return sse(self.error(failure))


def _stop(turn: Turn) -> str:
    calls = any(isinstance(reply_part, ToolUse) for reply_part in turn.say)
    return turn.stop_reason or ("tool_calls" if calls else "stop")


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cache_read},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    }
