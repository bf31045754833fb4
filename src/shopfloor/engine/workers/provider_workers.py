"""Provider workers: providers that are run directly, as in `shopfloor run --provider codex 'fix the test'`."""

from __future__ import annotations

from collections.abc import Sequence

from shopfloor.engine.workers.definition import (
    AddMessage,
    Agent,
    Definition,
    InputField,
    NextMessage,
    StartThread,
    Variable,
)

PROMPT = "prompt"
DEFAULT_MODELS = {"openai": "openai/gpt-5.5", "anthropic": "anthropic/claude-sonnet-4-5"}
"""The model APIs that can be used without a worker, and their default models."""

_PROMPT = InputField(description="The task.")
_MODEL = InputField(description="The model; by default the provider's choice.", optional=True)
_TIMEOUT = InputField(type="number", description="The time limit in seconds.", optional=True)


def provider_worker_definitions(agents: Sequence[str]) -> list[Definition]:
    """Return the definitions of the provider workers: one for each agent, and one for each model API."""
    return [*map(_agent_worker, agents), *(_model_worker(name, model) for name, model in DEFAULT_MODELS.items())]


def _agent_worker(provider: str) -> Definition:
    """Return a worker with one agent step, named after the provider."""
    step = Agent(
        provider=provider,
        text="{{prompt}}",
        model="{{model}}",
        tools="{{tools}}",
        read_only="{{read_only}}",
        sandbox="{{sandbox}}",
        max_turns="{{max_turns}}",
        max_budget="{{max_budget}}",
        resume="{{resume}}",
        timeout="{{timeout}}",
        output="ANSWER",
    )
    return Definition(
        slug=provider,
        description=f"Passes a task to {provider}.",
        input={
            PROMPT: _PROMPT,
            "model": _MODEL,
            "tools": InputField(type="array", description="The only tools that the agent may use.", optional=True),
            "read_only": InputField(
                type="boolean", description="Whether the agent may read but not change anything.", default=False
            ),
            "sandbox": InputField(
                type="boolean",
                description="Whether commands run in a sandbox; if it cannot start, nothing runs.",
                default=False,
            ),
            "max_turns": InputField(type="integer", description="The maximum number of model turns.", optional=True),
            "max_budget": InputField(type="number", description="The maximum cost in US dollars.", optional=True),
            "resume": InputField(description="The id of a run or of a session to resume.", optional=True),
            "timeout": _TIMEOUT,
        },
        variables={"ANSWER": Variable()},
        steps={provider: step},
        output="ANSWER",
    )


def _model_worker(provider: str, model: str) -> Definition:
    return Definition(
        slug=provider,
        description=f"Sends a prompt to a model of {provider}.",
        input={
            PROMPT: _PROMPT,
            "model": InputField(description="`provider/name`.", default=model),
            "timeout": _TIMEOUT,
        },
        variables={"ANSWER": Variable()},
        steps={
            "Begin": StartThread(model="{{model}}"),
            "Ask": AddMessage(text="{{prompt}}"),
            provider: NextMessage(output="ANSWER", timeout="{{timeout}}"),
        },
        output="ANSWER",
    )
