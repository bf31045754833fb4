"""The pages: the built one and its files, the login, and the readable description of the API."""

from __future__ import annotations

import re
from html import escape
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from shopfloor.errors import NotFoundError, Unauthorized
from shopfloor.server.auth import COOKIE, LOGIN
from shopfloor.server.docs import description_page
from shopfloor.server.html import DOCS, STYLE, page
from shopfloor.server.limits import SESSION_SECONDS
from shopfloor.server.page_files import ASK_AGAIN, ASSETS, FOR_EVER, INDEX, page_of
from shopfloor.server.services import Services

ICON: Final = "favicon.svg"
_is_own_path = re.compile(r"/(?!/)(?:(?!//)[^\\\x00-\x20\x7f?#])*(?:[?#][^\\\x00-\x20\x7f]*)?").fullmatch

_STYLE: Final = """\
:root { color-scheme: light dark; --line: #8886; --quiet: #8888881a; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h3 code { font-size: 1.05rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border: 1px solid var(--line); }
th { background: var(--quiet); }
"""


async def front(request: Request) -> Response:
    """The page, whatever it is to show: the address is for its own script to read."""
    built = await page_of(request).answer(request, INDEX, cache=ASK_AGAIN)
    return built or _not_built(request)


def _not_built(request: Request) -> Response:
    served: Services = request.app.state.services
    return page(
        "Shopfloor",
        f"<h1>Shopfloor</h1>\n<p>The server runs, version {escape(served.version)}.</p>\n"
        "<p>The page is not built here: <code>make page</code> builds it.</p>\n"
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
    described: dict[str, Any] = request.app.openapi()
    return page("Shopfloor: the API", description_page(described))


async def style(request: Request) -> Response:
    return Response(_STYLE, media_type="text/css")


ROUTES: Final = (
    *(Route(path, front) for path in ("/", "/agents/{agent_id}/workers", "/fleet")),
    Route(f"/{ASSETS}/{{name}}", asset),
    Route(f"/{ICON}", icon),
    Route(LOGIN, log_in),
    Route(DOCS, describe),
    Route(STYLE, style),
)
