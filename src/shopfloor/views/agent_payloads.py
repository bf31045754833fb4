"""The payloads of the ten `agent.*` fleet events, about sessions of agents and models. Names are those of the wire."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

AccessMode = Literal["subscription", "api", "local"]
LimitedAccessMode = Literal["subscription", "api"]
Reason = Literal["user_cancel", "timeout", "error", "system"]
"""Why a session was ended from outside."""


class ProcessFields(TypedDict):
    """The process of a session."""

    pid: int | None
    """The process id; null if the session has no process of its own."""
    command: str | None
    """The program."""
    args: list[str]
    """The arguments of the program."""
    cwd: str | None
    """The working directory."""


class InitializationFields(TypedDict):
    """The start of a session."""

    duration: int | None
    """Milliseconds from the start of the session until it was ready."""
    contextLoaded: bool
    """True if the agent reported the context that it starts with, or the model has answered."""
    contextTokens: int | None
    """Tokens that the model read for its first answer; null if the agent does not report them."""


class ThinkingFields(TypedDict):
    """What the model thought."""

    content: str
    """The text; empty if the provider withholds it."""
    tokensUsed: int | None
    """Tokens that are thinking; null if the provider does not count them separately."""


class ToolCallFields(TypedDict):
    """A call of a tool."""

    name: str
    """The name of the tool."""
    input: Any
    """The input of the call."""
    startedAt: str
    """When the call started."""


class ToolResultFields(TypedDict):
    """The result of a call."""

    name: str
    """The name of the tool."""
    duration: int | None
    """Milliseconds; null if the start of the call is unknown."""
    success: bool
    """False if the tool reported an error, or its command exited with one."""
    output: NotRequired[Any]
    """The output of the tool."""
    error: NotRequired[str]
    """The error of the tool."""


class FileFields(TypedDict):
    """A changed file."""

    path: str
    """The path, as the agent reported it."""
    action: Literal["create", "modify", "delete"]
    """What happened to the file."""
    linesAdded: NotRequired[int]
    """The number of added lines."""
    linesRemoved: NotRequired[int]
    """The number of removed lines."""
    diff: NotRequired[str]
    """The unified diff, truncated."""


class ErrorFields(TypedDict):
    """An error."""

    code: str
    """A stable code, for programs."""
    message: str
    """The message."""
    recoverable: bool
    """True if another try may succeed."""
    context: NotRequired[Any]
    """More details, such as the HTTP status."""


class ErrorActionFields(TypedDict):
    """What follows an error."""

    type: Literal["retry", "fallback", "abort"]
    """What follows."""
    fallbackProvider: NotRequired[str]
    """The provider that takes over."""
    retryCount: NotRequired[int]
    """The number of the retry that follows, from 1."""


class LimitFields(TypedDict):
    """A limit of a provider."""

    type: Literal["requests", "tokens"] | None
    """What is limited; null if the provider does not tell it, as with the limits of subscriptions."""
    current: float | None
    """What is used."""
    max: float | None
    """The limit; 1 if the provider reports the used fraction only."""
    resetAt: str | None
    """When the limit is reset."""


class LimitActionFields(TypedDict):
    """What follows a rate limit."""

    type: Literal["wait", "fallback"]
    """What follows."""
    waitSeconds: NotRequired[float]
    """How long the session waits; left out if it only comes near the limit, or if the delay is unknown."""
    fallbackProvider: NotRequired[str]
    """The provider that takes over."""


class SessionResultFields(TypedDict):
    """The result of a session."""

    success: bool
    """True if the step succeeded, or the last step of a conversation."""
    exitCode: int | None
    """The exit code; null if the session has no process of its own."""


class SessionMetrics(TypedDict):
    """What a session used."""

    duration: int | None
    """Milliseconds."""
    tokensInput: int | None
    """Tokens read, including cached ones."""
    tokensOutput: int | None
    """Tokens written."""
    tokensTotal: int | None
    """Their sum."""
    toolCalls: int
    """The number of tool calls."""
    filesChanged: int
    """The number of different files that were changed."""
    cost: float | None
    """US dollars; null if some of the tokens have no known price."""


class TerminationMetrics(TypedDict):
    """What a session used until it was ended."""

    duration: int | None
    """Milliseconds."""
    tokensUsed: int | None
    """Tokens read and written."""
    cost: float | None
    """US dollars."""


class AgentSpawned(TypedDict):
    """A session of an agent or a model started."""

    agentId: str
    """The session."""
    providerId: str
    """The provider, such as `claude-code` or `anthropic`."""
    taskId: str
    """The run."""
    workerId: str | None
    """The host that executes the run."""
    accessMode: AccessMode | None
    """How the provider is paid for."""
    process: ProcessFields
    """The process of the session."""
    capabilities: dict[str, bool]
    """What the agent can do, at least `codeGeneration` and `webSearch`. An undeclared capability is false."""


class AgentReady(TypedDict):
    """A session can take instructions."""

    agentId: str
    """The session."""
    providerId: str
    """The provider."""
    taskId: str
    """The run."""
    initialization: InitializationFields
    """How the session started."""


class AgentThinking(TypedDict):
    """The model thought before it answered."""

    agentId: str
    """The session."""
    taskId: str
    """The run."""
    thinking: ThinkingFields
    """What it thought."""


class AgentToolCall(TypedDict):
    """The agent called a tool."""

    agentId: str
    """The session."""
    taskId: str
    """The run."""
    tool: ToolCallFields
    """The call."""


class AgentToolResult(TypedDict):
    """A tool call ended."""

    agentId: str
    """The session."""
    taskId: str
    """The run."""
    tool: ToolResultFields
    """The result."""


class AgentFileChange(TypedDict):
    """The agent changed a file."""

    agentId: str
    """The session."""
    taskId: str
    """The run."""
    file: FileFields
    """The file."""


class AgentError(TypedDict):
    """The session met an error."""

    agentId: str
    """The session."""
    taskId: str
    """The run."""
    providerId: str
    """The provider."""
    error: ErrorFields
    """The error."""
    action: ErrorActionFields
    """What follows."""


class AgentRateLimited(TypedDict):
    """The session met a limit of its provider, or comes near one."""

    agentId: str
    """The session."""
    taskId: str
    """The run."""
    providerId: str
    """The provider."""
    accessMode: LimitedAccessMode | None
    """How the provider is paid for."""
    limit: LimitFields
    """The limit."""
    action: LimitActionFields
    """What follows."""


class AgentCompleted(TypedDict):
    """A session ended by itself."""

    agentId: str
    """The session."""
    taskId: str
    """The run."""
    providerId: str
    """The provider."""
    result: SessionResultFields
    """The result."""
    metrics: SessionMetrics
    """What the session used."""


class AgentTerminated(TypedDict):
    """A session was ended from outside."""

    agentId: str
    """The session."""
    taskId: str
    """The run."""
    providerId: str
    """The provider."""
    reason: Reason
    """Why the session was ended."""
    signal: NotRequired[str]
    """The signal that ended its process, such as `SIGTERM`."""
    metrics: TerminationMetrics
    """What the session used."""
