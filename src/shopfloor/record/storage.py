"""The storage folder: its files and locks, who may write it, and the lookup of a run by id, prefix or `last`.

A process owns a run while it holds a file lock, which `Recorder` takes: the system releases the lock when the process
ends, however it ends. A user who can write the storage folder can replace its tokens, workers and logs, whatever the
modes of those files are.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from shopfloor.error_factories import ambiguous_run, storage_error
from shopfloor.errors import FileMissing, InvalidEvent, RunNotFound, StorageUnsafe
from shopfloor.log import Event, decode, format_timestamp, is_run_id, validate_run_id
from shopfloor.record.fs import is_locked, open_for_append
from shopfloor.record.reader import read

_PREFIX = re.compile(r"[0-9a-f][0-9a-f-]{0,35}")
_CLOCK_STEP_SECONDS = 0.02
"""How much too early the modification time of a file can be: systems take it from a coarse clock."""


class Storage:
    """The storage folder: `$SHOPFLOOR_STORAGE`, or `storage` in the user's data folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transcripts = root / "transcripts"
        self._transcripts = str(self.transcripts)
        self.hosts = root / "hosts"
        self.database = root / "shopfloor.db"
        self.announcements = root / "announcements"
        self.tokens = root / "tokens.json"
        self.projects = root / "projects.json"
        self.blobs = root / "blobs"
        self.audit = root / "audit.jsonl"
        self.notice_socket = root / "live.sock"
        self.server_lock = root / "server.lock"
        self.server_address = root / "server.json"
        self.settings = root / "settings.yaml"
        self.server_log = root / "server.log"

    @classmethod
    def default(cls) -> Storage:
        """Return the storage that the environment names, else the one in the user's data folder."""
        if folder := os.environ.get("SHOPFLOOR_STORAGE"):
            return cls(Path(folder).expanduser().absolute())
        import platformdirs

        return cls(Path(platformdirs.user_data_dir("shopfloor", appauthor=False)) / "storage")

    def log_path(self, run_id: str) -> Path:
        """Return the path of a run's log. Raises `InvalidRunId` if `run_id` is not a run id."""
        # Joined as text, which is faster than `Path /`: this is called many times for every run.
        return Path(f"{self._transcripts}/{validate_run_id(run_id)}.jsonl")

    def announce(self, run_id: str) -> None:
        """Announce that a log is new or deleted, so that the database is updated without listing a million files."""
        descriptor = open_for_append(self.announcements)
        try:
            # A shared lock: any number of processes announce at once, but not while the file is truncated.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # The leading LF puts the id on a line of its own even if a full disk truncated the line before.
            line = f"\n{validate_run_id(run_id)}\n".encode()
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def announced_since(self, offset: int) -> tuple[list[str], int]:
        """Return the runs announced after byte `offset`, and the offset to continue from."""
        try:
            with self.announcements.open("rb") as file:
                if os.fstat(file.fileno()).st_size < offset:
                    # The file was replaced: all of its content is new.
                    offset = 0
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return [], 0
        complete = data[: data.rfind(b"\n") + 1]
        return [word for word in complete.decode("ascii", "replace").split() if is_run_id(word)], offset + len(complete)

    def truncate_announcements(self, offset: int) -> int:
        """Truncate the announcements if `offset` is their end, and return the offset to continue from.

        One byte stays, so that an offset of 0 always means that nothing has been read yet.
        """
        try:
            descriptor = os.open(self.announcements, os.O_RDWR)
        except FileNotFoundError:
            return offset
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_size != offset:
                return offset
            os.pwrite(descriptor, b"\n", 0)
            os.ftruncate(descriptor, 1)
        except BlockingIOError:
            return offset
        finally:
            os.close(descriptor)
        return 1

    def rename_damaged_database(self) -> Path:
        """Rename the database and SQLite's files beside it, so that a new one can be created. Return the new path."""
        number = 1
        while (damaged_path := self.database.with_name(f"{self.database.name}.damaged-{number}")).exists():
            number += 1
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.database}{suffix}").rename(f"{damaged_path}{suffix}")
        return damaged_path

    def run_ids(self) -> Iterator[str]:
        """Iterate over the runs that have a log, in no particular order."""
        return (name.removesuffix(".jsonl") for name in self._log_names())

    def _log_names(self) -> Iterator[str]:
        try:
            names = os.listdir(self.transcripts)
        except FileNotFoundError:
            return iter(())
        except OSError as error:
            raise storage_error(error, f"cannot read {self.transcripts}", reading=True) from error
        return (name for name in names if name.endswith(".jsonl") and is_run_id(name[: -len(".jsonl")]))

    def _logs_by_mtime(self) -> Iterator[tuple[float, Path]]:
        """Iterate over the logs, each with its modification time."""
        for name in self._log_names():
            with contextlib.suppress(FileNotFoundError):
                path = self.transcripts / name
                yield path.stat().st_mtime, path

    def find(self, reference: str) -> str:
        """Return the id of the run that `reference` names: an id, the first characters of an id, or `last`.

        Raises `RunNotFound` if no run matches, `AmbiguousRun` if several do.
        """
        if reference.lower() == "last":
            return self._last()
        reference = reference.lower()
        if is_run_id(reference) and self.log_path(reference).exists():
            return reference
        if not _PREFIX.fullmatch(reference):
            raise RunNotFound(
                f"{reference!r} does not name a run", hint="name it by the first characters of its id, or `last`"
            )
        matches = sorted(run_id for run_id in self.run_ids() if run_id.startswith(reference))
        if not matches:
            raise RunNotFound(
                f"no run begins with {reference!r} in {self.root}",
                hint="`last` is the newest run; `shopfloor list` lists the runs",
            )
        if len(matches) > 1:
            raise ambiguous_run(reference, matches)
        return matches[0]

    def _last(self) -> str:
        """Return the id of the run that started last and is not a sub-run.

        A run starts before the last write to its file. So files are read newest modification first, until the
        remaining ones are too old to hold a newer start.
        """
        newest: tuple[str, str] = ("", "")
        for modified, path in sorted(self._logs_by_mtime(), reverse=True):
            if newest[0] and _rfc3339(modified + _CLOCK_STEP_SECONDS) < newest[0]:
                break
            event = _first_event(path)
            if event and event.parent_run_id is None:
                newest = max(newest, (event.timestamp, event.run_id))
        if not newest[0]:
            raise RunNotFound(
                f"there are no runs in {self.root} yet", hint="make one: shopfloor run --command 'echo hello'"
            )
        return newest[1]


