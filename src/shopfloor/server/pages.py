"""The pages: the built one and its files, the login, and the readable description of the API."""

from __future__ import annotations

import re
from html import escape
from typing import Final, NoReturn

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shopfloor.errors import NotFoundError, Unauthorized
from shopfloor.limits import AUDIT_TEXT_CHARS
from shopfloor.server.audit import audit, audit_scope, client_address, get_caller
from shopfloor.server.auth import LOGIN_PATH, LOGOUT_PATH, LoginLimiter, read_session_cookie, session_cookie_header
from shopfloor.server.html_pages import DOCS_PATH, STYLESHEET, STYLESHEET_PATH, html_page, notice_page, render_api_docs
from shopfloor.server.openapi import OPENAPI_PATH, get_openapi_document, openapi_document
from shopfloor.server.page_files import ASSETS, CACHE_IMMUTABLE, CACHE_REVALIDATE, INDEX, get_page_files
from shopfloor.server.services import Services

ICON: Final = "favicon.svg"
_is_own_path = re.compile(r"/(?!/)(?:(?!//)[^\\\x00-\x20\x7f?#])*(?:[?#][^\\\x00-\x20\x7f]*)?").fullmatch


async def front(request: Request) -> Response:
    """The page, whatever it is to show: the address is for its own script to read."""
    built = await get_page_files(request).answer(request, INDEX, cache=CACHE_REVALIDATE)
    return built or _not_built(request)


def _not_built(request: Request) -> Response:
    served: Services = request.app.state.services
    return notice_page(
        "The page is not built here",
        f"<p>The server runs, version {escape(served.version)}. <code>make page</code> builds the page.</p>\n"
        f'<p><a href="{DOCS_PATH}">The API</a></p>',
    )


async def asset(request: Request) -> Response:
    return await _file(request, ASSETS, request.path_params["name"], cache=CACHE_IMMUTABLE)


async def icon(request: Request) -> Response:
    return await _file(request, ICON, cache=CACHE_REVALIDATE)


async def _file(request: Request, *parts: str, cache: str) -> Response:
    found = await get_page_files(request).answer(request, *parts, cache=cache)
    if found is None:
        raise NotFoundError(f"there is nothing at {request.url.path}", hint="is the page built? `make page` builds it")
    return found


async def log_in(request: Request) -> Response:
    """Trade the code of a login link, or a token, for a session of the browser, and leave the address behind."""
    served: Services = request.app.state.services
    limiter: LoginLimiter = request.app.state.login_limiter
    access, address = served.access, client_address(request.scope)
    code, token = request.query_params.get("code", ""), request.query_params.get("token", "")
    here = {"address": address, "client": (request.headers.get("user-agent") or "")[:AUDIT_TEXT_CHARS] or None}
    answer = RedirectResponse(own_path(request.query_params.get("next", "")), status_code=303)
    # A code is 32 random bytes, so that nobody guesses one: it works also while tokens are being guessed.
    secret = await access.log_in_by_code(code, **here) if code else None
    if secret is None and token:
        limiter.check(address)
        secret = await access.log_in_by_token(token, **here)
    if secret is None:
        held = read_session_cookie(request.headers, access.cookie)
        if code and held and await access.authenticate_session(held):
            # The link was used before, and by this browser: it is logged in.
            return answer
        await _refuse_login(request, limiter)
    caller = await access.authenticate_session(secret or "")
    await audit_scope(
        served.audit, request.scope, "session.begun", caller=caller, detail="by link" if code else "by token"
    )
    answer.headers.append("set-cookie", session_cookie_header(access.cookie, secret or "", request.scope))
    return answer


async def _refuse_login(request: Request, limiter: LoginLimiter) -> NoReturn:
    served: Services = request.app.state.services
    address = client_address(request.scope)
    limiter.check(address)
    limiter.record_failure(address)
    await audit_scope(served.audit, request.scope, "login.failed")
    raise Unauthorized(
        "this login link is not valid here: it works once, and for a quarter of an hour",
        hint="`shopfloor login` prints a fresh one",
    )


async def log_out(request: Request) -> Response:
    """End the session of the browser that asks; a token is not touched."""
    served: Services = request.app.state.services
    secret = read_session_cookie(request.headers, served.access.cookie)
    caller = get_caller(request.scope)
    if secret and caller is not None and caller.kind == "session":
        await served.access.log_out(secret)
        await audit(request, "session.ended", detail="logged out")
    answer = Response(status_code=204)
    answer.headers.append("set-cookie", session_cookie_header(served.access.cookie, "", request.scope, max_age=0))
    return answer


def own_path(said: str) -> str:
    """Where to go after the login: a path of this server, or else its front page.

    Browsers take backslashes for slashes and leave control characters out, so with these it could be elsewhere.
    """
    return said if _is_own_path(said) else "/"


async def describe(request: Request) -> Response:
    return html_page("The API · Shopfloor", f"<main>\n{render_api_docs(get_openapi_document(request))}\n</main>")


async def style(request: Request) -> Response:
    return Response(STYLESHEET, headers={"Cache-Control": CACHE_REVALIDATE}, media_type="text/css")


ROUTES: Final = (
    *(Route(path, front) for path in ("/", "/agents/{agent_id}/workers", "/fleet")),
    Route(f"/{ASSETS}/{{name}}", asset),
    Route(f"/{ICON}", icon),
    Route(LOGIN_PATH, log_in, methods=["GET"]),
    Route(LOGOUT_PATH, log_out, methods=["POST"]),
    Route(DOCS_PATH, describe),
    Route(OPENAPI_PATH, openapi_document),
    Route(STYLESHEET_PATH, style),
)
