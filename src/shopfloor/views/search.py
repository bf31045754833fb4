"""What of a run can be searched besides its row: its messages, and its tools' input and output."""

from __future__ import annotations

from collections.abc import Iterable

from shopfloor.limits import SEARCH_TEXT_BYTES
from shopfloor.views.archive import ArchiveEntry, TextItem, ToolCallItem
from shopfloor.views.row import RunRow
from shopfloor.views.text import cut


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
