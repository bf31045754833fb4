"""The bus of a storage on this machine: within this process, and with notices between processes.

A process that writes a log notifies the server of the storage by a datagram with the run id. Notices only reduce the
delay: after a lost notice, the server finds the events when it next polls the log.
"""

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
from shopfloor.adapters.limits import (
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
"""More than the length of a run id, so that a longer text is not truncated to a valid id."""


_FLEET_NOTICE = "fleet"
"""The notice that new fleet events are stored; any other notice is a run id."""


class NoticeSender:
    """Notifies the server, if one is running, of new events in logs. Never blocks; callable from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._absent_until = 0.0
        self._lock = threading.Lock()
        self._sent_at: dict[str, float] = {}
        self._delayed: dict[str, None] = {}
        """The runs to notify of later: their last notice is too recent, or the socket was full."""
        self._has_delayed = threading.Event()
        self._thread: threading.Thread | None = None

    def notify(self, run_id: str, *, immediate: bool = False) -> None:
        """Send the run id, now or soon; with `immediate` now, even if it was sent a moment ago."""
        now = time.monotonic()
        if now < self._absent_until:
            return
        with self._lock:
            is_due = immediate or now >= self._sent_at.get(run_id, 0.0) + NOTIFY_INTERVAL_SECONDS
            if not (is_due and self._send(run_id, now)):
                self._send_later(run_id)

    def _send_later(self, run_id: str) -> None:
        if len(self._delayed) < NOTIFY_TRACKED_RUNS:
            self._delayed[run_id] = None
        self._has_delayed.set()
        if self._thread is None:
            thread = threading.Thread(target=self._send_delayed, name="shopfloor-notices", daemon=True)
            # Without a thread the server finds the events by polling the log, and the next notice tries again.
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def _send(self, run_id: str, now: float) -> bool:
        """Send a notice. Return False if the socket is full and the notice has to be sent again."""
        import socket

        try:
            # Opened each time, so that a process that forks, ends or is killed has no socket to close.
            with contextlib.ExitStack() as opened:
                sender = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
                sender.settimeout(0)
                sender.sendto(run_id.encode(), _address(self._path, opened))
        except BlockingIOError:
            return False
        except OSError:
            # No server, a server that was killed, or a server of another user.
            self._absent_until = now + NOTIFY_ABSENT_RETRY_SECONDS
            self._delayed.clear()
            return True
        if len(self._sent_at) >= NOTIFY_TRACKED_RUNS:
            self._sent_at.clear()
        self._sent_at[run_id] = now
        return True

    def _send_delayed(self) -> None:
        pause = NOTIFY_INTERVAL_SECONDS
        while True:
            if not self._has_delayed.wait(NOTIFY_THREAD_IDLE_SECONDS):
                with self._lock:
                    if not self._delayed:
                        self._thread = None
                        return
            time.sleep(pause)
            with self._lock:
                self._has_delayed.clear()
                delayed, self._delayed = self._delayed, {}
                full = [run_id for run_id in delayed if not self._send(run_id, time.monotonic())]
                for run_id in full:
                    self._send_later(run_id)
            pause = NOTIFY_FULL_RETRY_SECONDS if full else NOTIFY_INTERVAL_SECONDS


@contextmanager
def receive_notices(path: Path, notify: Callable[[str], None]) -> Generator[None]:
    """Call `notify` with each notice received, in this event loop.

    If the socket cannot be opened, logs a warning; events of other processes are then found by polling only.
    """
    import asyncio
    import socket

    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as opened:
        receiver = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        receiver.settimeout(0)
        try:
            # Set the mode before the socket has a name: other users must not be able to send at any time.
            os.fchmod(receiver.fileno(), _MODE)
            # A server that was killed leaves its socket behind.
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
            # Another server may have replaced the socket meanwhile.
            with contextlib.suppress(OSError):
                if _identity(path) == bound:
                    path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _receive(receiver: socket.socket, notify: Callable[[str], None]) -> None:
    # At most this many at once, so that a flood of notices does not starve other tasks.
    for _ in range(NOTIFY_BURST):
        try:
            text = receiver.recv(_RECEIVED_BYTES).decode("ascii", "replace")
        except OSError:
            return
        if text == _FLEET_NOTICE or is_run_id(text):
            notify(text)


def _address(path: Path, folders: contextlib.ExitStack) -> str:
    """Return the path, or if it is too long for a socket, a short path through a descriptor of its folder."""
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return str(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    folders.callback(os.close, folder)
    return f"/proc/self/fd/{folder}/{path.name}"


class LocalBus(InProcessBus):
    """Implements `Bus`. Also notifies the server of `storage`, if it is another process, of what is published here."""

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

    def notify_fleet(self) -> None:
        super().notify_fleet()
        if self._sender is not None:
            self._sender.notify(_FLEET_NOTICE)

    def _handle_notice(self, text: str) -> None:
        if text == _FLEET_NOTICE:
            super().notify_fleet()
        else:
            super().notify(text)

    @contextmanager
    def listen(self, storage: Storage) -> Generator[None]:
        """Receive the notices of other processes, as the server does. Use in the event loop of the subscribers."""
        sender, self._sender = self._sender, None
        try:
            with receive_notices(storage.notice_socket, self._handle_notice):
                yield
        finally:
            self._sender = sender
