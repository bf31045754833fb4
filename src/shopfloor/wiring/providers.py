"""Agents and models as this machine has them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shopfloor.ports import AgentExit, ProviderInfo

if TYPE_CHECKING:
    from shopfloor.engine import Definition, ValidationContext, Worker


def provider_names() -> tuple[str, ...]:
    """Whom a task can be handed to without any worker."""
    from shopfloor.adapters.providers import API_KEYS, PROVIDER_NAMES

    return (*PROVIDER_NAMES, *API_KEYS)


def local_validation_context(workers: Iterable[Worker]) -> ValidationContext:
    """What a definition is checked against here: the models, agents and workers that a run would find."""
    from shopfloor.adapters.models import ModelRouter
    from shopfloor.adapters.providers import PROVIDER_NAMES, price, provider
    from shopfloor.engine import ValidationContext, check_agent_options, provider_worker_definitions

    found: dict[str, Definition | None] = {one.slug: one for one in provider_worker_definitions(PROVIDER_NAMES)}
    for worker in workers:
        found[worker.definition.slug] = None if worker.problems else worker.definition
    return ValidationContext(
        check_model=ModelRouter().check,
        check_agent=partial(check_agent_options, provider, prices=price, env=os.environ),
        workers=found,
    )


def find_providers() -> list[ProviderInfo]:
    """What this machine has of them. It takes a second or two: every program is asked for its version."""
    from shopfloor.adapters.providers import discover_providers

    return discover_providers(os.environ, Path.home())


def transcribe_output(
    provider: str, chunks: Iterable[bytes], *, source: str | None, ended: AgentExit | None, resumed: bool | None = None
) -> Iterator[bytes]:
    """The lines of the transcript of what an agent printed. `resumed` is None where that is not known."""
    from shopfloor.adapters.providers import normalizer, price
    from shopfloor.engine import transcribe

    lines = normalizer(provider, resumed=resumed)
    return transcribe(provider, lines, chunks, prices=price, source=source, ended=ended)
