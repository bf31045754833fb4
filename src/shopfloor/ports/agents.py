"""Agents: programs that work by themselves, and what they report of it.

A provider is two small parts. Its *launcher* knows the command line; its *normaliser* is fed the bytes that the program
prints and gives reports, with no clock and no I/O, so that a live process, a file and a test are the same to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from shopfloor.limits import PROVIDER_MESSAGE_CHARS
from shopfloor.log import AssistantMessage, Limit, RunError, Status, ToolCall, ToolResult, Usage, UserMessage

AccessMode = Literal["subscription", "api", "local"]

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

MAIN_AGENT = ""
"""The session itself, where a report says whose it is; anything else is the key of a sub-agent."""


class OwnTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the worker's own that an agent may call: Python code, executed in the process of its session."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of its input."""
    handler: str
    """`package.module:function`."""


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is asked for."""

    prompt: str
    cwd: str
    model: str | None = None
    system_prompt: str | None = None
    """Added to the agent's own."""
    max_turns: int | None = None
    max_budget_usd: float | None = None
    tools: list[str] | None = None
    """The only tools that it may use, by their exact names."""
    read_only: bool = False
    """It may look and not touch."""
    own_tools: list[OwnTool] = []
    sandbox: bool = False
    """Its commands run in a sandbox of the provider's; where that cannot start, nothing runs."""
    resume: str | None = None
    """The provider's session to go on in."""
    prior_usage: Usage | None = None
    """What that session had spent before, where we know; else the launcher looks, where it has to know."""
    session_id: str
    """A fresh UUID, for a session whose id may be chosen."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """How the program is started. The prompt goes by `stdin`: it may be long, and is nobody else's to see."""

    argv: list[str]
    env: dict[str, str] = {}
    stdin: bytes = b""
    session_id: str | None = None
    """The provider's session, where it is known before anything happens."""
    access_mode: AccessMode = "api"
    prior_usage: Usage | None = None
    """What a session that is gone on in has spent before, where its totals are told with that."""


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked of a provider's sessions, and what they tell."""

    resume: bool = False
    tool_limits: bool = False
    read_only: bool = False
    max_turns: bool = False
    max_budget: bool = False
    """By itself; we meter budgets for all of them."""
    deltas: bool = False
    thinking: bool = False
    cost: bool = False
    usage: bool = False
    sub_agents: bool = False
    own_tools: bool = False
    sandbox: bool = False
    code_generation: bool = True
    web_search: bool = False


class ProviderInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a provider on this machine."""

    name: str
    kind: Literal["agent", "api"]
    """A program that is started here, or an API over the net."""
    program: str | None = None
    path: str | None = None
    """Where the program is; None where it is not installed."""
    version: str | None = None
    problem: str | None = None
    """What is wrong with the program that was found."""
    login: str | None = None
    """By what it could log in; None where there is nothing."""
    install: str
    """How to get what is missing."""
    capabilities: Capabilities

    @property
    def usable(self) -> bool:
        """It is there, and could log in."""
        return self.login is not None and self.problem is None and (self.kind == "api" or self.path is not None)


class AgentExit(msgspec.Struct, frozen=True, kw_only=True):
    """How the program ended."""

    code: int | None = None
    """Its exit code; None where a signal ended it."""
    signal: str | None = None
    stderr: str = ""
    """The end of what it printed there."""
    cancelled: bool = False
    """We told it to stop."""

    @property
    def is_success(self) -> bool:
        """Whether no signal and no exit code speaks against success. Nothing does where neither is known."""
        return self.signal is None and not self.code

    def description(self, *, ignored_prefixes: tuple[str, ...] = ()) -> str:
        """`exit code 1: Error: …`, with the last error line of stderr, or its last line without an ignored prefix."""
        how = f"killed by {self.signal}" if self.signal is not None else f"exit code {self.code}"
        lines = [_ESCAPE.sub("", line).strip() for line in self.stderr.splitlines()]
        lines = [line for line in lines if line and not line.startswith(ignored_prefixes)]
        errors = [line for line in lines if line.lower().startswith("error")]
        last = (errors or lines or [""])[-1][:PROVIDER_MESSAGE_CHARS]
        return f"{how}: {last}" if last else how


class TranscriptItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was said or done: it belongs into a log as it is."""

    payload: UserMessage | AssistantMessage | ToolCall | ToolResult
    agent: str = MAIN_AGENT
    at: str | None = None
    """The agent's own time, RFC 3339 in UTC with milliseconds; None where it gave none."""
    is_prompt: bool = False
    """The prompt of the session, repeated by the agent: on record already where we gave it."""


