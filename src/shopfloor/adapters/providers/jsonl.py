"""JSON lines as agents print them: split at byte 0x0A only, then decoded, with no line lost."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from typing import Any, TypeVar, cast

import msgspec

from shopfloor.adapters.limits import AGENT_LINE_BYTES, DOCUMENT_TRIES
from shopfloor.adapters.providers.json_access import Json, Record
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import AssistantMessage, StreamBlock
from shopfloor.ports import AgentExit, AgentReport, SessionEnded, TranscriptItem

_T = TypeVar("_T")

_BLANK = b" \t\r\v\f"
_DOCUMENT_STARTS = (b"{", b"[")
_DOCUMENT_ENDS = (b"}", b"]")
"""A line that consists only of one of these starts, or ends, a document of several lines."""
_decode = msgspec.json.Decoder().decode

MALFORMED_RECORD_ERRORS = (TypeError, AttributeError, KeyError, IndexError, ValueError, RecursionError, OverflowError)
"""The exceptions that reading a record of an unexpected shape can raise."""


class LineSplitter:
    """Split bytes into lines. A line that exceeds the limit is returned in several parts."""

    def __init__(self, limit: int = AGENT_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that end in `data`."""
        lines = data.split(b"\n")
        remainder = lines.pop()
        if lines and self._parts:
            lines[0] = self.flush() + lines[0]
        if remainder:
            self._parts.append(remainder)
            self._size += len(remainder)
        if self._size > self._limit:
            lines.append(self.flush())
        return lines

    def flush(self) -> bytes:
        """Return the bytes since the end of the last line, and forget them."""
        remainder = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return remainder


class JsonLinesNormalizer(ABC):
    """Base of the normalizers of programs that print one JSON object per line.

    A subclass maps a record to reports (`_read`) and adds the last reports (`_end`). A record that is not understood,
    or has an unexpected shape, is reported verbatim. The records may also arrive in one JSON document, as
    `--output-format json` prints them: an array of records, or one record over several lines.
    """

    has_timestamps = True
    """Whether the records have timestamps."""
    reports_context = False
    """Whether the records have the size of the context of the first message."""

    def __init__(self) -> None:
        self.unparsed = 0
        self._lines = LineSplitter()
        self._document: list[bytes] = []
        """The lines so far of a document that spans several lines."""
        self._document_bytes = 0
        self._document_tries = 0
        """How often the document was parsed and found to be incomplete."""

    def feed(self, data: bytes) -> list[AgentReport]:
        """Return the reports of the lines that end in `data`."""
        reports: list[AgentReport] = []
        for line in self._lines.feed(data):
            reports += self._line(line)
        return reports

    def finish(self, ended: AgentExit | None) -> list[AgentReport]:
        """Return the reports of an unfinished last line, and the last reports of the session."""
        return [*self._line(self._lines.flush()), *self._document_line(b""), *self._end(ended)]

    def _line(self, line: bytes) -> list[AgentReport]:
        if self._document or line.strip(_BLANK) in _DOCUMENT_STARTS:
            return self._document_line(line)
        return self._read_line(line)

    def _document_line(self, line: bytes) -> list[AgentReport]:
        """Collect the lines of a document, and read the document when it is complete.

        Read each collected line by itself instead as soon as a line starts like a record, when the document is too
        long, when it seems to end too often, and at the end of the stream (an empty line).
        """
        reports: list[AgentReport] = []
        if not line or line.startswith(b"{"):
            lines, self._document, self._document_bytes, self._document_tries = self._document, [], 0, 0
            for collected in lines:
                reports += self._read_line(collected)
            if line.strip(_BLANK) not in _DOCUMENT_STARTS:
                return [*reports, *self._read_line(line)]
        self._document.append(line)
        self._document_bytes += len(line)
        if self._document_bytes > AGENT_LINE_BYTES:
            return [*reports, *self._document_line(b"")]
        if line.rstrip(_BLANK) in _DOCUMENT_ENDS:
            document = b"\n".join(self._document)
            if json_records(document) is not None:
                self._document, self._document_bytes, self._document_tries = [], 0, 0
                return [*reports, *self._read_line(document)]
            self._document_tries += 1
            if self._document_tries >= DOCUMENT_TRIES:
                return [*reports, *self._document_line(b"")]
        return reports

    def _read_line(self, line: bytes) -> list[AgentReport]:
        if not line.strip(_BLANK):
            return []
        records = json_records(line)
        if records is None:
            return self._unparsed(line)
        if len(records) == 1:
            return self._read_record(records[0], line)
        return [report for record in records for report in self._read_record(record, msgspec.json.encode(record))]

    def _read_record(self, record: Record, line: bytes) -> list[AgentReport]:
        try:
            reports = self._read(record)
        except MALFORMED_RECORD_ERRORS:
            reports = None
        return self._unparsed(line) if reports is None else reports

    def _unparsed(self, line: bytes) -> list[AgentReport]:
        self.unparsed += 1
        return [unparsed_report(line)]

    @abstractmethod
    def _read(self, record: Record) -> list[AgentReport] | None:
        """Return the reports of a record; None if the record is not understood."""

    @abstractmethod
    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        """Return the last reports of the session. The very last one is a `SessionEnded`."""


def json_object(line: bytes) -> Record | None:
    """Decode a line that is a JSON object; None if it is anything else.

    Invalid UTF-8 and lone surrogates become U+FFFD. Raw control characters inside strings, NUL included, stay.
    """
    value: Json = _decode_line(line)
    return value if isinstance(value, dict) else None


def json_records(line: bytes) -> list[Record] | None:
    """Decode a line that is a JSON object or an array of JSON objects; None if it is anything else."""
    value: Any = _decode_line(line)
    if isinstance(value, dict):
        return [cast("Record", value)]
    if not isinstance(value, list):
        return None
    values = cast("list[Json]", value)
    records = [record for record in values if isinstance(record, dict)]
    return records if records and len(records) == len(values) else None


def _decode_line(line: bytes) -> Any:
    try:
        return _decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _decode_leniently(line)


def _decode_leniently(line: bytes) -> Any:
    try:
        value: Any = json.loads(line.decode(errors="replace"), strict=False)
        # Encode and decode again, to drop values that a log cannot hold: a lone `\ud800`, NaN, infinite numbers.
        return _decode(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(errors="replace"))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def bounded_put(entries: dict[str, _T], key: str, value: _T, *, limit: int = OPEN_BRANCHES) -> None:
    """Store a value, and drop the oldest entry if there are too many: a normalizer's memory of a stream is bounded."""
    entries[key] = value
    if len(entries) > limit:
        del entries[next(iter(entries))]


def unparsed_report(line: bytes) -> TranscriptItem:
    """Return a report that holds a line verbatim, because the line was not understood."""
    try:
        text, raw = line.decode(), None
    except UnicodeDecodeError:
        text, raw = line.decode(errors="replace"), base64.b64encode(line).decode()
    block = StreamBlock(fidelity="agent_emitted", chunk=text, unparsed=True, raw=raw)
    return TranscriptItem(payload=AssistantMessage(blocks=[block]))


def final_report(reports: list[AgentReport]) -> SessionEnded:
    """Return the last report of a stream. Raises TypeError if it is not a `SessionEnded`."""
    last = reports[-1]
    if not isinstance(last, SessionEnded):
        raise TypeError("the last report of a normalizer must be a SessionEnded")
    return last
