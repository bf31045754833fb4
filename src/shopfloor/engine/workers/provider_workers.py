"""Bare providers as workers: what `shopfloor run --provider codex 'fix the test'` runs."""

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
"""The model APIs that can be asked without any worker, and whom they ask unless told otherwise."""

_PROMPT = InputField(description="What it is to do.")
_MODEL = InputField(description="The model that it asks; its own choice by default.", optional=True)


def provider_worker_definitions(agents: Sequence[str]) -> list[Definition]:
    return [*map(_agent, agents), *(_model(name, model) for name, model in DEFAULT_MODELS.items())]


def _agent(provider: str) -> Definition:
    """One step, under the provider's own name."""
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
        output="ANSWER",
    )
    return Definition(
        slug=provider,
        description=f"Hands a task to {provider}.",
        input={
            PROMPT: _PROMPT,
            "model": _MODEL,
            "tools": InputField(type="array", description="The only tools that it may use.", optional=True),
            "read_only": InputField(type="boolean", description="It may look and not touch.", default=False),
            "sandbox": InputField(
                type="boolean", description="Its commands run in a sandbox, or not at all.", default=False
            ),
            "max_turns": InputField(type="integer", description="How often it may ask its model.", optional=True),
            "max_budget": InputField(type="number", description="How many US dollars it may spend.", optional=True),
            "resume": InputField(description="A run, or a session of its own, to go on with.", optional=True),
        },
        variables={"ANSWER": Variable()},
        steps={provider: step},
        output="ANSWER",
    )


def _model(provider: str, model: str) -> Definition:
    return Definition(
        slug=provider,
        description=f"Asks a model of {provider}.",
        input={PROMPT: _PROMPT, "model": InputField(description="`provider/name`.", default=model)},
        variables={"ANSWER": Variable()},
        steps={
            "Begin": StartThread(model="{{model}}"),
            "Ask": AddMessage(text="{{prompt}}"),
            provider: NextMessage(output="ANSWER"),
        },
        output="ANSWER",
    )
