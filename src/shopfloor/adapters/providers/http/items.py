"""Items of a response: what each is in our blocks."""

from __future__ import annotations

from typing import Any

from shopfloor.adapters.providers.http.reply import Reply, given, tool_result, tool_use
from shopfloor.adapters.providers.reading import Record, records_at, text_at
from shopfloor.log import Block, TextBlock, ThinkingBlock, ToolResult

REFUSED = "refusal"

_CALL = "_call"
_GAVE = ("output", "outputs", "result", "results", "error")
_NOT_GIVEN = ("type", "id", "call_id", "status", "name", "server_label", *_GAVE)
_HOSTED = ("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call")
"""Tools that the provider runs itself."""


def is_call(item: Record) -> bool:
    return str(item["type"]).endswith(_CALL)


def call_name(item: Record) -> str:
    """Tools of the provider's own have no name but their item's."""
    return text_at(item, "name") or str(item["type"])


def call_id(item: Record) -> str:
    return text_at(item, "call_id") or str(item["id"])


def blocks_of(item: Record, reply: Reply) -> list[Block]:
    match item["type"]:
        case "message":
            return [_said(part, reply) for part in records_at(item, "content")]
        case "reasoning":
            return _thought(item)
        case _ if is_call(item):
            return [tool_use(call_name(item), call_id(item), _given(item))]
        case _:
            return [reply.not_understood(item)]


def results_of(item: Record) -> list[ToolResult]:
    """What a tool gave that the provider runs itself."""
    gave: dict[str, Any] = {key: item[key] for key in _GAVE if item.get(key) is not None}
    if item["type"] not in _HOSTED or (not gave and item.get("status") != "completed"):
        return []
    error = gave.pop("error", None)
    output = next(iter(gave.values())) if len(gave) == 1 else gave or {"status": item.get("status")}
    return [tool_result(call_name(item), call_id(item), output, None if error is None else str(error))]


def _said(part: Record, reply: Reply) -> Block:
    match part.get("type"):
        case "output_text":
            return TextBlock(text=str(part["text"]), fidelity="agent_emitted")
        case "refusal":
            reply.stop_reason = REFUSED
            return TextBlock(text=str(part["refusal"]), fidelity="agent_emitted")
        case _:
            return reply.not_understood(part)


def _thought(item: Record) -> list[Block]:
    parts = [text_at(part, "text") or "" for key in ("summary", "content") for part in records_at(item, key)]
    thought, signature = "\n\n".join(part for part in parts if part), text_at(item, "encrypted_content")
    if not thought and signature is None:
        return []
    return [ThinkingBlock(thinking=thought, signature=signature, fidelity="agent_emitted")]


def _given(item: Record) -> Any:
    if (arguments := text_at(item, "arguments")) is not None:
        return given(arguments)
    if "input" in item:
        return item["input"]
    return {key: value for key, value in item.items() if key not in _NOT_GIVEN}
