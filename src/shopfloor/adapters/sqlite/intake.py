"""The intake: acknowledged requests that no log has, in a file beside the database.

If the database is lost, `shopfloor rebuild` restores every acknowledged dispatch, control message, hook and mark (a
pin or a dismissal) from this file; `LogLookup` tells which of them the logs already have. See docs/adr/0017-intake.md.

Lines are appended and the file is compacted only inside a write transaction of the database, whose lock excludes other
processes. The first line names the file. The database stores the name of the file whose lines it has: a database with
another name, such as a new one, has to import the lines before the file may be compacted.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, Protocol, get_args
from uuid import uuid4

import msgspec

from shopfloor.adapters.limits import INTAKE_BYTES
from shopfloor.decoding import json_decoder
from shopfloor.error_factories import storage_error
from shopfloor.errors import FileMissing, InvalidEvent, StorageError
from shopfloor.log import Payload, RunCompleted, RunStarted, ToolResult, UnknownPayload, decode
from shopfloor.ports import ControlMessage, Hook, QueuedRun
from shopfloor.record import Storage, force_to_disk, open_for_append, read, write_private

Mark = Literal["pin", "unpin", "dismiss"]
"""What a person has decided about a run, and no log has."""
MARKS: Final[tuple[Mark, ...]] = get_args(Mark)


class LogLookup(Protocol):
    """Access to logs, to find out which requests they already contain. All methods block."""

    def has(self, entry: QueuedRun | ControlMessage) -> bool:
        """Return whether the log of the run contains this dispatch, or the effect of this message."""
        ...

    def runs_with_idempotency_key(self) -> Iterable[QueuedRun]:
        """Iterate over the runs with a log that were dispatched with an idempotency key."""
        ...


class StorageLogLookup:
    """Implements `LogLookup` with the logs of a storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def has(self, entry: QueuedRun | ControlMessage) -> bool:
        for payload in self._payloads(entry.run_id):
            if isinstance(entry, QueuedRun) or isinstance(payload, RunCompleted):
                return True
            if isinstance(payload, ToolResult) and payload.call_id == entry.body.get("call_id"):
                return True
        return False

    def runs_with_idempotency_key(self) -> Iterator[QueuedRun]:
        for run_id in self._storage.run_ids():
            first = next(self._payloads(run_id), None)
            if isinstance(first, RunStarted) and first.idempotency_key is not None:
                yield QueuedRun(run_id=run_id, started=first)

    def _payloads(self, run_id: str) -> Iterator[Payload | UnknownPayload]:
        """Iterate over the payloads of a run's log, as far as it can be read; nothing without a log."""
        with suppress(FileMissing, InvalidEvent, StorageError):
            for entry in read(self._storage.log_path(run_id), on_problem=lambda problem: None):
                yield decode(entry.raw).payload


class EmptyLogLookup:
    """Implements `LogLookup` for a queue without logs."""

    def has(self, entry: QueuedRun | ControlMessage) -> bool:
        return False

    def runs_with_idempotency_key(self) -> Iterable[QueuedRun]:
        return ()


class IntakeLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the file: exactly one of these fields, and with a dispatch the host that claimed it, if any."""

    intake: str | None = None
    dispatch: QueuedRun | None = None
    host: str | None = None
    message: ControlMessage | None = None
    deleted: str | None = None
    """The id of a deleted run: earlier lines of that run are no longer valid."""
    pin: str | None = None
    """The id of a run that retention does not delete."""
    unpin: str | None = None
    dismiss: str | None = None
    """The id of a failed run that no longer waits for a person."""
    hook: Hook | None = None
    removed_hook: str | None = None

    @property
    def mark(self) -> tuple[Mark, str] | None:
        """The mark and the run that gets it; None if the line has none."""
        return next(((mark, run_id) for mark in MARKS if (run_id := getattr(self, mark)) is not None), None)


class IntakeMark(msgspec.Struct, frozen=True, array_like=True):
    """The state of the file after its last compaction, stored in the database that has imported the file."""

    name: str
    size_bytes: int
    lines: int


_decode = json_decoder(IntakeLine).decode
_encode = msgspec.json.Encoder().encode


def dispatch_line(body: bytes, host: str | None) -> bytes:
    """Return the line of an encoded dispatch."""
    claimed = b"" if host is None else b',"host":' + _encode(host)
    return b'{"dispatch":' + body + claimed + b"}\n"


def message_line(body: bytes) -> bytes:
    """Return the line of an encoded control message."""
    return b'{"message":' + body + b"}\n"


def mark_line(mark: Mark, run_id: str) -> bytes:
    """Return the line that marks a run."""
    return _encode({mark: run_id}) + b"\n"


def hook_line(body: bytes) -> bytes:
    """Return the line of an encoded hook."""
    return b'{"hook":' + body + b"}\n"


def removed_hook_line(hook_id: str) -> bytes:
    """Return the line that removes a hook."""
    return _encode(IntakeLine(removed_hook=hook_id)) + b"\n"


class Intake:
    """The file, for one writing thread: `add` lines, `begin_write` before the commit, `end_write` after it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[bytes] = []
        self._descriptor: int | None = None
        self._size_before: int | None = None
        """The size of the file before the uncommitted write."""
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix="shopfloor-intake")
        self._flushing: Future[None] | None = None
        self.needs_rewrite = False
        """Whether the file may lack committed lines or contain rolled-back ones, because a write failed.

        `replace` resets it.
        """

    def add(self, line: bytes) -> None:
        """Add a line to the next write."""
        self._pending.append(line)

    def add_deleted(self, run_id: str) -> None:
        """Add a line that a run is deleted, unless the file is empty."""
        if not self.is_empty:
            self.add(_encode(IntakeLine(deleted=run_id)) + b"\n")

    @property
    def is_empty(self) -> bool:
        return self.size() <= len(_header(""))

    def needs_compaction(self, compacted_size: int) -> bool:
        """Return whether the file should be compacted; `compacted_size` is its size after the last compaction."""
        return self.size() > max(INTAKE_BYTES, 2 * compacted_size)

    def size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def begin_write(self) -> None:
        """Write the added lines, and start forcing them to disk in a thread while the database commits."""
        if not self._pending:
            return
        lines, self._pending = self._pending, []
        try:
            descriptor = self._lock()
            self._size_before = os.fstat(descriptor).st_size
            # Start with an LF: a crash may have torn the last line.
            data = (b"\n" if self._size_before else _header(uuid4().hex)) + b"".join(lines)
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise storage_error(error, f"cannot write {self._path}") from error
        self._flushing = self._flusher.submit(force_to_disk, descriptor)

    def end_write(self) -> None:
        """Finish the write after a commit: wait until the lines are on disk. On an error, `replace` has to follow."""
        self._size_before = None
        try:
            if self._flushing is not None:
                self._flushing.result()
        except OSError as error:
            # A second flush does not help: the system may have dropped the lines and report success.
            self.needs_rewrite = True
            raise storage_error(error, f"cannot write {self._path}") from error
        finally:
            self._flushing = None
            self._unlock()

    def cancel_write(self) -> None:
        """Remove the lines after a rollback: they were not acknowledged."""
        self._pending.clear()
        if self._flushing is not None:
            self._flushing.exception()
            self._flushing = None
        size_before, self._size_before = self._size_before, None
        try:
            if self._descriptor is not None and size_before is not None:
                os.ftruncate(self._descriptor, size_before)
        except OSError as error:
            self.needs_rewrite = True
            raise storage_error(error, f"cannot write {self._path}") from error
        finally:
            self._unlock()

    def _lock(self) -> int:
        """Lock the current file, and return its descriptor."""
        while True:
            descriptor = self._descriptor
            if descriptor is None:
                descriptor = self._descriptor = open_for_append(self._path)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    return descriptor
            except FileNotFoundError:
                pass
            # Another process compacted or deleted the file meanwhile.
            self._close_descriptor()

    def _unlock(self) -> None:
        if self._descriptor is not None:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            except OSError:
                # Closing the descriptor releases the lock.
                self._close_descriptor()

    def _close_descriptor(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # The descriptor is closed even if this fails, and the lines were flushed before.
            with suppress(OSError):
                os.close(descriptor)

    def name(self) -> str | None:
        """Return the name of the file; None without a file or without a complete first line."""
        first = next(iter(_decode_lines(self._read_bytes(len(_header(""))).split(b"\n", 1)[:1])), None)
        return None if first is None else first.intake

    def lines(self) -> list[IntakeLine]:
        """Return the dispatches, messages, marks and hooks without those of deleted runs. Skips unreadable lines."""
        data = self._read_bytes()
        lines = list(_decode_lines(data[: data.rfind(b"\n") + 1].split(b"\n")))
        last_deleted: dict[str | None, int] = {
            line.deleted: number for number, line in enumerate(lines) if line.deleted
        }
        return [
            line
            for number, line in enumerate(lines)
            if line.intake is None and line.deleted is None and last_deleted.get(_run_id_of(line), -1) < number
        ]

    def _read_bytes(self, limit: int = -1) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(limit)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}", reading=True) from error

    def replace(self, lines: list[bytes]) -> IntakeMark:
        """Replace the file by one with these lines, and return its mark. Call it in a write transaction only."""
        name = uuid4().hex
        self._lock()
        try:
            content = _header(name) + b"".join(lines)
            write_private(self._path, content, durable=True)
        finally:
            self._close_descriptor()
        self.needs_rewrite = False
        return IntakeMark(name, len(content), len(lines))

    def close(self) -> None:
        self._close_descriptor()
        self._flusher.shutdown()


def _header(name: str) -> bytes:
    return _encode(IntakeLine(intake=name or "0" * 32)) + b"\n"


def _run_id_of(line: IntakeLine) -> str | None:
    if line.dispatch is not None:
        return line.dispatch.run_id
    if line.message is not None:
        return line.message.run_id
    if line.hook is not None:
        return line.hook.run_id
    return None if line.mark is None else line.mark[1]


def _decode_lines(lines: list[bytes]) -> Iterable[IntakeLine]:
    for line in lines:
        try:
            yield _decode(line)
        except msgspec.MsgspecError:
            continue
