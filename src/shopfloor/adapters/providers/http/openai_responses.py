"""OpenAI's Responses API: an answer is a list of items, and each comes in pieces and then whole."""

from __future__ import annotations

from shopfloor.adapters.providers.http.failures import error_note, failure
from shopfloor.adapters.providers.http.items import blocks_of, call_id, call_name, is_call, results_of
from shopfloor.adapters.providers.http.reply import Kind, Reply
from shopfloor.adapters.providers.reading import Record, count_at, int_at, record_at, records_at, run_error, text_at
from shopfloor.errors import ExecutionCancelled, ProviderError
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import RunError, Status, Usage
from shopfloor.ports import Report

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


class Responses:
    def __init__(self) -> None:
        self.reply = Reply()
        self.over = False
        self.status: Status = "completed"
        self.error: RunError | None = None
        self._done: set[int] = set()

    def event(self, record: Record) -> list[Report] | None:
        kind = str(record.get("type"))
        if self.over:
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
                return self.reply.too_long()
            case "response.reasoning_summary_part.added" if int_at(record, "summary_index"):
                return self._delta({**record, "delta": "\n\n"}, "thinking")
            case _:
                pass
        head, _, end = kind.rpartition(".")
        return [] if kind in _REMARKS or (head.startswith("response.") and end in _PROGRESS) else None

    def whole(self, record: Record) -> list[Report] | None:
        if self.over or record.get("object", "response") != "response" or "id" not in record:
            return None
        self._begun(record)
        for place, item in enumerate(records_at(record, "output")):
            self._item(place, item)
        if record_at(record, "usage"):
            self.reply.usage = _usage(record_at(record, "usage"))
        why, status = text_at(record_at(record, "incomplete_details"), "reason"), text_at(record, "status")
        self.reply.stop_reason = self.reply.stop_reason or why or status
        if status not in ("failed", "cancelled"):
            return self.done()
        return self._stopped(status, failure(record))

    def done(self) -> list[Report]:
        if self.over:
            return []
        self.over = True
        return self.reply.told()

    def left(self) -> list[Report]:
        return [] if self.over else self.reply.told(unfinished=True)

    def _stopped(self, status: Status, error: RunError | None) -> list[Report]:
        had = self.reply.told(unfinished=True)
        kind = ExecutionCancelled if status == "cancelled" else ProviderError
        self.over, self.status = True, status
        self.error = error or run_error(kind, f"the response was {status}")
        return [*had, error_note(self.error)]

    def _begun(self, response: Record) -> None:
        self.reply.message_id = text_at(response, "id") or self.reply.message_id
        self.reply.model = text_at(response, "model") or self.reply.model

    def _opened(self, place: int, item: Record) -> list[Report]:
        if is_call(item):
            part = self.reply.part((place, 0), "tool_input")
            part.name, part.tool_id = call_name(item), call_id(item)
        return []

    def _delta(self, record: Record, kind: Kind) -> list[Report]:
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
        for part, block in enumerate(blocks_of(item, self.reply)):
            self.reply.put((place, part), block)
        self.reply.results += results_of(item)
        self._done.add(place)


def _usage(told: Record) -> Usage:
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
