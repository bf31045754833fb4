"""What a host takes up."""

from typing import Literal

Duty = Literal["all", "own", "cancels"]
"""Whatever there is; runs that it was asked for itself; or cancels of runs that have no host."""
