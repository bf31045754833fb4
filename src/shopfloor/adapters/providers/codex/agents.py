"""Sub-agents: threads that the agent starts, waits for and closes. Of their work the stream tells only the end."""

from __future__ import annotations

from shopfloor.adapters.providers.codex.prose import failure
from shopfloor.adapters.providers.reading import Record, list_at, record_at, run_error, text_at
from shopfloor.errors import AgentFailed
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import Status
from shopfloor.ports import SELF, Report, SubAgentEnded, SubAgentStarted

_KIND = "subagent"
"""Codex's word for all of them; the stream does not tell their roles."""
_GONE = "not_found"
_ENDS: dict[str, Status] = {
    "completed": "completed",
    "errored": "failed",
    "interrupted": "cancelled",
    "shutdown": "cancelled",
    _GONE: "failed",
}


class SubAgents:
    """Makes reports of what completed calls tell about other threads.

    Each begins once and ends once. One that is given more to do afterwards stays ended; what it says then is in the
    result of the call that waits for it.
    """

    def __init__(self) -> None:
        self._at_work: dict[str, bool] = {}

    def read(self, item: Record) -> list[Report]:
        states = record_at(item, "agents_states")
        reports: list[Report] = []
        named = [thread for thread in list_at(item, "receiver_thread_ids") if isinstance(thread, str)]
        for thread in dict.fromkeys([*named, *states]):
            reports += self._thread(item, thread, record_at(states, thread))
        return reports

    def _thread(self, item: Record, thread: str, state: Record) -> list[Report]:
        tool, status = text_at(item, "tool"), text_at(state, "status")
        reports: list[Report] = []
        if thread not in self._at_work:
            if tool != "spawn_agent" and status in (None, _GONE):
                # Somebody was called that is not there.
                return []
            # Newer models start them by calls that are not in the stream: then the first wait tells of them.
            reports.append(self._started(item, thread, text_at(item, "prompt") if tool == "spawn_agent" else None))
        if self._at_work[thread]:
            how = _ENDS.get(status or "")
            if how is None and tool == "close_agent" and text_at(item, "status") == "completed":
                # What is told of one that is closed is how it was before.
                how = "cancelled"
            if how is not None:
                self._at_work[thread] = False
                reports.append(_ended(thread, how, text_at(state, "message")))
        return reports

    def _started(self, item: Record, thread: str, task: str | None) -> SubAgentStarted:
        sender = text_at(item, "sender_thread_id")
        parent = sender if sender is not None and sender in self._at_work else SELF
        self._at_work[thread] = True
        if len(self._at_work) > OPEN_BRANCHES:
            del self._at_work[next(iter(self._at_work))]
        return SubAgentStarted(agent=thread, parent=parent, name=_KIND, task=task)


def _ended(thread: str, how: Status, said: str | None) -> SubAgentEnded:
    if how == "completed":
        return SubAgentEnded(agent=thread, text=said)
    if how == "cancelled":
        return SubAgentEnded(agent=thread, status=how, text=said)
    error = failure(said) if said else run_error(AgentFailed, "the sub-agent is not there any more")
    return SubAgentEnded(agent=thread, status=how, error=error)
