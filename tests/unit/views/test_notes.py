"""The notes of a run: what its worker or a plugin's job recorded about itself."""

from __future__ import annotations

from functools import reduce
from typing import Any, Literal

import pytest

from shopfloor.limits import ARCHIVE_ARGS_BYTES, NOTES_KEPT
from shopfloor.log import Event, ToolCall, new_run_id
from shopfloor.views import Decision, Notes, notes_step

RUN_ID = new_run_id()


def notes_of(*calls: tuple[str, Any], fidelity: Literal["router", "agent_emitted"] = "router") -> Notes:
    payloads = [
        ToolCall(name=name, call_id=str(n), input=arguments, output=None, fidelity=fidelity)
        for n, (name, arguments) in enumerate(calls)
    ]
    events = [
        Event(
            seq=n,
            run_id=RUN_ID,
            parent_run_id=None,
            child_run_id=None,
            type=payload.event_type,
            path="work",
            iteration=0,
            timestamp="2026-01-01T00:00:00.000Z",
            payload=payload,
        )
        for n, payload in enumerate(payloads, start=1)
    ]
    return reduce(notes_step, events, Notes())


@pytest.mark.parametrize("fidelity", ["router", "agent_emitted"])
def test_the_notes_of_workers_and_of_plugins_are_the_same(fidelity: Literal["router", "agent_emitted"]) -> None:
    notes = notes_of(
        ("update_summary", {"summary": "reading"}),
        ("log_question", {"question": "Which year?", "options": ["2025", "2026"]}),
        ("record_decision", {"question": "Which year?", "decision": "2026", "reasoning": "It is the newest."}),
        ("update_summary", {"summary": "writing"}),
        ("search", {"question": "not a note"}),
        fidelity=fidelity,
    )
    assert notes == Notes(
        summary="writing",
        questions=("Which year?",),
        decisions=(Decision("Which year?", "2026", "It is the newest."),),
    )


@pytest.mark.parametrize("arguments", [None, "text", [], {}, {"question": 1}, {"question": " "}])
def test_calls_with_unusable_input_are_no_notes(arguments: Any) -> None:
    assert notes_of(("log_question", arguments), ("record_decision", arguments)) == Notes()


def test_a_decision_needs_all_of_its_texts() -> None:
    assert notes_of(("record_decision", {"question": "Which?", "decision": "this"})) == Notes()


def test_notes_are_bounded() -> None:
    many = [("log_question", {"question": f"question {n}"}) for n in range(NOTES_KEPT + 5)]
    notes = notes_of(*many, ("update_summary", {"summary": "x" * (ARCHIVE_ARGS_BYTES + 1)}))
    assert len(notes.questions) == NOTES_KEPT
    assert notes.questions[-1] == f"question {NOTES_KEPT + 4}"
    assert len((notes.summary or "").encode()) <= ARCHIVE_ARGS_BYTES


def test_submitted_files_are_known_by_name() -> None:
    first = ("submit_result", {"artifacts": [{"name": "artifacts/report.md"}, {"name": 1}, "broken"]})
    second = ("submit_result", {"text": "again", "artifacts": [{"name": "b.md"}, {"name": "artifacts/report.md"}]})
    assert notes_of(first, fidelity="agent_emitted").artifacts == ("artifacts/report.md",)
    assert notes_of(first, second, ("submit_result", {"text": "t"})).artifacts == ("artifacts/report.md", "b.md")
