"""Payloads of the ten event types. The class of a payload determines the type of its event."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec

from shopfloor.log.agents import Clock, EndedProcess, FileChange, Limit, Note, Process, Session, Usage
from shopfloor.log.blocks import Block, Fidelity

Status = Literal["completed", "failed", "cancelled"]
Covers = Literal["own", "own_and_sub_agents"]
STATUSES: frozenset[str] = frozenset({"completed", "failed", "cancelled"})


class Cost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cost and its source: `agent` for the agent's own total, else computed from a price list."""

    usd: float | None
    """US dollars; null if the price is unknown."""
    source: str
    """The source of the number."""
    prices: str | None = None
    """The version of the price list."""


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run did not complete."""

    code: str
    """A stable error code, for programs."""
    message: str
    """What happened, for people."""
    retryable: bool = False
    """Whether the same run could succeed another time."""
    retry_after: float | msgspec.UnsetType = msgspec.UNSET
    """Seconds until a retry makes sense, if known."""
    hint: str | msgspec.UnsetType = msgspec.UNSET
    """What to do about the error, if anything."""
    traceback: str | msgspec.UnsetType = msgspec.UNSET
    """For an exception in the code of a worker: its traceback, with the frames of the worker alone; at most the end."""


class FailureDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What follows the failure of a step."""

    action: Literal["retry", "fallback", "abort"]
    """`retry`: the step is tried again; `abort`: it is not; `fallback` is reserved for another provider that takes
    over, and not written yet."""
    try_: int | None = msgspec.field(default=None, name="try")
    """The number of the next try, for `retry`."""
    delay_seconds: float | None = None
    """Seconds until the next try, for `retry`."""
    provider: str | None = None
    """The provider that takes over, for `fallback`."""


class ClientInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The program that dispatched a run, as the program itself says."""

    name: str
    """Its name, e.g. `claude-code`."""
    version: str | None = None
    """Its version."""
    session_id: str | None = None
    """Its own id of the session or conversation."""


class BasedOn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The earlier run that a run was made from."""

    run_id: str
    """The earlier run."""
    kind: Literal["rerun", "reply", "fork"]
    """`rerun`: the worker was run again. `reply`: the agent's session continues. `fork`: the run up to an event."""
    seq: int | None = None
    """For a fork: the last event of the earlier run that the run starts with."""
    events: int | None = None
    """For a fork: how many events are copied from the earlier run. They follow the first event of the run."""


