"""An engine in this process."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shopfloor.log import Masking
from shopfloor.wiring.settings import Workers
from shopfloor.wiring.storage import Office, Shop, local_shop, open_projects

if TYPE_CHECKING:
    from shopfloor.engine import ClaimPolicy, RunEngine


@asynccontextmanager
async def local_engine(
    office: Office,
    workers: Workers,
    *,
    policy: ClaimPolicy | None = None,
    alone: bool = False,
    shop: Shop | None = None,
    mask: Masking | None = None,
    script: Path | None = None,
    **limits: float,
) -> AsyncGenerator[RunEngine]:
    """An engine in this process, with a shop that is open already or with one of its own.

    `policy` says what it claims, by default every run that is queued. With `script`, that file answers for every model.
    `limits` are `idle_seconds` and `leaving_seconds`.
    """
    from shopfloor.adapters.models import LocalModels
    from shopfloor.adapters.providers import NAMES, price, provider
    from shopfloor.engine import AgentDesk, Catalogue, assemble, bare_definitions, default_folders

    storage = office.storage
    folders = default_folders(storage.root, workers.folders)
    catalogue = Catalogue(folders, workers.modules, bare_definitions(NAMES), projects=open_projects(storage).all)
    models = LocalModels() if script is None else LocalModels(script=script, piece_seconds=0)
    own = nullcontext(shop) if shop else local_shop(storage, mask=mask, bus=office.bus, alone=alone)
    with own as opened:
        logs, processes = opened.logs, opened.processes
        ports = msgspec.structs.replace(office.ports, logs=logs)
        agents = AgentDesk(
            provider=provider, processes=processes, logs=logs, reader=ports.reader, prices=price, env=os.environ
        )
        cwd, slots = str(Path.cwd()), workers.slots
        try:
            yield assemble(opened.host, ports, catalogue, models, agents, cwd=cwd, policy=policy, slots=slots, **limits)
        finally:
            await models.aclose()
