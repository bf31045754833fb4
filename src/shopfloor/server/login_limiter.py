"""Failed logins, counted per address."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

from shopfloor.errors import TooManyLogins
from shopfloor.server.connections import peer_name
from shopfloor.server.limits import FAILED_LOGIN_SECONDS, FAILED_LOGINS, LOGIN_ADDRESSES


class LoginLimiter:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def check(self, address: str | None) -> None:
        """Raise TooManyLogins where too many logins of this address have failed just now."""
        times = self._recent(peer_name(address))
        if len(times) >= FAILED_LOGINS:
            seconds = max(1, math.ceil(times[0] + FAILED_LOGIN_SECONDS - self._clock()))
            raise TooManyLogins(
                f"too many logins failed from {address or 'there'}",
                hint=f"try again in {seconds} seconds, or open a fresh link of `shopfloor login`",
                retry_after_seconds=seconds,
            )

    def fail(self, address: str | None) -> bool:
        """Count a failed login; False where the address has used up what it may."""
        name = peer_name(address)
        times = self._recent(name)
        if len(times) >= FAILED_LOGINS:
            return False
        times.append(self._clock())
        # The newest last, so that the oldest goes first.
        self._failures.pop(name, None)
        self._failures[name] = times
        while len(self._failures) > LOGIN_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        return True

    def _recent(self, name: str) -> deque[float]:
        times = self._failures.get(name, deque[float]())
        while times and times[0] + FAILED_LOGIN_SECONDS <= self._clock():
            times.popleft()
        return times