class Requirements(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a host must have to execute a run."""

    labels: dict[str, str] = {}
    """Labels of the host, with their values."""
    providers: list[str] = []
    """Providers that the host must have, sorted."""


class Awaits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an unanswered call waits for."""

    kind: str
    """The kind of answer: of a client tool, to a question, an approval."""
    until: str | None = None
    """When the wait times out."""
    more: int = 0
    """The number of calls of the same message that follow: the step starts to wait after the last of them."""
    cancels: bool = False
    """True if the run is cancelled at `until`, because its client did not return the result."""


class _Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    event_type: ClassVar[str]


class _Named(_Payload, frozen=True, kw_only=True):
    name: str
    """The name of the run or step."""
    kind: str
    """`agent`, `command`, `operation`, `terminal`, `parallel`, `for_each`, `while`, `call_workflow`, or another."""
    clock: Clock | None = None
    """`reader` if the agent reported no time; the timestamp is then the time of reading, or of the previous event."""


class RunStarted(_Named, frozen=True, kw_only=True):
    """The start of an attempt. The first one of a run has all that its row shows."""

    event_type = "run.started"
    attempt: int
    """From 1; each start of the same run has the next number."""
    host: str
    """The process that executes the run."""
    task: str | None = None
    """The task, in the words of the request."""
    input: dict[str, Any] | None = None
    """The input of the worker."""
    worker_type: str | None = None
    """`builtin`, `plugin`, or the provider's name for a run of a provider without a worker."""
    agent_id: str | None = None
    """The owner: on whose behalf the run is executed."""
    channel_id: str | None = None
    """The id of the channel that the request came from."""
    channel_name: str | None = None
    """The display name of that channel."""
    client: ClientInfo | None = None
    """The program that dispatched the run, if it is known. A sub-run has none: its parent called it."""
    root_run_id: str | None = None
    """The run at the top of the tree; its own id without a parent."""
    queued_at: str | None = None
    """When the run was requested."""
    parent: dict[str, Any] | None = None
    """The parent's description of the call, for a sub-run."""
    definition: Any = None
    """The definition of the worker when the run started."""
    definition_hash: str | None = None
    """The hash of that definition."""
    idempotency_key: str | None = None
    """The caller's key: two requests with the same key are one run."""
    origin: str | None = None
    """Where the worker comes from: its folder or module. Its memory belongs to slug and origin."""
    cwd: str | None = None
    """The working directory, if the request names one."""
    client_wait_seconds: float | None = None
    """How long each client tool call waits for the client that executes the run; then the run is cancelled."""
    approve: list[str] | None = None
    """The patterns of calls that a person has to approve in this run, beside those of the worker."""
    approve_timeout: float | None = None
    """Seconds after which a call without a decision is denied, if the request sets it."""
    based_on: BasedOn | None = None
    """The earlier run that this run repeats, continues or forks."""
    priority: int = 0
    """Queued runs with a higher priority start first: from -100 to 100."""
    requires: Requirements | None = None
    """What the host must have that executes the run; omitted if any host can."""
    labels: dict[str, str] | None = None
    """The labels of the host that the request asks for. `requires` has them too, with what the worker asks for."""
    executor: Literal["caller"] | None = None
    """`caller` if the process that requested the run executes the attempt itself, as `shopfloor run` does."""
    masked: bool = False
    """Whether that process masks secrets in the log."""
    import_source: dict[str, Any] | None = None
    """The source of an imported run."""
    format: int | None = None
    """The version of the log format."""


class RunCompleted(_Named, frozen=True, kw_only=True):
    """The outcome. Exactly one per run; nothing follows it."""

    event_type = "run.completed"
    status: Status
    """The final status."""
    error: RunError | None = None
    """Why the run did not complete."""
    result: Any = None
    """The result; for a command the end of its output."""
    usage: Usage | None = None
    """Tokens of the run, without its sub-runs."""
    cost: Cost | None = None
    """Cost of the run, without its sub-runs."""
    covers: Covers | None = None
    """What `usage` and `cost` include, for agents with sub-agents: the agents alone, or also their sub-agents, if the
    two cannot be separated. Omitted without sub-agents."""
    sub_usage: Usage | None = None
    """Tokens of all sub-runs, at every depth."""
    sub_cost: Cost | None = None
    """Cost of all sub-runs, at every depth."""
    duration_ms: int | None = None
    """Time since the start of the run's first attempt, by the wall clock; at least the time that the last attempt took
    by a monotonic clock."""


class _StepPayload(_Named, frozen=True, kw_only=True):
    try_: int = msgspec.field(name="try")
    """From 1; a retry of the same step has the next number."""


class StepStarted(_StepPayload, frozen=True, kw_only=True):
    """The start of a step, written before the step does anything."""

    event_type = "step.started"
    process: Process | None = None
    """The process of the step, already created and waiting to start."""
    session: Session | None = None
    """The session that executes the step, for an agent; for a model its conversation."""
    branches: list[str] | None = None
    """The path segments that the step starts at once, for a step with branches."""


class _StepEnd(_StepPayload, frozen=True, kw_only=True):
    error: str | None = None
    """What went wrong; omitted on success."""
    error_code: str | None = None
    """The stable error code, for programs; omitted if a command exited with an error, which `result` shows."""
    error_hint: str | None = None
    """What to do about the error, if anything."""
    traceback: str | None = None
    """For an exception in the code of a worker: its traceback, with the frames of the worker alone; at most the end."""
    retryable: bool | None = None
    """Whether the same step could succeed another time."""
    decision: FailureDecision | None = None
    """What follows the error; omitted on success, and if the step was interrupted from outside."""
    result: Any = None
    """The result; for a command `exit_code`, `signal` if a signal killed it, and `stdout_truncated` if later steps
    got only the end of its output."""
    usage: Usage | None = None
    """Tokens of this step."""
    cost: Cost | None = None
    """Cost of this step."""
    covers: Covers | None = None
    """What `usage` and `cost` include, for an agent with sub-agents: the agent alone, or also its sub-agents, if the
    two cannot be separated. Omitted without sub-agents."""
    sub_usage: Usage | None = None
    """Tokens of the agent's sub-agents that have no run of their own."""
    sub_cost: Cost | None = None
    """Cost of the agent's sub-agents that have no run of their own."""
    session: Session | None = None
    """The session at the end of the step, for an agent."""
    rate_limits: list[Limit] | None = None
    """The provider's limits that the step met."""
    ended_processes: list[EndedProcess] | None = None
    """Processes that outlived the command or agent and were terminated, at most 100; omitted if there are none."""
    duration_ms: int | None = None
    """The duration by a monotonic clock."""


class StepCompleted(_StepEnd, frozen=True, kw_only=True):
    """The end of a step, successful or not."""

    event_type = "step.completed"


class CallStarted(_StepPayload, frozen=True, kw_only=True):
    """The start of a sub-run; the envelope has its `child_run_id`."""

    event_type = "step.call_workflow.started"
    worker: str | None = None
    """The worker that is called."""
    input: Any = None
    """The input of the worker."""


class CallCompleted(_StepEnd, frozen=True, kw_only=True):
    """The end of a sub-run, as its parent saw it."""

    event_type = "step.call_workflow.completed"


class UserMessage(_Payload, frozen=True, kw_only=True, tag_field="role", tag="user", gc=False):
    """A message to the agent, or the command of a step."""

    event_type = "message.user"
    system_prompt: str | None = None
    """The composed system prompt."""
    synthetic: bool = False
    """True if the agent's program wrote the message by itself."""
    session: Session | None = None
    """The session with its new process, for the first message to an agent whose step is resumed."""
    clock: Clock | None = None
    """`reader` if the timestamp is not the agent's own."""
    truncated: bool = False
    """True if texts were truncated, with a remark at their end, because the line would have exceeded the limit."""
    blocks: list[Block]
    """The resolved prompt, or the command."""


class AssistantMessage(_Payload, frozen=True, kw_only=True, tag_field="role", tag="assistant", gc=False):
    """A message of the agent, or the output of a command. Chunks of one message share `message_id`."""

    event_type = "message.assistant"
    message_id: str | None = None
    """The provider's id of the message."""
    session_id: str | None = None
    """The provider's id of the session."""
    model: str | None = None
    """The model that wrote it."""
    provider: str | None = None
    """The provider of the model, if the step has no session that names it."""
    cost: Cost | None = None
    """Cost of this message."""
    usage: Usage | None = None
    """Tokens of this message; in a message without blocks, the agent's usage since its last report."""
    stop_reason: str | None = None
    """Why the model stopped, in the provider's term; `interrupted` if the message is incomplete."""
    synthetic: bool = False
    """True if the agent's program wrote the message in the model's name."""
    note: Note | None = None
    """A status message of the program; the message may then have no blocks."""
    clock: Clock | None = None
    """`reader` if the timestamp is not the agent's own."""
    truncated: bool = False
    """True if texts were truncated, with a remark at their end, because the line would have exceeded the limit."""
    blocks: list[Block]
    """The content, in order."""


class _Tool(_Payload, frozen=True, kw_only=True):
    name: str
    """The tool's exact name, never translated."""
    call_id: str
    """The id shared by a call and its result."""
    input: Any
    """The input of the tool."""
    output: Any
    """The output of the tool."""
    clock: Clock | None = None
    """`reader` if the timestamp is not the agent's own."""
    truncated: bool = False
    """True if texts were truncated, with a remark at their end, because the line would have exceeded the limit."""


class ToolCall(_Tool, frozen=True, kw_only=True):
    """A call of a tool. `output` is null."""

    event_type = "tool.call"
    fidelity: Fidelity
    """The source of the call."""
    awaits: Awaits | None = None
    """Present if the run waits for an answer from outside."""


class ToolResult(_Tool, frozen=True, kw_only=True):
    """The result of a tool call. `input` is null."""

    event_type = "tool.result"
    error: str | None = None
    """What went wrong; omitted on success."""
    duration_ms: int | None = None
    """The duration by a monotonic clock."""
    exit_code: int | None = None
    """For a command: its exit code."""
    files: list[FileChange] | None = None
    """The files that the tool changed, if the agent reports them."""
    fidelity: Fidelity
    """The source of the result."""

    @property
    def is_failure(self) -> bool:
        """Whether the call failed. A command failed if its exit code is not 0, even if its agent reports no error."""
        return self.error is not None or bool(self.exit_code)


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
"""The payload class of each event type; the vocabulary is closed."""


class UnknownPayload(msgspec.Struct, frozen=True):
    """The payload of an unknown event type, or one that does not match its type: passed on unchanged."""

    data: Any
