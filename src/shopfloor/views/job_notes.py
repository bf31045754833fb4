"""The notes of a run: what its worker reported of its progress, its decisions and the questions it left open."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from shopfloor.log import Event, ToolCall


class Decision(msgspec.Struct, frozen=True):
    """A judgment call that a worker made by itself."""

    question: str
    decision: str
    reasoning: str


class JobNotes(msgspec.Struct, frozen=True):
    """The newest summary, and all questions and decisions, oldest first."""

    summary: str | None = None
    questions: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()


def job_notes_step(notes: JobNotes, event: Event) -> JobNotes:
    """Return the notes after the next event of the log."""
    call = event.payload
    given: Any = call.input if isinstance(call, ToolCall) else None
    if not isinstance(call, ToolCall) or not isinstance(given, dict):
        return notes
    fields = cast("dict[str, Any]", given)
    match call.name:
        case "update_summary":
            return msgspec.structs.replace(notes, summary=_text(fields, "summary"))
        case "log_question":
            return msgspec.structs.replace(notes, questions=(*notes.questions, _text(fields, "question")))
        case "record_decision":
            decision = Decision(_text(fields, "question"), _text(fields, "decision"), _text(fields, "reasoning"))
            return msgspec.structs.replace(notes, decisions=(*notes.decisions, decision))
        case _:
            return notes


def _text(fields: dict[str, Any], name: str) -> str:
    return str(fields.get(name) or "")


def job_notes(events: Iterable[Event]) -> JobNotes:
    """Return the notes in these events."""
    notes = JobNotes()
    for event in events:
        notes = job_notes_step(notes, event)
    return notes
