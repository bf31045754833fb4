"""Errors as answers: `{"error": {"code", "message", "hint"}}`, whoever found them; a page where one was asked for.

Where a worker was to be executed they are flat, `{"error", "code", "hint"}`: the parser of the TypeScript SDK takes
`error` for the message.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from shopfloor.errors import (
    InvalidParameter,
    MethodNotAllowed,
    NotFoundError,
    ShopfloorError,
    TooManyLogins,
    Unauthorized,
    UnexpectedError,
)
from shopfloor.server.html_pages import error_page, is_cross_site_navigation, same_site_refresh, wants_html
from shopfloor.server.response_models import ExecutionProblem, Problem, ProblemAnswer

_log = logging.getLogger("shopfloor.server")
_HINT = "see /api/docs for what there is"
_EXECUTIONS: Final = re.compile(r"/api/agents/.+/execute")


def error_response(
    status: int,
    code: str,
    message: str,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    scope: Scope | None = None,
) -> Response:
    """The answer that says an error, in the shape that clients of the address in `scope` read."""
    flat = scope is not None and _EXECUTIONS.fullmatch(scope["path"]) is not None
    shape = ExecutionProblem(message, code, hint) if flat else ProblemAnswer(Problem(code, message, hint))
    return Response(msgspec.json.encode(shape), status, headers, media_type="application/json")


def response_for_error(error: Exception, scope: Scope | None = None) -> Response:
    """The answer that says an error: to a browser that asked for a page, as a page."""
    said = logged(error)
    headers = _headers_of(said)
    if scope is not None and wants_html(scope):
        if isinstance(said, Unauthorized) and is_cross_site_navigation(scope):
            return same_site_refresh(scope)
        return error_page(said, headers)
    return error_response(said.status, said.code, said.message, said.hint, headers, scope=scope)


def _headers_of(error: ShopfloorError) -> dict[str, str] | None:
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, TooManyLogins):
        return {"Retry-After": str(error.retry_after_seconds)}
    return None


def logged(error: Exception) -> ShopfloorError:
    """The error as it is said. What is our fault is logged; of what we did not foresee nothing else is said."""
    if not isinstance(error, ShopfloorError):
        _log.error("a request failed unexpectedly", exc_info=error)
        return UnexpectedError("something went wrong in the server", hint="its log says what")
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        _log.error("a request failed: %s", error.message)
    elif error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("a request failed: %s", error.message, exc_info=error)
    return error


async def _ours(request: Request, error: Exception) -> Response:
    return response_for_error(error, request.scope)


async def _of_framework(request: Request, error: Exception) -> Response:
    """What the framework refuses by itself: no such route, or not by this method."""
    refused = cast("HTTPException", error)
    match refused.status_code:
        case HTTPStatus.NOT_FOUND:
            hint = None if wants_html(request.scope) else _HINT
            return response_for_error(
                NotFoundError(f"there is nothing at {request.url.path}", hint=hint), request.scope
            )
        case HTTPStatus.METHOD_NOT_ALLOWED:
            message = f"{request.url.path} does not take {request.method}"
            code = MethodNotAllowed.code
            return error_response(refused.status_code, code, message, _HINT, refused.headers, scope=request.scope)
        case HTTPStatus.BAD_REQUEST:
            return response_for_error(InvalidParameter(f"body: {refused.detail}", hint=_HINT), request.scope)
        case status:
            return error_response(status, "refused", str(refused.detail), None, refused.headers, scope=request.scope)


EXCEPTION_HANDLERS: Final[Mapping[Any, Any]] = {ShopfloorError: _ours, HTTPException: _of_framework}
"""What makes the app say its errors in our shape."""
