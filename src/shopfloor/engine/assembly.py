"""Construction of an engine from its parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

import msgspec

from shopfloor.engine.agents.request import AgentRuntime
from shopfloor.engine.definitions import Definitions
from shopfloor.engine.engine_ports import StepContext, StoragePorts
from shopfloor.engine.inbox import Inbox
from shopfloor.engine.lifecycle import Lifecycle
from shopfloor.engine.plugin_jobs import job_claims
from shopfloor.engine.registry import ClaimPolicy, RunRegistry
from shopfloor.engine.resumption import Resumption
from shopfloor.engine.run_service import RunService
from shopfloor.engine.scheduler import Scheduler
from shopfloor.engine.subruns import SubRuns
from shopfloor.engine.workers.catalog import WorkerCatalog
from shopfloor.limits import HOST_SLOTS
from shopfloor.ports import HostOffer, Models, Offers, Plugins


class RunEngine(msgspec.Struct, frozen=True, kw_only=True):
    """An assembled engine. It executes runs while `scheduler.run` is running."""

    host_id: str
    service: RunService
    scheduler: Scheduler
    resumption: Resumption
    ports: StoragePorts
    catalog: WorkerCatalog
    plugins: Plugins
    offer: Callable[[], HostOffer]
    """What this host offers to runs."""
    offers: Offers
    """What each live host offers to runs."""
    warm_up: Callable[[], None]
    """Imports the modules that are slow to load. Blocks."""


def assemble(
    host_id: str,
    ports: StoragePorts,
    catalog: WorkerCatalog,
    models: Models,
    agents: AgentRuntime,
    *,
    plugins: Plugins,
    cwd: str,
    policy: ClaimPolicy | None = None,
    slots: int = HOST_SLOTS,
    offer: Callable[[], HostOffer] = HostOffer,
    offers: Offers = tuple,
    **limits: float,
) -> RunEngine:
    """Construct an engine. Each part receives only parts constructed before it. `limits` are passed to `Lifecycle`.

    `offer` is what this host offers to runs, `offers` what all live hosts do.
    """
    registry = RunRegistry(host_id, policy or ClaimPolicy.QUEUED)
    definitions = Definitions(catalog)
    resumption = Resumption(registry, ports, catalog, definitions, offer=offer, offers=offers)
    service = RunService(registry, ports, catalog, resumption, agents=agents, definitions=definitions, offers=offers)
    sub_runs = SubRuns(registry, ports, service)
    step_context = StepContext(
        models=models,
        processes=agents.processes,
        agents=agents,
        plugins=plugins,
        blobs=ports.blobs,
        find_job_claims=partial(job_claims, ports.store, ports.reader),
        call_worker=sub_runs.call,
        cwd=cwd,
    )
    inbox = Inbox(registry, ports, resumption)
    lifecycle = Lifecycle(registry, ports, definitions, sub_runs, step_context, resumption=resumption, **limits)
    scheduler = Scheduler(registry, ports, inbox, lifecycle, slots=slots, offer=offer)

    def warm_up() -> None:
        import_module("shopfloor.engine.interpreter")
        models.warm_up()

    return RunEngine(
        host_id=host_id,
        service=service,
        scheduler=scheduler,
        resumption=resumption,
        ports=ports,
        catalog=catalog,
        plugins=plugins,
        offer=offer,
        offers=offers,
        warm_up=warm_up,
    )
