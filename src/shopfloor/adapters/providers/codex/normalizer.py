"""What is said twice because a model call was made twice."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal

import msgspec

from shopfloor.adapters.providers.codex.errors import error_note, parse_error, retry_note, stream_interrupted
from shopfloor.adapters.providers.codex.usage import UsageTracker, is_usage
from shopfloor.adapters.providers.errors import describe_exit, run_error
from shopfloor.adapters.providers.json_access import (
    Record,
    changed_file,
    int_at,
    list_at,
    record_at,
    records_at,
    text_at,
)
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer
from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.limits import OPEN_BRANCHES, PROVIDER_MESSAGE_CHARS
from shopfloor.log import (
    AssistantMessage,
    Block,
    FileChange,
    Initialization,
    Note,
    RunError,
    Status,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    ToolUseBlock,
    Usage,
)
from shopfloor.ports import (
    MAIN_AGENT,
    AgentExit,
    AgentReport,
    SessionEnded,
    SubAgentEnded,
    SubAgentStarted,
    TranscriptItem,
    UsageDelta,
)


class RetryDeduplicator:
    """Tells what a call that was made again repeats from what is new.

    A call whose stream breaks off is made again from its beginning, and messages that it had finished come once more,
    under new ids. Only these are repeats: the same words, in the same order, from the first one on, directly after the
    note of the retry, and of a call that used no tool. Where a tool ran in between, one cannot see whether the words
    are of the call that broke or of the one before it; then they are told as often as they come.
    """

    def __init__(self) -> None:
        self._said: dict[str, deque[bytes]] = {}
        self._expected: dict[str, deque[bytes]] = {}

    def stream_interrupted(self) -> None:
        """The call's stream broke: it will begin again."""
        self._expected = {kind: deque(said) for kind, said in self._said.items()}

    def reset(self) -> None:
        """What comes next belongs to another call."""
        self._said.clear()
        self._expected.clear()

    def is_repeat(self, kind: str, text: str) -> bool:
        """Whether this was told already; where not, it is kept in mind."""
        mark = sha256(text.encode(errors="replace")).digest()
        expected = self._expected.pop(kind, None)
        if expected and expected[0] == mark:
            expected.popleft()
            self._expected[kind] = expected
            return True
        said = self._said.get(kind)
        if said is None:
            said = self._said[kind] = deque(maxlen=OPEN_BRANCHES)
        for _ in expected or ():
            # This time it says something else: the rest of what it said before will not come again.
            said.pop()
        said.append(mark)
        return False


TODO_LIST = "todo_list"
COLLAB_TOOL_CALL = "collab_tool_call"

_ACTIONS = {"add": "create", "update": "modify", "delete": "delete"}


class ToolItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item as a call and its result; of one that has only begun, the call is meant."""

    name: str
    input: Any
    output: Any = None
    error: str | None = None
    exit_code: int | None = None
    files: list[FileChange] | None = None


def required_text(item: Record, key: str) -> str:
    """What an item must have as text."""
    value = item[key]
    if not isinstance(value, str):
        raise TypeError(key)
    return value


def parse_tool_item(item: Record) -> ToolItem | None:
    """The tool that an item is; None where it is none that we know."""
    read = _TOOLS.get(required_text(item, "type"))
    return read(item) if read is not None else None


def _command(item: Record) -> ToolItem:
    command, output, exit_code = (
        required_text(item, "command"),
        text_at(item, "aggregated_output"),
        int_at(item, "exit_code"),
    )
    error = _failed(item)
    if error is not None and exit_code is not None:
        # Some views show the error alone, so it has the end of what the command said too.
        error = f"exit code {exit_code}\n{(output or '').strip()[-PROVIDER_MESSAGE_CHARS:]}".strip()
    given = {"command": command}
    return ToolItem(name="command_execution", input=given, output=output, error=error, exit_code=exit_code)


def _file_change(item: Record) -> ToolItem:
    changes, error = records_at(item, "changes"), _failed(item)
    files = [
        changed_file(required_text(change, "path"), _ACTIONS.get(str(change.get("kind"))), text_at(change, "diff"))
        for change in changes
    ]
    return ToolItem(
        name="file_change",
        input={"changes": changes},
        output={"status": item.get("status")},
        error=error,
        files=files if error is None else None,
    )


def _mcp(item: Record) -> ToolItem:
    told = text_at(record_at(item, "error"), "message")
    error = told or _failed(item)
    if error is not None and told is None:
        said = [text_at(part, "text") or "" for part in records_at(record_at(item, "result"), "content")]
        error = "\n".join(said).strip()[:PROVIDER_MESSAGE_CHARS] or error
    # The name by which the model calls it; the item has its halves.
    name = f"mcp__{required_text(item, 'server')}__{required_text(item, 'tool')}"
    return ToolItem(name=name, input=item.get("arguments"), output=item.get("result"), error=error)


def _web_search(item: Record) -> ToolItem:
    # What was found is not in the stream. What was looked for may be known only at the end.
    looked_for = {key: item[key] for key in ("query", "action") if key in item}
    return ToolItem(name="web_search", input=looked_for, output=looked_for)


def _todo_list(item: Record) -> ToolItem:
    todo = {"items": item["items"]}
    return ToolItem(name=TODO_LIST, input=todo, output=todo)


def _collab(item: Record) -> ToolItem:
    given = {key: item[key] for key in ("prompt", "receiver_thread_ids") if item.get(key)}
    gave = {key: item[key] for key in ("receiver_thread_ids", "agents_states") if key in item}
    error = _failed(item)
    if error is not None:
        states = record_at(item, "agents_states")
        told = [record_at(states, thread) for thread in states]
        said = [text_at(state, "message") or text_at(state, "status") or "" for state in told]
        error = "\n".join(said).strip()[:PROVIDER_MESSAGE_CHARS] or error
    return ToolItem(name=required_text(item, "tool"), input=given, output=gave, error=error)


def _failed(item: Record) -> str | None:
    """Codex's word for how it went, where it did not go well: `failed` or `declined`."""
    status = text_at(item, "status")
    return status if status not in (None, "completed", "in_progress") else None


_TOOLS: dict[str, Callable[[Record], ToolItem]] = {
    "command_execution": _command,
    "file_change": _file_change,
    "mcp_tool_call": _mcp,
    "web_search": _web_search,
    TODO_LIST: _todo_list,
    COLLAB_TOOL_CALL: _collab,
}


_KIND = "subagent"
"""Codex's word for all of them; the stream does not tell their roles."""
_GONE = "not_found"
_ENDS: dict[str, Status] = {
    "completed": "completed",
    "errored": "failed",
    "interrupted": "cancelled",
    "shutdown": "cancelled",
    _GONE: "failed",
}


class SubAgents:
    """Makes reports of what completed calls tell about other threads.

    Each begins once and ends once. One that is given more to do afterwards stays ended; what it says then is in the
    result of the call that waits for it.
    """

    def __init__(self) -> None:
        self._at_work: dict[str, bool] = {}

    def read(self, item: Record) -> list[AgentReport]:
        states = record_at(item, "agents_states")
        reports: list[AgentReport] = []
        named = [thread for thread in list_at(item, "receiver_thread_ids") if isinstance(thread, str)]
        for thread in dict.fromkeys([*named, *states]):
            reports += self._thread(item, thread, record_at(states, thread))
        return reports

    def _thread(self, item: Record, thread: str, state: Record) -> list[AgentReport]:
        tool, status = text_at(item, "tool"), text_at(state, "status")
        reports: list[AgentReport] = []
        if thread not in self._at_work:
            if tool != "spawn_agent" and status in (None, _GONE):
                # Somebody was called that is not there.
                return []
            # Newer models start them by calls that are not in the stream: then the first wait tells of them.
            reports.append(self._started(item, thread, text_at(item, "prompt") if tool == "spawn_agent" else None))
        if self._at_work[thread]:
            how = _ENDS.get(status or "")
            if how is None and tool == "close_agent" and text_at(item, "status") == "completed":
                # What is told of one that is closed is how it was before.
                how = "cancelled"
            if how is not None:
                self._at_work[thread] = False
                reports.append(_ended(thread, how, text_at(state, "message")))
        return reports

    def _started(self, item: Record, thread: str, task: str | None) -> SubAgentStarted:
        sender = text_at(item, "sender_thread_id")
        parent = sender if sender is not None and sender in self._at_work else MAIN_AGENT
        self._at_work[thread] = True
        if len(self._at_work) > OPEN_BRANCHES:
            del self._at_work[next(iter(self._at_work))]
        return SubAgentStarted(agent=thread, parent=parent, name=_KIND, task=task)


