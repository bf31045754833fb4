"""The status of a run, as every list, page and command shows it."""

from __future__ import annotations

from typing import Final, Literal

RunState = Literal["queued", "running", "waiting", "completed", "failed", "cancelled"]
INTERRUPTED: Final = "interrupted"
"""Shown of a run that would be running, if a process worked on it. It is no status of its own: it can be resumed."""


def is_interrupted(status: str, *, is_attended: bool) -> bool:
    """Whether a run with this status was cut off. A run that waits for somebody needs no process meanwhile."""
    return status == "running" and not is_attended


def shown_status(status: str, *, is_attended: bool) -> str:
    return INTERRUPTED if is_interrupted(status, is_attended=is_attended) else status
