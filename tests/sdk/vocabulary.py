"""Checks whether the TypeScript SDK accepts an event, an error body or a result, based on `workers_vocabulary.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final, cast

VOCABULARY: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("workers_vocabulary.toml").read_text())
EVENTS: Final[dict[str, dict[str, str]]] = VOCABULARY["events"]
ERROR_TYPES: Final[frozenset[str]] = frozenset(VOCABULARY["enums"]["error_type"])


def event_faults(event: dict[str, Any]) -> list[str]:
    """Return the reasons why a client would drop this event; none if it accepts the event."""
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in EVENTS:
        return [f"type: {kind!r} is not known to every version"]
    return [f"{kind}.{fault}" for fault in _faults(event, EVENTS[kind])]


def shape_faults(value: Any, shape: str) -> list[str]:
    """Return the reasons why a value does not match a schema."""
    return _faults(value, VOCABULARY["shapes"][shape])


def http_message(body: Any) -> str | None:
    """Return the message that the client reads in the body of an error, or None if it reads none."""
    return None if shape_faults(body, "http_error") else body.get("error", body.get("message"))


def http_error_type(status: int) -> str:
    """Return the error type that the client assigns to a status."""
    other = "internal_error" if status >= 500 else "unknown_error"
    return VOCABULARY["http"]["error_types"].get(str(status), other)


def _faults(value: Any, fields: dict[str, str]) -> list[str]:
    if not isinstance(value, dict):
        return [f"is no object: {value!r}"]
    present = cast("dict[str, Any]", value)
    faults: list[str] = []
    for name, kind in fields.items():
        if name in present:
            faults += [f"{name} {fault}" for fault in _kind_faults(present[name], kind.removesuffix("?"))]
        elif not kind.endswith("?"):
            faults.append(f"{name} is missing")
    return faults


def _kind_faults(value: Any, kind: str) -> list[str]:
    word, _, name = kind.partition(" ")
    match word:
        case "any":
            fits = True
        case "string":
            fits = isinstance(value, str)
        case "boolean":
            fits = isinstance(value, bool)
        case "number":
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        case "object":
            fits = isinstance(value, dict)
        case "enum":
            fits = value in VOCABULARY["enums"][name]
        case "shape":
            return shape_faults(value, name)
        case "list" if isinstance(value, list):
            return [fault for one in cast("list[Any]", value) for fault in shape_faults(one, name)]
        case "list":
            fits = False
        case _:
            raise AssertionError(f"the vocabulary has an unknown type: {kind}")
    return [] if fits else [f"is {value!r}, not {kind}"]
