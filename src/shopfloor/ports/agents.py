"""Agents: autonomous programs such as Claude Code, and the reports of what they do.

A provider has two parts. The *launcher* builds the command line. The *normalizer* turns the bytes that the program
prints into reports. The normalizer uses no clock and no I/O, so it treats a live process, a recorded file and a test
alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from shopfloor.limits import PROVIDER_MESSAGE_CHARS
from shopfloor.log import AssistantMessage, Limit, RunError, Status, ToolCall, ToolResult, Usage, UserMessage

AccessMode = Literal["subscription", "api", "local"]

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

MAIN_AGENT = ""
"""The key of the session's main agent in a report. Every other key is that of a sub-agent."""


class OwnTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the worker that an agent may call: Python code, executed in the process of the agent's session."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the input."""
    handler: str
    """`package.module:function`."""


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A task for an agent, with its options."""

    prompt: str
    cwd: str
    model: str | None = None
    system_prompt: str | None = None
    """Appended to the agent's own system prompt."""
    max_turns: int | None = None
    max_budget_usd: float | None = None
    tools: list[str] | None = None
    """The only tools that the agent may use, by their exact names."""
    read_only: bool = False
    """Whether the agent may read files but not change anything."""
    own_tools: list[OwnTool] = []
    approve: list[str] = []
    """Patterns of calls that a person has to approve: the program has to ask before each call of these tools."""
    sandbox: bool = False
    """Run the agent's commands in the provider's sandbox; if the sandbox cannot start, nothing runs."""
    resume: str | None = None
    """The provider's id of the session to resume."""
    fork_session: bool = False
    """Continue a copy of the resumed session; the original stays as it is."""
    prior_usage: Usage | None = None
    """The usage of the resumed session before this run, if known. If None, a launcher that needs the number looks it
    up."""
    session_id: str
    """A fresh UUID, for providers that let the caller choose the id of a session."""


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The program asks whether it may call a tool, and waits for the answer on its standard input."""

    request_id: str
    tool: str
    tool_input: Any
    tool_id: str | None = None
    other_names: tuple[str, ...] = ()
    """Further names of the tool, by which a pattern can name it too."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How to start the program. The prompt is passed on `stdin`, since it may be long and command lines are public."""

    argv: list[str]
    env: dict[str, str] = {}
    stdin: bytes = b""
    session_id: str | None = None
    """The provider's session id, if it is known before the program starts."""
    access_mode: AccessMode = "api"
    answer_permission: Callable[[PermissionRequest, str | None], bytes] | None = None
    """Encodes the answer to a request for permission, which the program reads from its standard input: the reason of a
    denial, or None to allow the call. None: the program asks nothing, and its standard input ends after `stdin`."""
    is_preapproved: Callable[[PermissionRequest], bool] | None = None
    """Returns whether a call that the program asks for may be made, if no pattern of the request concerns it."""
    prior_usage: Usage | None = None
    """The usage of a resumed session before this run, for providers whose totals include earlier usage."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The options that a provider supports, and what its reports contain."""

    resume: bool = False
    fork_session: bool = False
    """Whether a session can be continued as a copy, so that the original stays as it is."""
    tool_limits: bool = False
    read_only: bool = False
    max_turns: bool = False
    max_budget: bool = False
    """Whether the program enforces a budget itself. The engine enforces budgets for all providers."""
    deltas: bool = False
    thinking: bool = False
    cost: bool = False
    usage: bool = False
    sub_agents: bool = False
    own_tools: bool = False
    approvals: bool = False
    """Whether the program can ask before it calls a tool, and wait for the answer."""
    sandbox: bool = False
    code_generation: bool = True
    web_search: bool = False


PROVIDER_TITLES: Final = {
    "claude-code": "Claude Code",
    "claude-sdk": "Claude Agent SDK",
    "codex": "Codex",
    "gemini": "Gemini CLI",
    "copilot": "GitHub Copilot CLI",
    "opencode": "OpenCode",
    "openai": "OpenAI API",
    "anthropic": "Anthropic API",
}
"""The providers in the order in which they are listed: first agents, then APIs, each with its name for people."""


class ProviderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A provider as found on this machine."""

    name: str
    kind: Literal["agent", "api"]
    """`agent`: a program started on this machine. `api`: an HTTP API."""
    program: str | None = None
    path: str | None = None
    """Path of the program; None if it is not installed."""
    version: str | None = None
    problem: str | None = None
    """What is wrong with the installed program, or with the login."""
    login: str | None = None
    """The variable or file with the credentials; None if there are none."""
    access_mode: AccessMode | None = None
    """How a run that starts now is paid for; None without credentials."""
    answers: bool | None = None
    """Whether the provider answered a request that costs nothing; None if it was not asked, or offers none."""
    install: str
    """The command that installs what is missing."""
    capabilities: Capabilities

    @property
    def usable(self) -> bool:
        """Whether the provider is installed and has credentials."""
        return self.login is not None and self.problem is None and (self.kind == "api" or self.path is not None)


class AgentExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the program ended."""

    code: int | None = None
    """Exit code; None if a signal ended the program."""
    signal: str | None = None
    stderr: str = ""
    """The last part of the standard error output."""
    cancelled: bool = False
    """Whether the engine stopped the program."""

    @property
    def is_success(self) -> bool:
        """Whether the program ended with neither a signal nor a non-zero exit code. True if neither is known."""
        return self.signal is None and not self.code

    def description(self, *, ignored_prefixes: tuple[str, ...] = ()) -> str:
        """Describe the exit: `exit code 1: Error: …`.

        The text is the last error line of stderr, else its last line without an ignored prefix.
        """
        ended = f"killed by {self.signal}" if self.signal is not None else f"exit code {self.code}"
        lines = [_ESCAPE.sub("", line).strip() for line in self.stderr.splitlines()]
        lines = [line for line in lines if line and not line.startswith(ignored_prefixes)]
        errors = [line for line in lines if line.lower().startswith("error")]
        last = (errors or lines or [""])[-1][:PROVIDER_MESSAGE_CHARS]
        return f"{ended}: {last}" if last else ended


class TranscriptItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message, tool call or tool result, to be logged unchanged."""

    payload: UserMessage | AssistantMessage | ToolCall | ToolResult
    agent: str = MAIN_AGENT
    at: str | None = None
    """The agent's own timestamp, RFC 3339 in UTC with milliseconds; None if the agent gave none."""
    is_prompt: bool = False
    """Whether this is the session's prompt, repeated by the agent. The log already has it if the engine sent it."""


class MessageDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message that is being generated. The complete message follows later, with the same message id."""

    message_id: str
    block: int
    kind: Literal["text", "thinking", "tool_input"]
    text: str
    tool_name: str | None = None
    tool_id: str | None = None
    agent: str = MAIN_AGENT


class SubAgentStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The agent delegated a task to a sub-agent, which is recorded as a run of its own."""

    agent: str
    """Key of the sub-agent, the same in all its reports."""
    parent: str = MAIN_AGENT
    name: str
    """The type of the sub-agent, as the provider names it."""
    task: str | None = None
    """The prompt of the sub-agent."""
    model: str | None = None
    at: str | None = None


class SubAgentEnded(msgspec.Struct, frozen=True, kw_only=True):
    """A sub-agent ended."""

    agent: str
    status: Status = "completed"
    text: str | None = None
    error: RunError | None = None
    at: str | None = None


class UsageDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Usage since the previous `UsageDelta`, sub-agents included. Budgets are checked against the sum."""

    usage: Usage
    model: str | None = None
    cost_usd: float | None = None
    """Cost by the agent's own prices, if it reports them."""


class ContextSize(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens the model of the main agent reads for its first message. Reported at most once."""

    tokens: int


class SessionEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The last report of a session, with the outcome as the agent reports it. There is always exactly one.

    The engine decides the final outcome: see `resolve_outcome` in `engine/agents/transcriber.py`.
    """

    status: Status
    is_final: bool = False
    """Whether the stream has the agent's own final record, with no message after it."""
    text: str | None = None
    """The agent's final answer."""
    structured: object = None
    """The final answer as data, if structured output was requested."""
    error: RunError | None = None
    usage: Usage | None = None
    """Usage of this run alone, without sub-agents and without the earlier usage of a resumed session."""
    models: dict[str, Usage] = {}
    """`usage` by model, for prices, if the models are known."""
    includes_sub_agents: bool = False
    """Whether `usage` and `models` include sub-agents, because the agent does not report them separately."""
    session_usage: Usage | None = None
    """Usage of the whole session with earlier runs, for agents that report no other number."""
    cost_usd: float | None = None
    """The agent's own total for this run, sub-agents included; None if the agent reports none."""
    turns: int | None = None
    session_id: str | None = None
    unparsed: int = 0
    """Number of lines that could not be parsed."""
    limits: list[Limit] = []
    at: str | None = None


class PermissionWithdrawn(msgspec.Struct, frozen=True):
    """The program no longer asks: it will not read the answer to this request."""

    request_id: str


class PromptAnswered(msgspec.Struct, frozen=True):
    """The program has answered its prompt. If its standard input is open, it waits there for another prompt."""


AgentReport = (
    TranscriptItem
    | MessageDelta
    | SubAgentStarted
    | SubAgentEnded
    | UsageDelta
    | ContextSize
    | SessionEnded
    | PermissionRequest
    | PermissionWithdrawn
    | PromptAnswered
)


class Normalizer(Protocol):
    """Parser of a program's output. Never raises, even for malformed output."""

    @property
    def has_timestamps(self) -> bool:
        """Whether reports may have timestamps."""
        ...

    @property
    def reports_context(self) -> bool:
        """Whether a `ContextSize` is expected after the agent is ready."""
        ...

    def feed(self, data: bytes) -> list[AgentReport]:
        """Parse the next bytes of stdout, split at any position, and return the new reports."""
        ...

    def finish(self, ended: AgentExit | None) -> list[AgentReport]:
        """Return the remaining reports at the end of the stream; the last is `SessionEnded`.

        `ended` is None if only the stream is known.
        """
        ...


class Provider(Protocol):
    """An agent program: how to find it, start it and read its output."""

    @property
    def name(self) -> str: ...

    @property
    def program(self) -> str:
        """The name of the executable to look for on PATH."""
        ...

    @property
    def install(self) -> str:
        """The command that installs the program."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def no_approvals_reason(self) -> str | None:
        """Why the program cannot ask before it calls a tool; None if it can."""
        ...

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        """Return the variable or file with the credentials, or None if there are none."""
        ...

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        """Build the command line for a request.

        Raises `UnsupportedOption` if the provider does not support one of its options.
        """
        ...

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> Normalizer:
        """Create a normalizer for one session.

        `resumed` is None if unknown. `prior_usage` is the `Launch.prior_usage` of a resumed session.
        """
        ...

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Return the model of a session, for programs that record it outside of the stream."""
        ...
