"""What one agent says: whole messages, and the pieces of those that are being made."""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Literal

import msgspec

from shopfloor.adapters.providers.json_access import (
    Record,
    changed_file,
    int_at,
    record_at,
    records_at,
    required_text,
    text_at,
)
from shopfloor.limits import AGENT_LINE_BYTES, OPEN_BRANCHES
from shopfloor.log import (
    AssistantMessage,
    Block,
    FileChange,
    Note,
    StreamBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
)
from shopfloor.ports import MAIN_AGENT, AgentReport, MessageDelta, TranscriptItem

_Kind = Literal["text", "thinking", "tool_input"]


class _Draft(msgspec.Struct):
    """What has been typed of something whose whole has not come."""

    kind: _Kind
    name: str | None = None
    parts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.parts)


class MessageAssembler:
    """The session's own, or a sub-agent's.

    A thought is typed under an id of its own, before its message has one: so it is told as a message of its own. Pieces
    whose whole never comes are what a call had said that broke off, or that Copilot threw away: they are told when that
    is clear, for they were said.
    """

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.text: str | None = None
        """Its last answer."""
        self.failure: Note | None = None
        """The last call to the model, where it failed."""
        self._settled = True
        self._drafts: dict[str, _Draft] = {}
        self._size = 0
        self._message: str | None = None
        self._thoughts: set[str] = set()

    # Pieces.

    def message_started(self, data: Record) -> list[AgentReport]:
        self._message = required_text(data, "messageId")
        return []

    def text_delta(self, data: Record) -> list[AgentReport]:
        message_id, text = required_text(data, "messageId"), required_text(data, "deltaContent")
        dropped = self._keep(message_id, "text", text)
        return [*dropped, MessageDelta(message_id=message_id, block=0, kind="text", text=text, agent=self.agent)]

    def thinking_delta(self, data: Record) -> list[AgentReport]:
        thought_id, text = required_text(data, "reasoningId"), required_text(data, "deltaContent")
        dropped = self._keep(thought_id, "thinking", text)
        return [*dropped, MessageDelta(message_id=thought_id, block=0, kind="thinking", text=text, agent=self.agent)]

    def input_delta(self, data: Record) -> list[AgentReport]:
        call_id, text, name = (
            required_text(data, "toolCallId"),
            required_text(data, "inputDelta"),
            text_at(data, "toolName"),
        )
        reports = self._keep(call_id, "tool_input", text, name)
        if self._message is None:
            # A message without a text has no id before it is whole: there is nothing to type this under.
            return reports
        block = 1 + [key for key, draft in self._drafts.items() if draft.kind == "tool_input"].index(call_id)
        typed = MessageDelta(
            message_id=self._message,
            block=block,
            kind="tool_input",
            text=text,
            tool_name=name,
            tool_id=call_id,
            agent=self.agent,
        )
        return [*reports, typed]

    def _keep(self, key: str, kind: _Kind, text: str, name: str | None = None) -> list[AgentReport]:
        reports: list[AgentReport] = []
        if self._size > AGENT_LINE_BYTES or len(self._drafts) >= OPEN_BRANCHES:
            # Its whole would be no line that is read: there will be none.
            reports = self.unfinished("discarded")
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = _Draft(kind=kind, name=name)
        draft.parts.append(text)
        self._size += len(text)
        return reports

    # Wholes.

    def message(self, data: Record, at: str | None) -> list[AgentReport]:
        message_id, content, model = (
            required_text(data, "messageId"),
            required_text(data, "content"),
            text_at(data, "model"),
        )
        requests = records_at(data, "toolRequests")
        uses: list[Block] = [_tool_use(request) for request in requests]
        reports: list[AgentReport] = []
        blocks: list[Block] = []
        thought = text_at(data, "reasoningText")
        if thought and self._is_new(thought):
            block = _thinking(thought, text_at(data, "reasoningOpaque"))
            typed_as = self._typed_as(thought)
            if typed_as is None:
                blocks.append(block)
            else:
                reports.append(
                    self.message_report(AssistantMessage(message_id=typed_as, model=model, blocks=[block]), at)
                )
        if content:
            self.text = content
            blocks.append(TextBlock(text=content, fidelity="agent_emitted"))
        blocks += uses
        self._drafts.pop(message_id, None)
        for request in requests:
            self._drafts.pop(request["toolCallId"], None)
        self._message = None
        if blocks:
            # What Copilot itself asks for in the model's name, as to read what a sub-agent gave, is of no model's call.
            synthetic = model is None and "apiCallId" not in data
            message = AssistantMessage(message_id=message_id, model=model, synthetic=synthetic, blocks=blocks)
            reports.append(self.message_report(message, at))
        return reports

    def thought(self, data: Record, at: str | None) -> list[AgentReport]:
        """A whole thought. Mostly its message had it already."""
        thought_id, content = required_text(data, "reasoningId"), required_text(data, "content")
        self._drafts.pop(thought_id, None)
        if not content or not self._is_new(content):
            return []
        return [self.message_report(AssistantMessage(message_id=thought_id, blocks=[_thinking(content)]), at)]

    def _is_new(self, thought: str) -> bool:
        """A thought comes twice in its turn: in a message, and as an event of its own."""
        if thought in self._thoughts:
            return False
        if len(self._thoughts) >= OPEN_BRANCHES:
            self._thoughts.clear()
        self._thoughts.add(thought)
        return True

    def _typed_as(self, thought: str) -> str | None:
        """The id under which a thought was typed."""
        open_thoughts = [key for key, draft in self._drafts.items() if draft.kind == "thinking"]
        same = [key for key in open_thoughts if self._drafts[key].text == thought]
        found = same[0] if same else open_thoughts[0] if len(open_thoughts) == 1 else None
        if found is not None:
            del self._drafts[found]
        return found

    # Turns.

    def turn_ended(self, why: str, at: str | None = None) -> list[AgentReport]:
        """No whole will come any more of what was typed so far."""
        reports = self.unfinished(why, at)
        self._thoughts.clear()
        self._message = None
        return reports

    def unfinished(self, why: str, at: str | None = None) -> list[AgentReport]:
        drafts, self._drafts, self._size = self._drafts, {}, 0
        return [self.message_report(_unfinished(key, draft, why), at) for key, draft in drafts.items() if draft.text]

    def failed(self, failure: Note, at: str | None) -> list[AgentReport]:
        """A call to the model failed. Whether it is made again is told later; one before this one evidently was."""
        before = self.report_failure("retry", at)
        self.failure, self._settled = failure, False
        return before

    def report_failure(self, kind: Literal["retry", "error"], at: str | None) -> list[AgentReport]:
        """What to tell of a call that failed, now that it is clear whether it is made again."""
        if self.failure is None or self._settled:
            return []
        self._settled = True
        return [self.note_report(msgspec.structs.replace(self.failure, kind=kind), at)]

    def note_report(self, note: Note, at: str | None) -> TranscriptItem:
        return self.message_report(AssistantMessage(note=note, blocks=[]), at)

    def message_report(self, message: AssistantMessage, at: str | None) -> TranscriptItem:
        return TranscriptItem(payload=message, agent=self.agent, at=at)


