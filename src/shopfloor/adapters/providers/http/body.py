"""The body of a model API's response: server-sent events or one JSON document, which its first byte shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from shopfloor.adapters.limits import AGENT_LINE_BYTES
from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.http.reply import Reply
from shopfloor.adapters.providers.json_access import Record
from shopfloor.adapters.providers.jsonl import MALFORMED_RECORD_ERRORS, LineSplitter, json_object, unparsed_report
from shopfloor.errors import ExecutionCancelled, ProviderError
from shopfloor.limits import PROVIDER_MESSAGE_CHARS
from shopfloor.log import RunError, Status
from shopfloor.ports import AgentExit, AgentReport, SessionEnded

_LEADING_BYTES = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may come before the content: a byte order mark and blanks."""
_EVENT_STARTS = b"edir:"
"""First bytes of the lines of events: `event`, `data`, `id`, `retry`, and `:` for a comment."""
_DONE = b"[DONE]"


class ResponseParser(Protocol):
    """Turn the records of one API into reports."""

    @property
    def reply(self) -> Reply: ...

    @property
    def is_complete(self) -> bool:
        """Whether the API has sent the end of the response."""
        ...

    @property
    def status(self) -> Status:
        """The outcome. Only valid if the response is complete."""
        ...

    @property
    def error(self) -> RunError | None: ...

    def parse_event(self, record: Record) -> list[AgentReport] | None:
        """Report an event; None if the record is not understood."""
        ...

    def parse_document(self, record: Record) -> list[AgentReport] | None:
        """Report a complete document; None if the record is not understood."""
        ...

    def end_of_stream(self) -> list[AgentReport]:
        """Report the reply: the stream has sent its end marker."""
        ...

    def flush(self) -> list[AgentReport]:
        """Report what there is of a response that is not complete, as no more bytes come."""
        ...


class _EventSplitter:
    """Join lines to server-sent events and yield the data of each."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, line: bytes) -> Iterator[bytes]:
        line = line.removesuffix(b"\r")
        if not line:
            yield from self.flush()
            return
        field, _, value = line.partition(b":")
        if line.startswith(b"{"):
            # Some servers send an error as a bare JSON line in the middle of a stream.
            yield from self.flush()
            yield line
        elif field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
            if self._size > AGENT_LINE_BYTES:
                yield from self.flush()
        elif field not in (b"", b"event", b"id", b"retry"):
            yield line

    def flush(self) -> Iterator[bytes]:
        if self._data:
            yield b"\n".join(self._data)
        self._data.clear()
        self._size = 0


class ResponseBodyNormalizer:
    """Base of the normalizers of model APIs. Bytes that are not understood are reported verbatim."""

    has_timestamps = False
    reports_context = False

    def __init__(self, parser: ResponseParser) -> None:
        self.unparsed = 0
        self._parser = parser
        self._has_started = False
        self._is_stream = False
        self._lines = LineSplitter()
        self._events = _EventSplitter()
        self._document: list[bytes] = []
        self._size = 0
        self._unparsed_text = ""

    def feed(self, data: bytes) -> list[AgentReport]:
        """Return the reports of the events that end in `data`."""
        if not self._has_started:
            data = data.lstrip(_LEADING_BYTES)
            if not data:
                return []
            self._has_started, self._is_stream = True, data[0] in _EVENT_STARTS
        if not self._is_stream:
            return self._buffer(data)
        return [
            report
            for line in self._lines.feed(data)
            for event in self._events.feed(line)
            for report in self._event(event)
        ]

    def finish(self, ended: AgentExit | None) -> list[AgentReport]:
        """Return the reports of a document or of an unfinished event, and the end of the session."""
        reports: list[AgentReport] = []
        if self._is_stream:
            for event in (*self._events.feed(self._lines.flush()), *self._events.flush()):
                reports += self._event(event)
        elif self._document:
            document = b"".join(self._document)
            reports += self._parse(document, json_object(document), is_document=True)
        reports += self._parser.flush()
        return [*reports, self._session_ended(ended)]

    def _buffer(self, data: bytes) -> list[AgentReport]:
        self._document.append(data)
        self._size += len(data)
        if self._size <= AGENT_LINE_BYTES:
            return []
        document = b"".join(self._document)
        self._document.clear()
        self._size = 0
        return self._parse(document, None, is_document=True)

    def _event(self, data: bytes) -> list[AgentReport]:
        if data.strip() == _DONE:
            return self._parser.end_of_stream()
        return self._parse(data, json_object(data), is_document=False)

    def _parse(self, data: bytes, record: dict[str, Any] | None, *, is_document: bool) -> list[AgentReport]:
        if record is not None:
            try:
                reports = self._parser.parse_document(record) if is_document else self._parser.parse_event(record)
            except MALFORMED_RECORD_ERRORS:
                reports = None
            if reports is not None:
                return reports
        self.unparsed += 1
        self._unparsed_text = self._unparsed_text or " ".join(
            data[:PROVIDER_MESSAGE_CHARS].decode(errors="replace").split()
        )
        return [unparsed_report(data)]

    def _session_ended(self, ended: AgentExit | None) -> SessionEnded:
        status, error = self._outcome(ended)
        reply = self._parser.reply
        return SessionEnded(
            status=status,
            is_final=self._parser.is_complete,
            text=reply.text if status == "completed" else None,
            error=error,
            usage=reply.usage,
            models={reply.model: reply.usage} if reply.model is not None and reply.usage is not None else {},
            turns=1 if reply.message_id is not None else None,
            unparsed=self.unparsed + reply.unparsed,
        )

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        parser = self._parser
        if parser.is_complete:
            return parser.status, parser.error
        if ended is not None and ended.cancelled:
            return "cancelled", run_error(ExecutionCancelled, "the response was cancelled")
        if parser.reply.message_id is not None:
            return "failed", run_error(ProviderError, "the response ended before it was complete")
        if self._unparsed_text:
            return "failed", run_error(ProviderError, f"the response is not understood: {self._unparsed_text}")
        return "failed", run_error(ProviderError, "the response is empty")
