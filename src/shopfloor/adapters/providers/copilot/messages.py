"""Messages and tool calls of one Copilot agent, assembled from their events."""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Literal

import msgspec

from shopfloor.adapters.limits import AGENT_LINE_BYTES
from shopfloor.adapters.providers.json_access import (
    Record,
    changed_file,
    int_at,
    record_at,
    records_at,
    required_text,
    text_at,
)
from shopfloor.adapters.providers.jsonl import bounded_put
from shopfloor.limits import OPEN_BRANCHES
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
_ACTIONS = {"create": "create", "edit": "modify", "delete": "delete"}
_RICH_FIELDS = ("contents", "structuredContent", "binaryResultsForLlm")
_DENIED_CODE = "denied"
_TERMINAL_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f\ufeff]")
_MAX_OUTPUT_CHARS = 200_000
_MAX_CALLS_WITH_OUTPUT = 100


class _Draft(msgspec.Struct):
    """The deltas so far of a message, a thought or a tool input that is not complete."""

    kind: _Kind
    name: str | None = None
    parts: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.parts)


class MessageAssembler:
    """Assemble the messages of one agent: the session itself, or a sub-agent.

    Thinking is streamed under a separate id, before its message has an id, so it is reported as a separate message.
    Drafts that are never completed belong to a model call that broke off, or that Copilot discarded. They were
    part of the conversation all the same, so they are reported as soon as that is clear.
    """

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.text: str | None = None
        """The last answer."""
        self.failure: Note | None = None
        """The error of the last model call, if it failed."""
        self._is_failure_reported = True
        self._drafts: dict[str, _Draft] = {}
        self._size = 0
        self._message_id: str | None = None
        self._seen_thinking: set[str] = set()

    # Deltas.

    def message_started(self, data: Record) -> list[AgentReport]:
        """Remember the id of the message that starts. Input of tools is streamed under it."""
        self._message_id = required_text(data, "messageId")
        return []

    def text_delta(self, data: Record) -> list[AgentReport]:
        """Report a delta of a message's text."""
        message_id, text = required_text(data, "messageId"), required_text(data, "deltaContent")
        flushed = self._add_to_draft(message_id, "text", text)
        return [*flushed, MessageDelta(message_id=message_id, block=0, kind="text", text=text, agent=self.agent)]

    def thinking_delta(self, data: Record) -> list[AgentReport]:
        """Report a delta of thinking."""
        thinking_id, text = required_text(data, "reasoningId"), required_text(data, "deltaContent")
        flushed = self._add_to_draft(thinking_id, "thinking", text)
        return [*flushed, MessageDelta(message_id=thinking_id, block=0, kind="thinking", text=text, agent=self.agent)]

    def input_delta(self, data: Record) -> list[AgentReport]:
        """Report a delta of a tool's input."""
        call_id, text = required_text(data, "toolCallId"), required_text(data, "inputDelta")
        name = text_at(data, "toolName")
        reports = self._add_to_draft(call_id, "tool_input", text, name)
        if self._message_id is None:
            # A message without text gets its id only when it is complete, so there is no id to report a delta under.
            return reports
        block = 1 + [key for key, draft in self._drafts.items() if draft.kind == "tool_input"].index(call_id)
        delta = MessageDelta(
            message_id=self._message_id,
            block=block,
            kind="tool_input",
            text=text,
            tool_name=name,
            tool_id=call_id,
            agent=self.agent,
        )
        return [*reports, delta]

    def _add_to_draft(self, key: str, kind: _Kind, text: str, name: str | None = None) -> list[AgentReport]:
        reports: list[AgentReport] = []
        if self._size > AGENT_LINE_BYTES or len(self._drafts) >= OPEN_BRANCHES:
            # The complete message would exceed the limit of a line and could not be read: it will not come.
            reports = self.flush_drafts("discarded")
        draft = self._drafts.get(key)
        if draft is None:
            draft = self._drafts[key] = _Draft(kind=kind, name=name)
        draft.parts.append(text)
        self._size += len(text)
        return reports

    # Complete messages.

    def message(self, data: Record, at: str | None) -> list[AgentReport]:
        """Report a complete message. Its thinking is a separate message if it was streamed."""
        message_id, content = required_text(data, "messageId"), required_text(data, "content")
        model = text_at(data, "model")
        requests = records_at(data, "toolRequests")
        uses: list[Block] = [_tool_use(request) for request in requests]
        reports: list[AgentReport] = []
        blocks: list[Block] = []
        thinking = text_at(data, "reasoningText")
        if thinking and self._is_new(thinking):
            block = _thinking(thinking, text_at(data, "reasoningOpaque"))
            streamed_id = self._take_streamed_id(thinking)
            if streamed_id is None:
                blocks.append(block)
            else:
                reports.append(
                    self.message_report(AssistantMessage(message_id=streamed_id, model=model, blocks=[block]), at)
                )
        if content:
            self.text = content
            blocks.append(TextBlock(text=content, fidelity="agent_emitted"))
        blocks += uses
        self._drafts.pop(message_id, None)
        for request in requests:
            self._drafts.pop(request["toolCallId"], None)
        self._message_id = None
        if blocks:
            # Copilot itself requests tools in the model's name, for example to read the answer of a sub-agent.
            synthetic = model is None and "apiCallId" not in data
            message = AssistantMessage(message_id=message_id, model=model, synthetic=synthetic, blocks=blocks)
            reports.append(self.message_report(message, at))
        return reports

    def thinking(self, data: Record, at: str | None) -> list[AgentReport]:
        """Report complete thinking. Usually its message has reported it already."""
        thinking_id, content = required_text(data, "reasoningId"), required_text(data, "content")
        self._drafts.pop(thinking_id, None)
        if not content or not self._is_new(content):
            return []
        return [self.message_report(AssistantMessage(message_id=thinking_id, blocks=[_thinking(content)]), at)]

    def _is_new(self, thinking: str) -> bool:
        """Return whether this thinking is new: it comes twice in a turn, in a message and as a separate event."""
        if thinking in self._seen_thinking:
            return False
        if len(self._seen_thinking) >= OPEN_BRANCHES:
            self._seen_thinking.clear()
        self._seen_thinking.add(thinking)
        return True

    def _take_streamed_id(self, thinking: str) -> str | None:
        """Return the id that this thinking was streamed under, and drop its draft."""
        open_drafts = [key for key, draft in self._drafts.items() if draft.kind == "thinking"]
        matching = [key for key in open_drafts if self._drafts[key].text == thinking]
        draft_id = matching[0] if matching else open_drafts[0] if len(open_drafts) == 1 else None
        if draft_id is not None:
            del self._drafts[draft_id]
        return draft_id

    # Turns.

    def turn_ended(self, reason: str, at: str | None = None) -> list[AgentReport]:
        """Report the drafts that will not be completed any more."""
        reports = self.flush_drafts(reason, at)
        self._seen_thinking.clear()
        self._message_id = None
        return reports

    def flush_drafts(self, reason: str, at: str | None = None) -> list[AgentReport]:
        """Report all drafts as unfinished messages, with the reason as a warning."""
        drafts, self._drafts, self._size = self._drafts, {}, 0
        return [
            self.message_report(_draft_message(key, draft, reason), at) for key, draft in drafts.items() if draft.text
        ]

    def call_failed(self, failure: Note, at: str | None) -> list[AgentReport]:
        """Remember a failed model call, whose retry or error comes later. Report an earlier failure as a retry."""
        reports = self.report_failure("retry", at)
        self.failure, self._is_failure_reported = failure, False
        return reports

    def report_failure(self, kind: Literal["retry", "error"], at: str | None) -> list[AgentReport]:
        """Report the failed model call, now that it is clear whether the call is repeated. Each failure once."""
        if self.failure is None or self._is_failure_reported:
            return []
        self._is_failure_reported = True
        return [self.note_report(msgspec.structs.replace(self.failure, kind=kind), at)]

    def note_report(self, note: Note, at: str | None) -> TranscriptItem:
        """Return the report of a note."""
        return self.message_report(AssistantMessage(note=note, blocks=[]), at)

    def message_report(self, message: AssistantMessage, at: str | None) -> TranscriptItem:
        """Return the report of a message of this agent."""
        return TranscriptItem(payload=message, agent=self.agent, at=at)


