"""Facts about an agent in the log, besides messages and tool calls: usage, process, session, limits, notes, files."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts. Each input token is counted in exactly one of `input`, `cache_read` and `cache_write`."""

    input: int = 0
    """Input tokens that were neither read from a cache nor written to one."""
    output: int = 0
    """Output tokens, thinking included."""
    cache_read: int = 0
    """Input tokens that were read from a cache."""
    cache_write: int = 0
    """Input tokens that were written to a cache."""
    reasoning: int = 0
    """The part of `output` that is known to be thinking."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The process that executes a step."""

    pid: int
    """Also the id of its process group."""
    command: str
    """The program."""
    args: list[str]
    """Its arguments. `…` replaces text that is recorded elsewhere in the log."""
    cwd: str
    """Its working directory."""


class EndedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that outlived the command or agent that started it, and was terminated."""

    pid: int
    """Its process id."""
    command: str
    """The program; empty if the system does not report it."""
    args: list[str]
    """Its arguments; only the start of a long command line."""
    signal: Literal["SIGTERM", "SIGKILL"]
    """The signal that ended it: `SIGKILL` if it did not end in time after `SIGTERM`."""


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The session that executes an agent step, or the conversation of a model step."""

    provider: str
    """The provider of the agent or the model, for example `claude-code` or `anthropic`."""
    access_mode: str | None = None
    """How the provider is used: `subscription`, `api` or `local`."""
    session_id: str | None = None
    """The provider's id of the session, with which it can be resumed. For a conversation with a model: the path and
    the iteration of the step that started it, as in `research.ask:0`."""
    process: Process | None = None
    """The session's process, if it has one on this host."""
    capabilities: dict[str, Any] | None = None
    """The capabilities of the session, as detected when it started."""
    resumed: bool = False
    """True if this continues an earlier session."""
    usage: Usage | None = None
    """Tokens of the whole session, including earlier runs in it, if the agent reports no other number."""


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit of the provider, as the agent reported it."""

    kind: Literal["requests", "tokens"] | None = None
    """The unit that is counted; none if the provider does not tell it."""
    # A factory, so that `omit_defaults` does not omit the field: readers of a log need it.
    status: Literal["allowed", "warning", "rejected"] = msgspec.field(default_factory=lambda: "rejected")
    """Whether requests were still allowed."""
    current: float | None = None
    """The used amount, of `max`, or of 1 if `max` is unknown."""
    max: float | None = None
    """The total amount."""
    reset_at: str | None = None
    """When the limit resets."""
    window: str | None = None
    """The provider's name of the limit, for example `five_hour`."""

    @property
    def maximum(self) -> float | None:
        """The total amount: 1 if only the used fraction is known, None if nothing is known of the usage."""
        return 1.0 if self.max is None and self.current is not None else self.max


class Initialization(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description that an agent reports of itself when it is ready."""

    session_id: str | None = None
    """The provider's id of the session."""
    model: str | None = None
    """The model that the agent uses."""
    version: str | None = None
    """The version of the agent's program."""
    cwd: str | None = None
    """Its working directory."""
    tools: list[str] | None = None
    """The available tools."""
    permission_mode: str | None = None
    """What the agent may do without approval, in the provider's term."""
    context_tokens: int | None = None
    """The number of tokens that the model read for its first answer: instructions, tools, earlier messages, prompt."""
    context_follows: bool = False
    """True if a further `ready` note will have `context_tokens`, as soon as the model begins to answer."""


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A status message of the agent's program, not of its model: ready, retrying, failed and so on."""

    kind: Literal["ready", "retry", "limit", "denied", "warning", "error", "left"]
    """`retry`: a model call failed and is retried; `denied`: a tool was not allowed; `error`: the agent stops;
    `left`: the session continues later, and the message has the usage up to here."""
    message: str | None = None
    """The text of the program."""
    code: str | None = None
    """The stable error code, as in an outcome."""
    status: int | None = None
    """The HTTP status of the failed call."""
    try_: int | None = msgspec.field(default=None, name="try")
    """The number of the try that failed, from 1."""
    tries: int | None = None
    """The maximum number of tries."""
    retry_after: float | None = None
    """Seconds until the next try."""
    limit: Limit | None = None
    """The limit that the note is about."""
    ready: Initialization | None = None
    """The agent's description of itself, for `ready`."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a tool changed, as the agent reports it."""

    path: str
    action: Literal["create", "modify", "delete"]
    lines_added: int | None = None
    lines_removed: int | None = None
    diff: str | None = None
    """A unified diff, truncated if long."""


Clock = Literal["reader"]
"""The clock of a timestamp that is not the agent's own: `reader`, the time at which the event was read."""
