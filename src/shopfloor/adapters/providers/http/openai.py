"""OpenAI's two APIs, Responses and Chat Completions, told apart by the shape of what they say."""

from __future__ import annotations

from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.http.body import ResponseBodyNormalizer, ResponseParser
from shopfloor.adapters.providers.http.errors import error_note, parse_error
from shopfloor.adapters.providers.http.reply import (
    Kind,
    PartialBlock,
    Reply,
    call_id,
    call_name,
    is_call,
    parse_blocks,
    parse_results,
)
from shopfloor.adapters.providers.json_access import Record, count_at, int_at, record_at, records_at, text_at
from shopfloor.errors import ExecutionCancelled, ProviderError
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import RunError, Status, Usage
from shopfloor.ports import AgentReport

_THOUGHTS = ("reasoning_content", "reasoning")
"""OpenAI has no field for what a model thinks; others have one of these."""
_REFUSED = "refusal"
_FIRST = 0


class ChatCompletionsParser:
    """The first answer counts. Where several were asked for, the others are messages too."""

    def __init__(self) -> None:
        self.is_complete = False
        self.status: Status = "completed"
        self.error: RunError | None = None
        self._replies: dict[int, Reply] = {}
        self._usage: Usage | None = None

    @property
    def reply(self) -> Reply:
        return next(iter(self._replies.values()), None) or self._reply(_FIRST)

    def event(self, record: Record) -> list[AgentReport] | None:
        if self.is_complete or "choices" not in record:
            return None
        if record.get("object") == "chat.completion":
            return self.whole(record)
        return self._read(record, "delta")

    def whole(self, record: Record) -> list[AgentReport] | None:
        if self.is_complete or "choices" not in record:
            return None
        self._read(record, "message")
        return self.done()

    def done(self) -> list[AgentReport]:
        if self.is_complete or not self._replies:
            return []
        self.is_complete = True
        return self._told(unfinished=False)

    def flush(self) -> list[AgentReport]:
        if self.is_complete or not self._replies:
            return []
        if all(reply.stop_reason is not None for reply in self._replies.values()):
            # Some never say that they are done.
            return self.done()
        return self._told(unfinished=True)

    def _told(self, *, unfinished: bool) -> list[AgentReport]:
        # What all the answers cost is one number: it goes with the first.
        self.reply.usage = self._usage
        return [report for reply in self._replies.values() for report in reply.told(unfinished=unfinished)]

    def _read(self, record: Record, key: str) -> list[AgentReport]:
        reports: list[AgentReport] = []
        if record_at(record, "usage"):
            self._usage = _chat_usage(record_at(record, "usage"))
        for choice in records_at(record, "choices"):
            number = int_at(choice, "index") or _FIRST
            reply = self._reply(number)
            answer_id = text_at(record, "id") or "answer"
            reply.message_id = reply.message_id or (answer_id if number == _FIRST else f"{answer_id}.{number}")
            reply.model = text_at(record, "model") or reply.model
            reports += _piece(reply, record_at(choice, key))
            reply.stop_reason = reply.stop_reason or text_at(choice, "finish_reason")
        return reports

    def _reply(self, number: int) -> Reply:
        if number not in self._replies and len(self._replies) >= OPEN_BRANCHES:
            raise IndexError("too many answers")
        return self._replies.setdefault(number, Reply())


def _piece(reply: Reply, said: Record) -> list[AgentReport]:
    reports: list[AgentReport] = []
    thought = next((text for key in _THOUGHTS if (text := text_at(said, key))), "")
    if thought:
        reports += reply.typed(reply.part("thinking", "thinking"), thought)
    if content := _content(said):
        reports += reply.typed(reply.part("text", "text"), content)
    if refusal := text_at(said, "refusal"):
        reply.stop_reason = _REFUSED
        reports += reply.typed(reply.part("text", "text"), refusal)
    for place, call in enumerate(records_at(said, "tool_calls")):
        reports += _call(reply, call, int_at(call, "index") if "index" in call else place)
    if record_at(said, "function_call"):
        reports += _call(reply, {"function": record_at(said, "function_call")}, 0)
    return reports


