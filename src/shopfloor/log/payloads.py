"""Payloads: what each of the ten event types carries. A payload's class decides its event's type."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from shopfloor.log.agents import Clock, EndedProcess, FileChange, Limit, Note, Process, Session, Usage
from shopfloor.log.blocks import Block, Fidelity

Status = Literal["completed", "failed", "cancelled"]
Covers = Literal["own", "own_and_sub_agents"]
STATUSES: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


class Cost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Money, and who says so: `agent` for the agent's own total, else the price list's version."""

    usd: float | None
    """US dollars; null where no price is known."""
    source: str
    """Who says so."""
    prices: str | None = None
    """The version of the price list."""


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run did not complete."""

    code: str
    """A stable word, for programs."""
    message: str
    """What happened, for people."""
    retryable: bool = False
    """Whether the same run could end well another time."""
    retry_after: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds until it makes sense to try again, where that is known."""
    hint: str | msgspec.UnsetType = msgspec.UNSET
    """What can be done about it, where there is something."""


class Awaits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an unanswered call waits for."""

    kind: str
    """What would answer: a client tool, a question, an approval."""
    until: str | None = None
    """When the wait ends by itself."""
    more: int = 0
    """How many calls of the same message are still to come: only with the last of them does the step wait."""
    cancels: bool = False
    """True where the whole run is cancelled at `until`: its client has not come back with the result."""


class _Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    event_type: ClassVar[str]


class _Named(_Payload, frozen=True, kw_only=True):
    name: str
    """What it is called."""
    kind: str
    """`agent`, `command`, `operation`, `terminal`, `parallel`, `for_each`, `while`, `call_workflow`, or another."""
    clock: Clock | None = None
    """`reader` where an agent gave no time for it, and that of reading, or of the event before it, is used."""


class RunStarted(_Named, frozen=True, kw_only=True):
    """An attempt begins. The first of a run carries all that its row shows."""

    event_type = "run.started"
    attempt: int
    """From 1; each start of the same run has the next number."""
    host: str
    """The process that executes the run."""
    task: str | None = None
    """What is to be done, in the words it was asked in."""
    input: dict[str, Any] | None = None
    """What the worker was given."""
    worker_type: str | None = None
    """`builtin`, `plugin`, or the provider's name for a bare run."""
    agent_id: str | None = None
    """The owner: on whose behalf the run is made."""
    channel_id: str | None = None
    """Where the run came from."""
    channel_name: str | None = None
    """What people call that place."""
    root_run_id: str | None = None
    """The run at the top of the tree; its own id where there is no parent."""
    queued_at: str | None = None
    """When it was asked for."""
    parent: dict[str, Any] | None = None
    """What the parent says of the call, where there is a parent."""
    definition: Any = None
    """The worker as it was defined when the run began."""
    definition_hash: str | None = None
    """The hash of that definition."""
    idempotency_key: str | None = None
    """The caller's key, by which the same order twice is one run."""
    cwd: str | None = None
    """The folder it works in, where one was named."""
    client_wait_seconds: float | None = None
    """How long each client tool call waits for the client that executes the run; then the run is cancelled."""
    executor: Literal["caller"] | None = None
    """`caller` where the process that asked for a run of a worker executes the attempt, as `shopfloor run` does."""
    masked: bool = False
    """Whether that process masks what it records."""
    import_source: dict[str, Any] | None = None
    """Where an imported run was taken from."""
    format: int | None = None
    """The version of the format."""


class RunCompleted(_Named, frozen=True, kw_only=True):
    """The outcome. Exactly one per run; nothing follows it."""

    event_type = "run.completed"
    status: Status
    """How it ended."""
    error: RunError | None = None
    """Why, where it did not complete."""
    result: Any = None
    """What it gave; for a command the end of its output."""
    usage: Usage | None = None
    """Tokens of the whole run, without those of its sub-runs."""
    cost: Cost | None = None
    """Cost of the same."""
    covers: Covers | None = None
    """What `usage` and `cost` are of, for agents with sub-agents: their own alone, or with those of sub-agents, where
    they cannot be told apart. Left out where there were none."""
    sub_usage: Usage | None = None
    """Tokens of the runs that it called, with those that they called."""
    sub_cost: Cost | None = None
    """Cost of the same."""
    duration_ms: int | None = None
    """From the start of the run, by a clock that is never set back."""


class _StepPayload(_Named, frozen=True, kw_only=True):
    try_: int = msgspec.field(name="try")
    """From 1; a retry of the same step has the next number."""


class StepStarted(_StepPayload, frozen=True, kw_only=True):
    """A step begins: written before anything happens."""

    event_type = "step.started"
    process: Process | None = None
    """The process that will do it, already there and waiting to be let go."""
    session: Session | None = None
    """The session that serves it, for an agent."""
    branches: list[str] | None = None
    """The path segments that it begins at once, for one with branches."""


