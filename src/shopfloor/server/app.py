"""The app: routes, what stands before them, and its description."""

from __future__ import annotations

from typing import Any, cast

import anyio
from fastapi import FastAPI

from shopfloor.server import execute, logs, orders, page_stream, pages, runs, streams, workers
from shopfloor.server.answers import components
from shopfloor.server.auth import Gate
from shopfloor.server.body import BodyLimit
from shopfloor.server.login_limiter import LoginLimiter
from shopfloor.server.page_files import PageFiles
from shopfloor.server.problems import answer_problems
from shopfloor.server.services import Services
from shopfloor.server.spans import SpanStates
from shopfloor.server.watchers import Watchers

_ABOUT = (
    "Runs of AI workers, and the record of what was said and done in them. "
    "Every address wants `Authorization: Bearer <token>`, or the cookie that the login link sets. "
    "Errors are a `ProblemAnswer`; where a worker was to be executed, an `ExecutionProblem`."
)


def create_app(services: Services) -> FastAPI:
    stopping = anyio.Event()
    watchers = Watchers(services, stopping)
    app = FastAPI(
        title="Shopfloor",
        description=_ABOUT,
        version=services.version,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lambda _: watchers.working(),
    )
    app.state.services = services
    app.state.stopping = stopping
    app.state.watchers = watchers
    app.state.logins = LoginLimiter()
    app.state.page = PageFiles(services.page)
    app.state.spans = SpanStates(services.logs)
    for room in (workers, logs, runs, orders, execute, streams, page_stream):
        app.router.routes.extend(room.router.routes)
    app.router.routes.extend(pages.ROUTES)
    _describe(app, services)
    answer_problems(app)
    # The last one added stands before the others.
    app.add_middleware(BodyLimit)
    app.add_middleware(Gate, tokens=services.tokens, allowed_hosts=services.allowed_hosts, audit=services.audit)
    return app


def _describe(app: FastAPI, services: Services) -> None:
    """Completes what the framework says of the API with the shapes of our answers, and learns its parameters."""
    described = app.openapi()
    parts = cast("dict[str, Any]", described.setdefault("components", {}))
    parts.setdefault("schemas", {}).update(components())
    parts["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer"},
        "session": {"type": "apiKey", "in": "cookie", "name": services.tokens.cookie},
    }
    described["security"] = [{"token": []}, {"session": []}]
    app.state.known_parameters = {
        operation["operationId"]: frozenset(
            one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"
        )
        for methods in described["paths"].values()
        for operation in methods.values()
    }
