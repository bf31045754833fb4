"""File system helpers of the record: private files, locks, atomic writes and durable directory entries."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Generator
from functools import cache
from pathlib import Path

from shopfloor.error_factories import storage_error
from shopfloor.limits import FOLDER_MODE, LOCK_ATTEMPTS, LOCK_RETRY_SECONDS, LOG_MODE


def force_to_disk(descriptor: int) -> None:
    """Force the content of a file to disk, and as much of its metadata as reading it again takes."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def make_folder(folder: Path) -> None:
    """Create the folder and its missing parents, accessible to the current user only. Raises `StorageError`."""
    try:
        if folder.is_dir():
            return
        missing = [path for path in (folder, *folder.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(mode=FOLDER_MODE, exist_ok=True)
            path.chmod(FOLDER_MODE)  # whatever the umask is
    except OSError as error:
        raise storage_error(error, f"cannot create the folder {folder}") from error


def open_for_append(path: Path, *, new: bool = False) -> int:
    """Open a file for appending, with mode 0600 whatever the umask is, and return its descriptor.

    Creates the file and its folder if missing. With `new`, raises `FileExistsError` if the file exists.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_EXCL if new else 0)
    try:
        descriptor = os.open(path, flags, LOG_MODE)
    except (FileNotFoundError, NotADirectoryError):
        make_folder(path.parent)
        descriptor = os.open(path, flags, LOG_MODE)
    if os.fstat(descriptor).st_mode & 0o777 != LOG_MODE:
        os.fchmod(descriptor, LOG_MODE)
    return descriptor


def write_private(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace the file atomically, so that no reader sees half of it, with mode 0600 from the start.

    With `durable`, content and name are on disk when this returns. Raises `StorageError`.
    """
    import tempfile

    try:
        # `mkstemp` creates the file with mode 0600.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(descriptor, "wb") as new:
                new.write(content)
                if durable:
                    new.flush()
                    force_to_disk(new.fileno())
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        if durable:
            names = directory_sync(str(path.parent))
            names.sync(names.ticket())
    except OSError as error:
        raise storage_error(error, f"cannot write {path}") from error


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock of a file. Return False if another descriptor holds it; blocks for some retries only."""
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            # `is_locked` takes the lock for an instant, so retry; a writer keeps it until it closes the file.
            time.sleep(LOCK_RETRY_SECONDS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def is_locked(path: Path) -> bool:
    """Return whether a live process holds the lock of a file. The system releases locks when their process ends."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno == errno.ENOLCK:
            return False
        raise
    else:
        return False
    finally:
        os.close(descriptor)


class DirectorySync:
    """Durable directory entries of one folder: a single fsync of the folder serves every file created before it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._started_syncs = 0
        self._finished_syncs = 0

    def ticket(self) -> int:
        """Return the number of the next fsync, to pass to `sync`: it makes a file that was just created durable."""
        return self._started_syncs + 1

    def sync(self, ticket: int) -> None:
        """Return when the fsync with the number `ticket` has finished; does the fsync if no other thread did."""
        if self._finished_syncs >= ticket:
            return
        with self._lock:
            # Another thread may have finished it while this one waited for the lock.
            if self._finished_syncs >= ticket:
                return
            self._started_syncs += 1
            descriptor = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._finished_syncs = self._started_syncs


@cache
def directory_sync(folder: str) -> DirectorySync:
    """Return the process-wide `DirectorySync` of a folder."""
    return DirectorySync(folder)


@contextlib.contextmanager
def lock_file(path: Path) -> Generator[None]:
    """Hold the exclusive lock of a lock file. Blocks while another process holds it."""
    descriptor = open_for_append(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
