"""Files: the one writer of a log, its readers, its repair, and the live events."""

from shopfloor.record.attendance import host_file, is_attended, is_host_alive
from shopfloor.record.durability import Durability
from shopfloor.record.fanout import UNKNOWN, FanOut, Sleeper, SubscriberStats, Subscription, wake
from shopfloor.record.files import (
    force_to_disk,
    is_locked,
    lock,
    lock_file,
    make_folder,
    open_for_append,
    write_private,
)
from shopfloor.record.ownership import refuse_shared
from shopfloor.record.reader import Cursor, Problem, Report, SharedReads, follow, last_entry, read, whole_bytes
from shopfloor.record.recorder import Recorder, RecorderStats
from shopfloor.record.repair import Repair, torn_files
from shopfloor.record.storage import Storage

__all__ = [
    "UNKNOWN",
    "Cursor",
    "Durability",
    "FanOut",
    "Problem",
    "Recorder",
    "RecorderStats",
    "Repair",
    "Report",
    "SharedReads",
    "Sleeper",
    "Storage",
    "SubscriberStats",
    "Subscription",
    "follow",
    "force_to_disk",
    "host_file",
    "is_attended",
    "is_host_alive",
    "is_locked",
    "last_entry",
    "lock",
    "lock_file",
    "make_folder",
    "open_for_append",
    "read",
    "refuse_shared",
    "torn_files",
    "wake",
    "whole_bytes",
    "write_private",
]
