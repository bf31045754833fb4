"""Who may write a storage folder. Whoever may can exchange tokens, workers and logs, whatever the files' own modes."""

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
    """The file that a host locks in the folder `hosts`; None for what is no host's name: a log may hold anything."""
    return hosts / f"{host}.lock" if _HOST_NAME.fullmatch(host) else None


def is_host_alive(hosts: Path, host: str) -> bool:
    """Whether the host of that name holds its lock in the folder `hosts`."""
    file = host_lock_path(hosts, host)
    return file is not None and is_locked(file)


def has_active_host(log: Path, host: str | None) -> bool:
    """Whether a process works on the run with this log: it writes the log, or is the host of the newest attempt.

    The hosts are those of the storage that the log is in. A log elsewhere has none.
    """
    return is_locked(log) or (host is not None and is_host_alive(log.parent.parent / "hosts", host))


def require_private_folder(folder: Path) -> None:
    """Raise `StorageUnsafe` where users other than us and root can write the folder. A missing folder is fine.

    A group that has no other member, as Linux distributions make one for each user, may write it.
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
            hint="name a folder of your own with --storage, or ask the server of that user with SHOPFLOOR_URL",
        )
    writers = [
        who
        for who, is_writer in (
            ("its group", status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid, status.st_uid)),
            ("everybody", status.st_mode & stat.S_IWOTH),
        )
        if is_writer
    ]
    if writers:
        raise StorageUnsafe(
            f"the storage folder {folder} can be written by {' and '.join(writers)}: tokens and workers are kept in it",
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
