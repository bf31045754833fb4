"""Construction of the ten `agent.*` fleet events from the events of a session."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypedDict

import msgspec
from msgspec.structs import replace

from shopfloor.errors import AgentFailed, RateLimited, RunFailed, error_class
from shopfloor.limits import AGENT_DIFF_CHARS
from shopfloor.log import (
    AssistantMessage,
    Event,
    FailureDecision,
    FileChange,
    Limit,
    Note,
    Process,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    Usage,
)
from shopfloor.views.agent_payloads import (
    AccessMode,
    AgentCompleted,
    AgentError,
    AgentFileChange,
    AgentRateLimited,
    AgentReady,
    AgentSpawned,
    AgentTerminated,
    AgentThinking,
    AgentToolCall,
    AgentToolResult,
    ErrorActionFields,
    ErrorFields,
    FileFields,
    LimitActionFields,
    LimitedAccessMode,
    Reason,
    ToolResultFields,
)
from shopfloor.views.fleet_event_types import AgentEventType, FleetEvent
from shopfloor.views.spending import NO_USAGE, UsageTotal
from shopfloor.views.truncation import ms_between

_ACCESS_MODES: Final[dict[str | None, AccessMode]] = {"subscription": "subscription", "api": "api", "local": "local"}
_LIMITED_MODES: Final[dict[str | None, LimitedAccessMode]] = {"subscription": "subscription", "api": "api"}
_TRUNCATION_MARK = "\n… (cut)"
_DEFAULT_CAPABILITIES = {"codeGeneration": False, "webSearch": False}


class AgentSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts about an open session that its events need."""

    name: str
    """`<run id>:<path>:<iteration>:<try>` of the session's step; `<run id>:<path>:<iteration>` of the step that started
    a conversation with a model; `<run id>` for a sub-agent without a step."""
    resumed_attempt: int = 0
    """The attempt that resumed the try, if that is not the attempt which started it; otherwise 0."""
    spawned: bool = True
    """True once `agent.spawned` was sent. A session without it gets it with its first message or call."""
    provider: str
    access_mode: str | None = None
    capabilities: dict[str, bool] = {}
    process: bool = False
    """True if the session has a process of its own, which leaves an exit code when it ends by itself."""
    started_at: str
    is_conversation: bool = False
    """True for a conversation with a model, which may have several steps and survives the attempt."""
    ends_with_step: bool = False
    """True for a conversation of one step."""
    open_steps: int = 0
    """For a conversation: the number of its open steps."""
    spent: UsageTotal = NO_USAGE
    """For a conversation: the spending of its ended steps."""
    ready: bool = False
    ready_at: str | None = None
    """When the agent was ready, while the size of its context is awaited."""
    error_code: str | None = None
    """The code of the fatal error that the agent reported, if any."""
    error_note: Note | None = None
    """That error, until it is known what follows."""
    tool_calls: int = 0
    files: int = 0

    @property
    def id(self) -> str:
        """The session's `agentId`: unique per session, and always the same for the same log."""
        return f"{self.name}:{self.resumed_attempt}" if self.resumed_attempt else self.name


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Duration, tokens and cost of a session."""

    duration_ms: int | None
    usage: Usage | None
    cost_usd: float | None


def spawned_event(agent: AgentSession, event: Event, host: str | None, process: Process | None = None) -> FleetEvent:
    """Build `agent.spawned`. The fields of an unknown process are null: a sub-agent has no process of its own."""
    payload: AgentSpawned = {
        **_agent_and_provider_ids(agent, event),
        "workerId": host,
        "accessMode": _ACCESS_MODES.get(agent.access_mode),
        "process": {
            "pid": process.pid if process else None,
            "command": process.command if process else None,
            "args": [*process.args] if process else [],
            "cwd": process.cwd if process else None,
        },
        "capabilities": _DEFAULT_CAPABILITIES | agent.capabilities,
    }
    return _build_event(agent, event, "agent.spawned", payload)


def ready_event(
    agent: AgentSession, event: Event, context_tokens: int | None = None, *, is_context_loaded: bool = True
) -> FleetEvent:
    """Build `agent.ready`, with the time at which the agent was ready.

    `is_context_loaded`: the agent reported the context that it starts with.
    """
    ready_at = agent.ready_at or event.timestamp
    payload: AgentReady = {
        **_agent_and_provider_ids(agent, event),
        "initialization": {
            "duration": ms_between(agent.started_at, ready_at),
            "contextLoaded": is_context_loaded,
            "contextTokens": context_tokens,
        },
    }
    return replace(_build_event(agent, event, "agent.ready", payload), timestamp=ready_at)


def thinking_events(agent: AgentSession, event: Event, message: AssistantMessage) -> list[FleetEvent]:
    """Build one `agent.thinking` for all thinking in the message. Its content is empty if the provider withholds it."""
    thoughts = [block.thinking for block in message.blocks if isinstance(block, ThinkingBlock)]
    if not thoughts:
        return []
    # A count of 0 is an unknown one: there were thoughts.
    tokens = (message.usage.reasoning or None) if message.usage else None
    payload: AgentThinking = {
        **_agent_ids(agent, event),
        "thinking": {"content": "\n\n".join(thoughts), "tokensUsed": tokens},
    }
    return [_build_event(agent, event, "agent.thinking", payload)]


def tool_call_event(agent: AgentSession, event: Event, call: ToolCall) -> FleetEvent:
    """Build `agent.tool_call`."""
    payload: AgentToolCall = {
        **_agent_ids(agent, event),
        "tool": {"name": call.name, "input": call.input, "startedAt": event.timestamp},
    }
    return _build_event(agent, event, "agent.tool_call", payload)


def tool_result_event(agent: AgentSession, event: Event, result: ToolResult, started_at: str | None) -> FleetEvent:
    """Build `agent.tool_result`."""
    duration_ms = result.duration_ms
    if duration_ms is None and started_at is not None:
        duration_ms = ms_between(started_at, event.timestamp)
    tool: ToolResultFields = {
        "name": result.name,
        "duration": duration_ms,
        "success": not result.is_failure,
    }
    if result.output is not None:
        tool["output"] = result.output
    if result.error is not None:
        tool["error"] = result.error
    payload: AgentToolResult = {**_agent_ids(agent, event), "tool": tool}
    return _build_event(agent, event, "agent.tool_result", payload)


def file_change_event(agent: AgentSession, event: Event, change: FileChange) -> FleetEvent:
    """Build `agent.file_change`, with a diff of at most `AGENT_DIFF_CHARS` characters."""
    file: FileFields = {"path": change.path, "action": change.action}
    if change.lines_added is not None:
        file["linesAdded"] = change.lines_added
    if change.lines_removed is not None:
        file["linesRemoved"] = change.lines_removed
    if change.diff is not None:
        # A diff that was already truncated this way comes out unchanged.
        is_long = len(change.diff) > AGENT_DIFF_CHARS
        file["diff"] = f"{change.diff[:AGENT_DIFF_CHARS]}{_TRUNCATION_MARK}" if is_long else change.diff
    payload: AgentFileChange = {**_agent_ids(agent, event), "file": file}
    return _build_event(agent, event, "agent.file_change", payload)


def retry_event(agent: AgentSession, event: Event, note: Note) -> FleetEvent:
    """Build `agent.error` for a model call that failed and is retried; the session continues."""
    action: ErrorActionFields = {"type": "retry"}
    if note.try_ is not None:
        action["retryCount"] = note.try_
    return _error(agent, event, note.code, note.message, recoverable=True, context=_context(note), action=action)


def fatal_error_event(agent: AgentSession, event: Event, note: Note, action: ErrorActionFields) -> FleetEvent:
    """Build `agent.error` for an error that stopped the agent, with the agent's own message."""
    return failure_event(agent, event, note.code, note.message, action, context=_context(note))