class _Ended(_StepPayload, frozen=True, kw_only=True):
    error: str | None = None
    """What went wrong; left out where nothing did."""
    error_code: str | None = None
    """The same as a stable word, for programs; left out for a bad exit of a command, which `result` tells."""
    error_hint: str | None = None
    """What to do about it, where there is something to do."""
    retryable: bool | None = None
    """Whether the same step could end well another time."""
    result: Any = None
    """What it gave; for a command `exit_code`, `signal` where one killed it, and `stdout_truncated` where later steps
    got only the end of its output."""
    usage: Usage | None = None
    """Tokens of this step."""
    cost: Cost | None = None
    """Cost of the same."""
    covers: Covers | None = None
    """What `usage` and `cost` are of, for an agent with sub-agents: its own alone, or with theirs, where they cannot be
    told apart. Left out where it had none."""
    sub_usage: Usage | None = None
    """Tokens of an agent's sub-agents that no run of theirs tells of."""
    sub_cost: Cost | None = None
    """Cost of the same."""
    session: Session | None = None
    """The session as it was at the end, for an agent."""
    rate_limits: list[Limit] | None = None
    """The provider's limits that it met."""
    ended_processes: list[EndedProcess] | None = None
    """Processes that outlived the command or agent and were ended, at most 100; left out where there were none."""
    duration_ms: int | None = None
    """By a clock that is never set back."""


class StepCompleted(_Ended, frozen=True, kw_only=True):
    """A step ended, well or not."""

    event_type = "step.completed"


class CallStarted(_StepPayload, frozen=True, kw_only=True):
    """A sub-run begins; the envelope has its `child_run_id`."""

    event_type = "step.call_workflow.started"
    worker: str | None = None
    """The worker that is called."""
    input: Any = None
    """What it is given."""


class CallCompleted(_Ended, frozen=True, kw_only=True):
    """A sub-run ended, as its parent saw it."""

    event_type = "step.call_workflow.completed"


class UserMessage(_Payload, frozen=True, kw_only=True, tag_field="role", tag="user", gc=False):
    """What was said to the agent, or the command that was given."""

    event_type = "message.user"
    system_prompt: str | None = None
    """The system prompt as it was composed."""
    synthetic: bool = False
    """True where the agent's program wrote it, and nobody asked for it."""
    clock: Clock | None = None
    """`reader` where the timestamp is not the agent's own."""
    truncated: bool = False
    """True where texts were cut, with a remark at their end, because the line would have been over the limit."""
    blocks: list[Block]
    """The prompt as it was resolved, or the command."""


class AssistantMessage(_Payload, frozen=True, kw_only=True, tag_field="role", tag="assistant", gc=False):
    """What the agent said, or what the command printed. Pieces of one message share `message_id`."""

    event_type = "message.assistant"
    message_id: str | None = None
    """The provider's id of the message."""
    session_id: str | None = None
    """The provider's id of the session."""
    model: str | None = None
    """The model that wrote it."""
    cost: Cost | None = None
    """Cost of this message."""
    usage: Usage | None = None
    """Tokens of this message; where it has no blocks, what an agent says that it has spent since it last did."""
    stop_reason: str | None = None
    """Why the model stopped, in the provider's word; `interrupted` where the message was cut off."""
    synthetic: bool = False
    """True where the agent's program wrote it in the model's name."""
    note: Note | None = None
    """What the program says of itself; then there may be no blocks."""
    clock: Clock | None = None
    """`reader` where the timestamp is not the agent's own."""
    truncated: bool = False
    """True where texts were cut, with a remark at their end, because the line would have been over the limit."""
    blocks: list[Block]
    """What was said, in order."""


class _Tool(_Payload, frozen=True, kw_only=True):
    name: str
    """The tool's exact name, never translated."""
    call_id: str
    """What joins a call and its result."""
    input: Any
    """What the tool was given."""
    output: Any
    """What the tool gave."""
    clock: Clock | None = None
    """`reader` where the timestamp is not the agent's own."""
    truncated: bool = False
    """True where texts were cut, with a remark at their end, because the line would have been over the limit."""


class ToolCall(_Tool, frozen=True, kw_only=True):
    """A tool is called. `output` is null."""

    event_type = "tool.call"
    fidelity: Fidelity
    """Who vouches for it."""
    awaits: Awaits | None = None
    """Present where the run waits for somebody outside to answer."""


class ToolResult(_Tool, frozen=True, kw_only=True):
    """A tool gave its result. `input` is null."""

    event_type = "tool.result"
    error: str | None = None
    """What went wrong; left out where nothing did."""
    duration_ms: int | None = None
    """By a clock that is never set back."""
    exit_code: int | None = None
    """For a command: how it ended."""
    files: list[FileChange] | None = None
    """The files that it changed, where the agent tells."""
    fidelity: Fidelity
    """Who vouches for it."""


Payload = (
    RunStarted
    | RunCompleted
    | StepStarted
    | StepCompleted
    | CallStarted
    | CallCompleted
    | UserMessage
    | AssistantMessage
    | ToolCall
    | ToolResult
)

PAYLOAD_TYPES: dict[str, type[Payload]] = {
    cls.event_type: cls
    for cls in (
        RunStarted,
        RunCompleted,
        StepStarted,
        StepCompleted,
        CallStarted,
        CallCompleted,
        UserMessage,
        AssistantMessage,
        ToolCall,
        ToolResult,
    )
}
"""The closed vocabulary of events, and what each carries."""


class UnknownPayload(msgspec.Struct, frozen=True):
    """The payload of a type that we do not know, or one that does not fit its type: passed on as it is."""

    data: Any
