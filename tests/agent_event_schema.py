"""The agent events that the installed `shopfloor` prints, checked against a schema that was written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

_SCHEMA = json.loads((Path(__file__).parent / "agent_events.schema.json").read_text())
_VALIDATORS = {one["properties"]["type"]["const"]: Draft202012Validator(one) for one in _SCHEMA["oneOf"]}
AGENT_EVENT_TYPES = frozenset(_VALIDATORS)


def checked_events(output: str) -> list[dict[str, Any]]:
    """Return the events of `shopfloor events RUN --json`, each of which must match the schema of its type."""
    events: list[dict[str, Any]] = [json.loads(line) for line in output.split("\n")[:-1]]
    for event in events:
        contract = {name: event[name] for name in ("type", "payload", "timestamp")}
        _VALIDATORS[event["type"]].validate(contract)
    return events


def payloads(events: list[dict[str, Any]], event_type: str) -> list[dict[str, Any]]:
    return [event["payload"] for event in events if event["type"] == event_type]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("agent.") for event in events]
