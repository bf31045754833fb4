"""The system calls under the record: opening, locking, cutting."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Generator
from pathlib import Path

from shopfloor.errors import storage_error
from shopfloor.limits import FOLDER_MODE, LOCK_ATTEMPTS, LOCK_PAUSE_SECONDS, LOG_MODE

force_to_disk = getattr(os, "fdatasync", os.fsync)
"""`fdatasync` where the system has it."""


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
    descriptor = os.open(path, flags, LOG_MODE)
    os.fchmod(descriptor, LOG_MODE)
    return descriptor


def lock(descriptor: int) -> bool:
    """Takes the file's one lock; False where somebody else holds it."""
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            # Readers that ask `is_locked` hold the lock for an instant; a writer holds it for good.
            time.sleep(LOCK_PAUSE_SECONDS)
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


def sync_folder(folder: Path) -> None:
    """Makes a new name in the folder safe from a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock_file(path: Path) -> Generator[None]:
    """Holds a file of its own locked, and waits for whoever holds it."""
    descriptor = open_for_append(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
