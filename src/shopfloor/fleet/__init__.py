"""The fleet: hosts with their heartbeats, drains and losses."""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr

if TYPE_CHECKING:
    from shopfloor.fleet.directory import HostDirectory, ListedHost
    from shopfloor.fleet.host_events import location_fields
    from shopfloor.fleet.hosts import SHUTDOWN, HostPorts, RegisteredHost
    from shopfloor.fleet.takeover import Takeover

__all__ = ["SHUTDOWN", "HostDirectory", "HostPorts", "ListedHost", "RegisteredHost", "Takeover", "location_fields"]

__getattr__ = _lazy_getattr(
    __name__,
    {
        "directory": ("HostDirectory", "ListedHost"),
        "host_events": ("location_fields",),
        "hosts": ("SHUTDOWN", "HostPorts", "RegisteredHost"),
        "takeover": ("Takeover",),
    },
)
