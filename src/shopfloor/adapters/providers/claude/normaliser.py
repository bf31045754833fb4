"""What Claude Code prints with `--output-format stream-json`, as reports.

Each line of the model has one block of a message, told at once under the message's id. A stream may have several
results: the last is the answer, and what they count adds up. What the SDK and the program say to each other
(`control_request`, `control_response`) is in the same stream, and is housekeeping.
"""

from __future__ import annotations

from shopfloor.adapters.providers.claude.agents import SubAgents
from shopfloor.adapters.providers.claude.bounded import keep
from shopfloor.adapters.providers.claude.calls import Calls
from shopfloor.adapters.providers.claude.deltas import Typing
from shopfloor.adapters.providers.claude.failures import (
    api_error,
    broken_off,
    limit_of,
    outcome,
    retry_note,
    seconds_until,
)
from shopfloor.adapters.providers.claude.messages import block_of, contents, is_result, said_in
from shopfloor.adapters.providers.claude.meter import Meter
from shopfloor.adapters.providers.claude.notices import HOUSEKEEPING, background_end, hook_end, notices, ready
from shopfloor.adapters.providers.lines import LineNormaliser
from shopfloor.adapters.providers.reading import (
    Record,
    int_at,
    record_at,
    records_at,
    text_at,
    time_of,
)
from shopfloor.log import (
    AssistantMessage,
    Block,
    Limit,
    Note,
    RunError,
    StreamBlock,
    TextBlock,
    ToolUseBlock,
    UserMessage,
)
from shopfloor.ports import SELF, AgentExit, Ended, Report, Told

_NO_MODEL = "<synthetic>"


