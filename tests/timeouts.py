"""How long tests wait: as long as a very busy machine may need. Where all goes well, nothing of it is spent."""

from __future__ import annotations

import time
from collections.abc import Callable

TIMEOUT_SECONDS = 60.0
"""Seconds until something that has to happen is taken to never happen."""


def wait_until(condition: Callable[[], object], what: str, seconds: float = TIMEOUT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
