"""What the engine needs of the world, in the domain's verbs. Adapters fit these; nothing here knows one."""

from shopfloor.ports.logs import Log, Logs
from shopfloor.ports.processes import Child, Command, Exit, Piece, Processes, StreamName

__all__ = ["Child", "Command", "Exit", "Log", "Logs", "Piece", "Processes", "StreamName"]
