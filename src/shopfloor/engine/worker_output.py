"""Output of Python workers: what their code prints and logs, recorded in the log of the run.

While code of a worker is being executed, `sys.stdout` and `sys.stderr` are replaced. A context variable decides for
each write whether it belongs to a run; every other write goes to the original stream.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

import anyio

from shopfloor.errors import InvalidEvent, ShopfloorError
from shopfloor.limits import OUTPUT_JOIN_BYTES, OUTPUT_JOIN_SECONDS, WORKER_OUTPUT_CHARS
from shopfloor.log import AssistantMessage, Masking, Note, TextBlock
from shopfloor.ports import StreamName

if TYPE_CHECKING:
    from shopfloor.engine.attempt import Attempt
    from shopfloor.engine.replay_state import StepKey

_Write: TypeAlias = "tuple[StepKey, StreamName, str]"
OUTPUT_DROPPED = "output_dropped"
"""The code of the note that says how much output of the worker was not recorded."""
_DEBUGGERS: Final = frozenset({"pdb", "bdb", "cmd", "code"})
"""Modules that talk to the person at the terminal."""
_STREAMS: Final[tuple[StreamName, ...]] = ("stdout", "stderr")

Append = Callable[..., Awaitable[object]]
"""Appends a payload, to a step if one is given."""


def is_worker_output(payload: object) -> bool:
    """Return whether this is output of a worker or a command: no message of a conversation."""
    if not isinstance(payload, AssistantMessage):
        return False
    if payload.note is not None:
        return payload.note.code == OUTPUT_DROPPED
    return bool(payload.blocks) and all(isinstance(block, TextBlock) and block.stream for block in payload.blocks)


class WorkerOutput:
    """The output of one attempt that the log does not have yet. Any thread may add to it."""

    def __init__(self) -> None:
        self.is_closed = False
        """Whether the worker has ended: later output goes to the streams of the process."""
        self._pending: list[_Write] = []
        self._mask: Masking | None = None
        self._recorded_chars = 0
        self._dropped_chars = 0
        self._dropped_lines = 0
        self._is_scheduled = False
        self._lock = threading.Lock()
        self._flush_lock = asyncio.Lock()
        self._closed = asyncio.Event()
        self._flusher: asyncio.Task[None] | None = None

    def add(self, step_key: StepKey, stream: StreamName, text: str, mask: Masking | None = None) -> bool:
        """Add text that the worker wrote in a step. Return whether the caller must schedule a flush."""
        with self._lock:
            free = WORKER_OUTPUT_CHARS - self._recorded_chars
            if len(text) > free:
                # Mask before truncating: half a secret would no longer be recognized.
                text = mask.text(text) if mask is not None else text
                # The masked text may be short enough.
                self._dropped_chars += max(0, len(text) - free)
                self._dropped_lines += text.count("\n", free)
                text = text[:free]
            if not text:
                return False
            self._recorded_chars += len(text)
            self._mask = mask
            self._pending.append((step_key, stream, text))
            was_scheduled, self._is_scheduled = self._is_scheduled, True
            return not was_scheduled

    @property
    def has_pending(self) -> bool:
        """Whether there is output that the log does not have."""
        return bool(self._pending) or self._flush_lock.locked()

    async def flush(self, append: Append, *, holds_back: bool = False) -> None:
        """Append the pending output to the log, in the order of the writes.

        `holds_back`: keep an end that the next write could complete to a secret.
        """
        async with self._flush_lock:
            with self._lock:
                batch, held_back = self._split_pending() if holds_back else (self._pending, [])
                self._pending, self._is_scheduled = held_back, False
            while batch:
                step_key, blocks, count = _first_message(batch)
                try:
                    # A cancelled worker must not lose what it has printed.
                    with anyio.CancelScope(shield=True), suppress(InvalidEvent):
                        await append(AssistantMessage(blocks=[*blocks]), step_key)
                except ShopfloorError:
                    with self._lock:
                        self._pending[:0] = batch
                    raise
                del batch[:count]
            if self.is_closed and self._dropped_chars:
                await append(self._dropped_note())
                self._dropped_chars = 0

    def _split_pending(self) -> tuple[list[_Write], list[_Write]]:
        """Return the output to append now, and an end that the next write could complete to a secret."""
        if self._mask is None or self.is_closed or not self._pending:
            return self._pending, []
        step_key, stream, _ = self._pending[-1]
        first = len(self._pending)
        while first and self._pending[first - 1][:2] == (step_key, stream):
            first -= 1
        text = "".join(written for _, _, written in self._pending[first:])
        pending_chars = self._mask.pending_secret_chars(text)
        if not pending_chars:
            return self._pending, []
        stable = text[:-pending_chars]
        complete = self._pending[:first]
        if stable:
            complete.append((step_key, stream, stable))
        return complete, [(step_key, stream, text[-pending_chars:])]

    def flush_soon(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Call `flush` shortly, so that more output is joined into the same event. Called in the event loop."""
        if not self.is_closed:
            self._flusher = asyncio.create_task(self._flush_later(flush))

    async def _flush_later(self, flush: Callable[[], Awaitable[None]]) -> None:
        try:
            with anyio.move_on_after(OUTPUT_JOIN_SECONDS):
                await self._closed.wait()
            # After an error the output is still pending: the next event of the run appends it, or fails as well.
            with suppress(ShopfloorError):
                await flush()
        finally:
            if self._flusher is asyncio.current_task():
                # The task refers to the attempt, which must not be kept alive by a cycle.
                self._flusher = None

    async def close(self) -> None:
        """Accept no more output, and wait for the flush that is under way."""
        self.is_closed = True
        self._closed.set()
        if self._flusher is not None:
            await asyncio.wait([self._flusher])

    def _dropped_note(self) -> AssistantMessage:
        message = (
            f"the worker printed more than {WORKER_OUTPUT_CHARS:,} characters: "
            f"the last {self._dropped_chars:,} ({self._dropped_lines:,} lines) were not recorded"
        )
        return AssistantMessage(blocks=[], note=Note(kind="warning", code=OUTPUT_DROPPED, message=message))


