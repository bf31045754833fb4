"""The system calls under the record: opening, locking, cutting."""

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

from shopfloor.errors import storage_error
from shopfloor.limits import FOLDER_MODE, LOCK_ATTEMPTS, LOCK_RETRY_SECONDS, LOG_MODE


def force_to_disk(descriptor: int) -> None:
    """What is in the file, and as much of what is known about it as it takes to read it again."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def make_folder(folder: Path) -> None:
    """The folder and those above it, for nobody but us."""
    try:
        if folder.is_dir():
            return
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir(mode=FOLDER_MODE, exist_ok=True)
            one.chmod(FOLDER_MODE)  # whatever the umask is
    except OSError as error:
        raise storage_error(error, f"cannot make the folder {folder}") from error


def open_for_append(path: Path, *, new: bool = False) -> int:
    """The file, open for appending and mode 0600 whatever the umask is."""
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
    """The whole file at once, so that nobody reads half of it, and never for others to read.

    With `durable` it is on disk, under its name, when this returns.
    """
    import tempfile

    try:
        # Made with mode 0600.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
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
    """Takes the file's one lock; False where somebody else holds it."""
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            # Readers that ask `is_locked` hold the lock for an instant; a writer holds it for good.
            time.sleep(LOCK_RETRY_SECONDS)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def is_locked(path: Path) -> bool:
    """Whether a live process holds the file's lock: a lock goes with its process, whatever kills it."""
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
    """The names in a folder, made safe from a power cut: whoever asks the disk does so for all that are there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._begun = 0
        self._done = 0

    def ticket(self) -> int:
        """For a name that has just been made: the first time that the disk is asked from now on makes it safe."""
        return self._begun + 1

    def sync(self, ticket: int) -> None:
        if self._done >= ticket:
            return
        with self._lock:
            # Somebody else may have asked meanwhile.
            if self._done >= ticket:
                return
            self._begun += 1
            descriptor = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._done = self._begun


@cache
def directory_sync(folder: str) -> DirectorySync:
    """The one of that folder in this process."""
    return DirectorySync(folder)


@contextlib.contextmanager
def lock_file(path: Path) -> Generator[None]:
    """Holds a file of its own locked, and waits for whoever holds it."""
    descriptor = open_for_append(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
