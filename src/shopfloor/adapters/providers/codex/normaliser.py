"""What `codex exec --json` prints, as reports.

A process works on one thread. Its items are counted from `item_0` in every process, so their ids are told with the
thread's. Nothing in the stream has a time, a model or a price. Calls that Codex refuses (an unknown tool, a patch that
does not fit, a command that the sandbox stops at once) are not in the stream at all.
"""

from __future__ import annotations

from typing import Literal

from shopfloor.adapters.providers.codex.agents import SubAgents
from shopfloor.adapters.providers.codex.items import COLLAB, TODO_LIST, Tool, tool_of, word
from shopfloor.adapters.providers.codex.meter import Meter, is_usage
from shopfloor.adapters.providers.codex.prose import broke_off, error_note, failure, retry_note
from shopfloor.adapters.providers.codex.repeats import Repeats
from shopfloor.adapters.providers.lines import LineNormaliser
from shopfloor.adapters.providers.reading import Record, how_it_ended, record_at, run_error, text_at
from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import (
    AssistantMessage,
    Block,
    Initialisation,
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
from shopfloor.ports import AgentExit, Ended, Report, Spent, Told


class CodexNormaliser(LineNormaliser):
    tells_time = False

    def __init__(self, *, resumed: bool | None = None, spent_before: Usage | None = None) -> None:
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
        self._meter = Meter(resumed=resumed, before=spent_before)
        self._repeats = Repeats()
        self._agents = SubAgents()

    def _read(self, record: Record) -> list[Report] | None:
        match record.get("type"):
            case "item.completed" | "item.started" | "item.updated" as moment:
                return self._item(moment.removeprefix("item."), record_at(record, "item"))
            case "thread.started":
                return self._thread_started(text_at(record, "thread_id"))
            case "turn.started":
                self._turn, self._text, self._error = "open", None, None
                self._repeats.went_on()
                return []
            case "error":
                return self._failed(text_at(record, "message"))
            case "turn.completed":
                self._turn = "completed"
                if not is_usage(record.get("usage")):
                    # The turn is over all the same; what it says of tokens is kept as it came.
                    return None
                added = self._meter.read(record_at(record, "usage"))
                return [Spent(usage=added)] if added is not None else []
            case "turn.failed":
                return self._turn_failed(text_at(record_at(record, "error"), "message"))
            case _:
                return None

    def _thread_started(self, thread: str | None) -> list[Report] | None:
        if thread is None:
            return None
        if self._thread not in (None, thread):
            self._meter.another_thread()
        self._thread = thread
        self._processes += 1
        self._process = ":".join(filter(None, (thread, str(self._processes) if self._processes > 1 else "")))
        self._turn, self._text, self._error = "none", None, None
        self._calls.clear()
        return [self._noted(Note(kind="ready", ready=Initialisation(session_id=thread)))]

    def _failed(self, message: str | None) -> list[Report] | None:
        if message is None:
            return None
        retry = retry_note(message)
        if retry is None:
            self._error = message
            return [self._noted(error_note(message))]
        if broke_off(message):
            self._repeats.broke_off()
        return [self._noted(retry)]

    def _turn_failed(self, message: str | None) -> list[Report] | None:
        if message is None:
            return None
        told, self._turn, self._error = self._error, "failed", message
        return [] if told == message else [self._noted(error_note(message))]

    # Items.

    def _item(self, moment: str, item: Record) -> list[Report] | None:
        kind = item.get("type")
        if moment == "completed" and kind in ("agent_message", "reasoning"):
            return self._said(kind, self._id(item), word(item, "text"))
        if moment == "completed" and kind == "error":
            return [self._noted(Note(kind="warning", message=word(item, "message")))]
        tool = tool_of(item)
        return self._tool(moment, item, tool) if tool is not None else None

    def _tool(self, moment: str, item: Record, tool: Tool) -> list[Report] | None:
        self._repeats.went_on()
        call_id = self._id(item)
        if moment == "started":
            return self._begun(call_id, tool)
        if moment == "completed":
            return self._done(call_id, tool, self._agents.read(item) if item["type"] == COLLAB else [])
        # No other item was ever seen to be updated.
        return self._updated(call_id, tool) if item["type"] == TODO_LIST else None

    def _said(self, kind: str, message_id: str, text: str) -> list[Report]:
        if kind == "agent_message":
            self._text = text
        if self._repeats.is_repeat(kind, text):
            return []
        if kind == "reasoning":
            return [self._message(message_id, ThinkingBlock(thinking=text, fidelity="agent_emitted"))]
        return [self._message(message_id, TextBlock(text=text, fidelity="agent_emitted"))]

    def _begun(self, call_id: str, tool: Tool) -> list[Report] | None:
        if call_id in self._calls:
            return None
        self._calls[call_id] = 0
        if len(self._calls) > OPEN_BRANCHES:
            del self._calls[next(iter(self._calls))]
        return self._called(call_id, tool)

    def _updated(self, call_id: str, tool: Tool) -> list[Report] | None:
        """A list that changed: the agent wrote it anew, and has done so when it is told."""
        if call_id not in self._calls:
            return self._begun(call_id, tool)
        self._calls[call_id] += 1
        update = f"{call_id}.{self._calls[call_id]}"
        return [*self._called(update, tool), _gave(update, tool)]

    def _done(self, call_id: str, tool: Tool, meanwhile: list[Report]) -> list[Report]:
        known = self._calls.pop(call_id, None) is not None
        return [*([] if known else self._called(call_id, tool)), *meanwhile, _gave(call_id, tool)]

    def _called(self, call_id: str, tool: Tool) -> list[Report]:
        used = ToolUseBlock(tool_name=tool.name, tool_id=call_id, tool_input=tool.input, fidelity="agent_emitted")
        call = ToolCall(name=tool.name, call_id=call_id, input=tool.input, output=None, fidelity="agent_emitted")
        return [self._message(call_id, used), Told(payload=call)]

    def _id(self, item: Record) -> str:
        """An id that no item of another thread has, nor of another process in the same stream."""
        return ":".join(filter(None, (self._process, word(item, "id"))))

    def _message(self, message_id: str, block: Block) -> Told:
        return Told(payload=AssistantMessage(message_id=message_id, session_id=self._thread, blocks=[block]))

    def _noted(self, note: Note) -> Told:
        return Told(payload=AssistantMessage(session_id=self._thread, note=note, blocks=[]))

    # The end.

    def _end(self, ended: AgentExit | None) -> list[Report]:
        status, error = self._outcome(ended)
        return [
            Ended(
                status=status,
                is_final=self._turn == "completed",
                text=self._text if status == "completed" else None,
                error=error,
                usage=self._meter.spent,
                session_usage=self._meter.thread_total,
                session_id=self._thread,
                unparsed=self.unparsed,
            )
        ]

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        if self._turn == "completed":
            return "completed", None
        if self._turn == "failed":
            return "failed", failure(self._error or "")
        if ended is not None and ended.cancelled:
            return "cancelled", run_error(ExecutionCancelled, "codex was stopped")
        if self._error is not None:
            return "failed", failure(self._error)
        where = "did not start" if self._thread is None else "ended in the middle"
        return "failed", run_error(AgentFailed, f"codex {where}: {how_it_ended(ended)}")


def _gave(call_id: str, tool: Tool) -> Told:
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
    return Told(payload=result)
