"""States of streams, for tests that start in the middle of a run."""

from __future__ import annotations

from collections.abc import Iterable

from shopfloor.log import Event
from shopfloor.views import StreamState, stream_step


def state_after(events: Iterable[Event], state: StreamState | None = None) -> StreamState:
    """Return the state after these events, without the stream events."""
    state = state or StreamState()
    for event in events:
        state, _ = stream_step(state, event)
    return state
