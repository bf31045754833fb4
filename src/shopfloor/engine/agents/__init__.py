"""Conversion of agents' reports to events: in the log of the run, and in those of its sub-agents."""

from shopfloor.engine.agents.offline import transcribe
from shopfloor.engine.agents.transcriber import AgentEnd, PendingEvent, Prices, Transcriber

__all__ = ["AgentEnd", "PendingEvent", "Prices", "Transcriber", "transcribe"]
