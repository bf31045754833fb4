"""docs/reference/api.md: the HTTP API, from the server's OpenAPI description."""

from __future__ import annotations

from typing import Any, cast

from shopfloor.adapters.bus import InProcessBus
from shopfloor.adapters.memory import (
    MemoryLogFeed,
    MemoryLogReader,
    MemoryStorage,
    MemoryStore,
    MemoryTokens,
    MemoryWatchers,
)
from shopfloor.engine import Ingest
from shopfloor.server import AccessControl, Services, create_app

_INTRO = """# HTTP API

Generated from the server's own description by `make docs`; a running server has it at `/api/docs`, and as OpenAPI at
`/api/openapi.json`. Every path requires `Authorization: Bearer <token>` or the cookie that the login link sets. Errors
are `{"error": {"code", "message", "hint"}}`, except for `execute`, whose clients expect `{"error", "code", "hint"}`;
[the codes](errors.md)."""


def api_page() -> str:
    api = openapi_description()
    schemas = cast("dict[str, Any]", api["components"]["schemas"])
    parts = [_INTRO]
    for path, methods in cast("dict[str, Any]", api["paths"]).items():
        parts += [_operation(path, method, operation) for method, operation in methods.items()]
    parts.append("## Shapes")
    parts += [_shape(name, schema) for name, schema in sorted(schemas.items()) if schema.get("properties")]
    return "\n\n".join(parts) + "\n"


def openapi_description() -> dict[str, Any]:
    """Return the server's OpenAPI description."""
    return _app().state.openapi()


def _app() -> Any:
    """Return an app that is only described and never serves a request."""
    storage, store, bus = MemoryStorage(), MemoryStore(), InProcessBus()
    services = Services(
        store=store,
        logs=MemoryLogReader(storage, bus),
        changes=Ingest(MemoryLogFeed(storage), store, bus),
        access=AccessControl(MemoryTokens()),
        watchers=MemoryWatchers(),
        version="0",
    )
    return create_app(services)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    lines = [f"## `{method.upper()} {path}`", "", operation.get("description") or operation.get("summary", "")]
    parameters = cast("list[dict[str, Any]]", operation.get("parameters", []))
    if parameters:
        lines += ["", "| parameter | in | type | default | meaning |", "|---|---|---|---|---|"]
        lines += [_parameter(parameter) for parameter in parameters]
    body = operation.get("requestBody")
    if body:
        lines += ["", f"Body: {_type(body['content']['application/json']['schema'])}."]
    answer = operation["responses"]["200"]
    content = cast("dict[str, Any]", answer.get("content", {}))
    kind = next(iter(content), "")
    shape = f": {_type(content[kind]['schema'])}" if kind == "application/json" else f" (`{kind}`)" if kind else ""
    lines += ["", f"Response{shape}. {answer.get('description', '')}"]
    return "\n".join(lines)


def _parameter(parameter: dict[str, Any]) -> str:
    schema = cast("dict[str, Any]", parameter["schema"])
    default = f"`{schema['default']}`" if schema.get("default") not in (None, "") else ""
    meaning = parameter.get("description", "")
    return f"| `{parameter['name']}` | {parameter['in']} | {_type(schema)} | {default} | {meaning} |"


def _shape(name: str, schema: dict[str, Any]) -> str:
    lines = [f"### {name}", "", schema.get("description", ""), "", "| field | type |", "|---|---|"]
    properties = cast("dict[str, Any]", schema["properties"])
    lines += [f"| `{field}` | {_type(schema)} |" for field, schema in properties.items()]
    return "\n".join(line for number, line in enumerate(lines) if line or number != 2)  # noqa: PLR2004 - no description


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = str(schema["$ref"]).rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
