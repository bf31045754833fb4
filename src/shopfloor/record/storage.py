"""Where runs are kept, and finding one by what a person says."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from shopfloor.errors import FileMissing, InvalidEvent, RunNotFound, ambiguous_run, storage_error
from shopfloor.log import Event, decode, format_timestamp, is_run_id, validate_run_id
from shopfloor.record.fs import open_for_append
from shopfloor.record.reader import read

_PREFIX = re.compile(r"[0-9a-f][0-9a-f-]{0,35}")
_CLOCK_STEP_SECONDS = 0.02
"""The time of a file may be this much too early: systems take it from a clock that ticks slowly."""


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
        self.audit = root / "audit.jsonl"
        self.notice_socket = root / "live.sock"
        self.server_lock = root / "server.lock"
        self.server_address = root / "server.json"
        self.server_log = root / "server.log"

    @classmethod
    def default(cls) -> Storage:
        if named := os.environ.get("SHOPFLOOR_STORAGE"):
            return cls(Path(named).expanduser().absolute())
        import platformdirs

        return cls(Path(platformdirs.user_data_dir("shopfloor", appauthor=False)) / "storage")

    def log_path(self, run_id: str) -> Path:
        # Put together as text: for every run it is asked for many times.
        return Path(f"{self._transcripts}/{validate_run_id(run_id)}.jsonl")

    def announce(self, run_id: str) -> None:
        """Tells who keeps the rows that a log is new, or gone: so nobody has to list a million files to see it."""
        descriptor = open_for_append(self.announcements)
        try:
            # Shared: any number announce at once, but not while the file is being emptied.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # On a line of its own, also where a full disk cut off the one before.
            line = f"\n{validate_run_id(run_id)}\n".encode()
            if os.write(descriptor, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def announced_since(self, offset: int) -> tuple[list[str], int]:
        """The runs announced after that many bytes, and how many bytes there are now."""
        try:
            with self.announcements.open("rb") as file:
                if os.fstat(file.fileno()).st_size < offset:
                    # It is not the file that it was: all of it is news.
                    offset = 0
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return [], 0
        whole = data[: data.rfind(b"\n") + 1]
        return [word for word in whole.decode("ascii", "replace").split() if is_run_id(word)], offset + len(whole)

    def truncate_announcements(self, offset: int) -> int:
        """Empty the announcements, if all of them have been taken up; give the place that is the end then.

        One byte stays, so that a place of 0 always means that nothing was ever taken up.
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
        """Rename the database, and what SQLite keeps beside it, so that a new one can be made; give its new path."""
        number = 1
        while (aside := self.database.with_name(f"{self.database.name}.damaged-{number}")).exists():
            number += 1
        for end in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.database}{end}").rename(f"{aside}{end}")
        return aside

    def run_ids(self) -> Iterator[str]:
        """The runs that have a log, in no order."""
        return (name.removesuffix(".jsonl") for name in self._names())

    def _names(self) -> Iterator[str]:
        try:
            names = os.listdir(self.transcripts)
        except FileNotFoundError:
            return iter(())
        except OSError as error:
            raise storage_error(error, f"cannot read {self.transcripts}", reading=True) from error
        return (name for name in names if name.endswith(".jsonl") and is_run_id(name[: -len(".jsonl")]))

    def _written(self) -> Iterator[tuple[float, Path]]:
        """The logs, each with when it was last written to."""
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):
                path = self.transcripts / name
                yield path.stat().st_mtime, path

    def find(self, reference: str) -> str:
        """The run that `reference` means: an id, its first characters, or `last`."""
        if reference.lower() == "last":
            return self._last()
        reference = reference.lower()
        if is_run_id(reference) and self.log_path(reference).exists():
            return reference
        if not _PREFIX.fullmatch(reference):
            raise RunNotFound(
                f"{reference!r} does not name a run", hint="name it by the first characters of its id, or `last`"
            )
        fitting = sorted(run_id for run_id in self.run_ids() if run_id.startswith(reference))
        if not fitting:
            raise RunNotFound(f"no run begins with {reference!r} in {self.root}", hint="`last` is the newest run")
        if len(fitting) > 1:
            raise ambiguous_run(reference, fitting)
        return fitting[0]

    def _last(self) -> str:
        """The run that began last and is nobody's sub-run.

        A run began before its file was last written, so files are looked at by that, newest first, and no more of them
        than can still matter.
        """
        newest: tuple[str, str] = ("", "")
        for written, path in sorted(self._written(), reverse=True):
            if newest[0] and _rfc3339(written + _CLOCK_STEP_SECONDS) < newest[0]:
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
    # A file may go, or be no log at all, while we look.
    with contextlib.suppress(FileMissing, InvalidEvent):
        first = next(read(path, limit=1, on_problem=lambda problem: None), None)
        return decode(first.raw) if first else None
    return None


def _rfc3339(seconds: float) -> str:
    return format_timestamp(int(seconds * 1000) + 1)
