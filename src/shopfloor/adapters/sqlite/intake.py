"""The intake: what was acknowledged and no log has yet, in a file beside the database.

The database can be lost; with this file `shopfloor rebuild` still finds every dispatch and control message that
somebody was told is kept. See docs/adr/0017-intake.md.

Lines are appended and the file is compacted only inside a write transaction of the database, whose lock keeps other
processes out. The first line names the file. The database remembers the name of the file whose lines it has: a
database that knows another name, such as a new one, has to take the lines in before the file may be compacted.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import msgspec

from shopfloor.decoding import json_decoder
from shopfloor.errors import FileMissing, InvalidEvent, StorageError, storage_error
from shopfloor.limits import INTAKE_BYTES
from shopfloor.log import Payload, RunCompleted, RunStarted, ToolResult, UnknownPayload, decode
from shopfloor.ports import ControlMessage, QueuedRun
from shopfloor.record import Storage, force_to_disk, open_for_append, read, write_private


class LogLookup(Protocol):
    """What logs know of what was asked. Its methods block."""

    def has(self, entry: QueuedRun | ControlMessage) -> bool:
        """Whether the log of a run has taken this up."""
        ...

    def keyed(self) -> Iterable[QueuedRun]:
        """Every run that was dispatched with an idempotency key and has a log."""
        ...


class StorageLogLookup:
    """What the logs of a storage know."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def has(self, entry: QueuedRun | ControlMessage) -> bool:
        for payload in self._payloads(entry.run_id):
            if isinstance(entry, QueuedRun) or isinstance(payload, RunCompleted):
                return True
            if isinstance(payload, ToolResult) and payload.call_id == entry.body.get("call_id"):
                return True
        return False

    def keyed(self) -> Iterator[QueuedRun]:
        for run_id in self._storage.run_ids():
            first = next(self._payloads(run_id), None)
            if isinstance(first, RunStarted) and first.idempotency_key is not None:
                yield QueuedRun(run_id=run_id, started=first)

    def _payloads(self, run_id: str) -> Iterator[Payload | UnknownPayload]:
        """What the log of a run has, as far as it can be read; nothing where there is no log."""
        with suppress(FileMissing, InvalidEvent, StorageError):
            for entry in read(self._storage.log_path(run_id), on_problem=lambda problem: None):
                yield decode(entry.raw).payload


class EmptyLogLookup:
    """For a queue that has no logs beside it."""

    def has(self, entry: QueuedRun | ControlMessage) -> bool:
        return False

    def keyed(self) -> Iterable[QueuedRun]:
        return ()


class IntakeLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the file: exactly one of these, and the host of a dispatch that is claimed from the start."""

    intake: str | None = None
    dispatch: QueuedRun | None = None
    host: str | None = None
    message: ControlMessage | None = None
    deleted: str | None = None
    """The id of a run that was deleted: lines of that run before this one no longer count."""
    pin: str | None = None
    """The id of a run that is kept when old ones are pruned."""
    unpin: str | None = None


class IntakeMark(msgspec.Struct, frozen=True, array_like=True):
    """What the database remembers of the file that it has taken in, as that was after the last compaction."""

    name: str
    size_bytes: int
    lines: int


_decode = json_decoder(IntakeLine).decode
_encode = msgspec.json.Encoder().encode


def dispatch_line(body: bytes, host: str | None) -> bytes:
    """The line of a dispatch that is encoded already."""
    claimed = b"" if host is None else b',"host":' + _encode(host)
    return b'{"dispatch":' + body + claimed + b"}\n"


def message_line(body: bytes) -> bytes:
    return b'{"message":' + body + b"}\n"


def pin_line(run_id: str, *, pinned: bool) -> bytes:
    return _encode(IntakeLine(pin=run_id) if pinned else IntakeLine(unpin=run_id)) + b"\n"


class Intake:
    """The file as one writing thread uses it: `add` lines, `begin_write` before the commit, `end_write` after it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: list[bytes] = []
        self._descriptor: int | None = None
        self._size_before: int | None = None
        """How large the file was before the write that is not committed yet."""
        self._flusher = ThreadPoolExecutor(1, thread_name_prefix="shopfloor-intake")
        self._flushing: Future[None] | None = None
        self.needs_rewrite = False
        """Whether the file may lack committed lines or have refused ones, until `replace`: a write to disk failed."""

    def add(self, line: bytes) -> None:
        self._pending.append(line)

    def add_deleted(self, run_id: str) -> None:
        """Note that a run is deleted, unless the file has nothing to forget."""
        if not self.is_empty:
            self.add(_encode(IntakeLine(deleted=run_id)) + b"\n")

    @property
    def is_empty(self) -> bool:
        return self.size() <= len(_header(""))

    def needs_compaction(self, compacted_size: int) -> bool:
        """Whether it is time to compact the file, which had that size after the last time."""
        return self.size() > max(INTAKE_BYTES, 2 * compacted_size)

    def size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def begin_write(self) -> None:
        """Write what was added; its way to the disk goes on while the database commits."""
        if not self._pending:
            return
        lines, self._pending = self._pending, []
        try:
            descriptor = self._locked()
            self._size_before = os.fstat(descriptor).st_size
            # A new line first: a crash may have torn the last one.
            data = (b"\n" if self._size_before else _header(uuid4().hex)) + b"".join(lines)
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise storage_error(error, f"cannot write {self._path}") from error
        self._flushing = self._flusher.submit(force_to_disk, descriptor)

    def end_write(self) -> None:
        """The database has committed. Returns when the lines are on disk; raises where `replace` has to follow."""
        self._size_before = None
        try:
            if self._flushing is not None:
                self._flushing.result()
        except OSError as error:
            # To flush once more is no help: the system may have dropped the lines and report success.
            self.needs_rewrite = True
            raise storage_error(error, f"cannot write {self._path}") from error
        finally:
            self._flushing = None
            self._unlock()

    def cancel_write(self) -> None:
        """The database has not committed: nobody is told that these lines are kept, so they go."""
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

    def _locked(self) -> int:
        """The descriptor of the file that has the name now, locked."""
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
            # Somebody compacted or deleted the file meanwhile.
            self._forget()

    def _unlock(self) -> None:
        if self._descriptor is not None:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            except OSError:
                # The lock goes with the descriptor.
                self._forget()

    def _forget(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            # The descriptor is closed even where this fails, and what was to be on disk was flushed before.
            with suppress(OSError):
                os.close(descriptor)

    def name(self) -> str | None:
        """The name of the file; None where there is no file, or none with a whole first line."""
        first = next(iter(_decoded(self._bytes(len(_header(""))).split(b"\n", 1)[:1])), None)
        return None if first is None else first.intake

    def lines(self) -> list[IntakeLine]:
        """The dispatches, messages and pins of runs that are not deleted. Torn and unreadable lines are passed over."""
        data = self._bytes()
        lines = list(_decoded(data[: data.rfind(b"\n") + 1].split(b"\n")))
        last_deleted = {line.deleted: number for number, line in enumerate(lines) if line.deleted}
        return [
            line
            for number, line in enumerate(lines)
            if (run_id := _run_of(line)) is not None and last_deleted.get(run_id, -1) < number
        ]

    def _bytes(self, limit: int = -1) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(limit)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}", reading=True) from error

    def replace(self, lines: list[bytes]) -> IntakeMark:
        """Put a new file with these lines in the place of the old one. For a write transaction only."""
        name = uuid4().hex
        self._locked()
        try:
            content = _header(name) + b"".join(lines)
            write_private(self._path, content, durable=True)
        finally:
            self._forget()
        self.needs_rewrite = False
        return IntakeMark(name, len(content), len(lines))

    def close(self) -> None:
        self._forget()
        self._flusher.shutdown()


def _header(name: str) -> bytes:
    return _encode(IntakeLine(intake=name or "0" * 32)) + b"\n"


def _run_of(line: IntakeLine) -> str | None:
    if line.dispatch is not None:
        return line.dispatch.run_id
    return line.message.run_id if line.message is not None else line.pin or line.unpin


def _decoded(lines: list[bytes]) -> Iterable[IntakeLine]:
    for line in lines:
        try:
            yield _decode(line)
        except msgspec.MsgspecError:
            continue
