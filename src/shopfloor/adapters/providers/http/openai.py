"""OpenAI's two APIs, Responses and Chat Completions, distinguished by the shape of their records.

Chat Completions is also the API of all endpoints that call themselves compatible. A reply of the Responses API is a
list of items, and each item comes as deltas first and then complete.
"""

from __future__ import annotations

from typing import Any

from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.http.body import ResponseBodyNormalizer, ResponseParser
from shopfloor.adapters.providers.http.errors import error_note, parse_error
from shopfloor.adapters.providers.http.reply import Kind, PartialBlock, Reply, parse_tool_input, tool_result, tool_use
from shopfloor.adapters.providers.json_access import Record, count_at, int_at, record_at, records_at, text_at
from shopfloor.errors import ExecutionCancelled, ProviderError
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import Block, RunError, Status, TextBlock, ThinkingBlock, ToolResult, Usage
from shopfloor.ports import AgentReport

_THINKING_FIELDS = ("reasoning_content", "reasoning")
"""Fields for thinking. OpenAI has none; compatible endpoints have one of these."""
_REFUSED = "refusal"
_FIRST_CHOICE = 0
_START_EVENTS = ("response.created", "response.queued", "response.in_progress")
_END_EVENTS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_DELTA_EVENTS: dict[str, Kind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_text.delta": "thinking",
    "response.reasoning_summary_text.delta": "thinking",
    "response.function_call_arguments.delta": "tool_input",
    "response.custom_tool_call_input.delta": "tool_input",
    "response.mcp_call_arguments.delta": "tool_input",
}
_IGNORED_EVENTS = (
    "keepalive",
    "response.code_interpreter_call_code.delta",
    "response.image_generation_call.partial_image",
)
_PROGRESS_SUFFIXES = ("added", "completed", "done", "failed", "generating", "in_progress", "interpreting", "searching")
"""Suffixes of events that carry nothing beyond the complete item."""
_CALL_SUFFIX = "_call"
_OUTPUT_FIELDS = ("output", "outputs", "result", "results", "error")
_NON_INPUT_FIELDS = ("type", "id", "call_id", "status", "name", "server_label", *_OUTPUT_FIELDS)
_HOSTED_TOOL_TYPES = (
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
)
"""Tools that the provider itself runs."""


class ChatCompletionsParser:
    """Parser of Chat Completions. The first choice is the reply; further choices are reported as messages too."""

    def __init__(self) -> None:
        self.is_complete = False
        self.status: Status = "completed"
        self.error: RunError | None = None
        self._replies: dict[int, Reply] = {}
        self._usage: Usage | None = None

    @property
    def reply(self) -> Reply:
        """The reply of the first choice."""
        return next(iter(self._replies.values()), None) or self._reply(_FIRST_CHOICE)

    def parse_event(self, record: Record) -> list[AgentReport] | None:
        """Report a chunk of the stream; None if the record is not understood."""
        if self.is_complete or "choices" not in record:
            return None
        if record.get("object") == "chat.completion":
            return self.parse_document(record)
        return self._read(record, "delta")

    def parse_document(self, record: Record) -> list[AgentReport] | None:
        """Report a complete response; None if the record is not understood."""
        if self.is_complete or "choices" not in record:
            return None
        self._read(record, "message")
        return self.end_of_stream()

    def end_of_stream(self) -> list[AgentReport]:
        """Report all replies."""
        if self.is_complete or not self._replies:
            return []
        self.is_complete = True
        return self._finish(unfinished=False)

    def flush(self) -> list[AgentReport]:
        """Report the replies of a stream that just stopped."""
        if self.is_complete or not self._replies:
            return []
        if all(reply.stop_reason is not None for reply in self._replies.values()):
            # Some servers never send the end of the stream.
            return self.end_of_stream()
        return self._finish(unfinished=True)

    def _finish(self, *, unfinished: bool) -> list[AgentReport]:
        # The usage covers all choices and goes with the first one.
        self.reply.usage = self._usage
        return [report for reply in self._replies.values() for report in reply.finish(unfinished=unfinished)]

    def _read(self, record: Record, key: str) -> list[AgentReport]:
        reports: list[AgentReport] = []
        if record_at(record, "usage"):
            self._usage = _chat_usage(record_at(record, "usage"))
        for choice in records_at(record, "choices"):
            index = int_at(choice, "index") or _FIRST_CHOICE
            reply = self._reply(index)
            answer_id = text_at(record, "id") or "answer"
            reply.message_id = reply.message_id or (answer_id if index == _FIRST_CHOICE else f"{answer_id}.{index}")
            reply.model = text_at(record, "model") or reply.model
            reports += _read_message(reply, record_at(choice, key))
            reply.stop_reason = reply.stop_reason or text_at(choice, "finish_reason")
        return reports

    def _reply(self, index: int) -> Reply:
        if index not in self._replies and len(self._replies) >= OPEN_BRANCHES:
            raise IndexError("too many answers")
        return self._replies.setdefault(index, Reply())