class MessageDelta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a message as it is being made. Its whole is told later, under the same message id."""

    message_id: str
    block: int
    kind: Literal["text", "thinking", "tool_input"]
    text: str
    tool_name: str | None = None
    tool_id: str | None = None
    agent: str = MAIN_AGENT


class SubAgentStarted(msgspec.Struct, frozen=True, kw_only=True):
    """The agent has handed something to another one, which becomes a run of its own."""

    agent: str
    """Its key, the same in every report of it."""
    parent: str = MAIN_AGENT
    name: str
    """What kind of agent it is, in the provider's word."""
    task: str | None = None
    """What it was told to do."""
    model: str | None = None
    at: str | None = None


class SubAgentEnded(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    status: Status = "completed"
    text: str | None = None
    error: RunError | None = None
    usage: Usage | None = None
    """Of this sub-agent alone, where that is known."""
    models: dict[str, Usage] = {}
    """The same by model, for prices."""
    at: str | None = None


class UsageDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What has been spent since the last such report, with what sub-agents spent: budgets are held against the sum."""

    usage: Usage
    model: str | None = None
    cost_usd: float | None = None
    """By the agent's own prices, where it tells them."""


class SessionEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The last report, and there is always exactly one: how it went, by the agent's own words.

    The engine has the last word: see `resolve_outcome` in `engine/agents/transcriber.py`.
    """

    status: Status
    is_final: bool = False
    """Whether the agent's own final record was in the stream, with nothing said after it."""
    text: str | None = None
    """The agent's final answer."""
    structured: object = None
    """The same as data, where it was asked for."""
    error: RunError | None = None
    usage: Usage | None = None
    """Of the session alone, without sub-agents and without what a session that was resumed had spent before."""
    models: dict[str, Usage] = {}
    """By model, for prices, where the model is known: again of the session alone."""
    includes_sub_agents: bool = False
    """The same with sub-agents, where the agent does not tell them apart."""
    session_usage: Usage | None = None
    """Of the whole session, with what earlier runs spent in it, where the agent tells no other number."""
    cost_usd: float | None = None
    """The agent's own total for this run, sub-agents included; None where it gives none."""
    turns: int | None = None
    session_id: str | None = None
    unparsed: int = 0
    """How many lines were not understood."""
    limits: list[Limit] = []
    at: str | None = None


AgentReport = TranscriptItem | MessageDelta | SubAgentStarted | SubAgentEnded | UsageDelta | SessionEnded


class Normalizer(Protocol):
    """Makes reports of what a program prints. It never raises, whatever it is fed."""

    @property
    def has_timestamps(self) -> bool:
        """Whether its reports can have times."""
        ...

    def feed(self, data: bytes) -> list[AgentReport]:
        """What the next bytes of stdout tell, however they are cut."""
        ...

    def finish(self, ended: AgentExit | None) -> list[AgentReport]:
        """What is left to tell when there is no more: `SessionEnded` is the last. None: only the stream is known."""
        ...


class Provider(Protocol):
    """What powers sessions."""

    @property
    def name(self) -> str: ...

    @property
    def program(self) -> str:
        """What is looked for on PATH."""
        ...

    @property
    def install(self) -> str:
        """The command that installs it."""
        ...

    @property
    def capabilities(self) -> Capabilities: ...

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        """By what it could log in: a variable or a file; None where there is nothing."""
        ...

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        """Raises `UnsupportedOption` where it cannot be asked so."""
        ...

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> Normalizer:
        """`resumed` is None where that is not known; `prior_usage` is what the launcher said of a resumed session."""
        ...

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """The model of a session, where the stream does not tell it and the program keeps it elsewhere."""
        ...
