"""The connection limits of one server: from its environment, and from the resource limits of its process."""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Mapping

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
