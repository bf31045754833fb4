"""What a thread has spent so far, from the file that Codex keeps of it.

The stream tells a thread's totals, and nowhere with how much of them a process began. The file has the total after each
answer of the model, also of a process that was killed, and of whoever else worked in the thread.
"""

from __future__ import annotations

import os
from pathlib import Path

from shopfloor.adapters.providers.codex.meter import usage_of
from shopfloor.adapters.providers.lines import json_object
from shopfloor.adapters.providers.reading import record_at
from shopfloor.adapters.providers.tokens import NOTHING
from shopfloor.limits import THREAD_TAIL_BYTES
from shopfloor.log import Usage


def spent_in(thread: str, codex_home: Path) -> Usage | None:
    """None where that is not known: there is no such file, or no total near its end."""
    files = sorted((codex_home / "sessions").glob(f"*/*/*/rollout-*-{thread}.jsonl"))
    if not files:
        return None
    try:
        lines, whole = _end_of(files[-1])
    except OSError:
        return None
    for line in reversed(lines):
        # Most lines are what was said, and long; only these few are read.
        record = json_object(line) if b'"token_count"' in line else None
        total = record_at(record_at(record_at(record or {}, "payload"), "info"), "total_token_usage")
        if total:
            return usage_of(total)
    return NOTHING if whole else None


def _end_of(file: Path) -> tuple[list[bytes], bool]:
    """Its last lines, and whether they are all."""
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - THREAD_TAIL_BYTES))
        return opened.read().split(b"\n"), size <= THREAD_TAIL_BYTES
