"""Normalize the output of `claude --output-format stream-json`.

Each line of an assistant message has one block, reported at once under the id of the message. A stream may have
several results: the last one is the answer, and their counts add up. The control records between Anthropic's SDK and
Claude Code (`control_request`, `control_response`) are in the same stream; of these, only a request for the permission
to call a tool is reported.
"""

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
    content_blocks,
    is_tool_result,
    parse_block,
    text_content,
)
from shopfloor.adapters.providers.claude.subagents import SubAgents
from shopfloor.adapters.providers.claude.usage import UsageTracker, message_usage
from shopfloor.adapters.providers.json_access import (
    Record,
    int_at,
    list_at,
    parse_timestamp,
    record_at,
    records_at,
    text_at,
)
from shopfloor.adapters.providers.jsonl import JsonLinesNormalizer, bounded_put
from shopfloor.adapters.providers.permission_records import parse_permission_record
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
from shopfloor.ports import (
    MAIN_AGENT,
    AgentExit,
    AgentReport,
    ContextSize,
    PromptAnswered,
    SessionEnded,
    TranscriptItem,
)

IGNORED_RECORD_TYPES = frozenset(
    {
        "auth_status",
        "command_lifecycle",
        "control_response",
        "conversation_reset",
        "keep_alive",
        "prompt_suggestion",
        "tool_use_summary",
        "transcript_mirror",
    }
)
"""Record types without messages, tool calls or other content for the log."""
_IGNORED_SYSTEM_SUBTYPES = frozenset(
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
_SCREEN_PREFIX = "ui_"
"""Subtypes with this prefix are only for interactive display."""
_MESSAGE_FIELDS = {
    "informational": "content",
    "model_consent_fallback": "content",
    "model_fallback": "content",
    "model_refusal_fallback": "content",
    "model_refusal_no_fallback": "content",
    "notification": "text",
}
"""System records that carry a message for the user, and the field that holds it."""
_SYNTHETIC_MODEL = "<synthetic>"


def parse_system_record(record: Record) -> list[Note] | None:
    """Return the notes of a system record that needs no context; None if the record is not understood."""
    subtype = text_at(record, "subtype") or ""
    if subtype == "api_retry":
        return [retry_note(record)]
    if subtype == "compact_boundary":
        return [Note(kind="warning", message="the conversation was compacted")]
    if subtype in _MESSAGE_FIELDS:
        message = text_at(record, _MESSAGE_FIELDS[subtype])
        return None if message is None else [Note(kind="warning", message=message)]
    return [] if subtype in _IGNORED_SYSTEM_SUBTYPES or subtype.startswith(_SCREEN_PREFIX) else None


def hook_note(record: Record) -> tuple[Note | None, str]:
    """Return a note on how a user's hook ended, and the output of the hook.

    The note is None if the hook succeeded without output.
    """
    streams = [text_at(record, key) or "" for key in ("stdout", "stderr")]
    output = "".join(streams) or text_at(record, "output") or ""
    code, outcome = int_at(record, "exit_code"), text_at(record, "outcome")
    if not output and not code and outcome in (None, "success"):
        return None, ""
    ending = f"exit code {code}" if code is not None else outcome or "it ended"
    return Note(kind="warning", message=f"hook {text_at(record, 'hook_name') or ''}: {ending}"), output


def background_command_note(record: Record) -> Note:
    """Return a note that a command in the background ended."""
    call, status = text_at(record, "tool_use_id"), text_at(record, "status") or "ended"
    subject = f"background command {text_at(record, 'task_id') or ''} {status}"
    summary, file = text_at(record, "summary"), text_at(record, "output_file")
    details = [summary, f"call {call}" if call else None, f"output in {file}" if file else None]
    return Note(kind="warning", message=": ".join([subject, ", ".join(filter(None, details))]).removesuffix(": "))


def ready_note(record: Record, session: str | None) -> Note:
    """Return the note of an `init` record: the session is ready."""
    initialization = Initialization(
        session_id=session,
        model=text_at(record, "model"),
        version=text_at(record, "claude_code_version"),
        cwd=text_at(record, "cwd"),
        tools=[tool for tool in list_at(record, "tools") if isinstance(tool, str)],
        permission_mode=text_at(record, "permissionMode"),
    )
    return Note(kind="ready", ready=initialization)


class ClaudeNormalizer(JsonLinesNormalizer):
    """Normalizer of a session of Claude Code. A resumed session had earlier runs, which its totals may include."""

    unparsed: int
    reports_context = True

    def __init__(self, *, resumed: bool = False) -> None:
        super().__init__()
        self._session: str | None = None
        self._announced_session: str | None = None
        """The session that a `ready` note was reported for."""
        self._model: str | None = None
        self._last_timestamp: str | None = None
        """The newest timestamp in the stream."""
        self._calls = OpenToolCalls()
        self._agents = SubAgents(self._calls.get)
        self._deltas = MessageDeltas()
        self._usage = UsageTracker(resumed=resumed)
        self._limits: dict[str, Limit] = {}
        self._limit_reset_at: str | None = None
        """When the limit that stopped the session is reset."""
        self._denials: dict[str, str | None] = {}
        """Tools by the ids of their calls, for denials that were reported."""
        self._failure: RunError | None = None
        self._result: Record | None = None
        self._turns: int | None = None
        self._is_working = False
        """Whether the session did anything since its last result."""
        self._has_context = False
        """Whether the size of the context was reported: once, for the first message."""
        self._has_message = False
        """Whether the stream has any message of the session itself."""
        self._made_up_ids = 0

    def _read(self, record: Record) -> list[AgentReport] | None:
        self._session = text_at(record, "session_id") or self._session
        match record.get("type"):
            case "assistant":
                return self._assistant(record)
            case "user":
                return self._user(record)
            case "stream_event":
                return self._stream_event(self._agents.key_of(record), record_at(record, "event"))
            case "system":
                return self._system(record)
            case "result":
                return [*self._handle_result(record), PromptAnswered()]
            case "control_request" | "control_cancel_request":
                return parse_permission_record(record)
            case "rate_limit_event":
                return self._limit(record_at(record, "rate_limit_info"))
            case "tool_progress":
                return self._progress(record)
            case kind:
                return [] if kind in IGNORED_RECORD_TYPES else None

    # Messages and tools.

    def _assistant(self, record: Record) -> list[AgentReport]:
        message, agent, at = record_at(record, "message"), self._agents.key_of(record), self._read_timestamp(record)
        content = content_blocks(message)
        reports = self._agents.ensure_started(agent, record, at)
        model, is_error = text_at(message, "model"), record.get("is_api_error_message") is True
        synthetic = is_error or model == _SYNTHETIC_MODEL
        blocks = [self._block(block) for block in content if not is_tool_result(block)]
        if agent == MAIN_AGENT:
            self._is_working = self._has_message = True
            self._model = self._model if synthetic else model or self._model
            reports += [] if synthetic else self._report_context(message)
        if is_error:
            self._record_error(agent, api_error(record, text_content(content)))
        if blocks:
            payload = AssistantMessage(
                message_id=text_at(message, "id") or self._make_up_id(),
                session_id=self._session,
                model=None if synthetic else model,
                synthetic=synthetic,
                blocks=blocks,
            )
            reports.append(TranscriptItem(payload=payload, agent=agent, at=at))
        for block in blocks:
            if isinstance(block, ToolUseBlock):
                reports.append(TranscriptItem(payload=self._calls.begin(block, agent, at), agent=agent, at=at))
        if len(blocks) < len(content):
            for block in filter(is_tool_result, content):
                reports += self._tool_result(block, {}, agent, at)
        return reports

    def _report_context(self, message: Record) -> list[AgentReport]:
        """Report how many tokens the model reads for the first message of the session."""
        usage = message_usage(record_at(message, "usage"))
        tokens = usage.input + usage.cache_read + usage.cache_write
        if self._has_context or not tokens:
            return []
        self._has_context = True
        return [ContextSize(tokens=tokens)]

    def _user(self, record: Record) -> list[AgentReport]:
        """Read tool results, and messages of Claude Code to the model.

        The user's prompt is normally not in the stream.
        """
        agent, at = self._agents.key_of(record), self._read_timestamp(record)
        content = content_blocks(record_at(record, "message"))
        reports = self._agents.ensure_started(agent, record, at)
        results = list(filter(is_tool_result, content))
        structured = record_at(record, "tool_use_result") if len(results) == 1 else {}
        if agent == MAIN_AGENT:
            self._is_working = True
        for block in results:
            reports += self._tool_result(block, structured, agent, at)
        if len(results) == len(content):
            return reports
        blocks = [self._block(block) for block in content if not is_tool_result(block)]
        if self._agents.is_task(agent, text_content(content)):
            return reports
        synthetic = record.get("isSynthetic") is True or (agent == MAIN_AGENT and record.get("isReplay") is not True)
        return [*reports, TranscriptItem(payload=UserMessage(synthetic=synthetic, blocks=blocks), agent=agent, at=at)]

    def _tool_result(self, block: Record, structured: Record, agent: str, at: str | None) -> list[AgentReport]:
        call = self._calls.get(block["tool_use_id"])
        result = self._calls.end(block, structured, at)
        return [
            *self._agents.call_completed(call, result, structured, at),
            TranscriptItem(payload=result, agent=agent, at=at),
        ]

    def _stream_event(self, agent: str, event: Record) -> list[AgentReport] | None:
        match event.get("type"):
            case "message_start":
                self._deltas.message_started(agent, record_at(event, "message"))
                if agent == MAIN_AGENT:
                    self._usage.message_started(record_at(event, "message"))
                    return self._report_context(record_at(event, "message"))
                return []
            case "content_block_start":
                self._deltas.block_started(agent, event)
                return []
            case "content_block_delta":
                return self._deltas.block_delta(agent, event)
            case "message_delta":
                return [*self._usage.message_updated(record_at(event, "usage"))] if agent == MAIN_AGENT else []
            case "content_block_stop" | "message_stop" | "ping" | "error":
                # Claude Code reports an error as a retry or as the end.
                return []
            case _:
                return None

    def _block(self, block: Record) -> Block:
        parsed = parse_block(block)
        if isinstance(parsed, StreamBlock):
            self.unparsed += 1
        return parsed

    def _make_up_id(self) -> str:
        self._made_up_ids += 1
        return f"message-{self._made_up_ids}"

    def _read_timestamp(self, record: Record) -> str | None:
        at = parse_timestamp(record.get("timestamp"))
        self._last_timestamp = at or self._last_timestamp
        return at

    def _record_error(self, agent: str, error: RunError) -> None:
        if agent == MAIN_AGENT:
            self._failure = error
        else:
            self._agents.record_error(agent, error)

    # Records of Claude Code about itself.

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
                return [self._note(background_command_note(record))] if ended is None else ended
            case "hook_response":
                return self._hook(record)
            case "permission_denied":
                return self._denial(record)
            case "local_command_output":
                return self._command_output(record)
            case _:
                notes = parse_system_record(record)
                return None if notes is None else [self._note(note) for note in notes]

    def _init(self, record: Record) -> list[AgentReport]:
        """Report that the session is ready. Every turn starts with an `init`, so the note comes once per session."""
        self._is_working = True
        self._model = text_at(record, "model") or self._model
        if self._announced_session is not None and self._announced_session == self._session:
            return []
        self._announced_session = self._session or ""
        return [self._note(ready_note(record, self._session))]

    def _limit(self, info: Record) -> list[AgentReport]:
        limit = parse_rate_limit(info)
        bounded_put(self._limits, limit.window or "", limit)
        self._limit_reset_at = limit.reset_at if limit.status == "rejected" else None
        return [self._note(Note(kind="limit", limit=limit))]

    def _progress(self, record: Record) -> list[AgentReport]:
        """Report retries of a sub-agent's model calls, which no other record has. Other progress is ignored."""
        retry = record_at(record, "subagent_retry")
        return [self._note(retry_note(retry), self._agents.key_of({**record, **retry}))] if retry else []

    def _denial(self, record: Record) -> list[AgentReport]:
        """Report a denied tool call once. Denials are repeated in the result."""
        call_id = text_at(record, "tool_use_id") or self._make_up_id()
        if call_id in self._denials:
            return []
        bounded_put(self._denials, call_id, text_at(record, "tool_name"))
        message = text_at(record, "message") or f"{text_at(record, 'tool_name') or 'a tool'} was not allowed"
        return [self._note(Note(kind="denied", message=message), self._agents.key_of(record))]

    def _command_output(self, record: Record) -> list[AgentReport] | None:
        text = text_at(record, "content")
        if text is None:
            return None
        blocks: list[Block] = [TextBlock(fidelity="agent_emitted", text=text)]
        return [TranscriptItem(payload=AssistantMessage(session_id=self._session, synthetic=True, blocks=blocks))]

    def _hook(self, record: Record) -> list[AgentReport]:
        """Report a hook of the user, unless it succeeded without output."""
        note, output = hook_note(record)
        if note is None:
            return []
        blocks: list[Block] = [StreamBlock(fidelity="agent_emitted", chunk=output)] if output else []
        return [TranscriptItem(payload=AssistantMessage(session_id=self._session, note=note, blocks=blocks))]

    def _note(self, note: Note, agent: str = MAIN_AGENT) -> TranscriptItem:
        return TranscriptItem(payload=AssistantMessage(session_id=self._session, note=note, blocks=[]), agent=agent)

    # The end.

    def _handle_result(self, record: Record) -> list[AgentReport]:
        reports = self._result_message(record)
        self._result, self._is_working = record, False
        turns = int_at(record, "num_turns")
        if turns is not None:
            self._turns = (self._turns or 0) + turns
        for denial in records_at(record, "permission_denials"):
            reports += self._denial(denial)
        return [*reports, *self._usage.result(record, self._model)]

    def _result_message(self, record: Record) -> list[AgentReport]:
        """Return the answer if no message carried it: with `--output-format json` the result is the only record."""
        text = text_at(record, "result")
        if self._has_message or not text:
            return []
        self._has_message = True
        models = list(record_at(record, "modelUsage"))
        model = models[0] if len(models) == 1 else None
        blocks: list[Block] = [TextBlock(fidelity="agent_emitted", text=text)]
        is_error = record.get("is_error") is True
        message = AssistantMessage(session_id=self._session, model=model, synthetic=is_error, blocks=blocks)
        return [TranscriptItem(payload=message)]

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        result = {} if self._result is None or self._is_working else self._result
        reports: list[AgentReport] = []
        if result:
            wait = seconds_until(self._limit_reset_at, self._last_timestamp)
            status, error = outcome(result, self._failure, wait, ended)
        else:
            started = self._result is not None or self._is_working
            status, error = incomplete_stream_outcome(ended, started=started)
            reports += self._usage.stream_interrupted()
        usage, models = self._usage.own_usage(sub_agents=bool(self._agents), model=self._model)
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
                cost_usd=self._usage.cost if self._result is not None else None,
                turns=self._turns,
                session_id=self._session,
                unparsed=self.unparsed,
                limits=list(self._limits.values()),
            ),
        ]
