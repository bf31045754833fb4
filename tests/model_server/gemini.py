"""Gemini's generateContent and streamGenerateContent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.model_server.frames import Frame, sse, words
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
    """The address names the model there, not the body."""

    def __init__(self, path: str) -> None:
        self._model = path.rpartition("/")[2].partition(":")[0]

    def replies(self, body: Any) -> int:
        return sum(message.get("role") == "model" for message in body.get("contents", []))

    def said(self, body: Any) -> list[str]:
        users = [message for message in body.get("contents", []) if message.get("role") == "user"]
        return [text for message in users for text in words(message.get("parts"))]

    def streams(self, path: str, body: Any) -> bool:
        return ":streamGenerateContent" in path

    def stream(self, turn: Turn, body: Any, n: int) -> Iterator[Frame]:
        for place, said in enumerate(turn.say):
            match said:
                case Text():
                    parts = [{"text": piece} for piece in chunks(said.text, turn.chunk)]
                case Thinking():
                    parts = [{"text": piece, "thought": True} for piece in chunks(said.thinking, turn.chunk)]
                case ToolUse():
                    parts = [_call(turn, said, place, n)]
            yield from (sse(self._answer(turn, n, [part]), piece=True) for part in parts)
        yield sse(self._answer(turn, n, [{"text": ""}], stop=turn.stop_reason or "STOP"))

    def whole(self, turn: Turn, body: Any, n: int) -> Any:
        parts: list[Any] = []
        for place, said in enumerate(turn.say):
            match said:
                case Text():
                    parts.append({"text": said.text})
                case Thinking():
                    parts.append({"text": said.thinking, "thought": True})
                case ToolUse():
                    parts.append(_call(turn, said, place, n))
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


def _call(turn: Turn, said: ToolUse, place: int, n: int) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"id": call_id(turn, place, n), "name": said.name, "args": said.input}}
    if said.signature:
        part["thoughtSignature"] = said.signature
    return part


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "promptTokenCount": tokens.input,
        "candidatesTokenCount": tokens.output - tokens.reasoning,
        "thoughtsTokenCount": tokens.reasoning,
        "cachedContentTokenCount": tokens.cache_read,
        "totalTokenCount": tokens.input + tokens.output,
    }
