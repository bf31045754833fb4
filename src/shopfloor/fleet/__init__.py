"""The fleet: hosts with their heartbeats, drains and losses, and whether providers can be used."""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr

if TYPE_CHECKING:
    from shopfloor.fleet.directory import SHUTDOWN, HostDirectory, ListedHost, live_offers
    from shopfloor.fleet.host_events import location_fields
    from shopfloor.fleet.hosts import HostPorts, RegisteredHost
    from shopfloor.fleet.provider_announcements import settle
    from shopfloor.fleet.provider_monitor import ProviderMonitor, ProviderState
    from shopfloor.fleet.provider_status import decide_status
    from shopfloor.fleet.takeover import Takeover

__all__ = [
    "SHUTDOWN",
    "HostDirectory",
    "HostPorts",
    "ListedHost",
    "ProviderMonitor",
    "ProviderState",
    "RegisteredHost",
    "Takeover",
    "decide_status",
    "live_offers",
    "location_fields",
    "settle",
]

__getattr__ = _lazy_getattr(
    __name__,
    {
        "directory": ("SHUTDOWN", "HostDirectory", "ListedHost", "live_offers"),
        "host_events": ("location_fields",),
        "hosts": ("HostPorts", "RegisteredHost"),
        "provider_announcements": ("settle",),
        "provider_monitor": ("ProviderMonitor", "ProviderState"),
        "provider_status": ("decide_status",),
        "takeover": ("Takeover",),
    },
)
