"""Normalize the output of `codex exec --json`.

A process works on one thread. Every process counts its items from `item_0`, so the ids reported here include the id of
the thread. The stream has no timestamps, models or prices. It leaves out calls that Codex itself refuses: an unknown
tool, a patch that does not apply, a command that the sandbox stops at once.
"""

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
    required_text,
    text_at,
)
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer, bounded_put
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

TODO_LIST = "todo_list"
COLLAB_TOOL_CALL = "collab_tool_call"
_ACTIONS = {"add": "create", "update": "modify", "delete": "delete"}
_SUB_AGENT_NAME = "subagent"
"""The name of all sub-agents: the stream does not have their roles."""
_NOT_FOUND = "not_found"
_STATUSES: dict[str, Status] = {
    "completed": "completed",
    "errored": "failed",
    "interrupted": "cancelled",
    "shutdown": "cancelled",
    _NOT_FOUND: "failed",
}


class RetryDeduplicator:
    """Recognize messages that a repeated model call sends again.

    A call whose stream breaks off is repeated from its beginning, and the messages that it had completed come again
    under new ids. Only these are repeats: the same texts in the same order from the first one on, directly after the
    note of the retry, and of a call that used no tool. If a tool ran in between, the stream does not show whether a
    text belongs to the broken call or to an earlier one; then each text is reported as often as it comes.
    """

    def __init__(self) -> None:
        self._digests: dict[str, deque[bytes]] = {}
        self._expected: dict[str, deque[bytes]] = {}

    def stream_interrupted(self) -> None:
        """Expect the messages of the interrupted call again."""
        self._expected = {kind: deque(digests) for kind, digests in self._digests.items()}

    def reset(self) -> None:
        """Forget all messages: the next ones belong to another call."""
        self._digests.clear()
        self._expected.clear()

    def is_repeat(self, kind: str, text: str) -> bool:
        """Return whether a message is a repeat. Remember it if it is not."""
        digest = sha256(text.encode(errors="replace")).digest()
        expected = self._expected.pop(kind, None)
        if expected and expected[0] == digest:
            expected.popleft()
            self._expected[kind] = expected
            return True
        digests = self._digests.get(kind)
        if digests is None:
            digests = self._digests[kind] = deque(maxlen=OPEN_BRANCHES)
        for _ in expected or ():
            # The repeated call takes another course: the rest of its earlier messages will not come again.
            digests.pop()
        digests.append(digest)
        return False


class ToolItem(msgspec.Struct, frozen=True, kw_only=True):
    """A tool item as a call and its result. An item that has only started has no result yet."""

    name: str
    input: Any
    output: Any = None
    error: str | None = None
    exit_code: int | None = None
    files: list[FileChange] | None = None


def parse_tool_item(item: Record) -> ToolItem | None:
    """Convert an item of a tool; None if the type of the item is not known."""
    parse = _TOOL_PARSERS.get(required_text(item, "type"))
    return parse(item) if parse is not None else None


def _parse_command(item: Record) -> ToolItem:
    command, output = required_text(item, "command"), text_at(item, "aggregated_output")
    exit_code, error = int_at(item, "exit_code"), _failure_status(item)
    if error is not None and exit_code is not None:
        # Some views show only the error, so include the end of the output.
        error = f"exit code {exit_code}\n{(output or '').strip()[-PROVIDER_MESSAGE_CHARS:]}".strip()
    tool_input = {"command": command}
    return ToolItem(name="command_execution", input=tool_input, output=output, error=error, exit_code=exit_code)


def _parse_file_change(item: Record) -> ToolItem:
    changes, error = records_at(item, "changes"), _failure_status(item)
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


def _parse_mcp_call(item: Record) -> ToolItem:
    message = text_at(record_at(item, "error"), "message")
    error = message or _failure_status(item)
    if error is not None and message is None:
        texts = [text_at(part, "text") or "" for part in records_at(record_at(item, "result"), "content")]
        error = "\n".join(texts).strip()[:PROVIDER_MESSAGE_CHARS] or error
    # The name that the model uses; the item has its two parts.
    name = f"mcp__{required_text(item, 'server')}__{required_text(item, 'tool')}"
    return ToolItem(name=name, input=item.get("arguments"), output=item.get("result"), error=error)


def _parse_web_search(item: Record) -> ToolItem:
    # The stream does not have the results. The query may be known only at the end.
    search = {key: item[key] for key in ("query", "action") if key in item}
    return ToolItem(name="web_search", input=search, output=search)


def _parse_todo_list(item: Record) -> ToolItem:
    todo = {"items": item["items"]}
    return ToolItem(name=TODO_LIST, input=todo, output=todo)