def _first_message(batch: list[_Write]) -> tuple[StepKey, list[TextBlock], int]:
    """Return the step and the blocks of the next message, and how many writes it has. A write is never split."""
    step_key, texts, size, count = batch[0][0], list[tuple[StreamName, list[str]]](), 0, 0
    for key, stream, text in batch:
        if key != step_key or size >= OUTPUT_JOIN_BYTES:
            break
        if not texts or texts[-1][0] != stream:
            texts.append((stream, []))
        texts[-1][1].append(text)
        size, count = size + len(text), count + 1
    blocks = [TextBlock(fidelity="router", text=_as_utf8("".join(text)), stream=stream) for stream, text in texts]
    return step_key, blocks, count


def _as_utf8(text: str) -> str:
    """Replace lone surrogates, which the log cannot have."""
    return text.encode("utf-8", "replace").decode()


class _OutputSource(NamedTuple):
    """The run and step whose code is being executed."""

    attempt: Attempt
    step_key: StepKey
    loop: asyncio.AbstractEventLoop

    def write(self, stream: StreamName, text: str) -> None:
        attempt = self.attempt
        if attempt.output.add(self.step_key, stream, text, attempt.mask):
            with suppress(RuntimeError):  # The loop is closed.
                self.loop.call_soon_threadsafe(attempt.output.flush_soon, attempt.flush_output)


_source: ContextVar[_OutputSource | None] = ContextVar("worker_output", default=None)


_is_own_record: ContextVar[bool] = ContextVar("is_own_record", default=False)
"""Whether the newest log record of the context is one of Shopfloor, not of the worker."""


def _current_source() -> _OutputSource | None:
    source = _source.get()
    return None if source is None or source.attempt.output.is_closed else source


@contextmanager
def capture_output(attempt: Attempt, step_key: StepKey) -> Generator[None]:
    """Record what the code of this context prints and logs, also in threads that inherit the context."""
    token = _source.set(_OutputSource(attempt, step_key, asyncio.get_running_loop()))
    _capture.start()
    try:
        yield
    finally:
        _capture.stop()
        with suppress(ValueError):  # An abandoned coroutine is closed in another context.
            _source.reset(token)


class _CapturedStream:
    """A stream in the place of `sys.stdout` or `sys.stderr`."""

    def __init__(self, original: Any, name: StreamName) -> None:
        self.original = original
        self._name: StreamName = name

    def write(self, text: str) -> int:
        source = _current_source()
        if source is None or not isinstance(cast("Any", text), str):
            return self.original.write(text)
        frame = inspect.currentframe()
        caller = frame.f_back.f_globals.get("__name__") if frame is not None and frame.f_back is not None else None
        if caller in _DEBUGGERS:
            return self.original.write(text)
        if caller != "logging":
            source.write(self._name, text)
        elif _is_own_record.get():
            return self.original.write(text)
        # What a handler writes for a record of the worker was recorded when the record was made.
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Do nothing: the stream belongs to the process, and other runs write to it."""

    def __enter__(self) -> _CapturedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


class _Capture:
    """The replacement of the streams of the process and of the factory of log records, while any worker executes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._make_record: Callable[..., logging.LogRecord] = logging.LogRecord
        self._formatter = logging.Formatter("%(levelname)s %(name)s: %(message)s")

    def start(self) -> None:
        with self._lock:
            self._users += 1
            for name in _STREAMS:
                # A test runner may have put its own stream there meanwhile.
                if not isinstance(stream := getattr(sys, name), _CapturedStream | None):
                    setattr(sys, name, _CapturedStream(stream, name))
            if (factory := logging.getLogRecordFactory()) != self.make_record:
                self._make_record = factory
                logging.setLogRecordFactory(self.make_record)

    def stop(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._restore()

    def restore_in_child(self) -> None:
        """Give a forked process its streams: nothing there would flush the output."""
        self._lock, self._users = threading.Lock(), 0
        self._restore()

    def _restore(self) -> None:
        for name in _STREAMS:
            if isinstance(stream := getattr(sys, name), _CapturedStream):
                setattr(sys, name, stream.original)
        if logging.getLogRecordFactory() == self.make_record:
            logging.setLogRecordFactory(self._make_record)

    def _format(self, record: logging.LogRecord) -> str:
        """Return the text of a record. Does not raise, as `logging` does not, whatever the record contains."""
        with suppress(Exception):
            return self._formatter.format(record)
        with suppress(Exception):  # The arguments do not fit the message.
            return f"{record.levelname} {record.name}: {record.msg!r} {record.args!r}"
        return f"{record.levelname} {record.name}: (a message that cannot be shown)"

    def make_record(self, *args: Any, **kwargs: Any) -> logging.LogRecord:
        """Make a log record, and record its text if a worker logs it. Our own records are not the worker's."""
        record = self._make_record(*args, **kwargs)
        source = _current_source()
        is_own = record.name.partition(".")[0] == "shopfloor"
        if source is not None:
            _is_own_record.set(is_own)
        if source is not None and not is_own:
            text = self._format(record)
            # Other handlers may format the exception in their own way.
            record.exc_text = None
            source.write("stderr", text + "\n")
        return record


_capture = _Capture()
os.register_at_fork(after_in_child=_capture.restore_in_child)