def _content(said: Record) -> str:
    """Text, or a list of parts with text in them."""
    parts = "".join(text_at(part, "text") or "" for part in records_at(said, "content"))
    return text_at(said, "content") or parts


def _call(reply: Reply, call: Record, place: int | None) -> list[AgentReport]:
    part: PartialBlock = reply.part(("call", place), "tool_input")
    told = record_at(call, "function") or record_at(call, "custom")
    part.tool_id = part.tool_id or text_at(call, "id") or f"{reply.message_id}.call.{place}"
    part.name = part.name or text_at(told, "name") or ""
    part.is_text = part.is_text or "custom" in call
    return reply.typed(part, text_at(told, "arguments") or text_at(told, "input") or "")


def _chat_usage(told: Record) -> Usage:
    """`prompt_tokens` are with what was cached; what was thought is within `completion_tokens`."""
    output, details = count_at(told, "completion_tokens"), record_at(told, "prompt_tokens_details")
    cached, written = count_at(details, "cached_tokens"), count_at(details, "cache_write_tokens")
    return Usage(
        input=max(0, count_at(told, "prompt_tokens") - cached - written),
        output=output,
        cache_read=cached,
        cache_write=written,
        reasoning=min(output, count_at(record_at(told, "completion_tokens_details"), "reasoning_tokens")),
    )


_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")
_DELTAS: dict[str, Kind] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_text.delta": "thinking",
    "response.reasoning_summary_text.delta": "thinking",
    "response.function_call_arguments.delta": "tool_input",
    "response.custom_tool_call_input.delta": "tool_input",
    "response.mcp_call_arguments.delta": "tool_input",
}
_REMARKS = ("keepalive", "response.code_interpreter_call_code.delta", "response.image_generation_call.partial_image")
_PROGRESS = ("added", "completed", "done", "failed", "generating", "in_progress", "interpreting", "searching")
"""How the names of events end that tell nothing which the whole item does not."""


class ResponsesParser:
    def __init__(self) -> None:
        self.reply = Reply()
        self.is_complete = False
        self.status: Status = "completed"
        self.error: RunError | None = None
        self._done: set[int] = set()

    def event(self, record: Record) -> list[AgentReport] | None:
        kind = str(record.get("type"))
        if self.is_complete:
            return None
        if kind in _ENDS or record.get("object") == "response":
            return self.whole(record_at(record, "response") or record)
        if kind in _BEGINNINGS:
            self._begun(record_at(record, "response"))
            return []
        if kind in _DELTAS:
            return self._delta(record, _DELTAS[kind])
        match kind:
            case "response.output_item.added":
                return self._opened(int(record["output_index"]), record_at(record, "item"))
            case "response.output_item.done":
                self._item(int(record["output_index"]), record_at(record, "item"))
                return self.reply.flush_if_too_long()
            case "response.reasoning_summary_part.added" if int_at(record, "summary_index"):
                return self._delta({**record, "delta": "\n\n"}, "thinking")
            case _:
                pass
        head, _, end = kind.rpartition(".")
        return [] if kind in _REMARKS or (head.startswith("response.") and end in _PROGRESS) else None

    def whole(self, record: Record) -> list[AgentReport] | None:
        if self.is_complete or record.get("object", "response") != "response" or "id" not in record:
            return None
        self._begun(record)
        for place, item in enumerate(records_at(record, "output")):
            self._item(place, item)
        if record_at(record, "usage"):
            self.reply.usage = _responses_usage(record_at(record, "usage"))
        why, status = text_at(record_at(record, "incomplete_details"), "reason"), text_at(record, "status")
        self.reply.stop_reason = self.reply.stop_reason or why or status
        if status not in ("failed", "cancelled"):
            return self.done()
        return self._stopped(status, parse_error(record))

    def done(self) -> list[AgentReport]:
        if self.is_complete:
            return []
        self.is_complete = True
        return self.reply.told()

    def flush(self) -> list[AgentReport]:
        return [] if self.is_complete else self.reply.told(unfinished=True)

    def _stopped(self, status: Status, error: RunError | None) -> list[AgentReport]:
        had = self.reply.told(unfinished=True)
        kind = ExecutionCancelled if status == "cancelled" else ProviderError
        self.is_complete, self.status = True, status
        self.error = error or run_error(kind, f"the response was {status}")
        return [*had, error_note(self.error)]

    def _begun(self, response: Record) -> None:
        self.reply.message_id = text_at(response, "id") or self.reply.message_id
        self.reply.model = text_at(response, "model") or self.reply.model

    def _opened(self, place: int, item: Record) -> list[AgentReport]:
        if is_call(item):
            part = self.reply.part((place, 0), "tool_input")
            part.name, part.tool_id = call_name(item), call_id(item)
        return []

    def _delta(self, record: Record, kind: Kind) -> list[AgentReport]:
        # The parts of a thought are one block.
        part = 0 if kind == "thinking" else int_at(record, "content_index") or 0
        place = self.reply.part((int(record["output_index"]), part), kind)
        return self.reply.typed(place, str(record["delta"]))

    def _item(self, place: int, item: Record) -> None:
        """A whole item. At the end of the response all of them come once more."""
        if place in self._done:
            return
        if len(self._done) >= OPEN_BRANCHES:
            raise IndexError("too many items")
        for part, block in enumerate(parse_blocks(item, self.reply)):
            self.reply.set_block((place, part), block)
        self.reply.results += parse_results(item)
        self._done.add(place)