def _parse_collab_call(item: Record) -> ToolItem:
    tool_input = {key: item[key] for key in ("prompt", "receiver_thread_ids") if item.get(key)}
    output = {key: item[key] for key in ("receiver_thread_ids", "agents_states") if key in item}
    error = _failure_status(item)
    if error is not None:
        states = record_at(item, "agents_states")
        agents = [record_at(states, thread) for thread in states]
        messages = [text_at(state, "message") or text_at(state, "status") or "" for state in agents]
        error = "\n".join(messages).strip()[:PROVIDER_MESSAGE_CHARS] or error
    return ToolItem(name=required_text(item, "tool"), input=tool_input, output=output, error=error)


def _failure_status(item: Record) -> str | None:
    """Return Codex's status of a failed item (`failed` or `declined`); None if the item did not fail."""
    status = text_at(item, "status")
    return status if status not in (None, "completed", "in_progress") else None


_TOOL_PARSERS: dict[str, Callable[[Record], ToolItem]] = {
    "command_execution": _parse_command,
    "file_change": _parse_file_change,
    "mcp_tool_call": _parse_mcp_call,
    "web_search": _parse_web_search,
    TODO_LIST: _parse_todo_list,
    COLLAB_TOOL_CALL: _parse_collab_call,
}


class SubAgents:
    """Report the sub-agents of a session: threads that the agent starts, waits for and closes.

    The stream shows them only in the calls of the agent. Each sub-agent starts once and ends once. A sub-agent that
    gets more work afterwards stays ended; its later answers are in the results of the calls that wait for it.
    """

    def __init__(self) -> None:
        self._running: dict[str, bool] = {}

    def read(self, item: Record) -> list[AgentReport]:
        """Return the reports of a completed call that concerns other threads."""
        states = record_at(item, "agents_states")
        reports: list[AgentReport] = []
        receivers = [thread for thread in list_at(item, "receiver_thread_ids") if isinstance(thread, str)]
        for thread in dict.fromkeys([*receivers, *states]):
            reports += self._thread(item, thread, record_at(states, thread))
        return reports

    def _thread(self, item: Record, thread: str, state: Record) -> list[AgentReport]:
        tool, status = text_at(item, "tool"), text_at(state, "status")
        reports: list[AgentReport] = []
        if thread not in self._running:
            if tool != "spawn_agent" and status in (None, _NOT_FOUND):
                # The call names a thread that does not exist.
                return []
            # Newer models start threads by calls that are not in the stream; the first wait then reveals the thread.
            reports.append(self._started(item, thread, text_at(item, "prompt") if tool == "spawn_agent" else None))
        if self._running[thread]:
            ending = _STATUSES.get(status or "")
            if ending is None and tool == "close_agent" and text_at(item, "status") == "completed":
                # The state of a closed thread is its state before it was closed.
                ending = "cancelled"
            if ending is not None:
                self._running[thread] = False
                reports.append(_ended(thread, ending, text_at(state, "message")))
        return reports

    def _started(self, item: Record, thread: str, task: str | None) -> SubAgentStarted:
        sender = text_at(item, "sender_thread_id")
        parent = sender if sender is not None and sender in self._running else MAIN_AGENT
        bounded_put(self._running, thread, True)  # noqa: FBT003  (a value, not a flag)
        return SubAgentStarted(agent=thread, parent=parent, name=_SUB_AGENT_NAME, task=task)


def _ended(thread: str, ending: Status, message: str | None) -> SubAgentEnded:
    if ending == "completed":
        return SubAgentEnded(agent=thread, text=message)
    if ending == "cancelled":
        return SubAgentEnded(agent=thread, status=ending, text=message)
    error = parse_error(message) if message else run_error(AgentFailed, "the sub-agent does not exist any more")
    return SubAgentEnded(agent=thread, status=ending, error=error)