class ClaudeNormaliser(LineNormaliser):
    unparsed: int

    def __init__(self, *, resumed: bool = False) -> None:
        super().__init__()
        self._session: str | None = None
        self._ready: str | None = None
        """The session that was told to be ready."""
        self._model: str | None = None
        self._now: str | None = None
        """The last time in the stream."""
        self._calls = Calls()
        self._agents = SubAgents(self._calls.get)
        self._typing = Typing()
        self._meter = Meter(resumed=resumed)
        self._limits: dict[str, Limit] = {}
        self._resets: str | None = None
        """When a limit that it ran into is reset."""
        self._denied: dict[str, str | None] = {}
        """Calls whose denial was told."""
        self._failure: RunError | None = None
        self._result: Record | None = None
        self._turns: int | None = None
        self._at_work = False
        """Whether something was said since the last result."""
        self._spoke = False
        """Whether something was said by the session at all."""
        self._made_up = 0

    def _read(self, record: Record) -> list[Report] | None:
        self._session = text_at(record, "session_id") or self._session
        match record.get("type"):
            case "assistant":
                return self._assistant(record)
            case "user":
                return self._user(record)
            case "stream_event":
                return self._typed(self._agents.key_of(record), record_at(record, "event"))
            case "system":
                return self._system(record)
            case "result":
                return self._ended(record)
            case "rate_limit_event":
                return self._limit(record_at(record, "rate_limit_info"))
            case "tool_progress":
                return self._progress(record)
            case kind:
                return [] if kind in HOUSEKEEPING else None

    # What is said and done.

    def _assistant(self, record: Record) -> list[Report]:
        message, agent, at = record_at(record, "message"), self._agents.key_of(record), self._time(record)
        found = contents(message)
        reports = self._agents.heard(agent, record, at)
        model, failed = text_at(message, "model"), record.get("is_api_error_message") is True
        synthetic = failed or model == _NO_MODEL
        blocks = [self._block(block) for block in found if not is_result(block)]
        if agent == SELF:
            self._at_work = self._spoke = True
            self._model = self._model if synthetic else model or self._model
        if failed:
            self._failed(agent, api_error(record, said_in(found)))
        if blocks:
            said = AssistantMessage(
                message_id=text_at(message, "id") or self._make_up_id(),
                session_id=self._session,
                model=None if synthetic else model,
                synthetic=synthetic,
                blocks=blocks,
            )
            reports.append(Told(payload=said, agent=agent, at=at))
        for block in blocks:
            if isinstance(block, ToolUseBlock):
                reports.append(Told(payload=self._calls.begin(block, agent, at), agent=agent, at=at))
        if len(blocks) < len(found):
            for block in filter(is_result, found):
                reports += self._gave(block, {}, agent, at)
        return reports

    def _user(self, record: Record) -> list[Report]:
        """Results of tools, and what the program says to the model. What the user says is not repeated by itself."""
        agent, at = self._agents.key_of(record), self._time(record)
        found = contents(record_at(record, "message"))
        reports = self._agents.heard(agent, record, at)
        results = list(filter(is_result, found))
        structured = record_at(record, "tool_use_result") if len(results) == 1 else {}
        if agent == SELF:
            self._at_work = True
        for block in results:
            reports += self._gave(block, structured, agent, at)
        if len(results) == len(found):
            return reports
        blocks = [self._block(block) for block in found if not is_result(block)]
        if self._agents.is_task(agent, said_in(found)):
            return reports
        synthetic = record.get("isSynthetic") is True or (agent == SELF and record.get("isReplay") is not True)
        return [*reports, Told(payload=UserMessage(synthetic=synthetic, blocks=blocks), agent=agent, at=at)]

    def _gave(self, block: Record, structured: Record, agent: str, at: str | None) -> list[Report]:
        call = self._calls.get(block["tool_use_id"])
        result = self._calls.end(block, structured, at)
        return [*self._agents.answered(call, result, structured, at), Told(payload=result, agent=agent, at=at)]

    def _typed(self, agent: str, event: Record) -> list[Report] | None:
        match event.get("type"):
            case "message_start":
                self._typing.started(agent, record_at(event, "message"))
                if agent == SELF:
                    self._meter.message_started(record_at(event, "message"))
                return []
            case "content_block_start":
                self._typing.block_started(agent, event)
                return []
            case "content_block_delta":
                return self._typing.grew(agent, event)
            case "message_delta":
                return [*self._meter.message_grew(record_at(event, "usage"))] if agent == SELF else []
            case "content_block_stop" | "message_stop" | "ping" | "error":
                # Of an error the program makes a retry or an end, and tells that.
                return []
            case _:
                return None

    def _block(self, block: Record) -> Block:
        made = block_of(block)
        if isinstance(made, StreamBlock):
            self.unparsed += 1
        return made

    def _make_up_id(self) -> str:
        self._made_up += 1
        return f"message-{self._made_up}"

    def _time(self, record: Record) -> str | None:
        at = time_of(record.get("timestamp"))
        self._now = at or self._now
        return at

    def _failed(self, agent: str, error: RunError) -> None:
        if agent == SELF:
            self._failure = error
        else:
            self._agents.failed(agent, error)

    # What the program says.

    def _system(self, record: Record) -> list[Report] | None:
        match record.get("subtype"):
            case "init":
                return self._init(record)
            case "task_started":
                return self._agents.task_started(record)
            case "task_updated":
                return self._agents.task_updated(record)
            case "task_notification":
                ended = self._agents.task_ended(record)
                return [self._noted(background_end(record))] if ended is None else ended
            case "hook_response":
                return self._hooked(record)
            case "permission_denied":
                return self._denial(record)
            case "local_command_output":
                return self._printed(record)
            case _:
                notes = notices(record)
                return None if notes is None else [self._noted(note) for note in notes]

    def _init(self, record: Record) -> list[Report]:
        """Each turn begins so, not only the first."""
        self._at_work = True
        self._model = text_at(record, "model") or self._model
        if self._ready is not None and self._ready == self._session:
            return []
        self._ready = self._session or ""
        return [self._noted(ready(record, self._session))]

    def _limit(self, info: Record) -> list[Report]:
        limit = limit_of(info)
        keep(self._limits, limit.window or "", limit)
        self._resets = limit.reset_at if limit.status == "rejected" else None
        return [self._noted(Note(kind="limit", limit=limit))]

    def _progress(self, record: Record) -> list[Report]:
        """It goes on. Of calls of the model that a sub-agent makes again nothing else tells."""
        retry = record_at(record, "subagent_retry")
        return [self._noted(retry_note(retry), self._agents.key_of({**record, **retry}))] if retry else []

    def _denial(self, record: Record) -> list[Report]:
        """Told when it happens, and once more in the result."""
        call_id = text_at(record, "tool_use_id") or self._make_up_id()
        if call_id in self._denied:
            return []
        keep(self._denied, call_id, text_at(record, "tool_name"))
        message = text_at(record, "message") or f"{text_at(record, 'tool_name') or 'a tool'} was not allowed"
        return [self._noted(Note(kind="denied", message=message), self._agents.key_of(record))]

    def _printed(self, record: Record) -> list[Report] | None:
        text = text_at(record, "content")
        if text is None:
            return None
        blocks: list[Block] = [TextBlock(fidelity="agent_emitted", text=text)]
        return [Told(payload=AssistantMessage(session_id=self._session, synthetic=True, blocks=blocks))]

    def _hooked(self, record: Record) -> list[Report]:
        """A hook of the user's ran. One that succeeded and printed nothing is not worth a word."""
        note, printed = hook_end(record)
        if note is None:
            return []
        blocks: list[Block] = [StreamBlock(fidelity="agent_emitted", chunk=printed)] if printed else []
        return [Told(payload=AssistantMessage(session_id=self._session, note=note, blocks=blocks))]

    def _noted(self, note: Note, agent: str = SELF) -> Told:
        return Told(payload=AssistantMessage(session_id=self._session, note=note, blocks=[]), agent=agent)

    # The end.

    def _ended(self, record: Record) -> list[Report]:
        reports = self._answered(record)
        self._result, self._at_work = record, False
        turns = int_at(record, "num_turns")
        if turns is not None:
            self._turns = (self._turns or 0) + turns
        for denial in records_at(record, "permission_denials"):
            reports += self._denial(denial)
        return [*reports, *self._meter.result(record, self._model)]

    def _answered(self, record: Record) -> list[Report]:
        """The answer, where nothing but the result tells it: with `--output-format json` there is no other record."""
        text = text_at(record, "result")
        if self._spoke or not text:
            return []
        self._spoke = True
        models = list(record_at(record, "modelUsage"))
        model = models[0] if len(models) == 1 else None
        blocks: list[Block] = [TextBlock(fidelity="agent_emitted", text=text)]
        failed = record.get("is_error") is True
        message = AssistantMessage(session_id=self._session, model=model, synthetic=failed, blocks=blocks)
        return [Told(payload=message)]

    def _end(self, ended: AgentExit | None) -> list[Report]:
        result = {} if self._result is None or self._at_work else self._result
        reports: list[Report] = []
        if result:
            wait = seconds_until(self._resets, self._now)
            status, error = outcome(result, self._failure, wait, ended)
        else:
            began = self._result is not None or self._at_work
            status, error = broken_off(ended, began=began)
            reports += self._meter.broke_off()
        usage, models = self._meter.of_session(sub_agents=bool(self._agents), model=self._model)
        completed = status == "completed"
        return [
            *reports,
            Ended(
                status=status,
                is_final=bool(result),
                text=text_at(result, "result") if completed else None,
                structured=result.get("structured_output") if completed else None,
                error=error,
                usage=usage,
                models=models,
                cost_usd=self._meter.cost if self._result is not None else None,
                turns=self._turns,
                session_id=self._session,
                unparsed=self.unparsed,
                limits=list(self._limits.values()),
            ),
        ]
