"""What the engine needs of the world, in the domain's verbs. Adapters fit these; nothing here knows one."""

from shopfloor.ports.hosts import Hosts
from shopfloor.ports.logs import Changes, Log, LogReader, Logs
from shopfloor.ports.models import ModelRequest, Models, Reply, ReplyDelta, ThreadMessage, ToolSpec
from shopfloor.ports.processes import Child, Command, Exit, Piece, Processes, StreamName
from shopfloor.ports.queue import Dispatch, Order, Queue, queued_row
from shopfloor.ports.store import (
    Change,
    Channel,
    Folded,
    OpenRun,
    RunFilter,
    RunItem,
    RunPage,
    Store,
    TimelineItem,
)
from shopfloor.ports.works import Asked, CallResult, WorkerInfo, Works

__all__ = [
    "Asked",
    "CallResult",
    "Change",
    "Changes",
    "Channel",
    "Child",
    "Command",
    "Dispatch",
    "Exit",
    "Folded",
    "Hosts",
    "Log",
    "LogReader",
    "Logs",
    "ModelRequest",
    "Models",
    "OpenRun",
    "Order",
    "Piece",
    "Processes",
    "Queue",
    "Reply",
    "ReplyDelta",
    "RunFilter",
    "RunItem",
    "RunPage",
    "Store",
    "StreamName",
    "ThreadMessage",
    "TimelineItem",
    "ToolSpec",
    "WorkerInfo",
    "Works",
    "queued_row",
]