def _tool_use(request: Record) -> ToolUseBlock:
    return ToolUseBlock(
        tool_name=required_text(request, "name"),
        tool_id=required_text(request, "toolCallId"),
        tool_input=request.get("arguments"),
        fidelity="agent_emitted",
    )


def _thinking(thought: str, signature: str | None = None) -> ThinkingBlock:
    return ThinkingBlock(thinking=thought, signature=signature, fidelity="agent_emitted")


def _unfinished(key: str, draft: _Draft, why: str) -> AssistantMessage:
    match draft.kind:
        case "text":
            block: Block = TextBlock(text=draft.text, fidelity="agent_emitted")
        case "thinking":
            block = _thinking(draft.text)
        case "tool_input":
            # No call came of it, so it must not look like one.
            block, why = StreamBlock(chunk=draft.text, fidelity="agent_emitted"), f"{why}: a call of {draft.name}"
    return AssistantMessage(message_id=key, blocks=[block], note=Note(kind="warning", message=why))


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


class OpenToolCalls:
    """Keeps which calls are open.

    What a call prints mostly comes whole with its result, so it is told only where no result comes, or one with less:
    as a `stream` block with a warning, for a result would be made up, and a text would be what the agent said.
    """

    def __init__(self) -> None:
        self._asked: dict[str, TranscriptItem] = {}
        self._open: dict[str, _Open] = {}
        self._printed: dict[str, _Printed] = {}

    def requested(self, data: Record, agent: str, at: str | None) -> None:
        """The calls that a message asks for. They are told when they begin."""
        for request in records_at(data, "toolRequests"):
            call_id = required_text(request, "toolCallId")
            _put(
                self._asked,
                call_id,
                _call(required_text(request, "name"), call_id, request.get("arguments"), agent, at),
            )

    def started(self, data: Record, agent: str, at: str | None) -> list[AgentReport]:
        call_id, name = required_text(data, "toolCallId"), required_text(data, "toolName")
        if call_id in self._open:
            return []
        self._asked.pop(call_id, None)
        given = data.get("arguments")
        _put(self._open, call_id, _Open(name, agent, text_at(record_at(data, "arguments"), "prompt")))
        return [_call(name, call_id, given, agent, at)]

    def printed(self, data: Record) -> list[AgentReport]:
        self._printing(data).add(required_text(data, "text"))
        return []

    def snapshot(self, data: Record) -> list[AgentReport]:
        self._printing(data).replace(required_text(data, "partialOutput"))
        return []

    def completed(self, data: Record, agent: str, at: str | None) -> list[AgentReport]:
        call_id, success = required_text(data, "toolCallId"), data["success"]
        call, before = self._open.get(call_id), list[AgentReport]()
        if call is None:
            requested = self._asked.get(call_id)
            if requested is not None and isinstance(requested.payload, ToolCall):
                call, before = _Open(requested.payload.name, requested.agent), [requested]
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
            before.append(TranscriptItem(payload=note, agent=call.agent, at=at))
        return [*before, TranscriptItem(payload=told, agent=call.agent, at=at)]

    def caller(self, call_id: str) -> tuple[str, str | None]:
        """Whose call it is, and the prompt that it hands on."""
        call = self._open.get(call_id)
        return (call.agent, call.prompt) if call is not None else (MAIN_AGENT, None)

    def flush(self, *, broken: bool) -> list[AgentReport]:
        """What is to be told of calls that will get no result. `broken`: the stream has no end.

        A command in the background prints after its call has its result. Copilot reads that out before it ends.
        """
        reports: list[AgentReport] = [*self._asked.values()]
        for call_id, printed in self._printed.items():
            call = self._open.get(call_id)
            if printed.text and (call is not None or broken):
                reports.append(_unread(call_id, call, printed.text, "got no result; this is what it had printed"))
        return reports

    def _printing(self, data: Record) -> _Printed:
        call_id = required_text(data, "toolCallId")
        if call_id not in self._printed:
            _put(self._printed, call_id, _Printed(), limit=_PRINTING_CALLS)
        return self._printed[call_id]


