"""The open connections of a server: limits on their number, and which one is closed to admit another."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from functools import lru_cache
from typing import Protocol

import msgspec

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
