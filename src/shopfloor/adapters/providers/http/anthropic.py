"""Anthropic's Messages API."""

from __future__ import annotations

import msgspec

from shopfloor.adapters.providers.http.body import ResponseBodyNormalizer
from shopfloor.adapters.providers.http.errors import error_note, parse_error
from shopfloor.adapters.providers.http.reply import Reply, tool_result, tool_use
from shopfloor.adapters.providers.json_access import Record, count_at, list_at, record_at, text_at
from shopfloor.log import RunError, Status, ThinkingBlock, Usage
from shopfloor.ports import AgentReport

_TOOL_USES = ("tool_use", "server_tool_use", "mcp_tool_use")
_TOOL_RESULT = "_tool_result"
_REMARKS = ("citations_delta",)
"""Pieces that carry nothing of what was said."""


class AnthropicNormalizer(ResponseBodyNormalizer):
    def __init__(self) -> None:
        super().__init__(_Messages())


class _Messages:
    def __init__(self) -> None:
        self.reply = Reply()
        self.is_complete = False
        self.status: Status = "completed"
        self.error: RunError | None = None
        self._usage: Record = {}
        self._tools: dict[str, str] = {}
        """Names of tools by the ids of their calls, for results."""

    def event(self, record: Record) -> list[AgentReport] | None:
        kind = record.get("type")
        if kind == "ping":
            return []
        if self.is_complete:
            return None
        match kind:
            case "message_start":
                return self._begun(record_at(record, "message"))
            case "content_block_start":
                return self._opened(_index(record), record_at(record, "content_block"))
            case "content_block_delta":
                return self._delta(_index(record), record_at(record, "delta"))
            case "content_block_stop":
                self.reply.close_part(_index(record))
                return []
            case "message_delta":
                self.reply.stop_reason = text_at(record_at(record, "delta"), "stop_reason") or self.reply.stop_reason
                self._count(record_at(record, "usage"))
                return []
            case "message_stop":
                return self.done()
            case _:
                return self.whole(record)

    def whole(self, record: Record) -> list[AgentReport] | None:
        if record.get("type") == "message":
            self._begun(record)
            for place, block in enumerate(list_at(record, "content")):
                self._opened(place, block)
            self.reply.stop_reason = text_at(record, "stop_reason")
            return self.done()
        error = parse_error(record)
        if error is None:
            return None
        had = self.flush()
        self.is_complete, self.status, self.error = True, "failed", error
        return [*had, error_note(error)]

    def done(self) -> list[AgentReport]:
        if self.is_complete or self.reply.message_id is None:
            return []
        self.is_complete = True
        return self.reply.told()

    def flush(self) -> list[AgentReport]:
        return [] if self.is_complete or self.reply.message_id is None else self.reply.told(unfinished=True)

    def _begun(self, message: Record) -> list[AgentReport]:
        self.reply.message_id = message["id"] if isinstance(message["id"], str) else str(message["id"])
        self.reply.model = text_at(message, "model")
        self._count(record_at(message, "usage"))
        return []

    def _opened(self, place: int, block: Record) -> list[AgentReport]:
        kind, reply = str(block["type"]), self.reply
        if kind == "text":
            return reply.typed(reply.part(place, "text"), text_at(block, "text") or "")
        if kind == "thinking":
            part = reply.part(place, "thinking")
            part.signature = text_at(block, "signature") or None
            return reply.typed(part, text_at(block, "thinking") or "")
        if kind == "redacted_thinking":
            # What was thought is not to be read; what the provider wants back of it is kept.
            hidden = ThinkingBlock(thinking="", signature=text_at(block, "data"), fidelity="agent_emitted")
            reply.set_block(place, hidden)
        elif kind in _TOOL_USES:
            self._tool_use(place, block)
        elif kind.endswith(_TOOL_RESULT):
            call_id = str(block["tool_use_id"])
            name = self._tools.get(call_id, kind.removesuffix(_TOOL_RESULT))
            error = msgspec.json.encode(block["content"]).decode() if block.get("is_error") is True else None
            reply.results.append(tool_result(name, call_id, block["content"], error))
        else:
            reply.set_block(place, reply.unparsed_block(block))
        return []

    def _tool_use(self, place: int, block: Record) -> None:
        part = self.reply.part(place, "tool_input")
        part.name, part.tool_id = str(block["name"]), str(block["id"])
        self._tools[part.tool_id] = part.name
        if block.get("input"):
            part.made = tool_use(part.name, part.tool_id, block["input"])

    def _delta(self, place: int, delta: Record) -> list[AgentReport] | None:
        part, text = self.reply.get_part(place), ""
        match delta.get("type"):
            case "text_delta":
                text = str(delta["text"])
            case "thinking_delta":
                text = str(delta["thinking"])
            case "input_json_delta":
                text = str(delta["partial_json"])
            case "signature_delta":
                part.signature = (part.signature or "") + str(delta["signature"])
            case kind if kind in _REMARKS:
                pass
            case _:
                return None
        return self.reply.typed(part, text)

    def _count(self, usage: Record) -> None:
        """Numbers at the end of a message are sums, and stand for those at its beginning."""
        self._usage |= {key: value for key, value in usage.items() if value is not None}
        if self._usage:
            self.reply.usage = _usage(self._usage)


def _index(record: Record) -> int:
    return int(record["index"])


def _usage(told: Record) -> Usage:
    """Its classes are ours: `input_tokens` are without what was cached."""
    output, thought = count_at(told, "output_tokens"), record_at(told, "output_tokens_details")
    return Usage(
        input=count_at(told, "input_tokens"),
        output=output,
        cache_read=count_at(told, "cache_read_input_tokens"),
        cache_write=count_at(told, "cache_creation_input_tokens"),
        reasoning=min(output, count_at(thought, "thinking_tokens")),
    )
