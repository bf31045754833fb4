"""The few pages that the server writes itself, and who is to be given one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import Scope

from shopfloor.errors import ShopfloorError, Unauthorized
from shopfloor.server.page_style import STYLE

DOCS: Final = "/api/docs"
_API: Final = "/api/"
_ASKING: Final = frozenset({"GET", "HEAD"})
_HEADINGS: Final[dict[int, str]] = {
    HTTPStatus.NOT_FOUND: "There is no such page",
    HTTPStatus.FORBIDDEN: "This is not allowed",
}

_LOG_IN: Final = (
    "<p>On the machine where the server runs, this command prints a link: open it in this browser. The link works "
    "once, and the login lasts as long as it is used, up to 30 days in between.</p>\n"
    "<pre>shopfloor login</pre>"
)


def page(title: str, body: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """A page of our own, in the colours of the built one."""
    return HTMLResponse(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="{STYLE}"></head>\n'
        f'<body>\n<header class="brand"><a href="/">Shopfloor</a></header>\n{body}\n</body></html>\n',
        status,
        headers,
    )


def notice(
    heading: str, body: str, *, status: int = 200, headers: Mapping[str, str] | None = None, title: str = ""
) -> HTMLResponse:
    """A page that says one thing, and what to do."""
    said = f'<main class="notice">\n<h1>{escape(heading)}</h1>\n{body}\n</main>'
    return page(title or f"{heading} · Shopfloor", said, status=status, headers=headers)


def wants_page(scope: Scope) -> bool:
    """Whether a person with a browser asks, and not a program: for something that is shown as a page."""
    path: str = scope["path"]
    shown = path == DOCS or not f"{path}/".startswith(_API)
    return shown and scope["method"] in _ASKING and _takes_html(Headers(scope=scope).get("accept", ""))


def _takes_html(said: str) -> bool:
    return any(one.partition(";")[0].strip().lower() == "text/html" for one in said.split(","))


def problem_page(error: ShopfloorError, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """What is wrong, for people."""
    hint = f"\n<p>{prose(error.hint[:1].upper() + error.hint[1:])}.</p>" if error.hint else ""
    said = f"<p>{prose(error.message[:1].upper() + error.message[1:])}.</p>"
    if isinstance(error, Unauthorized):
        return notice("You are not logged in", f"{said}\n{_LOG_IN}", status=error.status, headers=headers)
    body = f'{said}{hint}\n<p><a href="/">To the runs</a></p>'
    heading = _HEADINGS.get(error.status, "This did not work")
    return notice(heading, body, status=error.status, headers=headers)


def comes_from_elsewhere(scope: Scope) -> bool:
    """Whether somebody followed a link on another site: then the browser keeps our cookie to itself."""
    headers = Headers(scope=scope)
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-site") in ("cross-site", "same-site")


def once_more(scope: Scope) -> HTMLResponse:
    """Has the browser ask again, now from a page of ours, which it gives the cookie to. Nobody is asked twice."""
    query = scope["query_string"].decode("latin-1")
    # Two slashes would begin the name of another server.
    path = "/" + quote(scope["path"].lstrip("/"), safe="/:@!$&'()*+,=~")
    target = f"{path}?{query}" if query else path
    headers = {"Refresh": f"0; url={target}"}
    return notice("One moment", f'<p><a href="{escape(target)}">To the page</a></p>', headers=headers)


def prose(text: str) -> str:
    """Text in which what stands between backticks is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
