"""The live bus of a storage on this machine: of this process, and with notices from and to others."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from shopfloor.adapters.bus import InProcessBus
from shopfloor.limits import (
    NOTIFY_ABSENT_RETRY_SECONDS,
    NOTIFY_BURST,
    NOTIFY_FULL_RETRY_SECONDS,
    NOTIFY_INTERVAL_SECONDS,
    NOTIFY_THREAD_IDLE_SECONDS,
    NOTIFY_TRACKED_RUNS,
    SOCKET_PATH_BYTES,
)
from shopfloor.log import Entry, RunCompleted, is_run_id
from shopfloor.record import Storage

if TYPE_CHECKING:
    import socket


_log = logging.getLogger("shopfloor.adapters")
_MODE = 0o600
_RECEIVED_BYTES = 64
"""More than an id has, so that a longer text is not taken for one."""


class NoticeSender:
    """Tells the server, where there is one, that logs have news. Never waits; from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._absent_until = 0.0
        self._lock = threading.Lock()
        self._sent_at: dict[str, float] = {}
        self._late: dict[str, None] = {}
        """The runs whose last notice is too fresh for another, or did not go through."""
        self._has_late = threading.Event()
        self._thread: threading.Thread | None = None

    def notify(self, run_id: str, *, immediate: bool = False) -> None:
        """Send the run's id, now or soon; `immediate` also where it was sent a moment ago."""
        now = time.monotonic()
        if now < self._absent_until:
            return
        with self._lock:
            is_due = immediate or now >= self._sent_at.get(run_id, 0.0) + NOTIFY_INTERVAL_SECONDS
            if not (is_due and self._send(run_id, now)):
                self._send_later(run_id)

    def _send_later(self, run_id: str) -> None:
        if len(self._late) < NOTIFY_TRACKED_RUNS:
            self._late[run_id] = None
        self._has_late.set()
        if self._thread is None:
            thread = threading.Thread(target=self._send_late, name="shopfloor-notices", daemon=True)
            # Without a thread the server finds the events when it looks at the log, and the next notice tries again.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _send(self, run_id: str, now: float) -> bool:
        """Whether it needs no other try."""
        import socket

        try:
            # Opened each time: so nothing has to be closed, by a process that may fork, end or be killed.
            with contextlib.ExitStack() as opened:
                sender = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                sender.settimeout(0)
                sender.sendto(run_id.encode(), _address(self._path, opened))
        except BlockingIOError:
            return False
        except OSError:
            # No server, one that was killed, or one of somebody else.
            self._absent_until = now + NOTIFY_ABSENT_RETRY_SECONDS
            self._late.clear()
            return True
        if len(self._sent_at) >= NOTIFY_TRACKED_RUNS:
            self._sent_at.clear()
        self._sent_at[run_id] = now
        return True

    def _send_late(self) -> None:
        pause = NOTIFY_INTERVAL_SECONDS
        while True:
            if not self._has_late.wait(NOTIFY_THREAD_IDLE_SECONDS):
                with self._lock:
                    if not self._late:
                        self._thread = None
                        return
            time.sleep(pause)
            with self._lock:
                self._has_late.clear()
                late, self._late = self._late, {}
                full = [run_id for run_id in late if not self._send(run_id, time.monotonic())]
                for run_id in full:
                    self._send_later(run_id)
            pause = NOTIFY_FULL_RETRY_SECONDS if full else NOTIFY_INTERVAL_SECONDS


@contextmanager
def receive_notices(path: Path, notify: Callable[[str], None]) -> Generator[None]:
    """Call `notify` with the ids that are sent, in this event loop. Where that is impossible, logs are polled only."""
    import asyncio
    import socket

    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as opened:
        receiver = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        receiver.settimeout(0)
        try:
            # Before it has a name: nobody else may send at any time.
            os.fchmod(receiver.fileno(), _MODE)
            # A server that was killed has left its own.
            path.unlink(missing_ok=True)
            receiver.bind(_address(path, opened))
            path.chmod(_MODE)
            bound = _identity(path)
        except OSError as error:
            _log.warning("events of other processes are shown with a delay: cannot open %s: %s", path, error)
            yield
            return
        loop.add_reader(receiver.fileno(), _receive, receiver, notify)
        try:
            yield
        finally:
            loop.remove_reader(receiver.fileno())
            # Another server may have put a socket of its own there meanwhile.
            with contextlib.suppress(OSError):
                if _identity(path) == bound:
                    path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _receive(receiver: socket.socket, notify: Callable[[str], None]) -> None:
    # So many at once and no more: others have their turn in a flood, too.
    for _ in range(NOTIFY_BURST):
        try:
            text = receiver.recv(_RECEIVED_BYTES).decode("ascii", "replace")
        except OSError:
            return
        if is_run_id(text):
            notify(text)


def _address(path: Path, folders: contextlib.ExitStack) -> str:
    """The path, or where it is too long for a socket, the same by the descriptor of its folder."""
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return str(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    folders.callback(os.close, folder)
    return f"/proc/self/fd/{folder}/{path.name}"


class LocalBus(InProcessBus):
    """What is published here is also told to the server of `storage`, if that is another process."""

    def __init__(self, storage: Storage | None = None) -> None:
        super().__init__()
        self._sender = NoticeSender(storage.notice_socket) if storage else None

    def publish(self, run_id: str, entry: Entry) -> None:
        super().publish(run_id, entry)
        if self._sender is not None:
            self._sender.notify(run_id, immediate=entry.type == RunCompleted.event_type)

    def notify(self, run_id: str) -> None:
        super().notify(run_id)
        if self._sender is not None:
            self._sender.notify(run_id, immediate=True)

    @contextmanager
    def listen(self, storage: Storage) -> Generator[None]:
        """Be the bus of the server: have other processes tell of their logs. In the event loop of the subscribers."""
        sender, self._sender = self._sender, None
        try:
            with receive_notices(storage.notice_socket, super().notify):
                yield
        finally:
            self._sender = sender
