"""What makes runs happen. The only room that decides what is written to a log."""

from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.command import CommandRun, Outcome, run_command

__all__ = ["Cancellation", "CommandRun", "Outcome", "run_command"]
