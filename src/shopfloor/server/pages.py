"""The pages that the server writes itself: the door, the login, and the readable description of the API."""

from __future__ import annotations

from html import escape
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from shopfloor.errors import Unauthorized
from shopfloor.server.auth import COOKIE, LOGIN
from shopfloor.server.docs import description_page
from shopfloor.server.limits import SESSION_SECONDS
from shopfloor.server.services import Services

DOCS: Final = "/api/docs"
STYLE: Final = "/api/docs.css"

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


def page(title: str, body: str) -> HTMLResponse:
    return HTMLResponse(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f'<link rel="stylesheet" href="{STYLE}"></head>\n<body>\n{body}\n</body></html>\n'
    )


async def front(request: Request) -> Response:
    served: Services = request.app.state.services
    said = f'<p>The server runs, version {escape(served.version)}.</p>\n<p><a href="{DOCS}">The API</a></p>'
    return page("Shopfloor", f"<h1>Shopfloor</h1>\n{said}")


async def log_in(request: Request) -> Response:
    """Changes a token in the address for a cookie, and leaves the address behind."""
    served: Services = request.app.state.services
    token = request.query_params.get("token", "")
    if served.tokens.role_of(token) is None:
        raise Unauthorized("this login link is not valid here", hint="`shopfloor up` prints one that is")
    answer = RedirectResponse("/", status_code=303)
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


async def describe(request: Request) -> Response:
    described: dict[str, Any] = request.app.openapi()
    return page("Shopfloor: the API", description_page(described))


async def style(request: Request) -> Response:
    return Response(_STYLE, media_type="text/css")


ROUTES: Final = (Route("/", front), Route(LOGIN, log_in), Route(DOCS, describe), Route(STYLE, style))