def _tool_use(request: Record) -> ToolUseBlock:
    return ToolUseBlock(
        tool_name=required_text(request, "name"),
        tool_id=required_text(request, "toolCallId"),
        tool_input=request.get("arguments"),
        fidelity="agent_emitted",
    )


def _thinking(thinking: str, signature: str | None = None) -> ThinkingBlock:
    return ThinkingBlock(thinking=thinking, signature=signature, fidelity="agent_emitted")


def _draft_message(key: str, draft: _Draft, reason: str) -> AssistantMessage:
    match draft.kind:
        case "text":
            block: Block = TextBlock(text=draft.text, fidelity="agent_emitted")
        case "thinking":
            block = _thinking(draft.text)
        case "tool_input":
            # The agent made no call of it, so it must not look like a call.
            block, reason = StreamBlock(chunk=draft.text, fidelity="agent_emitted"), f"{reason}: a call of {draft.name}"
    return AssistantMessage(message_id=key, blocks=[block], note=Note(kind="warning", message=reason))


class _OpenCall(msgspec.Struct, frozen=True):
    """A tool call that has started."""

    name: str
    agent: str
    prompt: str | None = None


class _OutputTail:
    """The end of the output of a running call."""

    def __init__(self) -> None:
        self._chunks: deque[str] = deque()
        self._size = 0
        self._is_cut = False
        self._snapshot = ""

    def add(self, chunk: str) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= _MAX_OUTPUT_CHARS:
            self._size -= len(self._chunks.popleft())
            self._is_cut = True

    def replace(self, snapshot: str) -> None:
        self._snapshot = snapshot

    @property
    def text(self) -> str:
        # Snapshots lag behind the chunks and lack terminal control sequences, so chunks are preferred.
        output = "".join(self._chunks) or self._snapshot
        is_cut = self._is_cut or len(output) > _MAX_OUTPUT_CHARS
        return f"(cut) …\n{output[-_MAX_OUTPUT_CHARS:]}" if is_cut else output


