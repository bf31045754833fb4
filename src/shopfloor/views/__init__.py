"""Pure functions from a log to a shape that somebody reads. No clock, no I/O."""

from shopfloor.views.outline import Outline, RunState, Step, by_parent, outline
from shopfloor.views.tree import Load, Row, tree

__all__ = ["Load", "Outline", "Row", "RunState", "Step", "by_parent", "outline", "tree"]