def _first_event(path: Path) -> Event | None:
    # The file may have been deleted meanwhile, or not be a log at all.
    with contextlib.suppress(FileMissing, InvalidEvent):
        first = next(read(path, limit=1, on_problem=lambda problem: None), None)
        return decode(first.raw) if first else None
    return None


def _rfc3339(seconds: float) -> str:
    return format_timestamp(int(seconds * 1000) + 1)


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


def host_drain_path(hosts: Path, host: str) -> Path | None:
    """Return the file that exists while a host is draining; None if `host` is not a valid host name."""
    return hosts / f"{host}.draining" if _HOST_NAME.fullmatch(host) else None


def is_host_accepting(hosts: Path, host: str) -> bool:
    """Return whether the host is alive and not draining, so that it resumes its waiting runs itself."""
    path = host_drain_path(hosts, host)
    return path is not None and is_host_alive(hosts, host) and not path.exists()


def has_active_host(log: Path, host: str | None) -> bool:
    """Return whether a process executes the run with this log. `host` is the host of the newest attempt.

    A process executes the run if it has locked the log for writing, or if it is this host, alive and not draining.
    Hosts are looked up in the storage that contains the log. A log outside a storage has none.
    """
    return is_locked(log) or (host is not None and is_host_accepting(log.parent.parent / "hosts", host))


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
