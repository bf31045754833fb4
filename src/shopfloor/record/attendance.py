"""Whether a process works on a run: told by locks, which go with their process, whatever kills it."""

from __future__ import annotations

import re
from pathlib import Path

from shopfloor.record.files import is_locked

_HOST_NAME = re.compile(r"[a-z0-9-]{1,64}")


def host_file(hosts: Path, host: str) -> Path | None:
    """The file that a host locks in the folder `hosts`; None for what is no host's name: a log may hold anything."""
    return hosts / f"{host}.lock" if _HOST_NAME.fullmatch(host) else None


def is_host_alive(hosts: Path, host: str) -> bool:
    """Whether the host of that name holds its lock in the folder `hosts`."""
    file = host_file(hosts, host)
    return file is not None and is_locked(file)


def is_attended(log: Path, host: str | None) -> bool:
    """Whether a process works on the run with this log: it writes the log, or is the host of the newest attempt.

    The hosts are those of the storage that the log is in. A log elsewhere has none.
    """
    return is_locked(log) or (host is not None and is_host_alive(log.parent.parent / "hosts", host))