def _read_message(reply: Reply, message: Record) -> list[AgentReport]:
    reports: list[AgentReport] = []
    thinking = next((text for key in _THINKING_FIELDS if (text := text_at(message, key))), "")
    if thinking:
        reports += reply.append_delta(reply.part("thinking", "thinking"), thinking)
    if content := _content(message):
        reports += reply.append_delta(reply.part("text", "text"), content)
    if refusal := text_at(message, "refusal"):
        reply.stop_reason = _REFUSED
        reports += reply.append_delta(reply.part("text", "text"), refusal)
    for index, call in enumerate(records_at(message, "tool_calls")):
        reports += _call(reply, call, int_at(call, "index") if "index" in call else index)
    if record_at(message, "function_call"):
        reports += _call(reply, {"function": record_at(message, "function_call")}, 0)
    return reports


def _content(message: Record) -> str:
    """Return the content of a message: a text, or a list of parts with text."""
    parts = "".join(text_at(part, "text") or "" for part in records_at(message, "content"))
    return text_at(message, "content") or parts


def _call(reply: Reply, call: Record, index: int | None) -> list[AgentReport]:
    part: PartialBlock = reply.part(("call", index), "tool_input")
    function = record_at(call, "function") or record_at(call, "custom")
    part.tool_id = part.tool_id or text_at(call, "id") or f"{reply.message_id}.call.{index}"
    part.name = part.name or text_at(function, "name") or ""
    part.is_text = part.is_text or "custom" in call
    return reply.append_delta(part, text_at(function, "arguments") or text_at(function, "input") or "")


def _chat_usage(usage: Record) -> Usage:
    """Convert counts in which `prompt_tokens` include cached tokens, and `completion_tokens` include thinking."""
    output, details = count_at(usage, "completion_tokens"), record_at(usage, "prompt_tokens_details")
    cache_read, cache_write = count_at(details, "cached_tokens"), count_at(details, "cache_write_tokens")
    return Usage(
        input=max(0, count_at(usage, "prompt_tokens") - cache_read - cache_write),
        output=output,
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=min(output, count_at(record_at(usage, "completion_tokens_details"), "reasoning_tokens")),
    )


