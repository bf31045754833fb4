"""Calls of tools: asked for in a message, begun, printing, done."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import msgspec

from shopfloor.adapters.providers.copilot.speech import word
from shopfloor.adapters.providers.reading import Record, changed_file, int_at, record_at, records_at, text_at
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import AssistantMessage, FileChange, Note, StreamBlock, ToolCall, ToolResult
from shopfloor.ports import SELF, Report, Told

_ACTIONS = {"create": "create", "edit": "modify", "delete": "delete"}
_RICH = ("contents", "structuredContent", "binaryResultsForLlm")
_DENIED = "denied"
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f\ufeff]")
_PRINTED_CHARS = 200_000
_PRINTING_CALLS = 100


class _Open(msgspec.Struct, frozen=True):
    name: str
    agent: str
    prompt: str | None = None


class _Printed:
    """The end of what a call has printed so far."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._size = 0
        self._cut = False
        self._snapshot = ""

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= _PRINTED_CHARS:
            self._size -= len(self._pieces.popleft())
            self._cut = True

    def replace(self, snapshot: str) -> None:
        self._snapshot = snapshot

    @property
    def text(self) -> str:
        # Snapshots come later than pieces, and are without what controls a terminal: pieces have more.
        printed = "".join(self._pieces) or self._snapshot
        cut = self._cut or len(printed) > _PRINTED_CHARS
        return f"(cut) …\n{printed[-_PRINTED_CHARS:]}" if cut else printed


class Calls:
    """Keeps which calls are open.

    What a call prints mostly comes whole with its result, so it is told only where no result comes, or one with less:
    as a `stream` block with a warning, for a result would be made up, and a text would be what the agent said.
    """

    def __init__(self) -> None:
        self._asked: dict[str, Told] = {}
        self._open: dict[str, _Open] = {}
        self._printed: dict[str, _Printed] = {}

    def asked(self, data: Record, agent: str, at: str | None) -> None:
        """The calls that a message asks for. They are told when they begin."""
        for request in records_at(data, "toolRequests"):
            call_id = word(request, "toolCallId")
            _put(self._asked, call_id, _call(word(request, "name"), call_id, request.get("arguments"), agent, at))

    def begun(self, data: Record, agent: str, at: str | None) -> list[Report]:
        call_id, name = word(data, "toolCallId"), word(data, "toolName")
        if call_id in self._open:
            return []
        self._asked.pop(call_id, None)
        given = data.get("arguments")
        _put(self._open, call_id, _Open(name, agent, text_at(record_at(data, "arguments"), "prompt")))
        return [_call(name, call_id, given, agent, at)]

    def printed(self, data: Record) -> list[Report]:
        self._printing(data).add(word(data, "text"))
        return []

    def snapshot(self, data: Record) -> list[Report]:
        self._printing(data).replace(word(data, "partialOutput"))
        return []

    def done(self, data: Record, agent: str, at: str | None) -> list[Report]:
        call_id, success = word(data, "toolCallId"), data["success"]
        call, before = self._open.get(call_id), list[Report]()
        if call is None:
            asked = self._asked.get(call_id)
            if asked is not None and isinstance(asked.payload, ToolCall):
                call, before = _Open(asked.payload.name, asked.agent), [asked]
            else:
                # An earlier process of the session called, and its name is not told again.
                call = _Open(text_at(data, "toolName") or "", agent)
        result, failure = record_at(data, "result"), record_at(data, "error")
        error = None if success else text_at(failure, "message") or text_at(result, "content") or "failed"
        told = ToolResult(
            name=call.name,
            call_id=call_id,
            input=None,
            output=_output(result),
            error=error,
            exit_code=int_at(record_at(data, "shellExecution"), "exitCode"),
            files=_files(data) or None,
            fidelity="agent_emitted",
        )
        printed = self._printed.pop(call_id, None)
        if printed is not None and _plain(printed.text) not in _plain(str(told.output or "")):
            # Of long output the result has a part, and the rest is in a file of Copilot's.
            before.append(_unread(call_id, call, printed.text, "printed more than its result has"))
        for known in (self._open, self._asked):
            known.pop(call_id, None)
        if error is not None and text_at(failure, "code") == _DENIED:
            note = AssistantMessage(note=Note(kind="denied", message=error), blocks=[])
            before.append(Told(payload=note, agent=call.agent, at=at))
        return [*before, Told(payload=told, agent=call.agent, at=at)]

    def caller(self, call_id: str) -> tuple[str, str | None]:
        """Whose call it is, and the prompt that it hands on."""
        call = self._open.get(call_id)
        return (call.agent, call.prompt) if call is not None else (SELF, None)

    def left(self, *, broken: bool) -> list[Report]:
        """What is to be told of calls that will get no result. `broken`: the stream has no end.

        A command in the background prints after its call has its result. Copilot reads that out before it ends.
        """
        reports: list[Report] = [*self._asked.values()]
        for call_id, printed in self._printed.items():
            call = self._open.get(call_id)
            if printed.text and (call is not None or broken):
                reports.append(_unread(call_id, call, printed.text, "got no result; this is what it had printed"))
        return reports

    def _printing(self, data: Record) -> _Printed:
        call_id = word(data, "toolCallId")
        if call_id not in self._printed:
            _put(self._printed, call_id, _Printed(), limit=_PRINTING_CALLS)
        return self._printed[call_id]


def _put(known: dict[str, Any], key: str, value: object, *, limit: int = OPEN_BRANCHES) -> None:
    known[key] = value
    if len(known) > limit:
        del known[next(iter(known))]


def _call(name: str, call_id: str, given: Any, agent: str, at: str | None) -> Told:
    call = ToolCall(name=name, call_id=call_id, input=given, output=None, fidelity="agent_emitted")
    return Told(payload=call, agent=agent, at=at)


def _plain(printed: str) -> str:
    """What was printed without what controls a terminal, and without blanks, as results differ in these."""
    return "".join(_CONTROL.sub("", printed).split())


def _unread(call_id: str, call: _Open | None, printed: str, why: str) -> Told:
    name = call.name if call is not None else "a command in the background"
    note = Note(kind="warning", message=f"{name} ({call_id}) {why}")
    block = StreamBlock(chunk=printed, fidelity="agent_emitted")
    return Told(payload=AssistantMessage(blocks=[block], note=note), agent=call.agent if call is not None else SELF)


def _output(result: Record) -> Any:
    """What the model got to read. `detailedContent` is the same for people, with diffs."""
    rich = {key: result[key] for key in _RICH if result.get(key)}
    return {"content": result.get("content"), **rich} if rich else result.get("content")


def _files(data: Record) -> list[FileChange]:
    edits = records_at(data, "fileEdits")
    if not edits:
        return []
    detailed = text_at(record_at(data, "result"), "detailedContent") or ""
    diffs = [f"diff --git {part}" for part in detailed.split("diff --git ")[1:]]
    files: list[FileChange] = []
    for edit in edits:
        path = word(edit, "path")
        diff = next((diff for diff in diffs if diff.partition("\n")[0].endswith(path)), None)
        files.append(changed_file(path, _ACTIONS.get(str(edit.get("kind"))), diff))
    return files
