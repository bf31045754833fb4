"""Adapters for this machine: logs in files, child processes, and hosts identified by the lock they hold.

Three packages deal with logs: `log` has the format, `record` the files, this one the adapters of the ports.
"""

from typing import TYPE_CHECKING

from shopfloor.adapters.local.audit import LocalAudit, local_process_name
from shopfloor.adapters.local.blobs import LocalBlobs
from shopfloor.adapters.local.bus import LocalBus
from shopfloor.adapters.local.hosts import LocalHost, LocalHosts
from shopfloor.adapters.local.log_reader import LocalLogFeed, LocalLogReader
from shopfloor.adapters.local.logs import LocalLogs
from shopfloor.adapters.local.processes import LocalProcesses
from shopfloor.adapters.local.projects import LocalProjects
from shopfloor.adapters.local.tokens import LocalTokens
from shopfloor.lazy import lazy_getattr as _lazy_getattr

if TYPE_CHECKING:
    from shopfloor.adapters.local.machine import LocalMachine
    from shopfloor.adapters.local.notification_sender import NotificationSender, desktop_command

__all__ = [
    "LocalAudit",
    "LocalBlobs",
    "LocalBus",
    "LocalHost",
    "LocalHosts",
    "LocalLogFeed",
    "LocalLogReader",
    "LocalLogs",
    "LocalMachine",
    "LocalProcesses",
    "LocalProjects",
    "LocalTokens",
    "NotificationSender",
    "desktop_command",
    "local_process_name",
]

# Loaded on first use: only a server and `--on-outcome` send notifications.
# Only a host measures its machine.
__getattr__ = _lazy_getattr(
    __name__, {"notification_sender": ("NotificationSender", "desktop_command"), "machine": ("LocalMachine",)}
)
