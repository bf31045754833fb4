"""The named rules of the log format, and the verifier that checks a file against them for `shopfloor verify`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from shopfloor.errors import InvalidEvent
from shopfloor.limits import LOG_LINE_BYTES
from shopfloor.log.codec import decode_payload
from shopfloor.log.events import TIMESTAMP, is_run_id
from shopfloor.log.message_chunks import chunk_blocks, is_message_chunk, supersedes_chunks
from shopfloor.log.payloads import PAYLOAD_TYPES, AssistantMessage

RULES: Final[dict[str, str]] = {
    "line-end": "every line ends with LF, not with CR LF",
    "line-size": "a line has at most 64 MiB",
    "utf-8": "a line is UTF-8",
    "empty": "a file has at least one event",
    "json-object": "a line is one JSON object",
    "keys": "a JSON object has each of its keys once",
    "envelope": "the envelope has seq, run_id, type, path, iteration, timestamp and payload, of the right types; "
    "parent_run_id and child_run_id are left out when empty",
    "run-id": "run_id is a UUID v4, the same on every line, and the file's name",
    "seq": "seq counts from 1 without gaps",
    "parent-link": "parent_run_id is a UUID v4 and the same on every line",
    "child-link": "child_run_id is a UUID v4, on step.call_workflow events and only there",
    "type": "type is one of the ten event types",
    "path": "path is empty at run level and names the step at step level",
    "iteration": "iteration counts from 0",
    "timestamp": "timestamp is RFC 3339 in UTC with milliseconds",
    "clock": "timestamps do not run backwards",
    "payload": "the payload has the fields of its type; blocks and fidelity are of the closed vocabularies",
    "start": "run.started comes first, and opens every attempt with a higher number",
    "outcome": "there is at most one run.completed, and nothing follows it",
    "step-once": "(path, iteration, try) starts once in a run",
    "step-pair": "a step that completes has started, and completes once",
    "piece": "a chunk of a message starts where the chunk before it ended, until the complete message follows",
    "step-end": "every step completes before its run completes",
    "tool-pair": "a tool.result answers a tool.call before it",
    "mode": "a file in a transcripts folder has mode 0600",
}


class RuleViolation(msgspec.Struct, frozen=True):
    """A rule that a line breaks. `line` counts from 1; 0 means the whole file."""

    line: int
    rule: str
    message: str


_ENVELOPE: Final[dict[str, type]] = {
    "seq": int,
    "run_id": str,
    "type": str,
    "path": str,
    "iteration": int,
    "timestamp": str,
}
_STEP_STARTS: Final = frozenset({"step.started", "step.call_workflow.started"})
_STEP_ENDS: Final = frozenset({"step.completed", "step.call_workflow.completed"})

_Step = tuple[str, int, int]


class Verifier:
    """Checks the lines of one file against the rules, in order. Memory grows with the number of steps and calls."""

    def __init__(self, run_id: str | None = None) -> None:
        self.lines = 0
        self.ended = False
        self._run_id = run_id
        self._parent: str | None = None
        self._seq = 0
        self._attempt = 0
        self._steps: dict[_Step, bool] = {}
        self._chunk_ends: dict[str, dict[int, int]] = {}
        """The offset after the last chunk of each incomplete message, by message id and block."""
        self._calls: set[str] = set()
        self._timestamp = ""

    def end(self) -> list[RuleViolation]:
        """Return the violations of the whole file. Call after the last line."""
        return [] if self.lines else [RuleViolation(0, "empty", "the file has no event")]

    def line(self, raw: bytes) -> list[RuleViolation]:
        """Return the violations of the next line; `raw` includes its LF, if present."""
        self.lines += 1
        return [RuleViolation(self.lines, rule, message) for rule, message in self._problems(raw)]

    def _problems(self, raw: bytes) -> Iterator[tuple[str, str]]:
        if len(raw) > LOG_LINE_BYTES:
            yield "line-size", f"the line has more than {LOG_LINE_BYTES:,} bytes"
            return
        if not raw.endswith(b"\n"):
            yield "line-end", f"the last line is torn after {len(raw):,} bytes"
            return
        if raw.endswith(b"\r\n"):
            yield "line-end", "the line ends with CR LF"
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            yield "utf-8", f"byte {error.start} of the line is not UTF-8"
            return
        try:
            data: Any = msgspec.json.decode(raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            yield "json-object", str(error)
            return
        if not isinstance(data, dict):
            yield "json-object", f"the line is {type(data).__name__}, not an object"
            return
        yield from _key_problems(raw)
        event = cast("dict[str, Any]", data)
        envelope_problems = list(_envelope_problems(event))
        yield from envelope_problems
        if not envelope_problems:
            yield from self._event_problems(event)
        elif type(event.get("seq")) is int:
            # Continue from this `seq`, so that the next line is not reported for the fault of this one.
            self._seq = event["seq"]

    def _event_problems(self, event: dict[str, Any]) -> Iterator[tuple[str, str]]:
        yield from self._identity_problems(event)
        yield from _shape_problems(event)
        yield from self._clock_problems(event["timestamp"])
        event_type: str = event["type"]
        if event_type not in PAYLOAD_TYPES:
            yield "type", f"{event_type!r} is not an event type"
            return
        try:
            payload, problems = decode_payload(event_type, msgspec.json.encode(event["payload"]))
        except InvalidEvent as error:
            payload, problems = None, (error.message,)
        yield from (("payload", problem) for problem in problems)
        if not problems:
            yield from self._order_problems(event)
        if isinstance(payload, AssistantMessage):
            yield from (("piece", problem) for problem in self._chunk_problems(payload))

    def _chunk_problems(self, message: AssistantMessage) -> Iterator[str]:
        if message.message_id is not None and is_message_chunk(message):
            ends = self._chunk_ends.setdefault(message.message_id, {})
            for block, _, number, offset in chunk_blocks(message):
                if ends.get(number, offset) != offset:
                    yield f"a chunk of block {number} starts at {offset}, but the one before it ends at {ends[number]}"
                ends[number] = offset + len(block.chunk)
        elif supersedes_chunks(message):
            self._chunk_ends.pop(message.message_id or "", None)

    def _identity_problems(self, event: dict[str, Any]) -> Iterator[tuple[str, str]]:
        if event["seq"] != self._seq + 1:
            yield "seq", f"seq is {event['seq']}, expected {self._seq + 1}"
        self._seq = event["seq"]
        run_id = event["run_id"]
        if not is_run_id(run_id):
            yield "run-id", f"{run_id!r} is not a UUID v4"
        elif self._run_id is None:
            self._run_id = run_id
        elif run_id != self._run_id:
            yield "run-id", f"run_id is {run_id}, expected {self._run_id}"
        parent = event.get("parent_run_id")
        if self.lines == 1:
            self._parent = parent
        if parent is not None and not is_run_id(parent):
            yield "parent-link", f"{parent!r} is not a UUID v4"
        elif parent != self._parent:
            yield "parent-link", f"parent_run_id is {parent}, expected {self._parent}"

    def _order_problems(self, event: dict[str, Any]) -> Iterator[tuple[str, str]]:
        event_type, payload = event["type"], event["payload"]
        if self.ended:
            yield "outcome", f"{event_type} follows run.completed"
        if self.lines == 1 and event_type != "run.started":
            yield "start", f"the first event is {event_type}"
        if event_type == "run.started":
            if payload["attempt"] <= self._attempt:
                yield "start", f"attempt {payload['attempt']} follows attempt {self._attempt}"
            self._attempt = payload["attempt"]
        elif event_type == "run.completed":
            self.ended = True
            yield from self._open_step_problems(payload["status"])
        elif event_type == "tool.call":
            self._calls.add(payload["call_id"])
        elif event_type == "tool.result":
            if payload["call_id"] not in self._calls:
                yield "tool-pair", f"no tool.call has the call_id {payload['call_id']!r}"
        elif event_type in _STEP_STARTS or event_type in _STEP_ENDS:
            yield from self._step_problems(event_type, (event["path"], event["iteration"], payload["try"]))

    def _clock_problems(self, timestamp: str) -> Iterator[tuple[str, str]]:
        if not TIMESTAMP.fullmatch(timestamp):
            return
        if timestamp < self._timestamp:
            yield "clock", f"timestamp is {timestamp}, but the line before has {self._timestamp}"
        self._timestamp = timestamp

    def _open_step_problems(self, status: str) -> Iterator[tuple[str, str]]:
        """Report open steps of a completed run. A run that failed or was cancelled may have open steps."""
        for step, is_open in self._steps.items():
            if is_open and status == "completed":
                yield "step-end", f"{_describe_step(step)} has not completed, but the run has"

    def _step_problems(self, event_type: str, step: _Step) -> Iterator[tuple[str, str]]:
        name = _describe_step(step)
        if step[2] < 1:
            yield "payload", f"try is {step[2]}; it counts from 1"
        is_open = self._steps.get(step)
        if event_type in _STEP_STARTS:
            if is_open is not None:
                yield "step-once", f"{name} starts a second time"
            self._steps[step] = True
        else:
            if not is_open:
                yield (
                    "step-pair",
                    f"{name} completes {'without having started' if is_open is None else 'twice'}",
                )
            self._steps[step] = False


def _describe_step(step: _Step) -> str:
    return f"step {step[0]} (iteration {step[1]}, try {step[2]})"


def _key_problems(raw: bytes) -> Iterator[tuple[str, str]]:
    """Report keys that occur twice in an object: readers differ in which of the values they use."""
    duplicates: list[str] = []

    def collect_duplicates(pairs: list[tuple[str, Any]]) -> None:
        names = {name for name, _ in pairs}
        if len(names) < len(pairs):
            duplicates.extend(name for name in names if sum(name == other for other, _ in pairs) > 1)

    with contextlib.suppress(RecursionError):
        json.loads(raw, object_pairs_hook=collect_duplicates, parse_int=str, parse_float=str)
    yield from (("keys", f"an object has the key {name!r} twice") for name in duplicates)


def _envelope_problems(event: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, cls in _ENVELOPE.items():
        if name not in event:
            yield "envelope", f"{name} is missing"
        elif type(event[name]) is not cls:
            yield "envelope", f"{name} is {type(event[name]).__name__}, not {cls.__name__}"
    if "payload" not in event:
        yield "envelope", "payload is missing"
    for name in ("parent_run_id", "child_run_id"):
        if name in event and (not isinstance(event[name], str) or not event[name]):
            yield "envelope", f"{name} is empty; leave it out"


def _shape_problems(event: dict[str, Any]) -> Iterator[tuple[str, str]]:
    event_type: str = event["type"]
    child = event.get("child_run_id")
    if (child is not None) is not event_type.startswith("step.call_workflow."):
        yield (
            "child-link",
            f"child_run_id {'does not belong to' if child else 'is missing from'} {event_type}",
        )
    elif child is not None and (not is_run_id(child) or child == event["run_id"]):
        yield "child-link", f"{child!r} is not the UUID v4 of another run"
    if event_type.startswith("run.") and event["path"]:
        yield "path", f"path is {event['path']!r} at run level"
    elif event_type.startswith("step.") and not event["path"]:
        yield "path", f"path is empty on {event_type}"
    if event["iteration"] < 0:
        yield "iteration", f"iteration is {event['iteration']}"
    if not TIMESTAMP.fullmatch(event["timestamp"]):
        yield "timestamp", f"timestamp is {event['timestamp']!r}"