class OpenToolCalls:
    """The tool calls that are requested or running, and their output so far.

    The result of a call usually has all its output. So the streamed output is reported only if there is no result, or a
    result with less output: as a `stream` block with a warning. A result would be made up, and a text block would look
    like a message of the agent.
    """

    def __init__(self) -> None:
        self._requested: dict[str, TranscriptItem] = {}
        self._open: dict[str, _OpenCall] = {}
        self._outputs: dict[str, _OutputTail] = {}

    def requested(self, data: Record, agent: str, at: str | None) -> None:
        """Remember the calls that a message requests. They are reported when they start."""
        for request in records_at(data, "toolRequests"):
            call_id = required_text(request, "toolCallId")
            bounded_put(
                self._requested,
                call_id,
                _call_report(required_text(request, "name"), call_id, request.get("arguments"), agent, at),
            )

    def started(self, data: Record, agent: str, at: str | None) -> list[AgentReport]:
        """Report the start of a call."""
        call_id, name = required_text(data, "toolCallId"), required_text(data, "toolName")
        if call_id in self._open:
            return []
        self._requested.pop(call_id, None)
        tool_input = data.get("arguments")
        bounded_put(self._open, call_id, _OpenCall(name, agent, text_at(record_at(data, "arguments"), "prompt")))
        return [_call_report(name, call_id, tool_input, agent, at)]

    def output_chunk(self, data: Record) -> list[AgentReport]:
        """Append a chunk to the output of a call."""
        self._output_tail(data).add(required_text(data, "text"))
        return []

    def snapshot(self, data: Record) -> list[AgentReport]:
        """Replace the last snapshot of a call's output."""
        self._output_tail(data).replace(required_text(data, "partialOutput"))
        return []

    def completed(self, data: Record, agent: str, at: str | None) -> list[AgentReport]:
        """Report the result of a call, after output that the result lacks."""
        call_id, success = required_text(data, "toolCallId"), data["success"]
        call, reports = self._open.get(call_id), list[AgentReport]()
        if call is None:
            request = self._requested.get(call_id)
            if request is not None and isinstance(request.payload, ToolCall):
                call, reports = _OpenCall(request.payload.name, request.agent), [request]
            else:
                # An earlier process of the session made the call, and its name is not repeated.
                call = _OpenCall(text_at(data, "toolName") or "", agent)
        result, failure = record_at(data, "result"), record_at(data, "error")
        error = None if success else text_at(failure, "message") or text_at(result, "content") or "failed"
        tool_result = ToolResult(
            name=call.name,
            call_id=call_id,
            input=None,
            output=_result_output(result),
            error=error,
            exit_code=int_at(record_at(data, "shellExecution"), "exitCode"),
            files=_changed_files(data) or None,
            fidelity="agent_emitted",
        )
        output = self._outputs.pop(call_id, None)
        if output is not None and _normalize_output(output.text) not in _normalize_output(
            str(tool_result.output or "")
        ):
            # The result has only a part of a long output; the rest is in a file of Copilot.
            reports.append(_output_report(call_id, call, output.text, "printed more than its result has"))
        for calls in (self._open, self._requested):
            calls.pop(call_id, None)
        if error is not None and text_at(failure, "code") == _DENIED_CODE:
            note = AssistantMessage(note=Note(kind="denied", message=error), blocks=[])
            reports.append(TranscriptItem(payload=note, agent=call.agent, at=at))
        return [*reports, TranscriptItem(payload=tool_result, agent=call.agent, at=at)]

    def caller(self, call_id: str) -> tuple[str, str | None]:
        """Return the agent that made a call, and the prompt that the call passes on."""
        call = self._open.get(call_id)
        return (call.agent, call.prompt) if call is not None else (MAIN_AGENT, None)

    def flush(self, *, is_broken: bool) -> list[AgentReport]:
        """Report requested calls that never started, and output of calls without a result.

        `is_broken`: the stream has no result. A command in the background prints after its call got a result; unless
        the stream is broken, Copilot has read that output before it ended.
        """
        reports: list[AgentReport] = [*self._requested.values()]
        for call_id, output in self._outputs.items():
            call = self._open.get(call_id)
            if output.text and (call is not None or is_broken):
                reports.append(_output_report(call_id, call, output.text, "got no result; this is what it had printed"))
        return reports

    def _output_tail(self, data: Record) -> _OutputTail:
        call_id = required_text(data, "toolCallId")
        if call_id not in self._outputs:
            bounded_put(self._outputs, call_id, _OutputTail(), limit=_MAX_CALLS_WITH_OUTPUT)
        return self._outputs[call_id]