def _responses_usage(told: Record) -> Usage:
    """`input_tokens` are with what was cached; what was thought is within `output_tokens`."""
    output, details = count_at(told, "output_tokens"), record_at(told, "input_tokens_details")
    cached, written = count_at(details, "cached_tokens"), count_at(details, "cache_write_tokens")
    return Usage(
        input=max(0, count_at(told, "input_tokens") - cached - written),
        output=output,
        cache_read=cached,
        cache_write=written,
        reasoning=min(output, count_at(record_at(told, "output_tokens_details"), "reasoning_tokens")),
    )


class OpenAINormalizer(ResponseBodyNormalizer):
    def __init__(self) -> None:
        super().__init__(_Either())


class _Either:
    """The API that it turns out to be. An error looks the same for both, and like most others that speak so."""

    def __init__(self) -> None:
        self._dialect: ResponseParser | None = None
        self._error: RunError | None = None
        self._nothing = Reply()

    @property
    def reply(self) -> Reply:
        return self._dialect.reply if self._dialect is not None else self._nothing

    @property
    def is_complete(self) -> bool:
        return self._error is not None or (self._dialect is not None and self._dialect.is_complete)

    @property
    def status(self) -> Status:
        return "failed" if self._error is not None or self._dialect is None else self._dialect.status

    @property
    def error(self) -> RunError | None:
        return self._error if self._error is not None or self._dialect is None else self._dialect.error

    def event(self, record: Record) -> list[AgentReport] | None:
        dialect = self._found(record)
        reports = dialect.event(record) if dialect is not None else None
        return reports if reports is not None else self._failed(record)

    def whole(self, record: Record) -> list[AgentReport] | None:
        dialect = self._found(record)
        reports = dialect.whole(record) if dialect is not None else None
        return reports if reports is not None else self._failed(record)

    def done(self) -> list[AgentReport]:
        return self._dialect.done() if self._dialect is not None and self._error is None else []

    def flush(self) -> list[AgentReport]:
        return self._dialect.flush() if self._dialect is not None and self._error is None else []

    def _found(self, record: Record) -> ResponseParser | None:
        if self._dialect is None:
            kind, is_one = str(record.get("type")), record.get("object")
            if kind.startswith("response.") or is_one == "response":
                self._dialect = ResponsesParser()
            elif "choices" in record:
                self._dialect = ChatCompletionsParser()
        return self._dialect

    def _failed(self, record: Record) -> list[AgentReport] | None:
        error = parse_error(record)
        if error is None or self.is_complete:
            return None
        had = self.flush()
        self._error = error
        return [*had, error_note(error)]
