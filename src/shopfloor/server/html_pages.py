"""HTML pages that the server renders itself: errors, login and the API reference.

They have the colors of the built page (`web/src/tokens.css`) and need no script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse
from starlette.types import Scope

from shopfloor.errors import ShopfloorError, Unauthorized

STYLESHEET_PATH: Final = "/login.css"
"""Served without a login, because the login page uses it."""

LIGHT: Final = {
    "bg": "#ffffff",
    "bg-side": "#fafafb",
    "border": "#e3e4e9",
    "text": "#16171b",
    "text-2": "#42454e",
    "accent-text": "#4f49bd",
    "n-4": "#ececf0",
}
DARK: Final = {
    "bg": "#0e0f11",
    "bg-side": "#131417",
    "border": "#282a30",
    "text": "#eeeef1",
    "text-2": "#b9bbc4",
    "accent-text": "#b3aeff",
    "n-4": "#202227",
}


def _tokens(colors: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colors.items())


STYLESHEET: Final = f"""\
:root {{ color-scheme: light dark; {_tokens(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_tokens(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--bg); color: var(--text); font: 16px/1.5 system-ui, sans-serif; }}
a {{ color: var(--accent-text); }}
:focus-visible {{ outline: 2px solid var(--accent-text); outline-offset: 2px; }}
code, pre {{ font-family: ui-monospace, monospace; font-size: .9em; }}
.brand {{ display: flex; align-items: center; height: 44px; padding: 0 12px; font-size: 14px; font-weight: 600;
  background: var(--bg-side); border-bottom: 1px solid var(--border); }}
.brand a {{ color: inherit; text-decoration: none; }}
main {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
.notice {{ max-width: 34rem; margin-top: 12vh; font-size: 14px; color: var(--text-2); }}
.notice h1 {{ margin: 0 0 .75rem; font-size: 18px; color: var(--text); }}
.notice p {{ margin: .75rem 0; overflow-wrap: anywhere; }}
.notice code {{ padding: 1px 6px; border-radius: 4px; background: var(--n-4); color: var(--text); }}
.notice pre {{ margin: .75rem 0; padding: .5rem .75rem; border: 1px solid var(--border); border-radius: 6px;
  background: var(--bg-side); color: var(--text); white-space: pre-wrap; }}
h2 {{ margin-top: 2.5rem; border-bottom: 1px solid var(--border); }}
h3 code {{ font-size: 1.05rem; }}
table {{ border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .6rem; border: 1px solid var(--border); }}
th {{ background: var(--n-4); }}
"""


DOCS_PATH: Final = "/api/docs"
_API: Final = "/api/"
_READ_METHODS: Final = frozenset({"GET", "HEAD"})
_HEADINGS: Final[dict[int, str]] = {
    HTTPStatus.NOT_FOUND: "There is no such page",
    HTTPStatus.FORBIDDEN: "This is not allowed",
}

_LOG_IN: Final = (
    "<p>On the machine where the server runs, this command prints a link. Open the link in this browser. It works "
    "once; the login ends after 30 days without use.</p>\n"
    "<pre>shopfloor login</pre>"
)


def html_page(title: str, body: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """Return an HTML page with the server's header and style sheet around `body`."""
    return HTMLResponse(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)}</title><link rel="stylesheet" href="{STYLESHEET_PATH}"></head>\n'
        f'<body>\n<header class="brand"><a href="/">Shopfloor</a></header>\n{body}\n</body></html>\n',
        status,
        headers,
    )


def notice_page(
    heading: str, body: str, *, status: int = 200, headers: Mapping[str, str] | None = None, title: str = ""
) -> HTMLResponse:
    """Return a page with one heading and a short text."""
    main = f'<main class="notice">\n<h1>{escape(heading)}</h1>\n{body}\n</main>'
    return html_page(title or f"{heading} · Shopfloor", main, status=status, headers=headers)


def wants_html(scope: Scope) -> bool:
    """Return whether a browser, and not a program, requests something that is shown as a page."""
    path: str = scope["path"]
    is_page = path == DOCS_PATH or not f"{path}/".startswith(_API)
    return is_page and scope["method"] in _READ_METHODS and _accepts_html(Headers(scope=scope).get("accept", ""))


def _accepts_html(accept: str) -> bool:
    return any(part.partition(";")[0].strip().lower() == "text/html" for part in accept.split(","))


def error_page(error: ShopfloorError, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """Return the HTML page for an error."""
    hint = f"\n<p>{render_inline_code(error.hint[:1].upper() + error.hint[1:])}.</p>" if error.hint else ""
    message = f"<p>{render_inline_code(error.message[:1].upper() + error.message[1:])}.</p>"
    if isinstance(error, Unauthorized):
        return notice_page("You are not logged in", f"{message}\n{_LOG_IN}", status=error.status, headers=headers)
    body = f'{message}{hint}\n<p><a href="/">To the runs</a></p>'
    heading = _HEADINGS.get(error.status, "This did not work")
    return notice_page(heading, body, status=error.status, headers=headers)


def is_cross_site_navigation(scope: Scope) -> bool:
    """Return whether the user followed a link on another site, in which case the browser withholds the cookie."""
    headers = Headers(scope=scope)
    return headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-site") in ("cross-site", "same-site")


def same_site_refresh(scope: Scope) -> HTMLResponse:
    """Return a page that makes the browser request the same address again, now from this site and with the cookie.

    The second request is not cross-site, so this happens once.
    """
    query = scope["query_string"].decode("latin-1")
    # Two slashes at the start would mean the name of another server.
    path = "/" + quote(scope["path"].lstrip("/"), safe="/:@!$&'()*+,=~")
    target = f"{path}?{query}" if query else path
    headers = {"Refresh": f"0; url={target}"}
    return notice_page("One moment", f'<p><a href="{escape(target)}">To the page</a></p>', headers=headers)


def render_inline_code(text: str) -> str:
    """Escape text for HTML, with parts between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


Schema = dict[str, Any]
Document = dict[str, Any]


def render_api_docs(document: Document) -> str:
    """Render the API reference from the OpenAPI document, as the body of a page."""
    info = document["info"]
    parts = [
        f"<h1>{escape(info['title'])}</h1>",
        f'<p>Version {escape(info["version"])}. For programs: <a href="/api/openapi.json">OpenAPI</a>.</p>',
        f"<p>{render_inline_code(info.get('description', ''))}</p>",
        "<h2>Operations</h2>",
        *_operations(document),
        "<h2>Schemas</h2>",
        *(_schema(name, schema) for name, schema in document["components"]["schemas"].items()),
    ]
    return "\n".join(parts)


def _operations(document: Document) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
            yield f"<p>{render_inline_code(operation.get('description', ''))}</p>"
            yield from _parameters(operation)
            yield from _body(operation)
            yield from _responses(operation)


def _parameters(operation: Document) -> Iterator[str]:
    if operation.get("parameters"):
        yield _table(
            ("parameter", "in", "type", "meaning"),
            (
                (
                    _code(parameter["name"]),
                    escape(parameter["in"]) + (", required" if parameter.get("required") else ""),
                    _type(parameter["schema"]),
                    render_inline_code(parameter.get("description") or parameter["schema"].get("description", "")),
                )
                for parameter in operation["parameters"]
            ),
        )


def _body(operation: Document) -> Iterator[str]:
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: {_code(media_type)}, {_type(content['schema'])}</p>"


def _responses(operation: Document) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    for status, response in operation["responses"].items():
        description = render_inline_code(response["description"])
        for media_type, content in response.get("content", {}).items():
            rows.append((_code(status), _code(media_type), _type(content["schema"]), description))
    yield _table(("status", "media type", "schema", "meaning"), rows)


def _schema(name: str, schema: Schema) -> str:
    description = render_inline_code(schema.get("description", ""))
    heading = f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3>\n<p>{description}</p>'
    fields: dict[str, Schema] = schema.get("properties", {})
    rows = (
        (_code(name), _type(field), render_inline_code(field.get("description", ""))) for name, field in fields.items()
    )
    return heading + "\n" + _table(("field", "type", "meaning"), rows)


def _type(schema: Schema) -> str:
    """Describe the type of a value in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#{name}">{name}</a>'
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(_type(option) for option in schema[choice]) + _bounds(schema)
    if "enum" in schema:
        return " | ".join(_code(str(value)) for value in schema["enum"]) + _bounds(schema)
    if "const" in schema:
        return _code(str(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any"))) + _bounds(schema)


def _bounds(schema: Schema) -> str:
    bounds: list[str] = []
    if "minimum" in schema and "maximum" in schema:
        bounds.append(f"{schema['minimum']} to {schema['maximum']}")
    if schema.get("default") not in (None, ""):
        bounds.append(f"default {schema['default']}")
    return escape("".join(f", {bound}" for bound in bounds))


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"