class CodexNormalizer(JsonLinesNormalizer):
    """Normalizer of one process of Codex. See `UsageTracker` for `resumed` and `prior_usage`."""

    has_timestamps = False

    def __init__(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> None:
        super().__init__()
        self._thread: str | None = None
        self._processes = 0
        self._id_prefix = ""
        """Prefix of the ids of this process's items."""
        self._turn: Literal["none", "open", "completed", "failed"] = "none"
        self._text: str | None = None
        self._error: str | None = None
        """The last error message of this turn that was not a retry."""
        self._calls: dict[str, int] = {}
        """Open calls, and how often each was updated."""
        self._usage = UsageTracker(resumed=resumed, prior_usage=prior_usage)
        self._retries = RetryDeduplicator()
        self._agents = SubAgents()

    def _read(self, record: Record) -> list[AgentReport] | None:
        match record.get("type"):
            case "item.completed" | "item.started" | "item.updated" as phase:
                return self._item(phase.removeprefix("item."), record_at(record, "item"))
            case "thread.started":
                return self._thread_started(text_at(record, "thread_id"))
            case "turn.started":
                self._turn, self._text, self._error = "open", None, None
                self._retries.reset()
                return []
            case "error":
                return self._error_record(text_at(record, "message"))
            case "turn.completed":
                self._turn = "completed"
                if not is_usage(record.get("usage")):
                    # The turn ended all the same. Its malformed usage is reported verbatim.
                    return None
                added = self._usage.read(record_at(record, "usage"))
                return [UsageDelta(usage=added)] if added is not None else []
            case "turn.failed":
                return self._turn_failed(text_at(record_at(record, "error"), "message"))
            case _:
                return None

    def _thread_started(self, thread: str | None) -> list[AgentReport] | None:
        if thread is None:
            return None
        if self._thread not in (None, thread):
            self._usage.thread_changed()
        self._thread = thread
        self._processes += 1
        self._id_prefix = ":".join(filter(None, (thread, str(self._processes) if self._processes > 1 else "")))
        self._turn, self._text, self._error = "none", None, None
        self._calls.clear()
        return [self._note(Note(kind="ready", ready=Initialization(session_id=thread)))]

    def _error_record(self, message: str | None) -> list[AgentReport] | None:
        if message is None:
            return None
        retry = retry_note(message)
        if retry is None:
            self._error = message
            return [self._note(error_note(message))]
        if stream_interrupted(message):
            self._retries.stream_interrupted()
        return [self._note(retry)]

    def _turn_failed(self, message: str | None) -> list[AgentReport] | None:
        if message is None:
            return None
        reported, self._turn, self._error = self._error, "failed", message
        return [] if reported == message else [self._note(error_note(message))]

    # Items.

    def _item(self, phase: str, item: Record) -> list[AgentReport] | None:
        kind = item.get("type")
        if phase == "completed" and kind in ("agent_message", "reasoning"):
            return self._text_item(kind, self._item_id(item), required_text(item, "text"))
        if phase == "completed" and kind == "error":
            return [self._note(Note(kind="warning", message=required_text(item, "message")))]
        tool = parse_tool_item(item)
        return self._tool(phase, item, tool) if tool is not None else None

    def _tool(self, phase: str, item: Record, tool: ToolItem) -> list[AgentReport] | None:
        self._retries.reset()
        call_id = self._item_id(item)
        if phase == "started":
            return self._tool_started(call_id, tool)
        if phase == "completed":
            sub_agent_reports = self._agents.read(item) if item["type"] == COLLAB_TOOL_CALL else []
            return self._tool_completed(call_id, tool, sub_agent_reports)
        # Only this type of item was ever seen to be updated.
        return self._tool_updated(call_id, tool) if item["type"] == TODO_LIST else None

    def _text_item(self, kind: str, message_id: str, text: str) -> list[AgentReport]:
        if kind == "agent_message":
            self._text = text
        if self._retries.is_repeat(kind, text):
            return []
        if kind == "reasoning":
            return [self._message(message_id, ThinkingBlock(thinking=text, fidelity="agent_emitted"))]
        return [self._message(message_id, TextBlock(text=text, fidelity="agent_emitted"))]

    def _tool_started(self, call_id: str, tool: ToolItem) -> list[AgentReport] | None:
        if call_id in self._calls:
            return None
        bounded_put(self._calls, call_id, 0)
        return self._call_reports(call_id, tool)

    def _tool_updated(self, call_id: str, tool: ToolItem) -> list[AgentReport] | None:
        """Report an update of the list as another call with its result."""
        if call_id not in self._calls:
            return self._tool_started(call_id, tool)
        self._calls[call_id] += 1
        update = f"{call_id}.{self._calls[call_id]}"
        return [*self._call_reports(update, tool), _result_report(update, tool)]

    def _tool_completed(self, call_id: str, tool: ToolItem, sub_agent_reports: list[AgentReport]) -> list[AgentReport]:
        is_open = self._calls.pop(call_id, None) is not None
        return [
            *([] if is_open else self._call_reports(call_id, tool)),
            *sub_agent_reports,
            _result_report(call_id, tool),
        ]

    def _call_reports(self, call_id: str, tool: ToolItem) -> list[AgentReport]:
        use = ToolUseBlock(tool_name=tool.name, tool_id=call_id, tool_input=tool.input, fidelity="agent_emitted")
        call = ToolCall(name=tool.name, call_id=call_id, input=tool.input, output=None, fidelity="agent_emitted")
        return [self._message(call_id, use), TranscriptItem(payload=call)]

    def _item_id(self, item: Record) -> str:
        """Return an id that is unique across threads, and across the processes of this stream."""
        return ":".join(filter(None, (self._id_prefix, required_text(item, "id"))))

    def _message(self, message_id: str, block: Block) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(message_id=message_id, session_id=self._thread, blocks=[block]))

    def _note(self, note: Note) -> TranscriptItem:
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
                usage=self._usage.process_usage,
                session_usage=self._usage.thread_total,
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
        ending = "did not start" if self._thread is None else "ended in the middle"
        return "failed", run_error(AgentFailed, f"codex {ending}: {describe_exit(ended)}")


def _result_report(call_id: str, tool: ToolItem) -> TranscriptItem:
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
