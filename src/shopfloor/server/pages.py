"""The pages: the built one and its files, the login, and the readable description of the API."""

from __future__ import annotations

import re
from html import escape
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shopfloor.errors import NotFoundError, Unauthorized
from shopfloor.server.auth import COOKIE, LOGIN
from shopfloor.server.docs import description_page
from shopfloor.server.html import DOCS, notice, page
from shopfloor.server.limits import SESSION_SECONDS
from shopfloor.server.openapi import OPENAPI, document_of, openapi_document
from shopfloor.server.page_files import ASK_AGAIN, ASSETS, FOR_EVER, INDEX, page_of
from shopfloor.server.page_style import PAGE_STYLE, STYLE
from shopfloor.server.services import Services

ICON: Final = "favicon.svg"
_is_own_path = re.compile(r"/(?!/)(?:(?!//)[^\\\x00-\x20\x7f?#])*(?:[?#][^\\\x00-\x20\x7f]*)?").fullmatch


async def front(request: Request) -> Response:
    """The page, whatever it is to show: the address is for its own script to read."""
    built = await page_of(request).answer(request, INDEX, cache=ASK_AGAIN)
    return built or _not_built(request)


def _not_built(request: Request) -> Response:
    served: Services = request.app.state.services
    return notice(
        "The page is not built here",
        f"<p>The server runs, version {escape(served.version)}. <code>make page</code> builds the page.</p>\n"
        f'<p><a href="{DOCS}">The API</a></p>',
    )


async def asset(request: Request) -> Response:
    return await _file(request, ASSETS, request.path_params["name"], cache=FOR_EVER)


async def icon(request: Request) -> Response:
    return await _file(request, ICON, cache=ASK_AGAIN)


async def _file(request: Request, *parts: str, cache: str) -> Response:
    found = await page_of(request).answer(request, *parts, cache=cache)
    if found is None:
        raise NotFoundError(f"there is nothing at {request.url.path}", hint="is the page built? `make page` builds it")
    return found


async def log_in(request: Request) -> Response:
    """Changes a token in the address for a cookie, and leaves the address behind."""
    served: Services = request.app.state.services
    token = request.query_params.get("token", "")
    if served.tokens.role_of(token) is None:
        raise Unauthorized("this login link is not valid here", hint="`shopfloor up` prints one that is")
    answer = RedirectResponse(own_path(request.query_params.get("next", "")), status_code=303)
    answer.set_cookie(
        COOKIE,
        quote(token, safe=""),
        max_age=SESSION_SECONDS,
        path="/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


def own_path(said: str) -> str:
    """Where to go after the login: a path of this server, or else its front page.

    Browsers take backslashes for slashes and leave control characters out, so with these it could be elsewhere.
    """
    return said if _is_own_path(said) else "/"


async def describe(request: Request) -> Response:
    return page("The API · Shopfloor", f"<main>\n{description_page(document_of(request))}\n</main>")


async def style(request: Request) -> Response:
    return Response(PAGE_STYLE, headers={"Cache-Control": ASK_AGAIN}, media_type="text/css")


ROUTES: Final = (
    *(Route(path, front) for path in ("/", "/agents/{agent_id}/workers", "/fleet")),
    Route(f"/{ASSETS}/{{name}}", asset),
    Route(f"/{ICON}", icon),
    Route(LOGIN, log_in),
    Route(DOCS, describe),
    Route(OPENAPI, openapi_document),
    Route(STYLE, style),
)
