"""The hosts of this machine, by the locks that they hold."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from types import TracebackType

import msgspec

from shopfloor.adapters.local import reaper
from shopfloor.decoding import decode_json
from shopfloor.errors import ReaperLost, storage_error
from shopfloor.limits import KILL_GRACE_SECONDS, PROCESS_POLL_SECONDS, REAPER_GRACE_SECONDS
from shopfloor.ports import child_environment
from shopfloor.record import Storage, host_lock_path, is_host_alive, is_locked, make_folder, open_for_append, try_lock


class LocalHost:
    """Holds `hosts/<id>.try_lock` for life; the system lets go of it when we die, and then others know."""

    def __init__(self, storage: Storage, *, dedicated: bool = True) -> None:
        """`dedicated` says that it does nothing but runs of its own, so that it may be ended with them."""
        self.id = f"local-{uuid.uuid4().hex[:8]}"
        self._folder = storage.hosts
        self._path = storage.hosts / f"{self.id}.lock"
        self._groups: set[int] = set()
        self._has_leftovers = False
        self._lock = threading.Lock()
        make_folder(self._folder)
        self._descriptor = self._take_lock(dedicated=dedicated)
        self._reaper = self._start_reaper()
        reaper.SPARE_DESCRIPTOR.fill()
        self._sweep()

    def _take_lock(self, *, dedicated: bool) -> int:
        # Under its name only when it is locked: else a host that sweeps just now would take us for dead.
        unborn = self._path.with_suffix(".new")
        try:
            descriptor = open_for_append(unborn, new=True)
            try_lock(descriptor)
            os.write(descriptor, msgspec.json.encode(HostInfo(os.getpid(), dedicated)))
            unborn.rename(self._path)
        except OSError as error:
            raise storage_error(error, f"cannot make {self._path}") from error
        return descriptor

    @property
    def reaper_pid(self) -> int:
        return self._reaper.pid

    def _start_reaper(self) -> subprocess.Popen[bytes]:
        limits = (REAPER_GRACE_SECONDS, KILL_GRACE_SECONDS, PROCESS_POLL_SECONDS)
        # Without our markers, and in a session of its own: it must outlive us, and whoever runs us.
        env = child_environment(os.environ)
        try:
            return subprocess.Popen(
                [sys.executable, "-I", str(Path(reaper.__file__)), self.id, *map(str, limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=env,
                cwd="/",
            )
        except OSError as error:
            raise ReaperLost(f"cannot start the process that guards our children: {error}") from error

    def register_group(self, group: int) -> None:
        """Has the reaper look after a process group."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        with self._lock:
            self._groups.discard(group)
            self._tell(f"-{group}\n")

    def reap_marked(self, marker: str) -> None:
        """Have the reaper end the processes with this marker, where we could not. The lock is kept until it has."""
        with self._lock:
            self._has_leftovers = True
            self._tell(f"!{marker}\n")

    def _tell(self, line: str) -> None:
        try:
            self._write(line)
        except OSError:
            # Somebody killed the reaper. A new one learns all that we have.
            self._reaper.wait()
            self._reaper = self._start_reaper()
            try:
                self._write("".join(f"+{group}\n" for group in self._groups))
            except OSError as error:
                raise ReaperLost(f"the process that guards our children does not stay: {error}") from error

    def _write(self, text: str) -> None:
        assert self._reaper.stdin is not None  # noqa: S101 - it was started with a pipe
        os.write(self._reaper.stdin.fileno(), text.encode())

    def _sweep(self) -> None:
        """Ends what hosts left behind that are gone together with their reapers."""
        for path in self._folder.glob("*.lock"):
            if path != self._path and not is_locked(path):
                marker = f"{reaper.HOST_MARKER}={path.stem}"
                # The file stays until they are gone: the next host tries again.
                if reaper.terminate((), marker, grace=0, kill_timeout=KILL_GRACE_SECONDS, pause=PROCESS_POLL_SECONDS):
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Sends the reaper away, if it has nothing left to do, and lets go of the lock. Twice is fine."""
        if self._descriptor < 0:
            return
        if not self._groups and not self._has_leftovers:
            self._reaper.kill()
        if self._reaper.stdin is not None:
            with contextlib.suppress(OSError):
                self._reaper.stdin.close()
        self._reaper.wait()
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HostInfo(msgspec.Struct, frozen=True):
    """What a host says of itself, in the file that it locks."""

    pid: int
    alone: bool
    """It does nothing but runs of its own."""


class LocalHosts:
    def __init__(self, storage: Storage) -> None:
        self._folder = storage.hosts

    async def is_alive(self, host: str) -> bool:
        return is_host_alive(self._folder, host)

    async def is_dedicated(self, host: str) -> bool:
        card = self._card(host)
        return card is not None and card.alone

    async def interrupt(self, host: str) -> None:
        # Not INT: a shell has what it starts in the background ignore that.
        self._signal(host, signal.SIGTERM)

    async def kill(self, host: str) -> None:
        self._signal(host, signal.SIGKILL)

    def _signal(self, host: str, number: signal.Signals) -> None:
        card = self._card(host)
        # Looked at last: a process that has let go of its lock is gone, and its number may be somebody else's.
        if card is not None and card.alone and is_host_alive(self._folder, host):
            with contextlib.suppress(OSError):
                os.kill(card.pid, number)

    def _card(self, host: str) -> HostInfo | None:
        file = host_lock_path(self._folder, host)
        if file is None:
            return None
        try:
            return decode_json(file.read_bytes(), HostInfo)
        except (OSError, msgspec.MsgspecError):
            return None
