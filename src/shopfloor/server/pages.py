"""Routes for browsers: the built page and its files, login and logout, and the API reference."""

from __future__ import annotations

import re
from html import escape
from typing import Final, NoReturn
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shopfloor.errors import NotFoundError, Unauthorized
from shopfloor.limits import AUDIT_TEXT_CHARS
from shopfloor.log import is_run_id
from shopfloor.ports import RunFilter, RunItem
from shopfloor.server.audit import audit, audit_scope, client_address, get_caller
from shopfloor.server.auth import LOGIN_PATH, LOGOUT_PATH, LoginLimiter, read_session_cookie, session_cookie_header
from shopfloor.server.html_pages import DOCS_PATH, STYLESHEET, STYLESHEET_PATH, html_page, notice_page, render_api_docs
from shopfloor.server.openapi import OPENAPI_PATH, get_openapi_document, openapi_document
from shopfloor.server.page_files import ASSETS, CACHE_IMMUTABLE, CACHE_REVALIDATE, INDEX, get_page_files
from shopfloor.server.services import Services

_is_id_prefix = re.compile(r"[0-9a-f-]{4,36}").fullmatch
ICON: Final = "favicon.svg"
_is_own_path = re.compile(r"/(?!/)(?:(?!//)[^\\\x00-\x20\x7f?#])*(?:[?#][^\\\x00-\x20\x7f]*)?").fullmatch


async def front(request: Request) -> Response:
    """Return the built page. Its script reads the address and decides what to show.

    The first characters of a run id in the address are replaced by the complete id.
    """
    run_ref = request.query_params.get("worker", "")
    if run_ref and not is_run_id(run_ref) and (run := await _find_run(request, run_ref)) is not None:
        query = urlencode({**request.query_params, "worker": run.row.id})
        return RedirectResponse(f"{quote(request.url.path)}?{query}", status_code=303)
    built = await get_page_files(request).response(request, INDEX, cache=CACHE_REVALIDATE)
    return built or _not_built(request)


async def run_page(request: Request) -> Response:
    """Redirect to the page of a run, by its id or its first characters."""
    run_ref: str = request.path_params["run_ref"]
    run = await _find_run(request, run_ref)
    if run is None:
        raise NotFoundError(f"there is no single run {run_ref[:40]!r}", hint="`shopfloor list` lists the runs")
    path = f"/agents/{quote(run.row.agent_id or run.row.name, safe='')}/workers?worker={run.row.id}"
    return RedirectResponse(path, status_code=303)


async def _find_run(request: Request, run_ref: str) -> RunItem | None:
    """Return the only run whose id begins with `run_ref`; None if there is none or more than one."""
    services: Services = request.app.state.services
    if is_run_id(run_ref):
        return await services.store.get_run(run_ref)
    if not _is_id_prefix(run_ref):
        return None
    page = await services.store.list_runs(RunFilter(id_prefix=run_ref), limit=2)
    return page.items[0] if len(page.items) == 1 else None


def _not_built(request: Request) -> Response:
    services: Services = request.app.state.services
    return notice_page(
        "The page is not built here",
        f"<p>The server runs, version {escape(services.version)}. <code>make page</code> builds the page.</p>\n"
        f'<p><a href="{DOCS_PATH}">The API</a></p>',
    )


async def asset(request: Request) -> Response:
    """Return a script or style of the built page."""
    return await _file(request, ASSETS, request.path_params["name"], cache=CACHE_IMMUTABLE)


async def icon(request: Request) -> Response:
    """Return the icon of the page."""
    return await _file(request, ICON, cache=CACHE_REVALIDATE)


async def _file(request: Request, *parts: str, cache: str) -> Response:
    found = await get_page_files(request).response(request, *parts, cache=cache)
    if found is None:
        raise NotFoundError(f"there is nothing at {request.url.path}", hint="`make page` builds the page")
    return found


async def log_in(request: Request) -> Response:
    """Exchange the code of a login link, or a token, for a session cookie, and redirect to the page.

    The redirect removes the secret from the address bar.
    """
    services: Services = request.app.state.services
    limiter: LoginLimiter = request.app.state.login_limiter
    access, address = services.access, client_address(request.scope)
    code, token = request.query_params.get("code", ""), request.query_params.get("token", "")
    client = {"address": address, "client": (request.headers.get("user-agent") or "")[:AUDIT_TEXT_CHARS] or None}
    response = RedirectResponse(own_path(request.query_params.get("next", "")), status_code=303)
    # A code is 32 random bytes and cannot be guessed, so a login link works even while the address is blocked for
    # guessing tokens.
    secret = await access.log_in_by_code(code, **client) if code else None
    if secret is None and token:
        limiter.check(address)
        secret = await access.log_in_by_token(token, **client)
    if secret is None:
        cookie = read_session_cookie(request.headers, access.cookie)
        if code and cookie and await access.authenticate_session(cookie):
            # This browser is logged in and opened a used link again.
            return response
        await _refuse_login(request, limiter)
    caller = await access.authenticate_session(secret or "")
    await audit_scope(
        services.audit, request.scope, "session.begun", caller=caller, detail="by link" if code else "by token"
    )
    response.headers.append("set-cookie", session_cookie_header(access.cookie, secret or "", request.scope))
    return response


async def _refuse_login(request: Request, limiter: LoginLimiter) -> NoReturn:
    services: Services = request.app.state.services
    address = client_address(request.scope)
    limiter.check(address)
    limiter.record_failure(address)
    await audit_scope(services.audit, request.scope, "login.failed")
    raise Unauthorized(
        "this login link is not valid: a link works once, within 15 minutes",
        hint="`shopfloor login` prints a new one",
    )


async def log_out(request: Request) -> Response:
    """End the browser's session. Tokens stay valid."""
    services: Services = request.app.state.services
    secret = read_session_cookie(request.headers, services.access.cookie)
    caller = get_caller(request.scope)
    if secret and caller is not None and caller.kind == "session":
        await services.access.log_out(secret)
        await audit(request, "session.ended", detail="logged out")
    response = Response(status_code=204)
    response.headers.append("set-cookie", session_cookie_header(services.access.cookie, "", request.scope, max_age=0))
    return response


def own_path(path: str) -> str:
    """Return the path to redirect to after the login: `path` if it is on this server, else the front page.

    Paths with backslashes or control characters are refused: browsers read the former as slashes and drop the latter,
    so such a path could lead to another server.
    """
    return path if _is_own_path(path) else "/"


async def describe(request: Request) -> Response:
    """Return the API reference as a page."""
    return html_page("The API · Shopfloor", f"<main>\n{render_api_docs(get_openapi_document(request))}\n</main>")


async def style(request: Request) -> Response:
    """Return the style sheet of the server's own pages."""
    return Response(STYLESHEET, headers={"Cache-Control": CACHE_REVALIDATE}, media_type="text/css")


ROUTES: Final = (
    *(Route(path, front) for path in ("/", "/agents/{agent_id}/workers", "/fleet")),
    Route("/runs/{run_ref}", run_page),
    Route(f"/{ASSETS}/{{name}}", asset),
    Route(f"/{ICON}", icon),
    Route(LOGIN_PATH, log_in, methods=["GET"]),
    Route(LOGOUT_PATH, log_out, methods=["POST"]),
    Route(DOCS_PATH, describe),
    Route(OPENAPI_PATH, openapi_document),
    Route(STYLESHEET_PATH, style),
)
