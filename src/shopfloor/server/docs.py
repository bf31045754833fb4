"""The description of the API as HTML: rendered here, so that reading it takes no script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from shopfloor.server.html import prose as _prose

Schema = dict[str, Any]
Described = dict[str, Any]


def description_page(described: Described) -> str:
    """The body of the page, from the OpenAPI document."""
    info = described["info"]
    parts = [
        f"<h1>{escape(info['title'])}</h1>",
        f'<p>Version {escape(info["version"])}. For programs: <a href="/api/openapi.json">OpenAPI</a>.</p>',
        f"<p>{_prose(info.get('description', ''))}</p>",
        "<h2>Addresses</h2>",
        *_operations(described),
        "<h2>Shapes</h2>",
        *(_shape(name, schema) for name, schema in described["components"]["schemas"].items()),
    ]
    return "\n".join(parts)


def _operations(described: Described) -> Iterator[str]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
            yield f"<p>{_prose(operation.get('description', ''))}</p>"
            yield from _parameters(operation)
            yield from _body(operation)
            yield from _answers(operation)


def _parameters(operation: Described) -> Iterator[str]:
    if operation.get("parameters"):
        yield _table(
            ("parameter", "in", "what it may be", "meaning"),
            (
                (
                    _code(one["name"]),
                    escape(one["in"]) + (", required" if one.get("required") else ""),
                    _kind(one["schema"]),
                    _prose(one.get("description") or one["schema"].get("description", "")),
                )
                for one in operation["parameters"]
            ),
        )


def _body(operation: Described) -> Iterator[str]:
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"<p>Body: {_code(media_type)}, {_kind(content['schema'])}</p>"


def _answers(operation: Described) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    for status, answer in operation["responses"].items():
        for media_type, content in answer.get("content", {}).items():
            rows.append((_code(status), _code(media_type), _kind(content["schema"]), _prose(answer["description"])))
    yield _table(("answer", "as", "shape", "meaning"), rows)


def _shape(name: str, schema: Schema) -> str:
    heading = (
        f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3>\n<p>{_prose(schema.get("description", ""))}</p>'
    )
    fields: dict[str, Schema] = schema.get("properties", {})
    rows = ((_code(field), _kind(kind), _prose(kind.get("description", ""))) for field, kind in fields.items())
    return heading + "\n" + _table(("field", "what it is", "meaning"), rows)


def _kind(schema: Schema) -> str:
    """What a value may be, in a few words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rsplit("/", 1)[1])
        return f'<a href="#{name}">{name}</a>'
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(_kind(one) for one in schema[choice]) + _bounds(schema)
    if "enum" in schema:
        return " | ".join(_code(str(value)) for value in schema["enum"]) + _bounds(schema)
    if "const" in schema:
        return _code(str(schema["const"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return escape(str(schema.get("type", "any"))) + _bounds(schema)


def _bounds(schema: Schema) -> str:
    said: list[str] = []
    if "minimum" in schema and "maximum" in schema:
        said.append(f"{schema['minimum']} to {schema['maximum']}")
    if schema.get("default") not in (None, ""):
        said.append(f"by default {schema['default']}")
    return escape("".join(f", {one}" for one in said))


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"
