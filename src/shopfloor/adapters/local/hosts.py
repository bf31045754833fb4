"""Hosts on this machine: a host is alive as long as it holds its lock, and its children never outlive it."""

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

from shopfloor.adapters.limits import KILL_GRACE_SECONDS, PROCESS_POLL_SECONDS, REAPER_GRACE_SECONDS
from shopfloor.adapters.local import reaper
from shopfloor.decoding import decode_json
from shopfloor.error_factories import storage_error
from shopfloor.errors import ReaperLost
from shopfloor.ports import child_environment
from shopfloor.record import (
    Storage,
    host_drain_path,
    host_lock_path,
    is_host_accepting,
    is_host_alive,
    is_locked,
    make_folder,
    open_for_append,
    try_lock,
)


class LocalHost:
    """This process as a host. Holds the lock `hosts/<id>.lock`, which the system releases when the process ends.

    Starts the reaper, which terminates the children of this host if the host dies.
    """

    def __init__(self, storage: Storage, *, dedicated: bool = True) -> None:
        """Register the host and terminate the children of dead hosts. Raises `StorageError` or `ReaperLost`.

        A `dedicated` host executes nothing but its own runs, so that it may be killed to end them.
        """
        self.id = f"local-{uuid.uuid4().hex[:8]}"
        self._folder = storage.hosts
        self._path = storage.hosts / f"{self.id}.lock"
        self._groups: set[int] = set()
        self._has_leftovers = False
        self._lock = threading.Lock()
        make_folder(self._folder)
        self._descriptor = self._create_lock(dedicated=dedicated)
        self._reaper = self._start_reaper()
        reaper.SPARE_DESCRIPTOR.fill()
        self._sweep()

    def _create_lock(self, *, dedicated: bool) -> int:
        # The file gets its name only when it is locked: otherwise another host that sweeps now would take us for dead.
        unlocked_path = self._path.with_suffix(".new")
        try:
            descriptor = open_for_append(unlocked_path, new=True)
            try_lock(descriptor)
            os.write(descriptor, msgspec.json.encode(HostInfo(os.getpid(), dedicated)))
            unlocked_path.rename(self._path)
        except OSError as error:
            raise storage_error(error, f"cannot create {self._path}") from error
        return descriptor

    @property
    def reaper_pid(self) -> int:
        return self._reaper.pid

    def _start_reaper(self) -> subprocess.Popen[bytes]:
        limits = (REAPER_GRACE_SECONDS, KILL_GRACE_SECONDS, PROCESS_POLL_SECONDS)
        # Without our markers and in its own session: the reaper must outlive this host and the host's parents.
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
            raise ReaperLost(f"cannot start the process that cleans up child processes: {error}") from error

    def register_group(self, group: int) -> None:
        """Make the reaper terminate a process group if this host dies."""
        with self._lock:
            self._groups.add(group)
            self._send(f"+{group}\n")

    def unregister_group(self, group: int) -> None:
        """Undo `register_group`, when the group has ended."""
        with self._lock:
            self._groups.discard(group)
            self._send(f"-{group}\n")

    def reap_marked(self, marker: str) -> None:
        """Make the reaper terminate the processes with this marker, if this host could not.

        `close` then waits for the reaper before it releases the lock.
        """
        with self._lock:
            self._has_leftovers = True
            self._send(f"!{marker}\n")

    def _send(self, line: str) -> None:
        try:
            self._write(line)
        except OSError:
            # The reaper was killed. Start a new one and register all groups with it.
            self._reaper.wait()
            self._reaper = self._start_reaper()
            try:
                self._write("".join(f"+{group}\n" for group in self._groups))
            except OSError as error:
                raise ReaperLost(
                    f"the helper process that cleans up child processes stops immediately after each start: {error}"
                ) from error

    def _write(self, text: str) -> None:
        assert self._reaper.stdin is not None  # noqa: S101 - it was started with a pipe
        os.write(self._reaper.stdin.fileno(), text.encode())

    def _sweep(self) -> None:
        """Terminate the children of hosts that died together with their reapers."""
        for path in self._folder.glob("*.lock"):
            if path != self._path and not is_locked(path):
                _reap(path)

    def close(self) -> None:
        """End the reaper, after its remaining work, and release the lock. Calling twice is fine."""
        if self._descriptor < 0:
            return
        if not self._groups and not self._has_leftovers:
            self._reaper.kill()
        if self._reaper.stdin is not None:
            with contextlib.suppress(OSError):
                self._reaper.stdin.close()
        self._reaper.wait()
        self._path.with_suffix(_DRAINING).unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> LocalHost:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_DRAINING = ".draining"


def _reap(path: Path) -> bool:
    """Terminate the children of the dead host with this lock file. Return False if some remain."""
    marker = f"{reaper.HOST_MARKER}={path.stem}"
    is_done = reaper.terminate((), marker, grace=0, kill_timeout=KILL_GRACE_SECONDS, pause=PROCESS_POLL_SECONDS)
    # The file stays until the children are gone, so that the next host tries again.
    if is_done:
        path.with_suffix(_DRAINING).unlink(missing_ok=True)
        path.unlink(missing_ok=True)
    return is_done


class HostInfo(msgspec.Struct, frozen=True):
    """The content of the file that a host locks."""

    pid: int
    alone: bool
    """Whether the host is dedicated: it executes nothing but its own runs."""


class LocalHosts:
    """Implements `Hosts` with the lock files of a storage."""

    def __init__(self, storage: Storage) -> None:
        self._folder = storage.hosts

    async def is_alive(self, host: str) -> bool:
        return is_host_alive(self._folder, host)

    async def is_accepting(self, host: str) -> bool:
        return is_host_accepting(self._folder, host)

    async def set_draining(self, host: str, *, draining: bool) -> None:
        path = host_drain_path(self._folder, host)
        if path is None:
            return
        try:
            path.touch() if draining else path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(error, f"cannot write {path}") from error

    async def reap(self, host: str) -> bool:
        import anyio.to_thread

        path = host_lock_path(self._folder, host)
        if path is None or not path.exists():
            # Whoever deleted the file has ended the children before.
            return True
        return not is_locked(path) and await anyio.to_thread.run_sync(_reap, path)

    async def is_dedicated(self, host: str) -> bool:
        info = self._read_info(host)
        return info is not None and info.alone

    async def interrupt(self, host: str) -> None:
        # Not SIGINT: a shell makes its background processes ignore it.
        self._signal(host, signal.SIGTERM)

    async def kill(self, host: str) -> None:
        self._signal(host, signal.SIGKILL)

    def _signal(self, host: str, number: signal.Signals) -> None:
        info = self._read_info(host)
        # Checked last: after a host has released its lock, its pid may belong to another process.
        if info is not None and info.alone and is_host_alive(self._folder, host):
            with contextlib.suppress(OSError):
                os.kill(info.pid, number)

    def _read_info(self, host: str) -> HostInfo | None:
        path = host_lock_path(self._folder, host)
        if path is None:
            return None
        try:
            return decode_json(path.read_bytes(), HostInfo)
        except (OSError, msgspec.MsgspecError):
            return None
