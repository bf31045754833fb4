"""Lines of JSON as agents print them: cut at byte 0x0A alone, decoded afterwards, and none of them lost."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from typing import Any, cast

import msgspec

from shopfloor.adapters.providers.json_access import Json, Record
from shopfloor.limits import AGENT_LINE_BYTES, DOCUMENT_TRIES
from shopfloor.log import AssistantMessage, StreamBlock
from shopfloor.ports import AgentExit, AgentReport, SessionEnded, TranscriptItem

_BLANK = b" \t\r\v\f"
_OPENINGS = (b"{", b"[")
_CLOSINGS = (b"}", b"]")
"""A line that is only this begins, or ends, a document over several lines."""
_decode = msgspec.json.Decoder().decode

MALFORMED_RECORD_ERRORS = (TypeError, AttributeError, KeyError, IndexError, ValueError, RecursionError, OverflowError)
"""What reading a record raises that is not of the shape it was expected in."""


class LineSplitter:
    """Cuts bytes into lines. What has no end within the limit is given in pieces."""

    def __init__(self, limit: int = AGENT_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that end in these bytes."""
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._parts:
            lines[0] = self.rest() + lines[0]
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
        if self._size > self._limit:
            lines.append(self.rest())
        return lines

    def rest(self) -> bytes:
        """What has come since the last line's end."""
        rest = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        return rest


class JsonLinesNormalizer(ABC):
    """What the normalisers of programs that print one JSON object per line share.

    One for a provider says what a record means (`_read`) and how it all ended (`_end`). A record that is not
    understood, or not of the shape that was expected, is kept as it came. The same records may come in one JSON
    document: an array of them, or a single one over many lines, as `--output-format json` prints them.
    """

    has_timestamps = True
    """Whether its records have times."""

    def __init__(self) -> None:
        self.unparsed = 0
        self._lines = LineSplitter()
        self._document: list[bytes] = []
        """The lines so far of a document that began on a line of its own."""
        self._document_bytes = 0
        self._document_tries = 0
        """How often the document was parsed and found not to be whole yet."""

    def feed(self, data: bytes) -> list[AgentReport]:
        reports: list[AgentReport] = []
        for line in self._lines.feed(data):
            reports += self._line(line)
        return reports

    def finish(self, ended: AgentExit | None) -> list[AgentReport]:
        return [*self._line(self._lines.rest()), *self._document_line(b""), *self._end(ended)]

    def _line(self, line: bytes) -> list[AgentReport]:
        if self._document or line.strip(_BLANK) in _OPENINGS:
            return self._document_line(line)
        return self._read_line(line)

    def _document_line(self, line: bytes) -> list[AgentReport]:
        """Collect the lines of a document and read it when it is whole. Where it never is, each line is on its own:
        as soon as one begins like a record, when it gets too long, when it seems to end too often, and at the end of
        the stream (an empty line).
        """
        reports: list[AgentReport] = []
        if not line or line.startswith(b"{"):
            lines, self._document, self._document_bytes, self._document_tries = self._document, [], 0, 0
            for one in lines:
                reports += self._read_line(one)
            if line.strip(_BLANK) not in _OPENINGS:
                return [*reports, *self._read_line(line)]
        self._document.append(line)
        self._document_bytes += len(line)
        if self._document_bytes > AGENT_LINE_BYTES:
            return [*reports, *self._document_line(b"")]
        if line.rstrip(_BLANK) in _CLOSINGS:
            whole = b"\n".join(self._document)
            if json_records(whole) is not None:
                self._document, self._document_bytes, self._document_tries = [], 0, 0
                return [*reports, *self._read_line(whole)]
            self._document_tries += 1
            if self._document_tries >= DOCUMENT_TRIES:
                return [*reports, *self._document_line(b"")]
        return reports

    def _read_line(self, line: bytes) -> list[AgentReport]:
        if not line.strip(_BLANK):
            return []
        records = json_records(line)
        if records is None:
            return self._keep_line(line)
        if len(records) == 1:
            return self._read_record(records[0], line)
        return [report for one in records for report in self._read_record(one, msgspec.json.encode(one))]

    def _read_record(self, record: Record, line: bytes) -> list[AgentReport]:
        try:
            reports = self._read(record)
        except MALFORMED_RECORD_ERRORS:
            reports = None
        return self._keep_line(line) if reports is None else reports

    def _keep_line(self, line: bytes) -> list[AgentReport]:
        self.unparsed += 1
        return [unparsed_report(line)]

    @abstractmethod
    def _read(self, record: Record) -> list[AgentReport] | None:
        """What a record tells; None where it is not understood."""

    @abstractmethod
    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        """What is left to tell. The last is an `SessionEnded`."""


def json_object(line: bytes) -> Record | None:
    """The object that a line is; None where it is none. What is not UTF-8, or half a surrogate, becomes U+FFFD; raw
    control characters inside strings, NUL among them, stay what they are.
    """
    value: Json = _json(line)
    return value if isinstance(value, dict) else None


def json_records(line: bytes) -> list[Record] | None:
    """The object that a line is, or the objects of the array that it is; None where it is neither."""
    value: Any = _json(line)
    if isinstance(value, dict):
        return [cast("Record", value)]
    if not isinstance(value, list):
        return None
    values = cast("list[Json]", value)
    records = [one for one in values if isinstance(one, dict)]
    return records if records and len(records) == len(values) else None


def _json(line: bytes) -> Any:
    try:
        return _decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return _leniently(line)


def _leniently(line: bytes) -> Any:
    try:
        value: Any = json.loads(line.decode(errors="replace"), strict=False)
        # Back and forth, so that what could not be written is not there: `\ud800` alone, NaN, numbers without end.
        return _decode(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(errors="replace"))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None


def unparsed_report(line: bytes) -> TranscriptItem:
    """A line that was not understood, as it came."""
    try:
        text, raw = line.decode(), None
    except UnicodeDecodeError:
        text, raw = line.decode(errors="replace"), base64.b64encode(line).decode()
    block = StreamBlock(fidelity="agent_emitted", chunk=text, unparsed=True, raw=raw)
    return TranscriptItem(payload=AssistantMessage(blocks=[block]))


def final_report(reports: list[AgentReport]) -> SessionEnded:
    """The last report of a stream."""
    last = reports[-1]
    if not isinstance(last, SessionEnded):
        raise TypeError("a normaliser ends with `Ended`")
    return last
