"""What `opencode run --format json` prints, as reports.

The stream has no beginning and no end of its own, no model, no prompt and no pieces. A tool is told of once, when it
has ended; one that runs when the process is killed leaves no trace. Retries are silent. What sub-agents do and spend is
not in it. A step that does not ask for tools is the last, and what it says is the answer.
"""

from __future__ import annotations

from shopfloor.adapters.providers.lines import LineNormaliser
from shopfloor.adapters.providers.opencode.failures import broken_off, error_note, failure, is_refusal
from shopfloor.adapters.providers.opencode.parts import Tool, usage_of
from shopfloor.adapters.providers.reading import Record, number_at, record_at, run_error, text_at, time_of
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
    Usage,
    UserMessage,
)
from shopfloor.ports import AgentExit, Ended, Report, Spent, Told
from shopfloor.views import added

_GOES_ON = ("tool-calls", "unknown")
"""Why a step ended that another one follows."""


class OpenCodeNormaliser(LineNormaliser):
    def __init__(self) -> None:
        super().__init__()
        self._session: str | None = None
        self._ready: str | None = None
        """The session that was said to be ready."""
        self._seen: dict[str, None] = {}
        """The newest parts, and sub-agents, that were told of."""
        self._steps = 0
        self._usage: Usage | None = None
        self._cost = 0.0
        self._reason: str | None = None
        """Why the last step ended; None while one is open."""
        self._texts: list[str] = []
        """Of the step."""
        self._error: RunError | None = None
        """What went wrong, where nothing came after it."""
        self._refused: str | None = None
        """The tool of this step that was not allowed, in OpenCode's words."""
        self._at: str | None = None

    def _read(self, record: Record) -> list[Report] | None:
        session, at = text_at(record, "sessionID"), time_of(record.get("timestamp"))
        if session is None:
            return None
        self._session = session
        reports = self._record(record, at)
        if reports is None:
            return None
        self._at = at or self._at
        if session == self._ready:
            return reports
        self._ready = session
        return [self._noted(Note(kind="ready", ready=Initialisation(session_id=session)), at), *reports]

    def _record(self, record: Record, at: str | None) -> list[Report] | None:
        kind, part = record.get("type"), record_at(record, "part")
        if kind == "error":
            said = text_at(record, "error")
            return self._failed(record_at(record, "error") if said is None else {"message": said}, at)
        if not part:
            return None
        match kind:
            case "step_start":
                self._step_started()
                return []
            case "text" | "reasoning":
                text = text_at(part, "text")
                return None if text is None else self._said(kind, part, text, at)
            case "tool_use":
                return self._tool(part, at)
            case "step_finish":
                return self._step_ended(part)
            case _:
                return None

    def _step_started(self) -> None:
        self._reason, self._error, self._refused = None, None, None
        self._texts.clear()

    # What is said and done.

    def _said(self, kind: str, part: Record, text: str, at: str | None) -> list[Report]:
        if self._again(part):
            return []
        if part.get("synthetic") is True:
            # In the user's name: for example that it shall go on after the thread was made shorter.
            said = UserMessage(synthetic=True, blocks=[TextBlock(text=text, fidelity="agent_emitted")])
            return [Told(payload=said, at=at)]
        if kind == "reasoning":
            return [self._message(part, ThinkingBlock(thinking=text, fidelity="agent_emitted"), at)]
        self._texts.append(text)
        return [self._message(part, TextBlock(text=text, fidelity="agent_emitted"), at)]

    def _tool(self, part: Record, at: str | None) -> list[Report] | None:
        name, call_id = text_at(part, "tool"), text_at(part, "callID") or text_at(part, "id")
        state = record_at(part, "state")
        if name is None or call_id is None or state.get("status") not in ("completed", "error"):
            return None
        if self._again(part) or "compacted" in record_at(state, "time"):
            # It is told again when its output is dropped from the thread, even in a later process.
            return []
        tool = Tool(part, name, call_id)
        began, ended = tool.began or at, tool.ended or at
        reports: list[Report] = [self._message(part, tool.use(), began), Told(payload=tool.call(), at=began)]
        if tool.child is not None and self._is_new(tool.child):
            reports += tool.sub_agent(tool.child)
        reports.append(Told(payload=tool.result(), at=ended))
        if is_refusal(tool.error):
            self._refused = tool.error
            reports.append(self._noted(Note(kind="denied", message=tool.error), ended))
        return reports

    def _step_ended(self, part: Record) -> list[Report] | None:
        reason = text_at(part, "reason")
        if reason is None:
            return None
        used, cost = usage_of(record_at(part, "tokens")), number_at(part, "cost") or 0.0
        if self._again(part):
            return []
        self._reason = reason
        self._steps += 1
        self._usage = added(used, self._usage)
        self._cost += max(0.0, cost)
        # It says 0 of what it knows no price of.
        return [Spent(usage=used, cost_usd=cost if cost > 0 else None)]

    def _failed(self, error: Record, at: str | None) -> list[Report]:
        self._error = failure(error)
        return [self._noted(error_note(error, self._error), at)]

    def _again(self, part: Record) -> bool:
        """Whether this part was told of before."""
        part_id = text_at(part, "id")
        return part_id is not None and not self._is_new(part_id)

    def _is_new(self, name: str) -> bool:
        if name in self._seen:
            return False
        self._seen[name] = None
        if len(self._seen) > OPEN_BRANCHES:
            del self._seen[next(iter(self._seen))]
        return True

    def _message(self, part: Record, block: Block, at: str | None) -> Told:
        message_id = text_at(part, "messageID")
        return Told(payload=AssistantMessage(message_id=message_id, session_id=self._session, blocks=[block]), at=at)

    def _noted(self, note: Note, at: str | None) -> Told:
        return Told(payload=AssistantMessage(session_id=self._session, note=note, blocks=[]), at=at)

    # The end.

    def _end(self, ended: AgentExit | None) -> list[Report]:
        status, error = self._outcome(ended)
        return [
            Ended(
                status=status,
                is_final=self._is_final,
                text="\n".join(self._texts) or None if status == "completed" else None,
                error=error,
                usage=self._usage,
                cost_usd=round(self._cost, 10) if self._cost > 0 else None,
                turns=self._steps or None,
                session_id=self._session,
                unparsed=self.unparsed,
                at=self._at,
            )
        ]

    @property
    def _is_final(self) -> bool:
        """Whether the last step asked for no more tools. OpenCode has no other final record."""
        return self._error is None and self._reason is not None and self._reason not in _GOES_ON

    def _outcome(self, ended: AgentExit | None) -> tuple[Status, RunError | None]:
        cancelled = ended is not None and ended.cancelled
        if self._is_final:
            return "completed", None
        if cancelled or (self._error is not None and self._error.code == ExecutionCancelled.code):
            return "cancelled", run_error(ExecutionCancelled, "opencode was stopped")
        if self._error is not None:
            return "failed", self._error
        if self._refused is not None and self._reason is not None:
            return "failed", run_error(AgentFailed, f"opencode went no further: {self._refused}")
        return "failed", broken_off(ended, begun=self._session is not None)
