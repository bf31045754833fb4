"""Waits that end by themselves: on record as a call that awaits a time."""

from __future__ import annotations

import uuid
from datetime import datetime

from shopfloor.log import Awaits, ToolCall, now


def resting_call(reason: str, until: str) -> ToolCall:
    return ToolCall(
        name=reason,
        call_id=f"{reason}_{uuid.uuid4().hex}",
        input={"until": until},
        output=None,
        fidelity="router",
        awaits=Awaits(kind=reason, until=until),
    )


def seconds_until(until: str | None) -> float | None:
    if until is None:
        return None
    return max(0.0, (datetime.fromisoformat(until) - datetime.fromisoformat(now())).total_seconds())
