"""The engine with the adapters of this machine."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shopfloor.adapters.local import LocalHost, LocalProcesses
from shopfloor.ports import HostOffer, Offers, disable_providers
from shopfloor.wiring.plugins import list_plugins, local_plugins
from shopfloor.wiring.providers import LocalOffer
from shopfloor.wiring.settings import WorkerSettings
from shopfloor.wiring.storage import StorageBackend, open_projects

if TYPE_CHECKING:
    from shopfloor.engine import ClaimPolicy, RunEngine


@asynccontextmanager
async def local_engine(
    backend: StorageBackend,
    workers: WorkerSettings,
    *,
    policy: ClaimPolicy | None = None,
    dedicated: bool = False,
    host: LocalHost | None = None,
    script: Path | None = None,
    shares_plugins: bool = False,
    find_disabled: Callable[[], Collection[str]] = tuple,
    other_offers: Offers = tuple,
    **limits: float,
) -> AsyncGenerator[RunEngine]:
    """Yield an engine in this process, on the registered host `host` or on a new one.

    `dedicated`: the process executes only the runs of its own host. `policy` decides which runs the engine claims, by
    default every queued run. With `script`, that file replaces every model. `shares_plugins`: other processes use the
    plugins that this one starts. `find_disabled` returns the providers that must not be used for now, `other_offers`
    what other hosts offer. `limits` are `idle_seconds` and `interrupt_grace_seconds`.
    """
    from shopfloor.adapters.models import ModelRouter
    from shopfloor.adapters.providers import PROVIDER_NAMES, price, provider
    from shopfloor.engine import (
        AgentRuntime,
        ClaimPolicy,
        WorkerCatalog,
        assemble,
        default_folders,
        provider_worker_definitions,
    )

    storage, folders = backend.storage, default_folders(backend.storage.root, workers.folders)
    models = ModelRouter() if script is None else ModelRouter(script=script, chunk_seconds=0)
    with nullcontext(host) if host else LocalHost(storage, dedicated=dedicated) as own:
        processes, logs, reader = LocalProcesses(own), backend.logs, backend.reader
        agents = AgentRuntime(
            provider=provider,
            processes=processes,
            logs=logs,
            reader=reader,
            prices=price,
            env=os.environ,
            provider_health=backend.provider_health,
        )
        cwd, slots = str(Path.cwd()), workers.slots
        async with local_plugins(storage, processes, workers.plugins, is_shared=shares_plugins) as plugins:
            catalog = WorkerCatalog(
                folders,
                workers.modules,
                provider_worker_definitions(PROVIDER_NAMES),
                projects=open_projects(storage).all,
                plugins=partial(list_plugins, storage, workers.plugins),
            )
            parts = (own.id, backend, catalog, models, agents)
            offer = LocalOffer(workers.labels, os.environ, find_disabled)

            def all_offers() -> Sequence[HostOffer]:
                own_offer = replace(offer(), is_draining=engine.scheduler.is_draining)
                return [own_offer, *disable_providers(other_offers(), own_offer.disabled)]

            # A process that claims no queued runs is no host for the requests of others.
            is_host = policy in (None, ClaimPolicy.QUEUED)
            offers = all_offers if is_host else other_offers
            engine = assemble(
                *parts, plugins=plugins, cwd=cwd, policy=policy, slots=slots, offer=offer, offers=offers, **limits
            )
            try:
                yield engine
            finally:
                await models.aclose()