def _call_report(name: str, call_id: str, tool_input: Any, agent: str, at: str | None) -> TranscriptItem:
    call = ToolCall(name=name, call_id=call_id, input=tool_input, output=None, fidelity="agent_emitted")
    return TranscriptItem(payload=call, agent=agent, at=at)


def _normalize_output(output: str) -> str:
    """Strip terminal control sequences and whitespace, in which results differ from the streamed output."""
    return "".join(_TERMINAL_CONTROL.sub("", output).split())


def _output_report(call_id: str, call: _OpenCall | None, output: str, reason: str) -> TranscriptItem:
    name = call.name if call is not None else "a command in the background"
    note = Note(kind="warning", message=f"{name} ({call_id}) {reason}")
    block = StreamBlock(chunk=output, fidelity="agent_emitted")
    return TranscriptItem(
        payload=AssistantMessage(blocks=[block], note=note), agent=call.agent if call is not None else MAIN_AGENT
    )


def _result_output(result: Record) -> Any:
    """Return what the model reads. `detailedContent` has the same for people, with diffs."""
    rich = {key: result[key] for key in _RICH_FIELDS if result.get(key)}
    return {"content": result.get("content"), **rich} if rich else result.get("content")


def _changed_files(data: Record) -> list[FileChange]:
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
