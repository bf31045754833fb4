"""The audit log of a storage: `audit.jsonl`, one JSON object per line."""

from __future__ import annotations

import errno
import getpass
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from shopfloor.adapters.limits import AUDIT_BYTES
from shopfloor.decoding import decode_json
from shopfloor.ports import AuditEntry
from shopfloor.record import lock_file, open_for_append

_log = logging.getLogger("shopfloor.adapters")


class LocalAudit:
    """Implements `Audit` with a file.

    A file over its size limit is renamed to `audit.1.jsonl`, replacing the previous one. Use an instance in one event
    loop only.
    """

    def __init__(self, path: Path, limit_bytes: int = AUDIT_BYTES) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        # A single thread at a time keeps the entries of this process in order.
        self._thread = anyio.CapacityLimiter(1)

    @property
    def rotated_path(self) -> Path:
        return self.path.with_suffix(f".1{self.path.suffix}")

    async def write(self, entry: AuditEntry) -> None:
        try:
            # The action has happened: the shield writes its entry even if the request is cancelled.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._append, msgspec.json.encode(entry), limiter=self._thread)
        except Exception as error:  # noqa: BLE001 - for example a full disk, or no thread: the action cannot be undone
            reason = (isinstance(error, OSError) and error.strerror) or error
            _log.error("cannot write %s: %s; %s by %s is not in it", self.path, reason, entry.action, entry.by)

    def _append(self, line: bytes) -> None:
        descriptor = open_for_append(self.path)
        try:
            size = os.fstat(descriptor).st_size
            # A full disk may have truncated the line before.
            start = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            data = start + line + b"\n"
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        if size + len(data) > self._limit_bytes:
            self._rotate()

    def _rotate(self) -> None:
        with lock_file(self.path.with_suffix(".lock")):
            # Another process may have rotated the file meanwhile.
            if self.path.stat().st_size > self._limit_bytes:
                self.path.replace(self.rotated_path)

    def read(self) -> Iterator[dict[str, Any]]:
        """Iterate over the entries, oldest first. Skips lines that a full disk truncated."""
        for path in (self.rotated_path, self.path):
            try:
                with path.open("rb") as file:
                    for line in file:
                        try:
                            yield decode_json(line, dict[str, Any])
                        except msgspec.MsgspecError:
                            continue
            except FileNotFoundError:
                continue


def local_process_name() -> str:
    """Return the name of this process for the audit log."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"process {os.getpid()} of {user}"