def _ended(thread: str, how: Status, said: str | None) -> SubAgentEnded:
    if how == "completed":
        return SubAgentEnded(agent=thread, text=said)
    if how == "cancelled":
        return SubAgentEnded(agent=thread, status=how, text=said)
    error = parse_error(said) if said else run_error(AgentFailed, "the sub-agent is not there any more")
    return SubAgentEnded(agent=thread, status=how, error=error)


class CodexNormalizer(JsonLinesNormalizer):
    has_timestamps = False

    def __init__(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> None:
        super().__init__()
        self._thread: str | None = None
        self._processes = 0
        self._process = ""
        """What the ids of this process's items begin with."""
        self._turn: Literal["none", "open", "completed", "failed"] = "none"
        self._text: str | None = None
        self._error: str | None = None
        """The last message of this turn that was no retry's."""
        self._calls: dict[str, int] = {}
        """Open calls, and how often each was updated."""
        self._meter = UsageTracker(resumed=resumed, before=prior_usage)
        self._repeats = RetryDeduplicator()
        self._agents = SubAgents()

    def _read(self, record: Record) -> list[AgentReport] | None:
        match record.get("type"):
            case "item.completed" | "item.started" | "item.updated" as moment:
                return self._item(moment.removeprefix("item."), record_at(record, "item"))
            case "thread.started":
                return self._thread_started(text_at(record, "thread_id"))
            case "turn.started":
                self._turn, self._text, self._error = "open", None, None
                self._repeats.reset()
                return []
            case "error":
                return self._failed(text_at(record, "message"))
            case "turn.completed":
                self._turn = "completed"
                if not is_usage(record.get("usage")):
                    # The turn is over all the same; what it says of tokens is kept as it came.
                    return None
                added = self._meter.read(record_at(record, "usage"))
                return [UsageDelta(usage=added)] if added is not None else []
            case "turn.failed":
                return self._turn_failed(text_at(record_at(record, "error"), "message"))
            case _:
                return None

    def _thread_started(self, thread: str | None) -> list[AgentReport] | None:
        if thread is None:
            return None
        if self._thread not in (None, thread):
            self._meter.thread_changed()
        self._thread = thread
        self._processes += 1
        self._process = ":".join(filter(None, (thread, str(self._processes) if self._processes > 1 else "")))
        self._turn, self._text, self._error = "none", None, None
        self._calls.clear()
        return [self._noted(Note(kind="ready", ready=Initialization(session_id=thread)))]

    def _failed(self, message: str | None) -> list[AgentReport] | None:
        if message is None:
            return None
        retry = retry_note(message)
        if retry is None:
            self._error = message
            return [self._noted(error_note(message))]
        if stream_interrupted(message):
            self._repeats.stream_interrupted()
        return [self._noted(retry)]

    def _turn_failed(self, message: str | None) -> list[AgentReport] | None:
        if message is None:
            return None
        told, self._turn, self._error = self._error, "failed", message
        return [] if told == message else [self._noted(error_note(message))]

    # Items.

    def _item(self, moment: str, item: Record) -> list[AgentReport] | None:
        kind = item.get("type")
        if moment == "completed" and kind in ("agent_message", "reasoning"):
            return self._said(kind, self._id(item), required_text(item, "text"))
        if moment == "completed" and kind == "error":
            return [self._noted(Note(kind="warning", message=required_text(item, "message")))]
        tool = parse_tool_item(item)
        return self._tool(moment, item, tool) if tool is not None else None

    def _tool(self, moment: str, item: Record, tool: ToolItem) -> list[AgentReport] | None:
        self._repeats.reset()
        call_id = self._id(item)
        if moment == "started":
            return self._begun(call_id, tool)
        if moment == "completed":
            return self._done(call_id, tool, self._agents.read(item) if item["type"] == COLLAB_TOOL_CALL else [])
        # No other item was ever seen to be updated.
        return self._updated(call_id, tool) if item["type"] == TODO_LIST else None

    def _said(self, kind: str, message_id: str, text: str) -> list[AgentReport]:
        if kind == "agent_message":
            self._text = text
        if self._repeats.is_repeat(kind, text):
            return []
        if kind == "reasoning":
            return [self._message(message_id, ThinkingBlock(thinking=text, fidelity="agent_emitted"))]
        return [self._message(message_id, TextBlock(text=text, fidelity="agent_emitted"))]

    def _begun(self, call_id: str, tool: ToolItem) -> list[AgentReport] | None:
        if call_id in self._calls:
            return None
        self._calls[call_id] = 0
        if len(self._calls) > OPEN_BRANCHES:
            del self._calls[next(iter(self._calls))]
        return self._called(call_id, tool)

    def _updated(self, call_id: str, tool: ToolItem) -> list[AgentReport] | None:
        """A list that changed: the agent wrote it anew, and has done so when it is told."""
        if call_id not in self._calls:
            return self._begun(call_id, tool)
        self._calls[call_id] += 1
        update = f"{call_id}.{self._calls[call_id]}"
        return [*self._called(update, tool), _gave(update, tool)]

    def _done(self, call_id: str, tool: ToolItem, meanwhile: list[AgentReport]) -> list[AgentReport]:
        known = self._calls.pop(call_id, None) is not None
        return [*([] if known else self._called(call_id, tool)), *meanwhile, _gave(call_id, tool)]

    def _called(self, call_id: str, tool: ToolItem) -> list[AgentReport]:
        used = ToolUseBlock(tool_name=tool.name, tool_id=call_id, tool_input=tool.input, fidelity="agent_emitted")
        call = ToolCall(name=tool.name, call_id=call_id, input=tool.input, output=None, fidelity="agent_emitted")
        return [self._message(call_id, used), TranscriptItem(payload=call)]

    def _id(self, item: Record) -> str:
        """An id that no item of another thread has, nor of another process in the same stream."""
        return ":".join(filter(None, (self._process, required_text(item, "id"))))

    def _message(self, message_id: str, block: Block) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(message_id=message_id, session_id=self._thread, blocks=[block]))

    def _noted(self, note: Note) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(session_id=self._thread, note=note, blocks=[]))

    # The end.

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        status, error = self._outcome(ended)
        return [
            SessionEnded(
                status=status,
                is_final=self._turn == "completed",
                text=self._text if status == "completed" else None,
                error=error,
                usage=self._meter.process_usage,
                session_usage=self._meter.thread_total,
                session_id=self._thread,
                unparsed=self.unparsed,
            )
        ]

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        if self._turn == "completed":
            return "completed", None
        if self._turn == "failed":
            return "failed", parse_error(self._error or "")
        if ended is not None and ended.cancelled:
            return "cancelled", run_error(ExecutionCancelled, "codex was stopped")
        if self._error is not None:
            return "failed", parse_error(self._error)
        where = "did not start" if self._thread is None else "ended in the middle"
        return "failed", run_error(AgentFailed, f"codex {where}: {describe_exit(ended)}")


def _gave(call_id: str, tool: ToolItem) -> TranscriptItem:
    result = ToolResult(
        name=tool.name,
        call_id=call_id,
        input=None,
        output=tool.output,
        error=tool.error,
        exit_code=tool.exit_code,
        files=tool.files,
        fidelity="agent_emitted",
    )
    return TranscriptItem(payload=result)