class ResponsesParser:
    """Parser of the Responses API."""

    def __init__(self) -> None:
        self.reply = Reply()
        self.is_complete = False
        self.status: Status = "completed"
        self.error: RunError | None = None
        self._completed_items: set[int] = set()

    def parse_event(self, record: Record) -> list[AgentReport] | None:
        """Report an event of the stream; None if the record is not understood."""
        kind = str(record.get("type"))
        if self.is_complete:
            return None
        if kind in _END_EVENTS or record.get("object") == "response":
            return self.parse_document(record_at(record, "response") or record)
        if kind in _START_EVENTS:
            self._response_started(record_at(record, "response"))
            return []
        if kind in _DELTA_EVENTS:
            return self._delta(record, _DELTA_EVENTS[kind])
        match kind:
            case "response.output_item.added":
                return self._item_started(int(record["output_index"]), record_at(record, "item"))
            case "response.output_item.done":
                self._item_completed(int(record["output_index"]), record_at(record, "item"))
                return self.reply.flush_if_too_long()
            case "response.reasoning_summary_part.added" if int_at(record, "summary_index"):
                return self._delta({**record, "delta": "\n\n"}, "thinking")
            case _:
                pass
        head, _, end = kind.rpartition(".")
        return [] if kind in _IGNORED_EVENTS or (head.startswith("response.") and end in _PROGRESS_SUFFIXES) else None

    def parse_document(self, record: Record) -> list[AgentReport] | None:
        """Report a complete response; None if the record is not understood."""
        if self.is_complete or record.get("object", "response") != "response" or "id" not in record:
            return None
        self._response_started(record)
        for index, item in enumerate(records_at(record, "output")):
            self._item_completed(index, item)
        if record_at(record, "usage"):
            self.reply.usage = _responses_usage(record_at(record, "usage"))
        reason, status = text_at(record_at(record, "incomplete_details"), "reason"), text_at(record, "status")
        self.reply.stop_reason = self.reply.stop_reason or reason or status
        if status not in ("failed", "cancelled"):
            return self.end_of_stream()
        return self._response_failed(status, parse_error(record))

    def end_of_stream(self) -> list[AgentReport]:
        """Report the reply."""
        if self.is_complete:
            return []
        self.is_complete = True
        return self.reply.finish()

    def flush(self) -> list[AgentReport]:
        """Report an unfinished reply."""
        return [] if self.is_complete else self.reply.finish(unfinished=True)

    def _response_failed(self, status: Status, error: RunError | None) -> list[AgentReport]:
        unfinished_reports = self.reply.finish(unfinished=True)
        kind = ExecutionCancelled if status == "cancelled" else ProviderError
        self.is_complete, self.status = True, status
        self.error = error or run_error(kind, f"the response was {status}")
        return [*unfinished_reports, error_note(self.error)]

    def _response_started(self, response: Record) -> None:
        self.reply.message_id = text_at(response, "id") or self.reply.message_id
        self.reply.model = text_at(response, "model") or self.reply.model

    def _item_started(self, index: int, item: Record) -> list[AgentReport]:
        if _is_call(item):
            part = self.reply.part((index, 0), "tool_input")
            part.name, part.tool_id = _call_name(item), _call_id(item)
        return []

    def _delta(self, record: Record, kind: Kind) -> list[AgentReport]:
        # The parts of thinking are one block.
        part_index = 0 if kind == "thinking" else int_at(record, "content_index") or 0
        part = self.reply.part((int(record["output_index"]), part_index), kind)
        return self.reply.append_delta(part, str(record["delta"]))

    def _item_completed(self, index: int, item: Record) -> None:
        """Add a complete item, once: at the end of the response all items are repeated."""
        if index in self._completed_items:
            return
        if len(self._completed_items) >= OPEN_BRANCHES:
            raise IndexError("too many items")
        for part, block in enumerate(_parse_blocks(item, self.reply)):
            self.reply.set_block((index, part), block)
        self.reply.results += _parse_results(item)
        self._completed_items.add(index)


def _is_call(item: Record) -> bool:
    return str(item["type"]).endswith(_CALL_SUFFIX)


def _call_name(item: Record) -> str:
    """Return the name of a call. Tools of the provider have no name other than the type of their item."""
    return text_at(item, "name") or str(item["type"])


def _call_id(item: Record) -> str:
    return text_at(item, "call_id") or str(item["id"])


def _parse_blocks(item: Record, reply: Reply) -> list[Block]:
    match item["type"]:
        case "message":
            return [_parse_content(part, reply) for part in records_at(item, "content")]
        case "reasoning":
            return _parse_reasoning(item)
        case _ if _is_call(item):
            return [tool_use(_call_name(item), _call_id(item), _tool_input(item))]
        case _:
            return [reply.unparsed_block(item)]


def _parse_results(item: Record) -> list[ToolResult]:
    """Return the result of a tool that the provider itself runs."""
    output_fields: dict[str, Any] = {key: item[key] for key in _OUTPUT_FIELDS if item.get(key) is not None}
    if item["type"] not in _HOSTED_TOOL_TYPES or (not output_fields and item.get("status") != "completed"):
        return []
    error = output_fields.pop("error", None)
    output = (
        next(iter(output_fields.values()))
        if len(output_fields) == 1
        else output_fields or {"status": item.get("status")}
    )
    return [tool_result(_call_name(item), _call_id(item), output, None if error is None else str(error))]


