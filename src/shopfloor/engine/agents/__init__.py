"""What agents report, as events of logs: of their run, and of the runs of their sub-agents."""

from shopfloor.engine.agents.offline import transcribe
from shopfloor.engine.agents.transcriber import AgentEnd, PendingEvent, Prices, Transcriber

__all__ = ["AgentEnd", "PendingEvent", "Prices", "Transcriber", "transcribe"]
