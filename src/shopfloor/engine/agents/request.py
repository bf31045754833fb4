"""Options of agent steps, and their conversion to requests and command lines."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from shopfloor.decoding import convert
from shopfloor.engine.agents.transcriber import Prices
from shopfloor.engine.replay_state import read_replay_state
from shopfloor.engine.workers.approval_patterns import tool_part
from shopfloor.engine.workers.definition import (
    BUILTIN_TOOL_NAMES,
    Agent,
    AtLeastOne,
    Definition,
    Positive,
    all_steps,
)
from shopfloor.engine.workers.provider_workers import DEFAULT_MODELS
from shopfloor.errors import (
    InvalidInput,
    StepFailed,
    UnsupportedOption,
)
from shopfloor.log import Usage, is_run_id
from shopfloor.ports import (
    AgentRequest,
    Launch,
    LogReader,
    Logs,
    OwnTool,
    Processes,
    Provider,
    ProviderHealth,
)
from shopfloor.views import COMMAND_TOOL


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an agent step, as a worker gives them."""

    provider: str
    prompt: str
    system: str | None = None
    model: str | None = None
    tools: list[str] | None = None
    own_tools: list[OwnTool] = []
    read_only: bool = False
    sandbox: bool = False
    max_turns: AtLeastOne | None = None
    max_budget: Positive | None = None
    cwd: str
    resume: str | None = None
    """A run id, or a session id of the provider."""
    approve: list[str] = []
    """The patterns of calls that a person has to approve."""


class AgentRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of agent steps."""

    provider: Callable[[str], Provider]
    processes: Processes
    logs: Logs
    reader: LogReader
    prices: Prices
    env: Mapping[str, str]
    provider_health: ProviderHealth

    def check(self, provider: str, options: Mapping[str, Any], *, approve: Sequence[str] = ()) -> None:
        """Raise `UnsupportedOption` if a provider worker does not support these options."""
        if provider not in DEFAULT_MODELS:
            options = {**options, "approve": list(approve)}
            check_agent_options(self.provider, provider, options, prices=self.prices, env=self.env)

    def check_approvals(self, definition: Definition, approve: Sequence[str]) -> None:
        """Raise `UnsupportedOption` if an agent of a YAML worker cannot ask for the approvals it needs."""
        for step in all_steps(definition.steps):
            if not isinstance(step, Agent) or "{{" in step.provider:
                continue
            executed_here = {COMMAND_TOOL, *definition.tools, *BUILTIN_TOOL_NAMES} - {*step.own_tools}
            wanted = [
                pattern
                for pattern in (*approve, *definition.approve, *step.approve)
                if tool_part(pattern) not in executed_here
            ]
            if wanted:
                reject_approvals(self.provider(step.provider), wanted)

    def launch(self, provider: Provider, request: AgentRequest) -> Launch:
        """Build the command line. Raises `UnsupportedOption` for an option that the provider does not support."""
        return build_launch(provider, request, prices=self.prices, env=self.env)


def check_agent_options(
    find_provider: Callable[[str], Provider],
    provider: str,
    options: Mapping[str, Any],
    *,
    prices: Prices,
    env: Mapping[str, str],
) -> None:
    """Raise `ProviderNotFound`, or `UnsupportedOption` if the provider does not support these options. Starts nothing.

    `options` has the fields of `AgentOptions`.
    """
    values = {name: value for name, value in options.items() if value is not None}
    found = find_provider(provider)
    try:
        agent_options = convert({**values, "provider": provider, "cwd": "."}, AgentOptions)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid options for {provider}: {error}") from error
    # The session of a run is looked up only when the step starts.
    resume = agent_options.resume
    session_id = None if resume is not None and is_run_id(resume) else resume
    build_launch(found, build_agent_request(agent_options, session_id, agent_options.cwd), prices=prices, env=env)


def build_launch(provider: Provider, request: AgentRequest, *, prices: Prices, env: Mapping[str, str]) -> Launch:
    """Build the command line. Raises `UnsupportedOption` for an option that the provider does not support."""
    capabilities = provider.capabilities
    if request.own_tools and not capabilities.own_tools:
        raise UnsupportedOption(f"{provider.name} cannot call tools of a worker", hint="use claude-sdk, which can")
    if request.sandbox and not capabilities.sandbox:
        raise UnsupportedOption(f"{provider.name} has no sandbox", hint="use claude-sdk, which has one")
    if request.approve:
        reject_approvals(provider, request.approve)
    model = request.model
    has_price = model is not None and prices(model, Usage(input=1)).usd is not None
    if request.max_budget_usd is not None and not (capabilities.cost or has_price):
        raise UnsupportedOption(
            f"a budget for {provider.name} needs a model with a known price",
            hint="choose a model with --model, or leave the budget out",
        )
    return provider.launch(request, env)


def reject_approvals(provider: Provider, patterns: Sequence[str]) -> None:
    """Raise `UnsupportedOption` if an agent cannot ask before it calls a tool."""
    reason = provider.no_approvals_reason
    if reason is not None:
        raise UnsupportedOption(
            f"{provider.name} cannot ask for an approval before it calls a tool: {', '.join(patterns)}; {reason}",
            hint="use claude-code or claude-sdk, which can, or remove `approve`",
        )


def build_agent_request(options: AgentOptions, session_id: str | None, cwd: str) -> AgentRequest:
    """Build the request for a provider."""
    return AgentRequest(
        prompt=options.prompt,
        cwd=cwd,
        model=options.model,
        system_prompt=options.system,
        max_turns=options.max_turns,
        max_budget_usd=options.max_budget,
        tools=options.tools,
        own_tools=options.own_tools,
        read_only=options.read_only,
        sandbox=options.sandbox,
        approve=options.approve,
        resume=session_id,
        session_id=str(uuid.uuid4()),
    )


async def find_session(
    runtime: AgentRuntime, provider: Provider, run_id: str, *, is_copied: bool = False
) -> tuple[str, str]:
    """Return the session of an earlier run and its folder, by which providers find their sessions.

    A session that is copied may be that of an interrupted run; otherwise the run must have ended.
    """
    replay_state = await read_replay_state(runtime.reader, run_id)
    is_open = replay_state.first is not None and replay_state.outcome is None
    if is_open and not (is_copied and not await runtime.reader.has_active_host(run_id, None)):
        raise StepFailed(
            f"the run {run_id} has not ended, and only one run can use a session", hint="wait for the run, or cancel it"
        )
    sessions = [step.session for step in replay_state.steps.values() if step.session is not None]
    own = [
        session for session in sessions if session.provider == provider.name and session.session_id and session.process
    ]
    if not own:
        raise StepFailed(
            f"the run {run_id} has no session of {provider.name} to resume",
            hint=f"run `shopfloor show {run_id}` to see what it did",
        )
    last = own[-1]
    return last.session_id or "", last.process.cwd if last.process else ""
