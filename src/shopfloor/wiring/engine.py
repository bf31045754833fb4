"""An engine in this process."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from shopfloor.adapters.local import LocalHost, LocalProcesses
from shopfloor.wiring.settings import Workers
from shopfloor.wiring.storage import Office, open_projects

if TYPE_CHECKING:
    from shopfloor.engine import ClaimPolicy, RunEngine


@asynccontextmanager
async def local_engine(
    office: Office,
    workers: Workers,
    *,
    policy: ClaimPolicy | None = None,
    alone: bool = False,
    host: LocalHost | None = None,
    script: Path | None = None,
    **limits: float,
) -> AsyncGenerator[RunEngine]:
    """An engine in this process, as a host that is registered already or as one of its own.

    `alone`: the process is there for the runs of its own host only. `policy` says what the engine claims, by default
    every run that is queued. With `script`, that file answers for every model. `limits` are `idle_seconds` and
    `leaving_seconds`.
    """
    from shopfloor.adapters.models import LocalModels
    from shopfloor.adapters.providers import NAMES, price, provider
    from shopfloor.engine import AgentDesk, Catalogue, assemble, bare_definitions, default_folders

    storage = office.storage
    folders = default_folders(storage.root, workers.folders)
    catalogue = Catalogue(folders, workers.modules, bare_definitions(NAMES), projects=open_projects(storage).all)
    models = LocalModels() if script is None else LocalModels(script=script, piece_seconds=0)
    with nullcontext(host) if host else LocalHost(storage, alone=alone) as own:
        processes, logs, reader = LocalProcesses(own), office.logs, office.reader
        agents = AgentDesk(
            provider=provider, processes=processes, logs=logs, reader=reader, prices=price, env=os.environ
        )
        cwd, slots = str(Path.cwd()), workers.slots
        try:
            yield assemble(own.id, office, catalogue, models, agents, cwd=cwd, policy=policy, slots=slots, **limits)
        finally:
            await models.aclose()
