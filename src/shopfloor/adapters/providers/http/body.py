"""The body of an answer: server-sent events or one JSON document, which it shows by its first byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.http.reply import Reply
from shopfloor.adapters.providers.json_access import Record
from shopfloor.adapters.providers.jsonl import MALFORMED_RECORD_ERRORS, LineSplitter, json_object, unparsed_report
from shopfloor.errors import ExecutionCancelled, ProviderError
from shopfloor.limits import AGENT_LINE_BYTES, PROVIDER_MESSAGE_CHARS
from shopfloor.log import RunError, Status
from shopfloor.ports import AgentExit, AgentReport, SessionEnded

_BEFORE = b"\xef\xbb\xbf \t\r\n"
"""What may stand before the first byte that says something."""
_FIELDS = b"edir:"
"""How lines of events begin: `event`, `data`, `id`, `retry`, and `:` for a remark."""
_DONE = b"[DONE]"


class ResponseParser(Protocol):
    """What the records of one API mean."""

    @property
    def reply(self) -> Reply: ...

    @property
    def is_complete(self) -> bool:
        """It has said its end."""
        ...

    @property
    def status(self) -> Status:
        """How it went, where it is over."""
        ...

    @property
    def error(self) -> RunError | None: ...

    def event(self, record: Record) -> list[AgentReport] | None:
        """What an event tells; None where it is not understood."""
        ...

    def whole(self, record: Record) -> list[AgentReport] | None:
        """What a document tells; None where it is not understood."""
        ...

    def done(self) -> list[AgentReport]:
        """The stream says that nothing more comes."""
        ...

    def flush(self) -> list[AgentReport]:
        """Nothing more comes: what there was, where it is not over."""
        ...


class _Events:
    """Cuts lines into events, and gives the data of each."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._size = 0

    def line(self, line: bytes) -> Iterator[bytes]:
        line = line.removesuffix(b"\r")
        if not line:
            yield from self.rest()
            return
        field, _, value = line.partition(b":")
        if line.startswith(b"{"):
            # Some servers say an error so, in the middle of a stream.
            yield from self.rest()
            yield line
        elif field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
            if self._size > AGENT_LINE_BYTES:
                yield from self.rest()
        elif field not in (b"", b"event", b"id", b"retry"):
            yield line

    def rest(self) -> Iterator[bytes]:
        if self._data:
            yield b"\n".join(self._data)
        self._data.clear()
        self._size = 0


class ResponseBodyNormalizer:
    """What is not understood is kept as it came."""

    has_timestamps = False

    def __init__(self, dialect: ResponseParser) -> None:
        self.unparsed = 0
        self._dialect = dialect
        self._begun = False
        self._streams = False
        self._lines = LineSplitter()
        self._events = _Events()
        self._document: list[bytes] = []
        self._size = 0
        self._first_words = ""

    def feed(self, data: bytes) -> list[AgentReport]:
        if not self._begun:
            data = data.lstrip(_BEFORE)
            if not data:
                return []
            self._begun, self._streams = True, data[0] in _FIELDS
        if not self._streams:
            return self._buffer(data)
        return [
            report
            for line in self._lines.feed(data)
            for told in self._events.line(line)
            for report in self._event(told)
        ]

    def finish(self, ended: AgentExit | None) -> list[AgentReport]:
        reports: list[AgentReport] = []
        if self._streams:
            for told in (*self._events.line(self._lines.flush()), *self._events.rest()):
                reports += self._event(told)
        elif self._document:
            document = b"".join(self._document)
            reports += self._understood(document, json_object(document), whole=True)
        reports += self._dialect.flush()
        return [*reports, self._ended(ended)]

    def _buffer(self, data: bytes) -> list[AgentReport]:
        self._document.append(data)
        self._size += len(data)
        if self._size <= AGENT_LINE_BYTES:
            return []
        piece = b"".join(self._document)
        self._document.clear()
        self._size = 0
        return self._understood(piece, None, whole=True)

    def _event(self, data: bytes) -> list[AgentReport]:
        if data.strip() == _DONE:
            return self._dialect.done()
        return self._understood(data, json_object(data), whole=False)

    def _understood(self, data: bytes, record: dict[str, Any] | None, *, whole: bool) -> list[AgentReport]:
        if record is not None:
            try:
                reports = self._dialect.whole(record) if whole else self._dialect.event(record)
            except MALFORMED_RECORD_ERRORS:
                reports = None
            if reports is not None:
                return reports
        self.unparsed += 1
        self._first_words = self._first_words or " ".join(
            data[:PROVIDER_MESSAGE_CHARS].decode(errors="replace").split()
        )
        return [unparsed_report(data)]

    def _ended(self, ended: AgentExit | None) -> SessionEnded:
        status, error = self._outcome(ended)
        reply = self._dialect.reply
        return SessionEnded(
            status=status,
            is_final=self._dialect.is_complete,
            text=reply.text if status == "completed" else None,
            error=error,
            usage=reply.usage,
            models={reply.model: reply.usage} if reply.model is not None and reply.usage is not None else {},
            turns=1 if reply.message_id is not None else None,
            unparsed=self.unparsed + reply.unparsed,
        )

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        dialect = self._dialect
        if dialect.is_complete:
            return dialect.status, dialect.error
        if ended is not None and ended.cancelled:
            return "cancelled", run_error(ExecutionCancelled, "the answer was not waited for")
        if dialect.reply.message_id is not None:
            return "failed", run_error(ProviderError, "the answer broke off in the middle")
        if self._first_words:
            return "failed", run_error(ProviderError, f"the answer is not understood: {self._first_words}")
        return "failed", run_error(ProviderError, "there was no answer")