def failure_event(
    agent: AgentSession,
    event: Event,
    code: str | None,
    message: str | None,
    action: ErrorActionFields,
    *,
    recoverable: bool | None = None,
    context: dict[str, Any] | None = None,
) -> FleetEvent:
    """Build `agent.error` for an error that ends the session, or the try of a step."""
    if recoverable is None:
        recoverable = _is_retryable(code)
    return _error(agent, event, code, message, recoverable=recoverable, context=context, action=action)


def action_of(decision: FailureDecision | None) -> ErrorActionFields:
    """Return what follows an error. Without a decision of the engine nothing does."""
    action: ErrorActionFields = {"type": decision.action if decision else "abort"}
    if decision is not None and decision.try_ is not None:
        action["retryCount"] = decision.try_ - 1
    if decision is not None and decision.provider is not None:
        action["fallbackProvider"] = decision.provider
    return action


def _error(
    agent: AgentSession,
    event: Event,
    code: str | None,
    message: str | None,
    *,
    recoverable: bool,
    context: dict[str, Any] | None,
    action: ErrorActionFields,
) -> FleetEvent:
    code = code or AgentFailed.code
    error: ErrorFields = {"code": code, "message": message or code, "recoverable": recoverable}
    if context is not None:
        error["context"] = context
    payload: AgentError = {**_agent_and_provider_ids(agent, event), "error": error, "action": action}
    return _build_event(agent, event, "agent.error", payload)


