"""The app: routes, the middleware before them, and the OpenAPI document."""

from __future__ import annotations

from functools import cache

import anyio
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware

from shopfloor.server import execute, logs, orders, page_stream, runs, streams, workers
from shopfloor.server.auth import Gate
from shopfloor.server.body import BodyLimit
from shopfloor.server.limits import COMPRESSED_BYTES, COMPRESSION_LEVEL
from shopfloor.server.login_limiter import LoginLimiter
from shopfloor.server.logs import LOG_MEDIA_TYPE
from shopfloor.server.problems import HANDLERS
from shopfloor.server.services import Services
from shopfloor.server.spans import SpanStates
from shopfloor.server.watchers import ClientTracker

OPERATIONS = tuple(
    operation
    for module in (workers, logs, runs, orders, execute, streams, page_stream)
    for operation in module.operations.all
)


def create_app(services: Services, *, has_pages: bool = True) -> Starlette:
    """The app; without its pages it is the API alone, for a client in this process."""
    stopping = anyio.Event()
    watchers = ClientTracker(services, stopping)
    app = Starlette(
        routes=[operation.route() for operation in OPERATIONS],
        middleware=[
            Middleware(Gate, access=services.access, allowed_hosts=services.allowed_hosts, audit=services.audit),
            Middleware(BodyLimit),
            Middleware(
                GZipMiddleware,
                minimum_size=COMPRESSED_BYTES,
                compresslevel=COMPRESSION_LEVEL,
                # Leaves JSON: files of the page are packed already, streams must not wait, logs keep their size.
                exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, "text/*", "image/*", LOG_MEDIA_TYPE),
            ),
        ],
        exception_handlers=HANDLERS,
        lifespan=lambda _: watchers.working(),
    )
    app.router.redirect_slashes = False
    app.state.services = services
    app.state.stopping = stopping
    app.state.watchers = watchers
    app.state.logins = LoginLimiter()
    app.state.spans = SpanStates(services.logs)
    if has_pages:
        _add_pages(app, services)
    return app


def _add_pages(app: Starlette, services: Services) -> None:
    from shopfloor.server.openapi import openapi
    from shopfloor.server.page_files import PageFiles
    from shopfloor.server.pages import ROUTES

    app.router.routes += ROUTES
    app.state.page = PageFiles(services.page)
    app.state.openapi = cache(lambda: openapi(OPERATIONS, services.version, services.access.cookie))
