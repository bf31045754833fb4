"""The Starlette app: routes, middleware and the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache
from typing import NamedTuple

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp

from shopfloor.server import (
    approvals,
    artifact_downloads,
    execution_stream,
    fleet,
    hooks,
    hosts,
    logs,
    providers,
    queue,
    rpc,
    run_actions,
    runs,
    server_contents,
    stats,
    streams,
    waiting,
)
from shopfloor.server.auth import AuthMiddleware, LoginLimiter
from shopfloor.server.body_limit import BodyLimitMiddleware
from shopfloor.server.client_tracker import ClientTracker
from shopfloor.server.error_handlers import EXCEPTION_HANDLERS
from shopfloor.server.fleet_feed import FleetFeed
from shopfloor.server.limits import COMPRESSION_LEVEL, COMPRESSION_MIN_BYTES
from shopfloor.server.logs import LOG_MEDIA_TYPE
from shopfloor.server.run_tree import SpanCache
from shopfloor.server.services import Services

_MODULES = (
    runs,
    waiting,
    stats,
    logs,
    artifact_downloads,
    run_actions,
    server_contents,
    approvals,
    execution_stream,
    streams,
    queue,
    fleet,
    hosts,
    providers,
    hooks,
    rpc,
)
OPERATIONS = tuple(operation for module in _MODULES for operation in module.operations.all)


class MountedApp(NamedTuple):
    """Another app at a path of this one. Its requests are authenticated like all others."""

    path: str
    app: ASGIApp
    run: Callable[[Starlette], AbstractAsyncContextManager[None]]
    """Runs the app while the server runs. Gets the app that it is part of."""


def create_app(services: Services, *, has_pages: bool = True, mounted: Sequence[MountedApp] = ()) -> Starlette:
    """Return the app. With `has_pages=False` it serves the API only, for a client in this process."""
    shutdown_event = anyio.Event()
    client_tracker = ClientTracker(services, shutdown_event)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with client_tracker.cancel_abandoned_runs(), AsyncExitStack() as running:
            if services.fleet is not None:
                await running.enter_async_context(_running_feed(services.fleet))
            for part in mounted:
                await running.enter_async_context(part.run(app))
            yield

    app = Starlette(
        routes=[operation.route() for operation in OPERATIONS] + [Route(part.path, part.app) for part in mounted],
        middleware=[
            Middleware(
                AuthMiddleware, access=services.access, allowed_hosts=services.allowed_hosts, audit=services.audit
            ),
            Middleware(BodyLimitMiddleware),
            Middleware(
                GZipMiddleware,
                minimum_size=COMPRESSION_MIN_BYTES,
                compresslevel=COMPRESSION_LEVEL,
                # Only JSON remains: page files are already compressed, streams must not be buffered, and the
                # Content-Length of a downloaded log must stay true.
                exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, "text/*", "image/*", LOG_MEDIA_TYPE),
            ),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    app.state.services = services
    app.state.shutdown_event = shutdown_event
    app.state.client_tracker = client_tracker
    app.state.login_limiter = LoginLimiter()
    app.state.spans = SpanCache(services.logs)
    if has_pages:
        _add_pages(app, services)
    return app


@asynccontextmanager
async def _running_feed(feed: FleetFeed) -> AsyncGenerator[None]:
    """Deliver fleet events while the context lasts."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(feed.run)
        yield
        tasks.cancel_scope.cancel()


def _add_pages(app: Starlette, services: Services) -> None:
    from shopfloor.server.openapi import build_openapi
    from shopfloor.server.page_files import PageFiles
    from shopfloor.server.pages import ROUTES
    from shopfloor.server.trpc_socket import ROUTE

    app.router.routes += [*ROUTES, ROUTE]
    app.state.page = PageFiles(services.page_folder)
    app.state.openapi = cache(lambda: build_openapi(OPERATIONS, services.version, services.access.cookie))
