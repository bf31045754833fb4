"""The TypeScript types of the page, from the server's OpenAPI description and the schema of events."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec

from shopfloor.log import PAYLOAD_TYPES, Delta
from tools.docs_api import openapi_description

_REF = "#/components/schemas/{name}"
_HEAD = "// Made by `make types` from the server's own description; a test fails when it is stale.\n"
_EVENT = "LogEvent"
_OPTIONS = ("--default-non-nullable=false", "--empty-objects-unknown")


def write_types(target: Path, npm: Callable[..., None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        description, made = Path(folder) / "openapi.json", Path(folder) / "schema.d.ts"
        description.write_text(json.dumps(page_description()))
        npm("exec", "--", "openapi-typescript", str(description), "-o", str(made), *_OPTIONS)
        target.write_text(_HEAD + made.read_text())


def page_description() -> dict[str, Any]:
    """Return the API's description, with the schemas of the events that some responses contain."""
    api = openapi_description()
    schemas = cast("dict[str, Any]", api["components"]["schemas"])
    names, parts = msgspec.json.schema_components((*PAYLOAD_TYPES.values(), Delta), ref_template=_REF)
    events = {
        name.replace(".", "_"): _event(name, payload) for name, payload in zip(PAYLOAD_TYPES, names, strict=False)
    }
    whole = {_EVENT: {"oneOf": [{"$ref": _REF.format(name=name)} for name in events]}}
    for group in (parts, events, whole):
        if twice := schemas.keys() & group.keys():
            raise ValueError(f"two schemas have the same name: {sorted(twice)}")
        schemas.update(group)
    for field in ("events", "later"):
        schemas["LogPage"]["properties"][field]["items"] = {"$ref": _REF.format(name=_EVENT)}
    return api


def _event(event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "properties": {
            "seq": {"type": "integer"},
            "run_id": text,
            "parent_run_id": text,
            "child_run_id": text,
            "type": {"const": event_type},
            "path": text,
            "iteration": {"type": "integer"},
            "timestamp": text,
            "payload": payload,
            "cut": {"type": "integer", "description": "The bytes of the whole event, where this one was shortened."},
        },
        "required": ["seq", "run_id", "type", "path", "iteration", "timestamp", "payload"],
    }
