"""What the program says of itself, in records that need nothing but themselves to be understood."""

from __future__ import annotations

from shopfloor.adapters.providers.claude.errors import (
    api_error,
    incomplete_stream_outcome,
    outcome,
    parse_rate_limit,
    retry_note,
    seconds_until,
)
from shopfloor.adapters.providers.claude.messages import (
    MessageDeltas,
    OpenToolCalls,
    bounded_put,
    content_blocks,
    is_tool_result,
    parse_block,
    text_content,
)
from shopfloor.adapters.providers.claude.subagents import SubAgents
from shopfloor.adapters.providers.claude.usage import UsageTracker
from shopfloor.adapters.providers.json_access import (
    Record,
    int_at,
    list_at,
    parse_timestamp,
    record_at,
    records_at,
    text_at,
)
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer
from shopfloor.log import (
    AssistantMessage,
    Block,
    Initialization,
    Limit,
    Note,
    RunError,
    StreamBlock,
    TextBlock,
    ToolUseBlock,
    UserMessage,
)
from shopfloor.ports import MAIN_AGENT, AgentExit, AgentReport, SessionEnded, TranscriptItem

IGNORED_RECORD_TYPES = frozenset(
    {
        "auth_status",
        "command_lifecycle",
        "control_cancel_request",
        "control_request",
        "control_response",
        "conversation_reset",
        "keep_alive",
        "prompt_suggestion",
        "tool_use_summary",
        "transcript_mirror",
    }
)
"""Kinds of records that carry nothing of what was said or done."""
_SYSTEM_HOUSEKEEPING = frozenset(
    {
        "background_tasks_changed",
        "commands_changed",
        "control_request_progress",
        "elicitation_complete",
        "files_persisted",
        "hook_progress",
        "hook_started",
        "per_turn_effort_changed",
        "permission_check_status",
        "plugin_install",
        "post_turn_summary",
        "session_metadata",
        "session_state_changed",
        "session_title_changed",
        "status",
        "stop_hook_summary",
        "task_progress",
        "task_summary",
        "thinking_tokens",
        "turn_duration",
    }
)
_SCREEN = "ui_"
"""What begins so is for a screen that is not there."""
_WORDS = {
    "informational": "content",
    "model_consent_fallback": "content",
    "model_fallback": "content",
    "model_refusal_fallback": "content",
    "model_refusal_no_fallback": "content",
    "notification": "text",
}
"""What is said by the way, and where the words are."""


def notices(record: Record) -> list[Note] | None:
    """What a record of the program's tells; None where it is not understood."""
    subtype = text_at(record, "subtype") or ""
    if subtype == "api_retry":
        return [retry_note(record)]
    if subtype == "compact_boundary":
        return [Note(kind="warning", message="the conversation was compacted")]
    if subtype in _WORDS:
        message = text_at(record, _WORDS[subtype])
        return None if message is None else [Note(kind="warning", message=message)]
    return [] if subtype in _SYSTEM_HOUSEKEEPING or subtype.startswith(_SCREEN) else None


def hook_note(record: Record) -> tuple[Note | None, str]:
    """How a hook of the user's ended, and what it printed; no note where it printed nothing and did not fail."""
    streams = [text_at(record, key) or "" for key in ("stdout", "stderr")]
    printed = "".join(streams) or text_at(record, "output") or ""
    code, outcome = int_at(record, "exit_code"), text_at(record, "outcome")
    if not printed and not code and outcome in (None, "success"):
        return None, ""
    how = f"exit code {code}" if code is not None else outcome or "it ended"
    return Note(kind="warning", message=f"hook {text_at(record, 'hook_name') or ''}: {how}"), printed


def background_command_note(record: Record) -> Note:
    """A command in the background ended."""
    call, status = text_at(record, "tool_use_id"), text_at(record, "status") or "ended"
    words = [f"background command {text_at(record, 'task_id') or ''} {status}"]
    summary, file = text_at(record, "summary"), text_at(record, "output_file")
    details = [summary, f"call {call}" if call else None, f"output in {file}" if file else None]
    return Note(kind="warning", message=": ".join([*words, ", ".join(filter(None, details))]).removesuffix(": "))


def ready(record: Record, session: str | None) -> Note:
    found = Initialization(
        session_id=session,
        model=text_at(record, "model"),
        version=text_at(record, "claude_code_version"),
        cwd=text_at(record, "cwd"),
        tools=[tool for tool in list_at(record, "tools") if isinstance(tool, str)],
        permission_mode=text_at(record, "permissionMode"),
    )
    return Note(kind="ready", ready=found)


