"""Timeouts of tests, long enough for a very busy machine. A test that succeeds does not wait for them."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_SECONDS = 60.0
"""The time after which an expected event counts as missing."""


def wait_until(condition: Callable[[], object], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    """Wait until the condition is true. Fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
