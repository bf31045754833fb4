"""What the log tells of an agent beside what it says and does: its session, its program's own words, files, limits."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, by class: each that was read is in one of `input`, `cache_read` and `cache_write`."""

    input: int = 0
    """Tokens that were read afresh: neither from a cache nor into one."""
    output: int = 0
    """Tokens that were written, thinking included."""
    cache_read: int = 0
    """Tokens that were read from a cache."""
    cache_write: int = 0
    """Tokens that were read and written to a cache."""
    reasoning: int = 0
    """The part of `output` that is known to be thinking."""


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The process that serves a step."""

    pid: int
    """Also the id of its process group."""
    command: str
    """The program."""
    args: list[str]
    """What it was started with. `…` stands for text that is recorded elsewhere in the log."""
    cwd: str
    """The folder it works in."""


class EndedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that outlived the command or agent that had started it, and was ended."""

    pid: int
    """Its process id."""
    command: str
    """The program; empty where the system does not tell."""
    args: list[str]
    """What it was started with; of a long command line, the beginning."""
    signal: Literal["SIGTERM", "SIGKILL"]
    """What ended it: `SIGKILL` where it did not end in time after `SIGTERM`."""


class Session(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What serves an agent step."""

    provider: str
    """What powers the session, for example `claude-code`."""
    access_mode: str | None = None
    """How the provider is used: `subscription`, `api` or `local`."""
    session_id: str | None = None
    """The provider's own id of the session, by which it can be resumed."""
    process: Process | None = None
    """Its process, where it has one on this host."""
    capabilities: dict[str, Any] | None = None
    """What the session can do, as it was found when it began."""
    resumed: bool = False
    """True where it goes on in a session that there was."""
    usage: Usage | None = None
    """Tokens of the whole session, with what earlier runs spent in it, where the agent tells no other number."""


class Limit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A limit of the provider's, as it told of it."""

    # By factories, so that they are said and not left out: whoever reads a log goes by them.
    kind: Literal["requests", "tokens"] = msgspec.field(default_factory=lambda: "requests")
    """What is counted."""
    status: Literal["allowed", "warning", "rejected"] = msgspec.field(default_factory=lambda: "rejected")
    """Whether it was still open."""
    current: float | None = None
    """How much of it is used; of `max`, or of 1 where that is not told."""
    max: float | None = None
    """How much there is."""
    reset_at: str | None = None
    """When there will be more."""
    window: str | None = None
    """The provider's own name for it, for example `five_hour`."""


class Initialization(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent says of itself when it is ready."""

    session_id: str | None = None
    """The provider's own id of the session."""
    model: str | None = None
    """The model that it will ask."""
    version: str | None = None
    """Of the agent's program."""
    cwd: str | None = None
    """The folder it works in."""
    tools: list[str] | None = None
    """The tools that it has."""
    permission_mode: str | None = None
    """What it may do without asking, in the provider's word."""
    context_tokens: int | None = None
    """How many tokens it has read before the first instruction, where it tells."""


class Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an agent's program says, and no model: that it is ready, that it tries again, that something is wrong."""

    kind: Literal["ready", "retry", "limit", "denied", "warning", "error", "left"]
    """`retry`: a model call failed and is made again; `denied`: a tool was not allowed; `error`: it goes no further;
    `left`: it is gone on with later, and the message has what it has spent up to here."""
    message: str | None = None
    """In the program's words."""
    code: str | None = None
    """The stable word of the error, as an outcome has it."""
    status: int | None = None
    """The HTTP status that it met."""
    try_: int | None = msgspec.field(default=None, name="try")
    """Which try failed, from 1."""
    tries: int | None = None
    """How many there will be."""
    retry_after: float | None = None
    """Seconds until the next."""
    limit: Limit | None = None
    """The limit that it is about."""
    ready: Initialization | None = None
    """What it begins with."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a tool changed, as the agent tells it."""

    path: str
    action: Literal["create", "modify", "delete"]
    lines_added: int | None = None
    lines_removed: int | None = None
    diff: str | None = None
    """A unified diff, cut where it is long."""


Clock = Literal["reader"]
"""Whose clock the timestamp is of, where it is not the agent's own: it was read at that time."""
