"""The open connections of a server: how many it accepts, and which one is closed to admit another.

The limits come from the environment and from the resource limits of the process.
"""

from __future__ import annotations

import ipaddress
import math
import os
import resource
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Protocol

import msgspec

from shopfloor.errors import ResourceLimit, UsageError
from shopfloor.server.limits import (
    ADDRESS_SPACE_BYTES,
    BODY_SECONDS,
    CONNECTION_DESCRIPTORS,
    CONNECTIONS_MAX,
    CONNECTIONS_MIN,
    CONNECTIONS_PER_ADDRESS,
    DESCRIPTORS_MAX,
    ENGINE_DESCRIPTORS,
    HEADER_SECONDS,
    IDLE_CONNECTION_SECONDS,
    RUN_DESCRIPTORS,
    STALLED_SECONDS,
    WEBSOCKET_IDLE_SECONDS,
)


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections a server accepts, and how long a client may take."""

    connections: int = CONNECTIONS_MAX
    connections_per_address: int = CONNECTIONS_PER_ADDRESS
    header_seconds: float = HEADER_SECONDS
    body_seconds: float = BODY_SECONDS
    idle_seconds: float = IDLE_CONNECTION_SECONDS
    stalled_seconds: float = STALLED_SECONDS
    websocket_idle_seconds: float = WEBSOCKET_IDLE_SECONDS


def load_connection_limits(slots: int, env: Mapping[str, str] = os.environ) -> ConnectionLimits:
    """Return the limits of `shopfloor up`, after raising the soft limit of open files.

    The engine's reserve of descriptors is subtracted first; connections share the rest, so that no number of clients
    can take a descriptor that a run needs. Raises ResourceLimit if the process may open too few files or has too
    little address space, and UsageError for an invalid environment variable.
    """
    _check_address_space()
    descriptors = _raise_descriptors()
    reserve = ENGINE_DESCRIPTORS + RUN_DESCRIPTORS * slots
    connections = (descriptors - reserve) // CONNECTION_DESCRIPTORS
    if connections < CONNECTIONS_MIN:
        needed = reserve + CONNECTIONS_MIN * CONNECTION_DESCRIPTORS
        raise ResourceLimit(
            f"this process may open {descriptors:,} files, but serving with {slots:,} slots needs {needed:,}",
            hint=f"raise the limit (`ulimit -n {needed}`), or lower --slots",
        )
    return ConnectionLimits(
        connections=min(connections, _count(env, "SHOPFLOOR_CONNECTIONS", CONNECTIONS_MAX)),
        connections_per_address=_count(env, "SHOPFLOOR_CONNECTIONS_PER_ADDRESS", CONNECTIONS_PER_ADDRESS),
        header_seconds=_seconds(env, "SHOPFLOOR_HEADER_SECONDS", HEADER_SECONDS),
        body_seconds=_seconds(env, "SHOPFLOOR_BODY_SECONDS", BODY_SECONDS),
        idle_seconds=_seconds(env, "SHOPFLOOR_IDLE_CONNECTION_SECONDS", IDLE_CONNECTION_SECONDS),
        stalled_seconds=_seconds(env, "SHOPFLOOR_STALLED_SECONDS", STALLED_SECONDS),
        websocket_idle_seconds=_seconds(env, "SHOPFLOOR_WEBSOCKET_IDLE_SECONDS", WEBSOCKET_IDLE_SECONDS),
    )


def _raise_descriptors() -> int:
    """Raise the soft limit of open files as far as allowed and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):
        return soft
    return target


def _check_address_space() -> None:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < ADDRESS_SPACE_BYTES:
        raise ResourceLimit(
            f"address space is limited to {limit:,} bytes, but serving needs {ADDRESS_SPACE_BYTES:,}",
            hint=f"raise the limit (`ulimit -v {ADDRESS_SPACE_BYTES // 1000}`, or `ulimit -v unlimited`); "
            "to limit used memory, use a control group",
        )


def _count(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name) or str(default)
    if not text.isdecimal() or not int(text):
        raise UsageError(
            f"{name} must be a positive number of connections, got {text!r}", hint=f"unset it, or set e.g. {default}"
        )
    return int(text)


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(
            f"{name} must be a positive number of seconds, got {text!r}", hint=f"unset it, or set e.g. {default:g}"
        )
    return seconds


_NETWORK_BITS = 64
_KNOWN_ADDRESSES = 4_096
LOOPBACK = "loopback"


class Connection(Protocol):
    """A connection as this module needs it."""

    def evict(self) -> None:
        """Close a connection that is not answering a request, to make room."""
        ...

    def expire(self, now: float) -> None:
        """Close the connection if one of its deadlines has passed."""
        ...


class _Peer(msgspec.Struct, eq=False):
    """The connections of one address."""

    count: int = 0
    waiting: dict[Connection, None] = {}


class Connections:
    """Counts connections, in total and per address.

    A connection that waits for a request (a half-sent head, or idle between two requests) never keeps a new one out:
    the one that has waited longest is closed instead. So clients without a token, whose requests are refused at once,
    cannot lock others out by holding connections open.
    """

    def __init__(self, max_connections: int, per_address: int) -> None:
        self._max_connections = max_connections
        self._per_address = min(per_address, max_connections)
        self._open: dict[Connection, str] = {}
        self._waiting: dict[Connection, None] = {}
        self._peers: dict[str, _Peer] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection, address: str | None) -> bool:
        """Add a new connection, which waits for its first request. False if there is no room for it."""
        name = peer_name(address)
        peer = self._peers.get(name)
        if peer is not None and name != LOOPBACK and peer.count >= self._per_address and not _evict(peer.waiting):
            return False
        if len(self._open) >= self._max_connections and not _evict(self._waiting):
            return False
        # Evicting may have removed the address.
        peer = self._peers.setdefault(name, _Peer(waiting={}))
        peer.count += 1
        self._open[connection] = name
        self.mark_idle(connection)
        return True

    def mark_idle(self, connection: Connection) -> None:
        """Record that the connection waits for a request."""
        name = self._open.get(connection)
        if name is not None:
            self._waiting[connection] = self._peers[name].waiting[connection] = None

    def mark_busy(self, connection: Connection) -> None:
        """Record that a request of the connection is being answered."""
        name = self._open.get(connection)
        if name is not None:
            self._waiting.pop(connection, None)
            self._peers[name].waiting.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed. Removing one twice, or one that was not admitted, does nothing."""
        self.mark_busy(connection)
        name = self._open.pop(connection, None)
        if name is not None:
            peer = self._peers[name]
            peer.count -= 1
            if not peer.count:
                del self._peers[name]

    def expire(self, now: float) -> None:
        """Close all connections whose deadline has passed."""
        for connection in self._snapshot():
            connection.expire(now)

    def _snapshot(self) -> Iterator[Connection]:
        return iter(tuple(self._open))


def _evict(waiting: dict[Connection, None]) -> bool:
    """Close the connection that has waited longest; False if none waits."""
    connection = next(iter(waiting), None)
    if connection is None:
        return False
    connection.evict()
    return True


@lru_cache(_KNOWN_ADDRESSES)
def peer_name(address: str | None) -> str:
    """Return the name under which connections from an address are counted.

    All addresses of this machine count as one, and IPv6 addresses count by /64 network, since one client has a whole
    network.
    """
    try:
        found = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return address or ""
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback:
        return LOOPBACK
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))
    return str(found)
