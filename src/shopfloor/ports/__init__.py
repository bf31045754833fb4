"""What the engine needs of the world, in the domain's verbs. Adapters fit these; nothing here knows one."""

from shopfloor.ports.logs import Changes, Log, LogReader, Logs
from shopfloor.ports.processes import Child, Command, Exit, Piece, Processes, StreamName
from shopfloor.ports.store import (
    Change,
    Channel,
    Folded,
    RunFilter,
    RunItem,
    RunPage,
    Store,
    TimelineItem,
)

__all__ = [
    "Change",
    "Changes",
    "Channel",
    "Child",
    "Command",
    "Exit",
    "Folded",
    "Log",
    "LogReader",
    "Logs",
    "Piece",
    "Processes",
    "RunFilter",
    "RunItem",
    "RunPage",
    "Store",
    "StreamName",
    "TimelineItem",
]
