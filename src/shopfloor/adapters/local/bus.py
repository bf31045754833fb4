"""The live bus of this machine."""

from __future__ import annotations

from shopfloor.adapters.bus import LiveBus


class LocalBus(LiveBus):
    """The bus of this process."""
