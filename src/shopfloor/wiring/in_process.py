"""Clients of the running server, or else of an app in this process, called without a port and without HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio

from shopfloor.errors import UnsupportedOption
from shopfloor.log import Masking
from shopfloor.ports import HostOffer, disable_providers, disabled_providers
from shopfloor.record import Storage, require_private_folder
from shopfloor.wiring.engine import local_engine
from shopfloor.wiring.settings import WorkerSettings
from shopfloor.wiring.storage import StorageBackend, local_backend

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from shopfloor.client import Api, AppTransport, Client

_IN_PROCESS: Final = "this process"
"""The address of an app in this process, for messages."""


@asynccontextmanager
async def open_api(storage: Storage) -> AsyncGenerator[Api]:
    """Yield the API of the running server, or else of an app in this process, with rows up to date with the logs."""
    from shopfloor.client import Api, find_server

    address = find_server(storage)
    if address is not None:
        api = Api(address.url, address.token)
        try:
            yield api
        finally:
            await api.close()
        return

    from shopfloor.server import create_app

    async with local_backend(storage) as backend:
        await _update_rows(backend)
        token = await backend.access.admin_token()
        offers = await _live_offers(backend)
        app = create_app(backend.services(offers=lambda: offers), has_pages=False)
        async with _open_transport(app, token) as transport:
            yield Api(_IN_PROCESS, transport=transport)


@asynccontextmanager
async def _open_transport(app: Starlette, token: str) -> AsyncGenerator[AppTransport]:
    """Yield a transport that calls the app in this process. Requests that are open at the end are cancelled."""
    from shopfloor.client import AppTransport

    failure: Exception | None = None
    async with app.router.lifespan_context(app), anyio.create_task_group() as tasks:
        try:
            yield AppTransport(app, token, tasks)
        except Exception as error:  # noqa: BLE001 - raised below, without the group around it
            failure = error
        app.state.shutdown_event.set()
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def open_client(
    storage: Storage, *, workers: WorkerSettings | None = None, can_run: bool = False, mask: Masking | None = None
) -> AsyncGenerator[Client]:
    """Yield a client of the running server, or else of an app and engine in this process.

    With `can_run` the engine is always in this process, even beside a running server of the storage, and executes only
    the runs that this client starts. The exception is a server in the environment (`SHOPFLOOR_URL`), which executes
    them instead; it cannot apply `mask`, so the combination raises UnsupportedOption. Without `can_run`, an engine in
    this process stores control messages for the next host, and cancels runs that have none.
    """
    from shopfloor.client import Client, find_server, server_from_environment
    from shopfloor.engine import ClaimPolicy
    from shopfloor.server import create_app

    address = server_from_environment() if can_run else find_server(storage)
    if address is not None and mask is not None:
        raise UnsupportedOption(
            f"the server at {address.url} would execute this run, and cannot mask its record",
            hint="unset SHOPFLOOR_URL to execute the run on this machine",
        )
    if address is not None:
        async with Client(address.url, address.token) as client:
            yield client
        return
    require_private_folder(storage.root)
    policy = ClaimPolicy.OWN if can_run else ClaimPolicy.CANCELLED
    workers, offers = workers or WorkerSettings(), list[HostOffer]()
    async with (
        local_backend(storage, mask=mask) as backend,
        local_engine(backend, workers, policy=policy, dedicated=can_run, other_offers=lambda: offers) as engine,
    ):
        offers += await _live_offers(backend) if not can_run else []
        token = await backend.access.admin_token()
        await _update_rows(backend)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.scheduler.run)
            tasks.start_soon(backend.ingest.run)
            async with _open_transport(create_app(backend.services(engine), has_pages=False), token) as transport:
                yield Client(_IN_PROCESS, transport=transport)
            tasks.cancel_scope.cancel()
        await backend.ingest.catch_up()


async def _live_offers(backend: StorageBackend) -> list[HostOffer]:
    """Return what the running hosts of the storage offer, for the reasons why queued runs wait."""
    from shopfloor.fleet import live_offers

    offers = await live_offers(await backend.host_registry.all(), backend.hosts)
    return disable_providers(offers, disabled_providers(await backend.provider_health.read()))


async def _update_rows(backend: StorageBackend) -> None:
    """Bring the rows up to date with the logs."""
    from shopfloor.engine import resume_or_end_orphans

    await backend.ingest.catch_up()
    if await resume_or_end_orphans(backend):
        await backend.ingest.catch_up()
