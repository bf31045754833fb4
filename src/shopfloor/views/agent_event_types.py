"""The ten `agent.*` signals: what each says of an event, for whoever watches agents from outside.

A payload has all the fields that its type promises, in camelCase. What is not known is `null`, never a number that
somebody could take for a fact: a cost of 0 would read as free, an exit code of 0 as success. Fields that may be left
out are left out then. What we count ourselves (`toolCalls`, `filesChanged`) is always a number, a capability that
nobody told of is `false`, and `thinking.tokensUsed` is the part that is known to be thinking, which may be 0.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final, Literal, get_args

import msgspec

from shopfloor.errors import AgentFailed, RateLimited, RunFailed, error_class
from shopfloor.limits import AGENT_DIFF_CHARS
from shopfloor.log import (
    AssistantMessage,
    Event,
    FileChange,
    Limit,
    Note,
    Process,
    ThinkingBlock,
    ToolCall,
    ToolResult,
    Usage,
)

AgentEventType = Literal[
    "agent.spawned",
    "agent.ready",
    "agent.thinking",
    "agent.tool_call",
    "agent.tool_result",
    "agent.file_change",
    "agent.error",
    "agent.rate_limited",
    "agent.completed",
    "agent.terminated",
]
AGENT_EVENT_TYPES: Final[tuple[str, ...]] = get_args(AgentEventType)
"""The closed set of them."""

Reason = Literal["user_cancel", "timeout", "error", "system"]
"""Why a session was ended from outside."""

_ACCESS_MODES = frozenset({"subscription", "api", "local"})
_LIMITED_MODES = frozenset({"subscription", "api"})
_CUT = "\n… (cut)"
_BASIC = {"codeGeneration": False, "webSearch": False}


class FleetEvent(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is told. `seq` and `n` say which event it comes from, and which of its signals it is."""

    run_id: str
    seq: int
    n: int = 0
    type: AgentEventType
    payload: dict[str, Any]
    timestamp: str
    provider: str
    """Whose it is: not every payload says so, and whoever listens may want one provider's alone."""


class Agent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session, as its signals know it while it is open."""

    name: str
    """`<run id>:<path>:<iteration>:<try>` of its step; `<run id>` for a sub-agent that has no step."""
    resumed_attempt: int = 0
    """The attempt that goes on with the same try, where that is not the one which began it."""
    spawned: bool = True
    """Whether it was told of. One that is not is told of when it says or does something."""
    provider: str
    access_mode: str | None = None
    capabilities: dict[str, bool] = {}
    process: bool = False
    """Whether it has one of its own: then it leaves an exit code when it ends by itself."""
    began: str
    ready: bool = False
    failed: str | None = None
    """The code of an error that it cannot get over, where one was told."""
    tool_calls: int = 0
    files: int = 0

    @property
    def id(self) -> str:
        """Unique per session, and always the same for the same log."""
        return f"{self.name}:{self.resumed_attempt}" if self.resumed_attempt else self.name


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """What a session took."""

    duration_ms: int | None
    usage: Usage | None
    cost_usd: float | None


def spawned(agent: Agent, event: Event, host: str | None, process: Process | None = None) -> FleetEvent:
    """A process that is not known is one of nulls: a sub-agent has none of its own."""
    payload: dict[str, Any] = {
        **_whose(agent, event),
        "workerId": host,
        "accessMode": agent.access_mode if agent.access_mode in _ACCESS_MODES else None,
        "process": {
            "pid": process.pid if process else None,
            "command": process.command if process else None,
            "args": [*process.args] if process else [],
            "cwd": process.cwd if process else None,
        },
        "capabilities": _BASIC | agent.capabilities,
    }
    return _signal(agent, event, "agent.spawned", payload)


def ready(agent: Agent, event: Event, note: Note) -> FleetEvent:
    """Its context is loaded where it says what it begins with."""
    initialization = {
        "duration": ms_between(agent.began, event.timestamp),
        "contextLoaded": note.ready is not None,
        "contextTokens": note.ready.context_tokens if note.ready else None,
    }
    return _signal(agent, event, "agent.ready", {**_whose(agent, event), "initialization": initialization})


def thinking(agent: Agent, event: Event, message: AssistantMessage) -> list[FleetEvent]:
    """One for all that an event has of it; its content is empty where the provider keeps it to itself."""
    thoughts = [block.thinking for block in message.blocks if isinstance(block, ThinkingBlock)]
    if not thoughts:
        return []
    told = {"content": "\n\n".join(thoughts), "tokensUsed": message.usage.reasoning if message.usage else 0}
    return [_signal(agent, event, "agent.thinking", {**_who(agent, event), "thinking": told})]


def tool_call(agent: Agent, event: Event, call: ToolCall) -> FleetEvent:
    tool = {"name": call.name, "input": call.input, "startedAt": event.timestamp}
    return _signal(agent, event, "agent.tool_call", {**_who(agent, event), "tool": tool})


def tool_result(agent: Agent, event: Event, result: ToolResult, began: str | None) -> FleetEvent:
    """A command that failed is no success, whether its agent calls that an error or not."""
    took = result.duration_ms
    if took is None and began is not None:
        took = ms_between(began, event.timestamp)
    tool: dict[str, Any] = {
        "name": result.name,
        "duration": took,
        "success": result.error is None and not result.exit_code,
    }
    tool |= _known(output=result.output, error=result.error)
    return _signal(agent, event, "agent.tool_result", {**_who(agent, event), "tool": tool})


def file_change(agent: Agent, event: Event, change: FileChange) -> FleetEvent:
    diff = change.diff
    if diff is not None and len(diff) > AGENT_DIFF_CHARS:
        # One that was cut so already comes out as it was.
        diff = f"{diff[:AGENT_DIFF_CHARS]}{_CUT}"
    told = {"path": change.path, "action": change.action}
    told |= _known(linesAdded=change.lines_added, linesRemoved=change.lines_removed, diff=diff)
    return _signal(agent, event, "agent.file_change", {**_who(agent, event), "file": told})


def retried_error(agent: Agent, event: Event, note: Note) -> FleetEvent:
    """A model call that failed and is made again: the session goes on."""
    action = {"type": "retry"} | _known(retryCount=note.try_)
    return _error(agent, event, note.code, note.message, recoverable=True, context=_context(note), action=action)


def fatal_error(agent: Agent, event: Event, note: Note) -> FleetEvent:
    """What the session does not get over, in its own words."""
    return failed(agent, event, note.code, note.message, context=_context(note))


def failed(
    agent: Agent,
    event: Event,
    code: str | None,
    message: str | None,
    *,
    recoverable: bool | None = None,
    context: dict[str, Any] | None = None,
) -> FleetEvent:
    """The session ends with it. Another try of its step would be another session, so this one's action is to abort."""
    if recoverable is None:
        recoverable = _passes(code)
    return _error(agent, event, code, message, recoverable=recoverable, context=context, action={"type": "abort"})


