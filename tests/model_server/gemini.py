"""Gemini's generateContent and streamGenerateContent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model_server.frames import Frame, sse, texts_of
from tests.model_server.script import Failure, Text, Thinking, Tokens, ToolUse, Turn, call_id, chunks

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class Gemini:
    """The path names the model; the body does not."""

    def __init__(self, path: str) -> None:
        self._model = path.rpartition("/")[2].partition(":")[0]

    def replies(self, body: Any) -> int:
        return sum(message.get("role") == "model" for message in body.get("contents", []))

    def user_texts(self, body: Any) -> list[str]:
        users = [message for message in body.get("contents", []) if message.get("role") == "user"]
        return [text for message in users for text in texts_of(message.get("parts"))]

    def streams(self, path: str, body: Any) -> bool:
        return ":streamGenerateContent" in path

    def stream(self, turn: Turn, body: Any, n: int) -> Iterator[Frame]:
        for index, reply_part in enumerate(turn.say):
            match reply_part:
                case Text():
                    parts = [{"text": piece} for piece in chunks(reply_part.text, turn.chunk)]
                case Thinking():
                    parts = [{"text": piece, "thought": True} for piece in chunks(reply_part.thinking, turn.chunk)]
                case ToolUse():
                    parts = [_call(turn, reply_part, index, n)]
            yield from (sse(self._answer(turn, n, [part]), piece=True) for part in parts)
        yield sse(self._answer(turn, n, [{"text": ""}], stop=turn.stop_reason or "STOP"))

    def document(self, turn: Turn, body: Any, n: int) -> Any:
        parts: list[Any] = []
        for index, reply_part in enumerate(turn.say):
            match reply_part:
                case Text():
                    parts.append({"text": reply_part.text})
                case Thinking():
                    parts.append({"text": reply_part.thinking, "thought": True})
                case ToolUse():
                    parts.append(_call(turn, reply_part, index, n))
        return self._answer(turn, n, parts, stop=turn.stop_reason or "STOP")

    def error(self, failure: Failure) -> Any:
        status = _STATUS.get(failure.status, "UNKNOWN")
        return {"error": {"code": failure.status, "message": failure.message, "status": status}}

    def error_frame(self, failure: Failure) -> Frame:
        return sse(self.error(failure))

    def _answer(self, turn: Turn, n: int, parts: list[Any], *, stop: str | None = None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
        if stop:
            candidate["finishReason"] = stop
        return {
            "candidates": [candidate],
            "usageMetadata": _usage(turn.usage),
            "modelVersion": self._model,
            "responseId": f"resp-{n}",
        }


def _call(turn: Turn, reply_part: ToolUse, index: int, n: int) -> dict[str, Any]:
    part: dict[str, Any] = {
        "functionCall": {"id": call_id(turn, index, n), "name": reply_part.name, "args": reply_part.input}
    }
    if reply_part.signature:
        part["thoughtSignature"] = reply_part.signature
    return part


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "cachedContentTokenCount": tokens.cache_read,
        "totalTokenCount": tokens.input + tokens.output,
    }
