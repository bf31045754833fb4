"""A host on this machine: alive as long as it holds its lock, and never outlived by its children."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from types import TracebackType

import msgspec

from shopfloor.adapters.local import minder
from shopfloor.adapters.local.hosts import HostCard
from shopfloor.errors import MinderLost, storage_error
from shopfloor.limits import KILL_GRACE_SECONDS, MINDER_GRACE_SECONDS, SWEEP_PAUSE_SECONDS
from shopfloor.ports import child_environment
from shopfloor.record import Storage, is_locked, lock, make_folder, open_for_append


class LocalHost:
    """Holds `hosts/<id>.lock` for life; the system lets go of it when we die, and then others know."""

    def __init__(self, storage: Storage, *, alone: bool = True) -> None:
        """`alone` says that it does nothing but runs of its own, so that it may be ended with them."""
        self.id = f"local-{uuid.uuid4().hex[:8]}"
        self._folder = storage.hosts
        self._path = storage.hosts / f"{self.id}.lock"
        self._groups: set[int] = set()
        self._has_leftovers = False
        self._lock = threading.Lock()
        make_folder(self._folder)
        self._descriptor = self._take_lock(alone=alone)
        self._minder = self._start_minder()
        minder.RESERVE.fill()
        self._sweep()

    def _take_lock(self, *, alone: bool) -> int:
        # Under its name only when it is locked: else a host that sweeps just now would take us for dead.
        unborn = self._path.with_suffix(".new")
        try:
            descriptor = open_for_append(unborn, new=True)
            lock(descriptor)
            os.write(descriptor, msgspec.json.encode(HostCard(os.getpid(), alone)))
            unborn.rename(self._path)
        except OSError as error:
            raise storage_error(error, f"cannot make {self._path}") from error
        return descriptor

    @property
    def minder_pid(self) -> int:
        return self._minder.pid

    def _start_minder(self) -> subprocess.Popen[bytes]:
        limits = (MINDER_GRACE_SECONDS, KILL_GRACE_SECONDS, SWEEP_PAUSE_SECONDS)
        # Without our markers, and in a session of its own: it must outlive us, and whoever runs us.
        env = child_environment(os.environ)
        try:
            return subprocess.Popen(
                [sys.executable, "-I", str(Path(minder.__file__)), self.id, *map(str, limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=env,
                cwd="/",
            )
        except OSError as error:
            raise MinderLost(f"cannot start the process that guards our children: {error}") from error

    def adopt(self, group: int) -> None:
        """Has the minder look after a process group."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._tell(f"-{group}\n")

    def hand_over(self, marker: str) -> None:
        """Have the minder end the processes with this marker, where we could not. The lock is kept until it has."""
        with self._lock:
            self._has_leftovers = True
            self._tell(f"!{marker}\n")

    def _tell(self, line: str) -> None:
        try:
            self._write(line)
        except OSError:
            # Somebody killed the minder. A new one learns all that we have.
            self._minder.wait()
            self._minder = self._start_minder()
            try:
                self._write("".join(f"+{group}\n" for group in self._groups))
            except OSError as error:
                raise MinderLost(f"the process that guards our children does not stay: {error}") from error

    def _write(self, text: str) -> None:
        assert self._minder.stdin is not None  # noqa: S101 - it was started with a pipe
        os.write(self._minder.stdin.fileno(), text.encode())

    def _sweep(self) -> None:
        """Ends what hosts left behind that are gone together with their minders."""
        for path in self._folder.glob("*.lock"):
            if path != self._path and not is_locked(path):
                marker = f"{minder.HOST_MARKER}={path.stem}"
                # The file stays until they are gone: the next host tries again.
                if minder.end((), marker, grace=0, patience=KILL_GRACE_SECONDS, pause=SWEEP_PAUSE_SECONDS):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Sends the minder away, if it has nothing left to do, and lets go of the lock. Twice is fine."""
        if self._descriptor < 0:
            return
        if not self._groups and not self._has_leftovers:
            self._minder.kill()
        if self._minder.stdin is not None:
            with contextlib.suppress(OSError):
                self._minder.stdin.close()
        self._minder.wait()
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
