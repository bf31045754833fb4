"""Agents and models as this machine has them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shopfloor.ports import AgentExit, ProviderInfo

if TYPE_CHECKING:
    from shopfloor.engine import Definition, Surroundings, Worker


def provider_names() -> tuple[str, ...]:
    """Whom a task can be handed to without any worker."""
    from shopfloor.adapters.providers import API_KEYS, NAMES

    return (*NAMES, *API_KEYS)


def surroundings(workers: Iterable[Worker]) -> Surroundings:
    """What a definition is checked against here: the models, agents and workers that a run would find."""
    from shopfloor.adapters.models import LocalModels
    from shopfloor.adapters.providers import NAMES, price, provider
    from shopfloor.engine import Surroundings, bare_definitions, check_order

    found: dict[str, Definition | None] = {one.slug: one for one in bare_definitions(NAMES)}
    for worker in workers:
        found[worker.definition.slug] = None if worker.problems else worker.definition
    return Surroundings(
        check_model=LocalModels().check,
        check_agent=partial(check_order, provider, prices=price, env=os.environ),
        workers=found,
    )


def find_providers() -> list[ProviderInfo]:
    """What this machine has of them. It takes a second or two: every program is asked for its version."""
    from shopfloor.adapters.providers import found_providers

    return found_providers(os.environ, Path.home())


def transcript_of(
    provider: str, chunks: Iterable[bytes], *, source: str | None, ended: AgentExit | None, resumed: bool | None = None
) -> Iterator[bytes]:
    """The lines of the transcript of what an agent printed. `resumed` is None where that is not known."""
    from shopfloor.adapters.providers import normaliser, price
    from shopfloor.engine import transcribed

    lines = normaliser(provider, resumed=resumed)
    return transcribed(provider, lines, chunks, prices=price, source=source, ended=ended)
