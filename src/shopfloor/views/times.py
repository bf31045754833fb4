"""Times as logs have them."""

from __future__ import annotations

from datetime import datetime


def ms_between(began: str, ended: str) -> int | None:
    """Milliseconds; None where one of them is no time. A clock that was set back makes it 0."""
    try:
        took = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    except (ValueError, TypeError):
        return None
    return max(0, round(took.total_seconds() * 1000))