def _put(known: dict[str, Any], key: str, value: object, *, limit: int = OPEN_BRANCHES) -> None:
    known[key] = value
    if len(known) > limit:
        del known[next(iter(known))]


def _call(name: str, call_id: str, given: Any, agent: str, at: str | None) -> TranscriptItem:
    call = ToolCall(name=name, call_id=call_id, input=given, output=None, fidelity="agent_emitted")
    return TranscriptItem(payload=call, agent=agent, at=at)


def _plain(printed: str) -> str:
    """What was printed without what controls a terminal, and without blanks, as results differ in these."""
    return "".join(_CONTROL.sub("", printed).split())


def _unread(call_id: str, call: _Open | None, printed: str, why: str) -> TranscriptItem:
    name = call.name if call is not None else "a command in the background"
    note = Note(kind="warning", message=f"{name} ({call_id}) {why}")
    block = StreamBlock(chunk=printed, fidelity="agent_emitted")
    return TranscriptItem(
        payload=AssistantMessage(blocks=[block], note=note), agent=call.agent if call is not None else MAIN_AGENT
    )


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
        path = required_text(edit, "path")
        diff = next((diff for diff in diffs if diff.partition("\n")[0].endswith(path)), None)
        files.append(changed_file(path, _ACTIONS.get(str(edit.get("kind"))), diff))
    return files
