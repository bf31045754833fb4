"""The notes of a run: its current summary, and the questions and decisions that its worker recorded.

They come from calls of the tools below, made by a worker through the engine or reported by a plugin for its job.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from shopfloor.limits import ARCHIVE_ARGS_BYTES, NOTES_KEPT
from shopfloor.log import Event, ToolCall
from shopfloor.views.truncation import truncate_bytes

UPDATE_SUMMARY: Final = "update_summary"
LOG_QUESTION: Final = "log_question"
RECORD_DECISION: Final = "record_decision"
STORE_MEMORY: Final = "store_memory"
SUBMIT_RESULT: Final = "submit_result"


class Decision(msgspec.Struct, frozen=True):
    """A choice that the worker made by itself because the task left it open."""

    question: str
    decision: str
    reasoning: str


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold. Bounded: the newest `NOTES_KEPT` of each kind, with long texts truncated."""

    summary: str | None = None
    """What the worker does, in its own words; the newest one."""
    questions: tuple[str, ...] = ()
    """Questions for a person that need no answer, oldest first."""
    decisions: tuple[Decision, ...] = ()
    """Oldest first."""
    artifacts: tuple[str, ...] = ()
    """The names of files that were submitted with the result. Files of a plugin's job stay with the plugin."""


NO_NOTES: Final = Notes()


def notes_step(notes: Notes, event: Event) -> Notes:
    """Return the notes after the next event of their run. A call with unusable input is ignored."""
    call = event.payload
    arguments: Any = call.input if isinstance(call, ToolCall) else None
    if not isinstance(call, ToolCall) or not isinstance(arguments, dict):
        return notes
    fields = cast("dict[str, Any]", arguments)
    if call.name == UPDATE_SUMMARY and (texts := _texts(fields, "summary")):
        return replace(notes, summary=texts[0])
    if call.name == LOG_QUESTION and (texts := _texts(fields, "question")):
        return replace(notes, questions=(*notes.questions, texts[0])[-NOTES_KEPT:])
    if call.name == RECORD_DECISION and (texts := _texts(fields, "question", "decision", "reasoning")):
        return replace(notes, decisions=(*notes.decisions, Decision(*texts))[-NOTES_KEPT:])
    if call.name == SUBMIT_RESULT and (names := _artifact_names(fields)):
        return replace(notes, artifacts=tuple(dict.fromkeys((*notes.artifacts, *names)))[-NOTES_KEPT:])
    return notes


def _texts(fields: dict[str, Any], *names: str) -> list[str]:
    """Return the texts of these fields, truncated. Empty if one of them is missing or empty."""
    texts = [fields.get(name) for name in names]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        return []
    return [truncate_bytes(str(text), ARCHIVE_ARGS_BYTES) for text in texts]


def _artifact_names(fields: dict[str, Any]) -> list[str]:
    artifacts = fields.get("artifacts")
    entries = cast("list[Any]", artifacts) if isinstance(artifacts, list) else []
    names = [cast("dict[str, Any]", entry).get("name") for entry in entries if isinstance(entry, dict)]
    return [truncate_bytes(name, ARCHIVE_ARGS_BYTES) for name in names[:NOTES_KEPT] if isinstance(name, str)]
