"""The hosts of this machine, by the locks that they hold."""

from __future__ import annotations

import contextlib
import os
import signal

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.record import Storage, host_file, is_host_alive


class HostCard(msgspec.Struct, frozen=True):
    """What a host says of itself, in the file that it locks."""

    pid: int
    alone: bool
    """It does nothing but runs of its own."""


class LocalHosts:
    def __init__(self, storage: Storage) -> None:
        self._folder = storage.hosts

    async def is_alive(self, host: str) -> bool:
        return is_host_alive(self._folder, host)

    async def is_dedicated(self, host: str) -> bool:
        card = self._card(host)
        return card is not None and card.alone

    async def interrupt(self, host: str) -> None:
        # Not INT: a shell has what it starts in the background ignore that.
        self._signal(host, signal.SIGTERM)

    async def kill(self, host: str) -> None:
        self._signal(host, signal.SIGKILL)

    def _signal(self, host: str, number: signal.Signals) -> None:
        card = self._card(host)
        # Looked at last: a process that has let go of its lock is gone, and its number may be somebody else's.
        if card is not None and card.alone and is_host_alive(self._folder, host):
            with contextlib.suppress(OSError):
                os.kill(card.pid, number)

    def _card(self, host: str) -> HostCard | None:
        file = host_file(self._folder, host)
        if file is None:
            return None
        try:
            return decode_json(file.read_bytes(), HostCard)
        except (OSError, msgspec.MsgspecError):
            return None
