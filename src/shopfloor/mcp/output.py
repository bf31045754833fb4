"""What the tools return: short facts as JSON, then at most one long text, together within `MCP_OUTPUT_TOKENS`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from shopfloor.errors import InvalidParameter
from shopfloor.limits import CHARS_PER_TOKEN
from shopfloor.mcp.limits import (
    MCP_NOTES,
    MCP_OPTIONS,
    MCP_OUTPUT_TOKENS,
    MCP_PAGE_ITEMS,
    MCP_QUESTION_CHARS,
    MCP_QUESTIONS,
    MCP_TEXT_CHARS,
)
from shopfloor.views import (
    APPROVAL,
    DEFINITION_CHANGED,
    RATE_LIMIT,
    approval_question,
    definition_wait_message,
    strip_hit_marks,
)

_TO_STATUS: Final = {"done": "completed"}
_FROM_STATUS: Final = {"completed": "done"}
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_CURSOR: Final = re.compile(r"[0-9]{1,15}")


class Output(NamedTuple):
    """The answer of a tool: facts, and a text such as the output of a run."""

    facts: dict[str, Any]
    text: str | None = None
    is_error: bool = False

    def parts(self) -> list[str]:
        """Return the texts to send, within `MCP_OUTPUT_TOKENS`: facts that are too long are shortened."""
        room_chars = MCP_OUTPUT_TOKENS * CHARS_PER_TOKEN - len(self.text or "")
        limit_chars = MCP_QUESTION_CHARS
        facts = _encode(self.facts)
        while len(facts) > room_chars and limit_chars > 1:
            limit_chars //= 2
            facts = _encode(_shorten(self.facts, limit_chars))
        return [facts] if self.text is None else [facts, self.text]


def _encode(facts: Any) -> str:
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))


def _shorten(value: Any, limit_chars: int) -> Any:
    """Return a value whose texts have at most `limit_chars` characters each."""
    match value:
        case str():
            return value if len(value) <= limit_chars else f"{value[: limit_chars - 1]}…"
        case list():
            return [_shorten(item, limit_chars) for item in cast("list[Any]", value)]
        case dict():
            return {name: _shorten(item, limit_chars) for name, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def to_status(wire_status: str) -> str:
    """Return a status as the tools name it: the API calls a completed run `done`."""
    return _TO_STATUS.get(wire_status, wire_status)


def to_wire_status(status: str) -> str:
    """Return a status as the API names it."""
    return _FROM_STATUS.get(status, status)


def one_line(text: Any, limit_chars: int = MCP_TEXT_CHARS) -> str:
    """Return a text in one line of at most `limit_chars` characters."""
    line = " ".join(_CONTROLS.sub(" ", str(text)[: limit_chars * 4]).split())
    return line if len(line) <= limit_chars else f"{line[: limit_chars - 1]}…"


def without_none(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that are known: without None, empty texts and empty lists."""
    return {name: value for name, value in facts.items() if value is not None and value not in ("", [], {})}


def parse_cursor(cursor: str) -> int:
    """Return the position that a cursor of ours names. Raises `InvalidParameter`."""
    if not _CURSOR.fullmatch(cursor):
        raise InvalidParameter(
            f"cursor: {cursor[:MCP_TEXT_CHARS]!r} is not one of ours", hint="send `next` of the previous page unchanged"
        )
    return int(cursor)


class Page(NamedTuple):
    """A part of a text, and the cursor of the next part; None at the end."""

    text: str
    next: str | None


