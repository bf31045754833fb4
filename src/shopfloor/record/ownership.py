"""Checks: does a live process execute a run, and is the storage folder private.

A process owns a run while it holds a file lock, which `Recorder` takes: the system releases the lock when the process
ends, however it ends.
A user who can write the storage folder can replace its tokens, workers and logs, whatever the modes of those files are.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat
from pathlib import Path

from shopfloor.errors import StorageUnsafe, storage_error
from shopfloor.record.fs import is_locked

_HOST_NAME = re.compile(r"[a-z0-9-]{1,64}")


def host_lock_path(hosts: Path, host: str) -> Path | None:
    """Return the file that a host locks in the folder `hosts`.

    Returns None if `host` is not a valid host name: names come from logs, which may contain anything.
    """
    return hosts / f"{host}.lock" if _HOST_NAME.fullmatch(host) else None


def is_host_alive(hosts: Path, host: str) -> bool:
    """Return whether the host of that name holds its lock in the folder `hosts`."""
    path = host_lock_path(hosts, host)
    return path is not None and is_locked(path)


def has_active_host(log: Path, host: str | None) -> bool:
    """Return whether a process executes the run with this log. `host` is the host of the newest attempt.

    A process executes the run if it has locked the log for writing, or if it is this host and alive.
    Hosts are looked up in the storage that contains the log. A log outside a storage has none.
    """
    return is_locked(log) or (host is not None and is_host_alive(log.parent.parent / "hosts", host))


def require_private_folder(folder: Path) -> None:
    """Raise `StorageUnsafe` if users other than the current one and root can write the folder.

    A missing folder is accepted. So is write access for a group without other members: Linux distributions create
    such a group for each user.
    """
    try:
        status = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise storage_error(error, f"cannot read {folder}", reading=True) from error
    user = os.geteuid()
    if status.st_uid not in (user, 0) and user != 0:
        raise StorageUnsafe(
            f"the storage folder {folder} belongs to {_user_name(status.st_uid)}, who could read what you record",
            hint="use a folder of your own with --storage, or connect to the server of that user with SHOPFLOOR_URL",
        )
    writers = [
        writer
        for writer, can_write in (
            ("its group", status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid)),
            ("all users", status.st_mode & stat.S_IWOTH),
        )
        if can_write
    ]
    if writers:
        raise StorageUnsafe(
            f"the storage folder {folder} can be written by {' and '.join(writers)}: it holds tokens and workers",
            hint=f"chmod go-w {folder}; to share runs, give others a token of your server",
        )


def _user_name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def _is_private_group(group: int, user: int) -> bool:
    try:
        owner, found = pwd.getpwuid(user), grp.getgrgid(group)
    except KeyError:
        return False
    return owner.pw_gid == group and owner.pw_name == found.gr_name and set(found.gr_mem) <= {owner.pw_name}
