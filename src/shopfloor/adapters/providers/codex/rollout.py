"""What a thread has spent so far, and its model, from the file that Codex keeps of it.

The stream tells a thread's totals, and nowhere with how much of them a process began. The file has the total after each
answer of the model, also of a process that was killed, and of whoever else worked in the thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from shopfloor.adapters.providers.codex.meter import usage_of
from shopfloor.adapters.providers.lines import json_object
from shopfloor.adapters.providers.reading import Record, record_at, text_at
from shopfloor.adapters.providers.tokens import NOTHING
from shopfloor.limits import THREAD_TAIL_BYTES
from shopfloor.log import Usage


def spent_in(thread: str, codex_home: Path) -> Usage | None:
    """None where that is not known: there is no such file, or no total near its end."""
    lines, whole = _end_of(thread, codex_home)
    for record in _newest_first(lines, b'"token_count"'):
        total = record_at(record_at(record_at(record, "payload"), "info"), "total_token_usage")
        if total:
            return usage_of(total)
    return NOTHING if whole else None


def model_of(thread: str, codex_home: Path) -> str | None:
    """The model of the thread's newest turn; None where there is no such file, or nothing of it near its end."""
    lines, _ = _end_of(thread, codex_home)
    turns = _newest_first(lines, b'"turn_context"')
    return next((model for turn in turns if (model := text_at(record_at(turn, "payload"), "model"))), None)


def _newest_first(lines: list[bytes], mark: bytes) -> Iterator[Record]:
    """The records with this in their line. Most lines are what was said, and long; only these few are read."""
    for line in reversed(lines):
        record = json_object(line) if mark in line else None
        if record is not None:
            yield record


def _end_of(thread: str, codex_home: Path) -> tuple[list[bytes], bool]:
    """The last lines of the thread's file, and whether they are all."""
    files = sorted((codex_home / "sessions").glob(f"*/*/*/rollout-*-{thread}.jsonl"))
    if not files:
        return [], False
    try:
        with files[-1].open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - THREAD_TAIL_BYTES))
            return opened.read().split(b"\n"), size <= THREAD_TAIL_BYTES
    except OSError:
        return [], False
