"""OpenAI's Responses API."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.model_server.frames import Frame, sse, texts_of
from tests.model_server.script import Failure, ReplyPart, Text, Thinking, Tokens, ToolUse, Turn, call_id, chunks


class OpenAIResponses:
    def replies(self, body: Any) -> int:
        """Count consecutive items of the assistant as one message, because calls and thinking are separate items."""
        thread = body.get("input", [])
        mine = [_is_reply(item) for item in thread] if isinstance(thread, list) else []
        return sum(is_mine for is_mine, _ in itertools.groupby(mine))

    def user_texts(self, body: Any) -> list[str]:
        thread = body.get("input", [])
        items = thread if isinstance(thread, list) else [{"role": "user", "content": thread}]
        return [text for item in items if item.get("role") == "user" for text in texts_of(item.get("content"))]

    def streams(self, path: str, body: Any) -> bool:
        return bool(body.get("stream"))

    def stream(self, turn: Turn, body: Any, n: int) -> Iterator[Frame]:
        number = itertools.count()

        def event(kind: str, *, piece: bool = False, **fields: Any) -> Frame:
            return sse({"type": kind, "sequence_number": next(number), **fields}, event=kind, piece=piece)

        started = {**self._response(turn, body, n), "status": "in_progress", "output": [], "usage": None}
        yield event("response.created", response=started)
        yield event("response.in_progress", response=started)
        for index, reply_part in enumerate(turn.say):
            item = _item(turn, reply_part, index, n)
            at = {"item_id": item["id"], "output_index": index}
            yield event("response.output_item.added", output_index=index, item=_opened(item))
            match reply_part:
                case Text():
                    part = {"type": "output_text", "text": "", "annotations": []}
                    yield event("response.content_part.added", **at, content_index=0, part=part)
                    for piece in chunks(reply_part.text, turn.chunk):
                        kind = "response.output_text.delta"
                        yield event(kind, piece=True, **at, content_index=0, delta=piece, logprobs=[])
                    yield event("response.output_text.done", **at, content_index=0, text=reply_part.text, logprobs=[])
                    yield event("response.content_part.done", **at, content_index=0, part=item["content"][0])
                case Thinking():
                    kind = "response.reasoning_summary_part.added"
                    yield event(kind, **at, summary_index=0, part={"type": "summary_text", "text": ""})
                    for piece in chunks(reply_part.thinking, turn.chunk):
                        kind = "response.reasoning_summary_text.delta"
                        yield event(kind, piece=True, **at, summary_index=0, delta=piece)
                    yield event("response.reasoning_summary_text.done", **at, summary_index=0, text=reply_part.thinking)
                    kind = "response.reasoning_summary_part.done"
                    yield event(kind, **at, summary_index=0, part=item["summary"][0])
                case ToolUse(text=str() as text):
                    for piece in chunks(text, turn.chunk):
                        yield event("response.custom_tool_call_input.delta", piece=True, **at, delta=piece)
                    yield event("response.custom_tool_call_input.done", **at, input=text)
                case ToolUse():
                    for piece in chunks(item["arguments"], turn.chunk):
                        yield event("response.function_call_arguments.delta", piece=True, **at, delta=piece)
                    kind = "response.function_call_arguments.done"
                    yield event(kind, **at, arguments=item["arguments"], name=reply_part.name)
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=self._response(turn, body, n))

    def document(self, turn: Turn, body: Any, n: int) -> Any:
        return self._response(turn, body, n)

    def error(self, failure: Failure) -> Any:
        return {"error": {"message": failure.message, "type": failure.type, "param": None, "code": None}}

    def error_frame(self, failure: Failure) -> Frame:
        error = {"type": "error", "code": failure.type, "message": failure.message, "param": None, "sequence_number": 9}
        return sse(error, event="error")

    def _response(self, turn: Turn, body: Any, n: int) -> dict[str, Any]:
        return {
            "id": f"resp_{n}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": body.get("model"),
            "output": [_item(turn, reply_part, index, n) for index, reply_part in enumerate(turn.say)],
            "parallel_tool_calls": True,
            "temperature": 1,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1,
            "usage": _usage(turn.usage),
        }


def _is_reply(item: Any) -> bool:
    return item.get("role") == "assistant" or item.get("type") in {"function_call", "reasoning", "custom_tool_call"}


def _item(turn: Turn, reply_part: ReplyPart, index: int, n: int) -> dict[str, Any]:
    match reply_part:
        case Text():
            content = [{"type": "output_text", "text": reply_part.text, "annotations": [], "logprobs": []}]
            same = {"type": "message", "role": "assistant", "status": "completed", "content": content}
            return {"id": f"msg_{n}_{index}", **same}
        case Thinking():
            summary = [{"type": "summary_text", "text": reply_part.thinking}]
            same = {"type": "reasoning", "summary": summary, "encrypted_content": reply_part.signature}
            return {"id": f"rs_{n}_{index}", **same}
        case ToolUse(text=str() as text):
            call = {"call_id": call_id(turn, index, n), "name": reply_part.name, "input": text}
            return {"id": f"ctc_{n}_{index}", "type": "custom_tool_call", "status": "completed", **call}
        case ToolUse():
            group = {"namespace": reply_part.namespace} if reply_part.namespace else {}
            return {
                **group,
                "id": f"fc_{n}_{index}",
                "type": "function_call",
                "status": "completed",
                "call_id": call_id(turn, index, n),
                "name": reply_part.name,
                "arguments": msgspec.json.encode(reply_part.input).decode(),
            }


def _opened(item: dict[str, Any]) -> dict[str, Any]:
    empty = {
        "content": [],
        "summary": [],
        "arguments": "",
        "input": "",
        "encrypted_content": None,
        "status": "in_progress",
    }
    return {key: empty.get(key, value) for key, value in item.items()}


def _usage(tokens: Tokens) -> dict[str, Any]:
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cached_tokens": tokens.cache_read, "cache_write_tokens": tokens.cache_write},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