def _error(
    agent: Agent,
    event: Event,
    code: str | None,
    message: str | None,
    *,
    recoverable: bool,
    context: dict[str, Any] | None,
    action: dict[str, Any],
) -> FleetEvent:
    code = code or AgentFailed.code
    error: dict[str, Any] = {"code": code, "message": message or code, "recoverable": recoverable}
    error |= _known(context=context)
    payload = {**_whose(agent, event), "error": error, "action": action}
    return _signal(agent, event, "agent.error", payload)


def rate_limited(agent: Agent, event: Event, limit: Limit | None, wait: float | None = None) -> FleetEvent:
    """`wait` is how long it says that it waits; else that is until the limit's reset. Nobody waits for a warning."""
    if wait is None and limit is not None and limit.reset_at is not None and limit.status == "rejected":
        ms = ms_between(event.timestamp, limit.reset_at)
        wait = None if ms is None else math.ceil(ms / 1000)
    current = limit.current if limit else None
    # A use without a whole is a part of 1.
    most = limit.max if limit and limit.max is not None else None if current is None else 1.0
    payload: dict[str, Any] = {
        **_whose(agent, event),
        "accessMode": agent.access_mode if agent.access_mode in _LIMITED_MODES else None,
        "limit": {
            "type": limit.kind if limit else "requests",
            "current": current,
            "max": most,
            "resetAt": limit.reset_at if limit else None,
        },
        "action": {"type": "wait"} | _known(waitSeconds=wait),
    }
    return _signal(agent, event, "agent.rate_limited", payload)


def completed(agent: Agent, event: Event, metrics: Metrics, *, success: bool, exit_code: int | None) -> FleetEvent:
    read, written = _tokens(metrics.usage)
    payload: dict[str, Any] = {
        **_whose(agent, event),
        "result": {"success": success, "exitCode": exit_code},
        "metrics": {
            "duration": metrics.duration_ms,
            "tokensInput": read,
            "tokensOutput": written,
            "tokensTotal": _sum(read, written),
            "toolCalls": agent.tool_calls,
            "filesChanged": agent.files,
            "cost": metrics.cost_usd,
        },
    }
    return _signal(agent, event, "agent.completed", payload)


def terminated(agent: Agent, event: Event, metrics: Metrics, reason: Reason, signal: str | None = None) -> FleetEvent:
    payload: dict[str, Any] = {
        **_whose(agent, event),
        "reason": reason,
        **_known(signal=signal),
        "metrics": {
            "duration": metrics.duration_ms,
            "tokensUsed": _sum(*_tokens(metrics.usage)),
            "cost": metrics.cost_usd,
        },
    }
    return _signal(agent, event, "agent.terminated", payload)


def is_rate_limit(note: Note) -> bool:
    return note.code == RateLimited.code or note.status == RateLimited.status


def capabilities_of(told: dict[str, Any] | None) -> dict[str, bool]:
    """Those that are a yes or a no, under the names that the signals have."""
    return {_camel(name): value for name, value in (told or {}).items() if isinstance(value, bool)}


def ms_between(began: str, ended: str) -> int | None:
    try:
        took = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    except (ValueError, TypeError, OverflowError):
        # Providers' times come as they like: not a time at all, or one without its zone.
        return None
    return max(0, round(took.total_seconds() * 1000))


def _signal(agent: Agent, event: Event, kind: AgentEventType, payload: dict[str, Any]) -> FleetEvent:
    return FleetEvent(
        run_id=event.run_id,
        seq=event.seq,
        type=kind,
        payload=payload,
        timestamp=event.timestamp,
        provider=agent.provider,
    )


def _who(agent: Agent, event: Event) -> dict[str, Any]:
    return {"agentId": agent.id, "taskId": event.run_id}


def _whose(agent: Agent, event: Event) -> dict[str, Any]:
    return {**_who(agent, event), "providerId": agent.provider}


def _known(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _context(note: Note) -> dict[str, Any] | None:
    return _known(status=note.status, tries=note.tries, retryAfter=note.retry_after) or None


def _passes(code: str | None) -> bool:
    """Whether an error of this kind may be gone another time."""
    kind = error_class(code or AgentFailed.code)
    return issubclass(kind, RunFailed) and kind.retryable


def _tokens(usage: Usage | None) -> tuple[int | None, int | None]:
    """Read and written."""
    return (None, None) if usage is None else (usage.input + usage.cache_read + usage.cache_write, usage.output)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)
