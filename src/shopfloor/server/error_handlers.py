"""Error responses: `{"error": {"code", "message", "hint"}}`, or an HTML page for a browser.

Errors of `execute` are flat, `{"error", "code", "hint"}`, because the TypeScript SDK reads `error` as the message.
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
_HINT = "see /api/docs for the API"
_EXECUTE_PATH: Final = re.compile(r"/api/agents/.+/execute", re.DOTALL)


def error_response(
    status: int,
    code: str,
    message: str,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    scope: Scope | None = None,
) -> Response:
    """Return a JSON error response, in the format that clients of the path in `scope` read."""
    is_flat = scope is not None and _EXECUTE_PATH.fullmatch(scope["path"]) is not None
    model = ExecutionProblem(message, code, hint) if is_flat else ProblemAnswer(Problem(code, message, hint))
    return Response(msgspec.json.encode(model), status, headers, media_type="application/json")


def response_for_error(error: Exception, scope: Scope | None = None) -> Response:
    """Return the response for an error: an HTML page for a browser that requested a page, otherwise JSON."""
    public = to_public_error(error)
    headers = _headers_for(public)
    if scope is not None and wants_html(scope):
        if isinstance(public, Unauthorized) and is_cross_site_navigation(scope):
            return same_site_refresh(scope)
        return error_page(public, headers)
    return error_response(public.status, public.code, public.message, public.hint, headers, scope=scope)


def _headers_for(error: ShopfloorError) -> dict[str, str] | None:
    if isinstance(error, Unauthorized):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, TooManyLogins):
        return {"Retry-After": str(error.retry_after_seconds)}
    return None


def to_public_error(error: Exception) -> ShopfloorError:
    """Return the error to send to the client, and log errors of the server.

    The client learns no details of an unexpected error; they are in the log.
    """
    if not isinstance(error, ShopfloorError):
        _log.error("a request failed unexpectedly", exc_info=error)
        return UnexpectedError("the server failed unexpectedly", hint="see the server's log for the cause")
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        _log.error("a request failed: %s", error.message)
    elif error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("a request failed: %s", error.message, exc_info=error)
    return error


async def _handle_shopfloor_error(request: Request, error: Exception) -> Response:
    return response_for_error(error, request.scope)


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    """Handle what Starlette refuses itself: an unknown path, or a method that the path does not accept."""
    refused = cast("HTTPException", error)
    match refused.status_code:
        case HTTPStatus.NOT_FOUND:
            hint = None if wants_html(request.scope) else _HINT
            return response_for_error(
                NotFoundError(f"there is nothing at {request.url.path}", hint=hint), request.scope
            )
        case HTTPStatus.METHOD_NOT_ALLOWED:
            message = f"{request.url.path} does not accept {request.method}"
            code = MethodNotAllowed.code
            return error_response(refused.status_code, code, message, _HINT, refused.headers, scope=request.scope)
        case HTTPStatus.BAD_REQUEST:
            return response_for_error(InvalidParameter(f"body: {refused.detail}", hint=_HINT), request.scope)
        case status:
            return error_response(status, "refused", str(refused.detail), None, refused.headers, scope=request.scope)


EXCEPTION_HANDLERS: Final[Mapping[Any, Any]] = {
    ShopfloorError: _handle_shopfloor_error,
    HTTPException: _handle_http_exception,
}
"""The app's exception handlers: every error gets a response in the API's format."""
