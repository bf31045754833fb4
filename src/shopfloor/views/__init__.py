"""Pure functions from a log to a shape that somebody reads. No clock, no I/O."""

from shopfloor.views.archive import ArchiveEntry, TextItem, ToolCallItem, ToolResultItem, archive, cut
from shopfloor.views.outline import Outline, RunState, Step, by_parent, outline
from shopfloor.views.row import RunRow, as_text, row_step
from shopfloor.views.search import search_text
from shopfloor.views.timeline import Timeline, TimelineRow, preview, timeline_step
from shopfloor.views.tree import Load, Row, tree
from shopfloor.views.waiting import Waits, waits_step

__all__ = [
    "ArchiveEntry",
    "Load",
    "Outline",
    "Row",
    "RunRow",
    "RunState",
    "Step",
    "TextItem",
    "Timeline",
    "TimelineRow",
    "ToolCallItem",
    "ToolResultItem",
    "Waits",
    "archive",
    "as_text",
    "by_parent",
    "cut",
    "outline",
    "preview",
    "row_step",
    "search_text",
    "timeline_step",
    "tree",
    "waits_step",
]