_NO_MODEL = "<synthetic>"


class ClaudeNormalizer(JsonLinesNormalizer):
    unparsed: int

    def __init__(self, *, resumed: bool = False) -> None:
        super().__init__()
        self._session: str | None = None
        self._ready: str | None = None
        """The session that was told to be ready."""
        self._model: str | None = None
        self._now: str | None = None
        """The last time in the stream."""
        self._calls = OpenToolCalls()
        self._agents = SubAgents(self._calls.get)
        self._typing = MessageDeltas()
        self._meter = UsageTracker(resumed=resumed)
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

    def _read(self, record: Record) -> list[AgentReport] | None:
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
                return [] if kind in IGNORED_RECORD_TYPES else None

    # What is said and done.

    def _assistant(self, record: Record) -> list[AgentReport]:
        message, agent, at = record_at(record, "message"), self._agents.key_of(record), self._time(record)
        found = content_blocks(message)
        reports = self._agents.ensure_started(agent, record, at)
        model, failed = text_at(message, "model"), record.get("is_api_error_message") is True
        synthetic = failed or model == _NO_MODEL
        blocks = [self._block(block) for block in found if not is_tool_result(block)]
        if agent == MAIN_AGENT:
            self._at_work = self._spoke = True
            self._model = self._model if synthetic else model or self._model
        if failed:
            self._failed(agent, api_error(record, text_content(found)))
        if blocks:
            said = AssistantMessage(
                message_id=text_at(message, "id") or self._make_up_id(),
                session_id=self._session,
                model=None if synthetic else model,
                synthetic=synthetic,
                blocks=blocks,
            )
            reports.append(TranscriptItem(payload=said, agent=agent, at=at))
        for block in blocks:
            if isinstance(block, ToolUseBlock):
                reports.append(TranscriptItem(payload=self._calls.begin(block, agent, at), agent=agent, at=at))
        if len(blocks) < len(found):
            for block in filter(is_tool_result, found):
                reports += self._gave(block, {}, agent, at)
        return reports

    def _user(self, record: Record) -> list[AgentReport]:
        """Results of tools, and what the program says to the model. What the user says is not repeated by itself."""
        agent, at = self._agents.key_of(record), self._time(record)
        found = content_blocks(record_at(record, "message"))
        reports = self._agents.ensure_started(agent, record, at)
        results = list(filter(is_tool_result, found))
        structured = record_at(record, "tool_use_result") if len(results) == 1 else {}
        if agent == MAIN_AGENT:
            self._at_work = True
        for block in results:
            reports += self._gave(block, structured, agent, at)
        if len(results) == len(found):
            return reports
        blocks = [self._block(block) for block in found if not is_tool_result(block)]
        if self._agents.is_task(agent, text_content(found)):
            return reports
        synthetic = record.get("isSynthetic") is True or (agent == MAIN_AGENT and record.get("isReplay") is not True)
        return [*reports, TranscriptItem(payload=UserMessage(synthetic=synthetic, blocks=blocks), agent=agent, at=at)]

    def _gave(self, block: Record, structured: Record, agent: str, at: str | None) -> list[AgentReport]:
        call = self._calls.get(block["tool_use_id"])
        result = self._calls.end(block, structured, at)
        return [
            *self._agents.call_completed(call, result, structured, at),
            TranscriptItem(payload=result, agent=agent, at=at),
        ]

    def _typed(self, agent: str, event: Record) -> list[AgentReport] | None:
        match event.get("type"):
            case "message_start":
                self._typing.message_started(agent, record_at(event, "message"))
                if agent == MAIN_AGENT:
                    self._meter.message_started(record_at(event, "message"))
                return []
            case "content_block_start":
                self._typing.block_started(agent, event)
                return []
            case "content_block_delta":
                return self._typing.block_delta(agent, event)
            case "message_delta":
                return [*self._meter.message_updated(record_at(event, "usage"))] if agent == MAIN_AGENT else []
            case "content_block_stop" | "message_stop" | "ping" | "error":
                # Of an error the program makes a retry or an end, and tells that.
                return []
            case _:
                return None

    def _block(self, block: Record) -> Block:
        made = parse_block(block)
        if isinstance(made, StreamBlock):
            self.unparsed += 1
        return made

    def _make_up_id(self) -> str:
        self._made_up += 1
        return f"message-{self._made_up}"

    def _time(self, record: Record) -> str | None:
        at = parse_timestamp(record.get("timestamp"))
        self._now = at or self._now
        return at

    def _failed(self, agent: str, error: RunError) -> None:
        if agent == MAIN_AGENT:
            self._failure = error
        else:
            self._agents.failed(agent, error)

    # What the program says.

    def _system(self, record: Record) -> list[AgentReport] | None:
        match record.get("subtype"):
            case "init":
                return self._init(record)
            case "task_started":
                return self._agents.task_started(record)
            case "task_updated":
                return self._agents.task_updated(record)
            case "task_notification":
                ended = self._agents.task_ended(record)
                return [self._noted(background_command_note(record))] if ended is None else ended
            case "hook_response":
                return self._hooked(record)
            case "permission_denied":
                return self._denial(record)
            case "local_command_output":
                return self._printed(record)
            case _:
                notes = notices(record)
                return None if notes is None else [self._noted(note) for note in notes]

    def _init(self, record: Record) -> list[AgentReport]:
        """Each turn begins so, not only the first."""
        self._at_work = True
        self._model = text_at(record, "model") or self._model
        if self._ready is not None and self._ready == self._session:
            return []
        self._ready = self._session or ""
        return [self._noted(ready(record, self._session))]

    def _limit(self, info: Record) -> list[AgentReport]:
        limit = parse_rate_limit(info)
        bounded_put(self._limits, limit.window or "", limit)
        self._resets = limit.reset_at if limit.status == "rejected" else None
        return [self._noted(Note(kind="limit", limit=limit))]

    def _progress(self, record: Record) -> list[AgentReport]:
        """It goes on. Of calls of the model that a sub-agent makes again nothing else tells."""
        retry = record_at(record, "subagent_retry")
        return [self._noted(retry_note(retry), self._agents.key_of({**record, **retry}))] if retry else []

    def _denial(self, record: Record) -> list[AgentReport]:
        """Told when it happens, and once more in the result."""
        call_id = text_at(record, "tool_use_id") or self._make_up_id()
        if call_id in self._denied:
            return []
        bounded_put(self._denied, call_id, text_at(record, "tool_name"))
        message = text_at(record, "message") or f"{text_at(record, 'tool_name') or 'a tool'} was not allowed"
        return [self._noted(Note(kind="denied", message=message), self._agents.key_of(record))]

    def _printed(self, record: Record) -> list[AgentReport] | None:
        text = text_at(record, "content")
        if text is None:
            return None
        blocks: list[Block] = [TextBlock(fidelity="agent_emitted", text=text)]
        return [TranscriptItem(payload=AssistantMessage(session_id=self._session, synthetic=True, blocks=blocks))]

    def _hooked(self, record: Record) -> list[AgentReport]:
        """A hook of the user's ran. One that succeeded and printed nothing is not worth a word."""
        note, printed = hook_note(record)
        if note is None:
            return []
        blocks: list[Block] = [StreamBlock(fidelity="agent_emitted", chunk=printed)] if printed else []
        return [TranscriptItem(payload=AssistantMessage(session_id=self._session, note=note, blocks=blocks))]

    def _noted(self, note: Note, agent: str = MAIN_AGENT) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(session_id=self._session, note=note, blocks=[]), agent=agent)

    # The end.

    def _ended(self, record: Record) -> list[AgentReport]:
        reports = self._answered(record)
        self._result, self._at_work = record, False
        turns = int_at(record, "num_turns")
        if turns is not None:
            self._turns = (self._turns or 0) + turns
        for denial in records_at(record, "permission_denials"):
            reports += self._denial(denial)
        return [*reports, *self._meter.result(record, self._model)]

    def _answered(self, record: Record) -> list[AgentReport]:
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
        return [TranscriptItem(payload=message)]

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        result = {} if self._result is None or self._at_work else self._result
        reports: list[AgentReport] = []
        if result:
            wait = seconds_until(self._resets, self._now)
            status, error = outcome(result, self._failure, wait, ended)
        else:
            started = self._result is not None or self._at_work
            status, error = incomplete_stream_outcome(ended, started=started)
            reports += self._meter.stream_interrupted()
        usage, models = self._meter.own_usage(sub_agents=bool(self._agents), model=self._model)
        completed = status == "completed"
        return [
            *reports,
            SessionEnded(
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
