"""The fleet: hosts with their heartbeats, drains and losses."""

from shopfloor.fleet.directory import HostDirectory, ListedHost
from shopfloor.fleet.host_events import location_fields
from shopfloor.fleet.hosts import SHUTDOWN, HostPorts, RegisteredHost
from shopfloor.fleet.takeover import Takeover

__all__ = ["SHUTDOWN", "HostDirectory", "HostPorts", "ListedHost", "RegisteredHost", "Takeover", "location_fields"]