def rate_limited_event(agent: AgentSession, event: Event, limit: Limit | None, wait: float | None = None) -> FleetEvent:
    """Build `agent.rate_limited`.

    `wait` is the announced delay in seconds. Without it, the delay lasts until a rejecting limit resets; a warning
    causes no delay.
    """
    if wait is None and limit is not None and limit.status == "rejected":
        wait = seconds_until(event, limit.reset_at)
    action: LimitActionFields = {"type": "wait"}
    if wait is not None:
        action["waitSeconds"] = wait
    current = limit.current if limit else None
    payload: AgentRateLimited = {
        **_agent_and_provider_ids(agent, event),
        "accessMode": _LIMITED_MODES.get(agent.access_mode),
        "limit": {
            "type": limit.kind if limit else None,
            "current": current,
            "max": limit.maximum if limit else None,
            "resetAt": limit.reset_at if limit else None,
        },
        "action": action,
    }
    return _build_event(agent, event, "agent.rate_limited", payload)


def completed_event(
    agent: AgentSession, event: Event, metrics: Metrics, *, success: bool, exit_code: int | None
) -> FleetEvent:
    """Build `agent.completed`, for a session that ended by itself."""
    input_tokens, output_tokens = _input_and_output_tokens(metrics.usage)
    payload: AgentCompleted = {
        **_agent_and_provider_ids(agent, event),
        "result": {"success": success, "exitCode": exit_code},
        "metrics": {
            "duration": metrics.duration_ms,
            "tokensInput": input_tokens,
            "tokensOutput": output_tokens,
            "tokensTotal": _sum(input_tokens, output_tokens),
            "toolCalls": agent.tool_calls,
            "filesChanged": agent.files,
            "cost": metrics.cost_usd,
        },
    }
    return _build_event(agent, event, "agent.completed", payload)


def terminated_event(
    agent: AgentSession, event: Event, metrics: Metrics, reason: Reason, signal: str | None = None
) -> FleetEvent:
    """Build `agent.terminated`, for a session that was ended from outside."""
    payload: AgentTerminated = {
        **_agent_and_provider_ids(agent, event),
        "reason": reason,
        "metrics": {
            "duration": metrics.duration_ms,
            "tokensUsed": _sum(*_input_and_output_tokens(metrics.usage)),
            "cost": metrics.cost_usd,
        },
    }
    if signal is not None:
        payload["signal"] = signal
    return _build_event(agent, event, "agent.terminated", payload)


def seconds_until(event: Event, until: str | None) -> float | None:
    """Return the whole seconds from an event to a later time, or None if that is no time."""
    ms = ms_between(event.timestamp, until) if until is not None else None
    return None if ms is None else math.ceil(ms / 1000)


def is_rate_limit(note: Note) -> bool:
    """Return True if the note is about a rate limit, by its error code or HTTP status."""
    return note.code == RateLimited.code or note.status == RateLimited.status


def parse_capabilities(declared: dict[str, Any] | None) -> dict[str, bool]:
    """Return the boolean capabilities, with their names in camelCase."""
    return {_camel(name): value for name, value in (declared or {}).items() if isinstance(value, bool)}


def _build_event(agent: AgentSession, event: Event, kind: AgentEventType, payload: Mapping[str, Any]) -> FleetEvent:
    return FleetEvent(
        run_id=event.run_id,
        seq=event.seq,
        type=kind,
        payload=payload,
        timestamp=event.timestamp,
        provider=agent.provider,
    )


class _AgentIds(TypedDict):
    agentId: str
    taskId: str


class _AgentAndProviderIds(_AgentIds):
    providerId: str


def _agent_ids(agent: AgentSession, event: Event) -> _AgentIds:
    return {"agentId": agent.id, "taskId": event.run_id}


def _agent_and_provider_ids(agent: AgentSession, event: Event) -> _AgentAndProviderIds:
    return {"agentId": agent.id, "taskId": event.run_id, "providerId": agent.provider}


def _context(note: Note) -> dict[str, Any] | None:
    facts = {"status": note.status, "tries": note.tries, "retryAfter": note.retry_after}
    return {name: value for name, value in facts.items() if value is not None} or None


def _is_retryable(code: str | None) -> bool:
    """Return True if an error with this code may not occur again on a retry."""
    kind = error_class(code or AgentFailed.code)
    return issubclass(kind, RunFailed) and kind.retryable


def _input_and_output_tokens(usage: Usage | None) -> tuple[int | None, int | None]:
    """Return the tokens read and the tokens written."""
    return (None, None) if usage is None else (usage.input + usage.cache_read + usage.cache_write, usage.output)


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
