"""The audit log of a storage: who did what, from where and when, one JSON object to a line."""

from __future__ import annotations

import errno
import getpass
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.limits import AUDIT_BYTES, AUDIT_TEXT_CHARS
from shopfloor.log import now
from shopfloor.record.files import lock_file, open_for_append

_log = logging.getLogger("shopfloor.record")


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: str
    action: str
    """What was done: `run.dispatched`, `run.cancelled`, `token.made`, `login.failed`, …"""
    by: str
    """Who did it: a token or a session by its name, or a process of this machine."""
    role: str | None = None
    address: str | None = None
    """Where the request came from."""
    client: str | None = None
    """What the client calls itself; anybody can claim anything."""
    run_id: str | None = None
    detail: str | None = None


class AuditLog:
    """Appends to `audit.jsonl`; a file over its limit becomes `audit.1.jsonl`, and the one before that goes."""

    def __init__(self, path: Path, limit_bytes: int = AUDIT_BYTES) -> None:
        self.path = path
        self._limit_bytes = limit_bytes

    @property
    def previous(self) -> Path:
        return self.path.with_suffix(f".1{self.path.suffix}")

    def write(
        self,
        action: str,
        *,
        by: str,
        role: str | None = None,
        address: str | None = None,
        client: str | None = None,
        run_id: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Append an entry. Never raises: what was done is done, so a failure is logged as an error."""
        entry = AuditEntry(
            at=now(),
            action=action,
            by=_short(by) or "",
            role=role,
            address=address,
            client=_short(client),
            run_id=run_id,
            detail=_short(detail),
        )
        try:
            self._append(msgspec.json.encode(entry))
        except OSError as error:
            _log.error("cannot write %s: %s; %s by %s is not in it", self.path, error.strerror, action, by)

    def _append(self, line: bytes) -> None:
        descriptor = open_for_append(self.path)
        try:
            size = os.fstat(descriptor).st_size
            # A full disk may have cut off the line before.
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
            # Another process may have done it meanwhile.
            if self.path.stat().st_size > self._limit_bytes:
                self.path.replace(self.previous)

    def read(self) -> Iterator[dict[str, Any]]:
        """The entries, oldest first. Lines that a full disk cut off are left out."""
        for path in (self.previous, self.path):
            try:
                with path.open("rb") as file:
                    for line in file:
                        try:
                            yield decode_json(line, dict[str, Any])
                        except msgspec.MsgspecError:
                            continue
            except FileNotFoundError:
                continue


def local_process() -> str:
    """This process, as the audit log names it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"process {os.getpid()} of {user}"


def _short(text: str | None) -> str | None:
    return None if text is None else text[:AUDIT_TEXT_CHARS]
