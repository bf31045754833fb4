"""The JSON Schema of a log line, generated from the types."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from shopfloor.log.events import TIMESTAMP, UUID4
from shopfloor.log.payloads import PAYLOAD_TYPES

_REF: Final = "#/$defs/{name}"
_UUID: Final = {"type": "string", "pattern": f"^{UUID4.pattern}$"}


def event_schema() -> dict[str, Any]:
    """Return the JSON Schema of every line that this version writes."""
    names, defs = msgspec.json.schema_components(PAYLOAD_TYPES.values(), ref_template=_REF)
    payloads = dict(zip(PAYLOAD_TYPES, names, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Shopfloor transcript event",
        "description": "One line of <storage>/transcripts/<run-id>.jsonl.",
        "type": "object",
        "properties": {
            "seq": {"type": "integer", "minimum": 1, "description": "From 1, without gaps."},
            "run_id": _UUID,
            "parent_run_id": {**_UUID, "description": "On every event of a sub-run; left out elsewhere."},
            "child_run_id": {**_UUID, "description": "On step.call_workflow events; left out elsewhere."},
            "type": {"enum": list(PAYLOAD_TYPES)},
            "path": {"type": "string", "description": "The step, dot-separated; empty at run level."},
            "iteration": {"type": "integer", "minimum": 0, "description": "Of the innermost loop."},
            "timestamp": {"type": "string", "pattern": f"^{TIMESTAMP.pattern}$"},
            "payload": {"type": "object"},
        },
        "required": ["seq", "run_id", "type", "path", "iteration", "timestamp", "payload"],
        "oneOf": [_variant(event_type, payload) for event_type, payload in payloads.items()],
        "$defs": dict(defs),
    }


def _variant(event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {"type": {"const": event_type}, "payload": payload}
    if event_type.startswith("run."):
        properties["path"] = {"const": ""}
    if event_type.startswith("step."):
        properties["path"] = {"minLength": 1}
    if event_type.startswith("step.call_workflow."):
        return {"properties": properties, "required": ["child_run_id"]}
    return {"properties": {**properties, "child_run_id": False}}
