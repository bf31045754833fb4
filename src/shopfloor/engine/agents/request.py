"""What an agent is asked for, and what its steps work with."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shopfloor.decoding import convert
from shopfloor.engine.agents.transcriber import Prices
from shopfloor.engine.replay_state import read_replay_state
from shopfloor.engine.workers.definition import AtLeastOne, Positive
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
)


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks an agent for."""

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
    """A run, or a session of the provider's."""


class AgentRuntime(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent step works with."""

    provider: Callable[[str], Provider]
    processes: Processes
    logs: Logs
    reader: LogReader
    prices: Prices
    env: Mapping[str, str]

    def check(self, provider: str, given: Mapping[str, Any]) -> None:
        """Raises `UnsupportedOption` where a bare provider cannot be asked for that."""
        if provider not in DEFAULT_MODELS:
            check_agent_options(self.provider, provider, given, prices=self.prices, env=self.env)

    def launch(self, provider: Provider, request: AgentRequest) -> Launch:
        """How a provider is started for this. Raises `UnsupportedOption` where it cannot be asked so."""
        return build_launch(provider, request, prices=self.prices, env=self.env)


def check_agent_options(
    find: Callable[[str], Provider], provider: str, given: Mapping[str, Any], *, prices: Prices, env: Mapping[str, str]
) -> None:
    """Raise `ProviderNotFound`, or `UnsupportedOption` where the provider cannot be asked for that. Start nothing.

    `given` has the fields of an `AgentOptions`.
    """
    asked = {name: value for name, value in given.items() if value is not None}
    found = find(provider)
    try:
        order = convert({**asked, "provider": provider, "cwd": "."}, AgentOptions)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{provider} cannot be asked so: {error}") from error
    # In which session a run worked is looked up when it is time.
    session_id = None if order.resume is not None and is_run_id(order.resume) else order.resume
    build_launch(found, build_agent_request(order, session_id, order.cwd), prices=prices, env=env)


def build_launch(provider: Provider, request: AgentRequest, *, prices: Prices, env: Mapping[str, str]) -> Launch:
    """How a provider is started for this. Raises `UnsupportedOption` where it cannot be asked so."""
    capabilities = provider.capabilities
    if request.own_tools and not capabilities.own_tools:
        raise UnsupportedOption(f"{provider.name} cannot call tools of a worker's own", hint="claude-sdk can")
    if request.sandbox and not capabilities.sandbox:
        raise UnsupportedOption(f"{provider.name} has no sandbox to ask for", hint="claude-sdk has one")
    model = request.model
    has_price = model is not None and prices(model, Usage(input=1)).usd is not None
    if request.max_budget_usd is not None and not (capabilities.cost or has_price):
        raise UnsupportedOption(
            f"what {provider.name} spends is not known without the price of its model",
            hint="name a model with a known price: --model",
        )
    return provider.launch(request, env)


def build_agent_request(order: AgentOptions, session_id: str | None, cwd: str) -> AgentRequest:
    return AgentRequest(
        prompt=order.prompt,
        cwd=cwd,
        model=order.model,
        system_prompt=order.system,
        max_turns=order.max_turns,
        max_budget_usd=order.max_budget,
        tools=order.tools,
        own_tools=order.own_tools,
        read_only=order.read_only,
        sandbox=order.sandbox,
        resume=session_id,
        session_id=str(uuid.uuid4()),
    )


async def find_session(runtime: AgentRuntime, provider: Provider, run_id: str) -> tuple[str, str]:
    """The session that an earlier run worked in, and its folder: providers find their sessions by that."""
    replay_state = await read_replay_state(runtime.reader, run_id)
    if replay_state.first is not None and replay_state.outcome is None:
        raise StepFailed(f"the run {run_id} has not ended: two cannot work in one session", hint="wait, or cancel it")
    sessions = [step.session for step in replay_state.steps.values() if step.session is not None]
    known = [one for one in sessions if one.provider == provider.name and one.session_id and one.process]
    if not known:
        raise StepFailed(
            f"the run {run_id} has no session of {provider.name} that could be gone on with",
            hint="`shopfloor show` tells what it did",
        )
    last = known[-1]
    return last.session_id or "", last.process.cwd if last.process else ""
