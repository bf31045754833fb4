"""Normalize responses of Anthropic's Messages API."""

from __future__ import annotations

import msgspec

from shopfloor.adapters.providers.http.body import ResponseBodyNormalizer
from shopfloor.adapters.providers.http.errors import error_note, parse_error
from shopfloor.adapters.providers.http.reply import Reply, tool_result, tool_use
from shopfloor.adapters.providers.json_access import Record, count_at, list_at, record_at, text_at
from shopfloor.log import RunError, Status, ThinkingBlock, Usage
from shopfloor.ports import AgentReport

_TOOL_USE_TYPES = ("tool_use", "server_tool_use", "mcp_tool_use")
_TOOL_RESULT_SUFFIX = "_tool_result"
_IGNORED_DELTAS = ("citations_delta",)
"""Deltas that carry no content."""


class AnthropicNormalizer(ResponseBodyNormalizer):
    """Normalizer of a response of the Messages API."""

    def __init__(self) -> None:
        super().__init__(_MessagesParser())


class _MessagesParser:
    def __init__(self) -> None:
        self.reply = Reply()
        self.is_complete = False
        self.status: Status = "completed"
        self.error: RunError | None = None
        self._usage: Record = {}
        self._tool_names: dict[str, str] = {}
        """Names of tools by the ids of their calls. Results do not name the tool."""

    def parse_event(self, record: Record) -> list[AgentReport] | None:
        kind = record.get("type")
        if kind == "ping":
            return []
        if self.is_complete:
            return None
        match kind:
            case "message_start":
                return self._message_started(record_at(record, "message"))
            case "content_block_start":
                return self._block_started(_index(record), record_at(record, "content_block"))
            case "content_block_delta":
                return self._delta(_index(record), record_at(record, "delta"))
            case "content_block_stop":
                self.reply.close_part(_index(record))
                return []
            case "message_delta":
                self.reply.stop_reason = text_at(record_at(record, "delta"), "stop_reason") or self.reply.stop_reason
                self._update_usage(record_at(record, "usage"))
                return []
            case "message_stop":
                return self.end_of_stream()
            case _:
                return self.parse_document(record)

    def parse_document(self, record: Record) -> list[AgentReport] | None:
        if record.get("type") == "message":
            self._message_started(record)
            for index, block in enumerate(list_at(record, "content")):
                self._block_started(index, block)
            self.reply.stop_reason = text_at(record, "stop_reason")
            return self.end_of_stream()
        error = parse_error(record)
        if error is None:
            return None
        unfinished_reports = self.flush()
        self.is_complete, self.status, self.error = True, "failed", error
        return [*unfinished_reports, error_note(error)]

    def end_of_stream(self) -> list[AgentReport]:
        if self.is_complete or self.reply.message_id is None:
            return []
        self.is_complete = True
        return self.reply.finish()

    def flush(self) -> list[AgentReport]:
        return [] if self.is_complete or self.reply.message_id is None else self.reply.finish(unfinished=True)

    def _message_started(self, message: Record) -> list[AgentReport]:
        self.reply.message_id = message["id"] if isinstance(message["id"], str) else str(message["id"])
        self.reply.model = text_at(message, "model")
        self._update_usage(record_at(message, "usage"))
        return []

    def _block_started(self, index: int, block: Record) -> list[AgentReport]:
        kind, reply = str(block["type"]), self.reply
        if kind == "text":
            return reply.append_delta(reply.part(index, "text"), text_at(block, "text") or "")
        if kind == "thinking":
            part = reply.part(index, "thinking")
            part.signature = text_at(block, "signature") or None
            return reply.append_delta(part, text_at(block, "thinking") or "")
        if kind == "redacted_thinking":
            # The thinking is encrypted; keep the data, which the provider wants back.
            redacted = ThinkingBlock(thinking="", signature=text_at(block, "data"), fidelity="agent_emitted")
            reply.set_block(index, redacted)
        elif kind in _TOOL_USE_TYPES:
            self._tool_use(index, block)
        elif kind.endswith(_TOOL_RESULT_SUFFIX):
            call_id = str(block["tool_use_id"])
            name = self._tool_names.get(call_id, kind.removesuffix(_TOOL_RESULT_SUFFIX))
            error = msgspec.json.encode(block["content"]).decode() if block.get("is_error") is True else None
            reply.results.append(tool_result(name, call_id, block["content"], error))
        else:
            reply.set_block(index, reply.unparsed_block(block))
        return []

    def _tool_use(self, index: int, block: Record) -> None:
        part = self.reply.part(index, "tool_input")
        part.name, part.tool_id = str(block["name"]), str(block["id"])
        self._tool_names[part.tool_id] = part.name
        if block.get("input"):
            part.complete_block = tool_use(part.name, part.tool_id, block["input"])

    def _delta(self, index: int, delta: Record) -> list[AgentReport] | None:
        part, text = self.reply.get_part(index), ""
        match delta.get("type"):
            case "text_delta":
                text = str(delta["text"])
            case "thinking_delta":
                text = str(delta["thinking"])
            case "input_json_delta":
                text = str(delta["partial_json"])
            case "signature_delta":
                part.signature = (part.signature or "") + str(delta["signature"])
            case kind if kind in _IGNORED_DELTAS:
                pass
            case _:
                return None
        return self.reply.append_delta(part, text)

    def _update_usage(self, usage: Record) -> None:
        """Update the usage. Counts at the end of a message are totals and replace those at its start."""
        self._usage |= {key: value for key, value in usage.items() if value is not None}
        if self._usage:
            self.reply.usage = _parse_usage(self._usage)


def _index(record: Record) -> int:
    return int(record["index"])


def _parse_usage(counts: Record) -> Usage:
    """Convert counts, in which `input_tokens` exclude cached tokens."""
    output, details = count_at(counts, "output_tokens"), record_at(counts, "output_tokens_details")
    return Usage(
        input=count_at(counts, "input_tokens"),
        output=output,
        cache_read=count_at(counts, "cache_read_input_tokens"),
        cache_write=count_at(counts, "cache_creation_input_tokens"),
        reasoning=min(output, count_at(details, "thinking_tokens")),
    )
