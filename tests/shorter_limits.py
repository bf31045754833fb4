"""The installed command with other limits: a test cannot wait for the minutes that some of them have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

SHOPFLOOR = str(Path(sys.executable).parent / "shopfloor")
_PROGRAM = f"""
import json, sys
from shopfloor import limits
from shopfloor.adapters import limits as adapter_limits
for name, value in json.loads(sys.argv.pop(1)).items():
    setattr(next(module for module in (limits, adapter_limits) if hasattr(module, name)), name, value)
sys.argv[0] = {SHOPFLOOR!r}
from shopfloor.cli import entry
entry()
"""


def shopfloor_with(limits: dict[str, float]) -> list[str]:
    """Return the command line of `shopfloor` with these limits, by name, in place of its own."""
    return [sys.executable, "-c", _PROGRAM, json.dumps(limits)] if limits else [SHOPFLOOR]