def _parse_content(part: Record, reply: Reply) -> Block:
    match part.get("type"):
        case "output_text":
            return TextBlock(text=str(part["text"]), fidelity="agent_emitted")
        case "refusal":
            reply.stop_reason = _REFUSED
            return TextBlock(text=str(part["refusal"]), fidelity="agent_emitted")
        case _:
            return reply.unparsed_block(part)


def _parse_reasoning(item: Record) -> list[Block]:
    parts = [text_at(part, "text") or "" for key in ("summary", "content") for part in records_at(item, key)]
    thinking, signature = "\n\n".join(part for part in parts if part), text_at(item, "encrypted_content")
    if not thinking and signature is None:
        return []
    return [ThinkingBlock(thinking=thinking, signature=signature, fidelity="agent_emitted")]


def _tool_input(item: Record) -> Any:
    if (arguments := text_at(item, "arguments")) is not None:
        return parse_tool_input(arguments)
    if "input" in item:
        return item["input"]
    return {key: value for key, value in item.items() if key not in _NON_INPUT_FIELDS}


def _responses_usage(usage: Record) -> Usage:
    """Convert counts in which `input_tokens` include cached tokens, and `output_tokens` include thinking."""
    output, details = count_at(usage, "output_tokens"), record_at(usage, "input_tokens_details")
    cache_read, cache_write = count_at(details, "cached_tokens"), count_at(details, "cache_write_tokens")
    return Usage(
        input=max(0, count_at(usage, "input_tokens") - cache_read - cache_write),
        output=output,
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=min(output, count_at(record_at(usage, "output_tokens_details"), "reasoning_tokens")),
    )


class OpenAINormalizer(ResponseBodyNormalizer):
    """Normalizer of a response of OpenAI or of a compatible endpoint."""

    def __init__(self) -> None:
        super().__init__(_OpenAIParser())


class _OpenAIParser:
    """Parser of either API, which its first record shows.

    Errors have the same shape in both, and in compatible APIs.
    """

    def __init__(self) -> None:
        self._parser: ResponseParser | None = None
        self._error: RunError | None = None
        self._empty_reply = Reply()

    @property
    def reply(self) -> Reply:
        return self._parser.reply if self._parser is not None else self._empty_reply

    @property
    def is_complete(self) -> bool:
        return self._error is not None or (self._parser is not None and self._parser.is_complete)

    @property
    def status(self) -> Status:
        return "failed" if self._error is not None or self._parser is None else self._parser.status

    @property
    def error(self) -> RunError | None:
        return self._error if self._error is not None or self._parser is None else self._parser.error

    def parse_event(self, record: Record) -> list[AgentReport] | None:
        parser = self._detect_parser(record)
        reports = parser.parse_event(record) if parser is not None else None
        return reports if reports is not None else self._handle_error(record)

    def parse_document(self, record: Record) -> list[AgentReport] | None:
        parser = self._detect_parser(record)
        reports = parser.parse_document(record) if parser is not None else None
        return reports if reports is not None else self._handle_error(record)

    def end_of_stream(self) -> list[AgentReport]:
        return self._parser.end_of_stream() if self._parser is not None and self._error is None else []

    def flush(self) -> list[AgentReport]:
        return self._parser.flush() if self._parser is not None and self._error is None else []

    def _detect_parser(self, record: Record) -> ResponseParser | None:
        if self._parser is None:
            kind, object_type = str(record.get("type")), record.get("object")
            if kind.startswith("response.") or object_type == "response":
                self._parser = ResponsesParser()
            elif "choices" in record:
                self._parser = ChatCompletionsParser()
        return self._parser

    def _handle_error(self, record: Record) -> list[AgentReport] | None:
        error = parse_error(record)
        if error is None or self.is_complete:
            return None
        unfinished_reports = self.flush()
        self._error = error
        return [*unfinished_reports, error_note(error)]
