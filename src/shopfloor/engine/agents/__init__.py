"""What agents report, as events of logs: of their run, and of the runs of their sub-agents."""

from shopfloor.engine.agents.transcribing import transcribed
from shopfloor.engine.agents.transcript import AgentEnd, Prices, Transcriber, Write

__all__ = ["AgentEnd", "Prices", "Transcriber", "Write", "transcribed"]
