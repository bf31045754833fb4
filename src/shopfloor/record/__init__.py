"""Log files: the single writer of a log, its readers, its repair, and the fan-out of live events.

Three packages deal with logs: `log` has the format, this one the files, `adapters/local` the adapters of the ports.
"""

from shopfloor.record.fanout import UNKNOWN_SEQ, FanOut, SubscriberStats, Subscription, Waiter, wake_all
from shopfloor.record.fs import (
    force_to_disk,
    is_locked,
    lock_file,
    make_folder,
    open_for_append,
    try_lock,
    write_private,
)
from shopfloor.record.reader import Cursor, Problem, ProblemHandler, ReadCache, complete_bytes, follow, last_entry, read
from shopfloor.record.recorder import Durability, Recorder, RecorderStats
from shopfloor.record.repair import Repair, torn_files
from shopfloor.record.storage import (
    Storage,
    has_active_host,
    host_drain_path,
    host_lock_path,
    is_host_accepting,
    is_host_alive,
    require_private_folder,
)

__all__ = [
    "UNKNOWN_SEQ",
    "Cursor",
    "Durability",
    "FanOut",
    "Problem",
    "ProblemHandler",
    "ReadCache",
    "Recorder",
    "RecorderStats",
    "Repair",
    "Storage",
    "SubscriberStats",
    "Subscription",
    "Waiter",
    "complete_bytes",
    "follow",
    "force_to_disk",
    "has_active_host",
    "host_drain_path",
    "host_lock_path",
    "is_host_accepting",
    "is_host_alive",
    "is_locked",
    "last_entry",
    "lock_file",
    "make_folder",
    "open_for_append",
    "read",
    "require_private_folder",
    "torn_files",
    "try_lock",
    "wake_all",
    "write_private",
]
