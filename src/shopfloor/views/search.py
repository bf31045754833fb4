"""What of a run can be searched besides its row: its messages, and its tools' input and output."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from shopfloor.limits import SEARCH_TEXT_BYTES
from shopfloor.views.archive import ArchiveEntry, TextItem, ToolCallItem
from shopfloor.views.row import RunRow
from shopfloor.views.text import cut

HIT_BEGIN: Final = "\ue000"
HIT_END: Final = "\ue001"
"""In a snippet, what was searched for stands between these. They are in no text that is shown, unlike brackets."""

_MARKS: Final = re.compile(f"[{HIT_BEGIN}{HIT_END}]")
_ID: Final = re.compile(r"[0-9a-f-]{4,}")


def unmarked(text: str) -> str:
    """Without the characters that mark hits."""
    return _MARKS.sub("", text)


def beginning_of_id(search: str) -> str | None:
    """What somebody searches, where a run's id may begin with it."""
    said = search.strip().lower()
    return said if _ID.fullmatch(said) else None


def search_text(row: RunRow, entries: Iterable[ArchiveEntry]) -> str:
    parts: list[str] = []
    size = 0
    for entry in entries:
        for item in entry.content:
            text = f"{item.name} {item.args}" if isinstance(item, ToolCallItem) else item.text
            # A command's task is its first message, and a result often the last: said once is enough.
            if isinstance(item, TextItem) and text in (row.task, row.result):
                continue
            parts.append(text)
            size += len(text)
            if size > SEARCH_TEXT_BYTES:
                return cut("\n".join(parts), SEARCH_TEXT_BYTES)
    return "\n".join(parts)
