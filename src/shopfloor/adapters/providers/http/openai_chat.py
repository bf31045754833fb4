"""OpenAI's Chat Completions, as every endpoint speaks it that calls itself compatible."""

from __future__ import annotations

from shopfloor.adapters.providers.http.reply import Part, Reply
from shopfloor.adapters.providers.reading import Record, count_at, int_at, record_at, records_at, text_at
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import RunError, Status, Usage
from shopfloor.ports import Report

_THOUGHTS = ("reasoning_content", "reasoning")
"""OpenAI has no field for what a model thinks; others have one of these."""
_REFUSED = "refusal"
_FIRST = 0


class ChatCompletions:
    """The first answer counts. Where several were asked for, the others are messages too."""

    def __init__(self) -> None:
        self.over = False
        self.status: Status = "completed"
        self.error: RunError | None = None
        self._replies: dict[int, Reply] = {}
        self._usage: Usage | None = None

    @property
    def reply(self) -> Reply:
        return next(iter(self._replies.values()), None) or self._reply(_FIRST)

    def event(self, record: Record) -> list[Report] | None:
        if self.over or "choices" not in record:
            return None
        if record.get("object") == "chat.completion":
            return self.whole(record)
        return self._read(record, "delta")

    def whole(self, record: Record) -> list[Report] | None:
        if self.over or "choices" not in record:
            return None
        self._read(record, "message")
        return self.done()

    def done(self) -> list[Report]:
        if self.over or not self._replies:
            return []
        self.over = True
        return self._told(unfinished=False)

    def left(self) -> list[Report]:
        if self.over or not self._replies:
            return []
        if all(reply.stop_reason is not None for reply in self._replies.values()):
            # Some never say that they are done.
            return self.done()
        return self._told(unfinished=True)

    def _told(self, *, unfinished: bool) -> list[Report]:
        # What all the answers cost is one number: it goes with the first.
        self.reply.usage = self._usage
        return [report for reply in self._replies.values() for report in reply.told(unfinished=unfinished)]

    def _read(self, record: Record, key: str) -> list[Report]:
        reports: list[Report] = []
        if record_at(record, "usage"):
            self._usage = _usage(record_at(record, "usage"))
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


def _piece(reply: Reply, said: Record) -> list[Report]:
    reports: list[Report] = []
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


def _call(reply: Reply, call: Record, place: int | None) -> list[Report]:
    part: Part = reply.part(("call", place), "tool_input")
    told = record_at(call, "function") or record_at(call, "custom")
    part.tool_id = part.tool_id or text_at(call, "id") or f"{reply.message_id}.call.{place}"
    part.name = part.name or text_at(told, "name") or ""
    part.is_text = part.is_text or "custom" in call
    return reply.typed(part, text_at(told, "arguments") or text_at(told, "input") or "")


def _usage(told: Record) -> Usage:
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