def page_of(text: str, start: int, limit_chars: int) -> Page:
    """Return at most `limit_chars` characters from `start` on, ended at a line break if one is near."""
    end = min(start + limit_chars, len(text))
    if end < len(text):
        break_at = text.rfind("\n", start + limit_chars // 2, end)
        end = break_at + 1 if break_at >= 0 else end
    return Page(text[start:end], str(end) if end < len(text) else None)


def run_facts(run: Mapping[str, Any], link: str) -> dict[str, Any]:
    """Return the facts about a run: a row of a list, or a detail, which also has its questions."""
    error = cast("dict[str, Any] | None", run.get("error"))
    status = to_status(run["status"])
    return without_none(
        {
            "run_id": run["id"],
            "worker": one_line(run["name"]),
            "status": "interrupted" if run.get("interrupted") else status,
            "task": one_line(run["task"]),
            "started_at": run["started_at"],
            "seconds": None if run.get("duration_ms") is None else round(run["duration_ms"] / 1000, 1),
            "tool_calls": run.get("tool_calls") or None,
            "cost_usd": run.get("tree_cost_usd"),
            "questions": question_facts(run) or None,
            "error": one_line(error_line(error)) if error else None,
            "match": one_line(strip_hit_marks(run["snippet"])) if run.get("snippet") else None,
            "url": link,
        }
    )


def note_facts(detail: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the worker itself reported: its progress, and what people should review."""
    decisions = cast("list[dict[str, str]]", detail["decisions"])[-MCP_NOTES:]
    questions = cast("list[str]", detail["questions"])[-MCP_NOTES:]
    artifacts = cast("list[dict[str, Any]]", detail["artifacts"])[:MCP_PAGE_ITEMS]
    return without_none(
        {
            "progress": one_line(detail["summary"] or ""),
            "decisions": [{name: one_line(text) for name, text in decision.items()} for decision in decisions],
            "open_questions": [one_line(question) for question in questions],
            "artifacts": [one_line(artifact["name"]) for artifact in artifacts],
        }
    )


def error_line(error: Mapping[str, Any]) -> str:
    """Return the error of a run with its hint."""
    message = f"{error.get('code') or 'failed'}: {error.get('message') or 'no reason was recorded'}"
    return f"{message}; hint: {error['hint']}" if error.get("hint") else message


def question_facts(run: Mapping[str, Any]) -> list[Any]:
    """Return what the run waits for: questions with the id that an answer needs, or the lines of a list's row."""
    calls = pending_calls(run)
    if not calls:
        return [one_line(line) for line in cast("list[str]", run.get("asks") or [])[:MCP_QUESTIONS]]
    facts = [_call_facts(call) for call in calls[:MCP_QUESTIONS]]
    return [*facts, f"and {len(calls) - MCP_QUESTIONS} more"] if len(calls) > MCP_QUESTIONS else facts


def pending_calls(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the calls that the run and its sub-runs wait for, without those that are answered already."""
    return [call for call in cast("list[dict[str, Any]]", run.get("awaits") or []) if not call["answered"]]


def is_answerable(call: Mapping[str, Any]) -> bool:
    """Return whether an answer ends the wait. Rate limits end by themselves, a changed worker must be restored."""
    return call["kind"] not in (RATE_LIMIT, DEFINITION_CHANGED)


def question_text(call: Mapping[str, Any]) -> str:
    """Return the text of a question, or the tool and the input of another call."""
    given = call["input"]
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    if isinstance(given, str):
        return given
    if call["kind"] == DEFINITION_CHANGED:
        return definition_wait_message(given)
    if call["kind"] == APPROVAL:
        return approval_question(given)
    for name in ("question", "message", "prompt", "title"):
        if call["kind"] != "client_tool" and isinstance(fields.get(name), str):
            return cast("str", fields[name])
    return f"{call['name']} {json.dumps(given, ensure_ascii=False)}"


def question_options(call: Mapping[str, Any]) -> list[str]:
    """Return the options of a question, as text."""
    given = call["input"]
    options: Any = cast("dict[str, Any]", given).get("options") if isinstance(given, dict) else None
    return [str(option) for option in cast("Sequence[Any]", options)] if isinstance(options, list) else []


def _call_facts(call: Mapping[str, Any]) -> dict[str, Any]:
    text = question_text(call)
    return without_none(
        {
            "call_id": call["call_id"],
            "kind": call["kind"],
            "question": text if len(text) <= MCP_QUESTION_CHARS else f"{text[: MCP_QUESTION_CHARS - 1]}…",
            "options": [one_line(option) for option in question_options(call)][:MCP_OPTIONS],
            "until": call.get("until"),
        }
    )
