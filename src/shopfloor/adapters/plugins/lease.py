"""The right to run a plugin: one process of a storage has it, and a server shares its plugin with the others."""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.record import open_for_append, write_private


class PluginAddress(msgspec.Struct, frozen=True):
    """Where a started plugin answers, and the secret that it requires."""

    url: str = ""
    """Empty while the plugin does not answer."""
    secret: str = ""
    error: str | None = None
    """Why the plugin does not run; None while it starts."""


class PluginLease:
    """The lock on one plugin. It ends with the process. `is_shared`: other processes may use the plugin, too.

    Two processes of one plugin would each believe that the running jobs of the other were interrupted.
    """

    def __init__(self, folder: Path, plugin: Path, *, is_shared: bool) -> None:
        key = hashlib.sha256(os.fsencode(plugin.resolve())).hexdigest()[:16]
        self._lock = folder / f"{plugin.name}-{key}.lock"
        self._address = folder / f"{plugin.name}-{key}.json"
        self._is_shared = is_shared
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock. Return False if another process has it."""
        if self._descriptor is None:
            descriptor = open_for_append(self._lock)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            self._descriptor = descriptor
            self.withdraw()
        return True

    def publish(self, address: PluginAddress) -> None:
        """Tell the other processes of the storage where the plugin answers."""
        if self._is_shared:
            write_private(self._address, msgspec.json.encode(address))

    def withdraw(self, error: str | None = None) -> None:
        """Tell the other processes that the plugin does not answer now, and why."""
        if self._is_shared:
            self.publish(PluginAddress(error=error))
        else:
            self._address.unlink(missing_ok=True)

    def published_address(self) -> PluginAddress | None:
        """Return the address that the holder of the lock published; None if it does not share the plugin."""
        try:
            return decode_json(self._address.read_bytes(), PluginAddress)
        except (OSError, msgspec.MsgspecError):
            return None

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            self._address.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None
