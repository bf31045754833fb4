"""The input of a worker for a task that is one text, as the main agent and `worker/dispatch` send it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from shopfloor.errors import InvalidInput

_TASK_NAMES: Final = ("task", "prompt")
"""The names that decide between several text inputs: those of plugins and of provider workers."""


def input_from_task(task: str, worker: str, input_schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input that has the task in the one text input of a worker with this JSON Schema.

    The text input is the required one, or the only one if none is required; among several it is the one named `task`
    or `prompt`. Raises `InvalidInput`, which names the inputs, if there is no such input.
    """
    properties = cast("Mapping[str, Mapping[str, Any]]", input_schema.get("properties", {}))
    required = cast("list[str]", input_schema.get("required", []))
    texts = [name for name, schema in properties.items() if schema.get("type", "string") == "string"]
    candidates = [name for name in texts if name in required] or texts
    if len(candidates) > 1:
        candidates = [name for name in _TASK_NAMES if name in candidates][:1]
    if not candidates:
        raise InvalidInput(
            f"the worker `{worker}` has no single text input",
            hint=f"send `input` instead, an object with: {describe_inputs(input_schema)}",
        )
    return {candidates[0]: task}


def describe_inputs(input_schema: Mapping[str, Any]) -> str:
    """Return the inputs of a worker in one line: `NAME (string, required), COUNT (integer)`; `no inputs` if none."""
    properties = cast("Mapping[str, Mapping[str, Any]]", input_schema.get("properties", {}))
    required = cast("Iterable[str]", input_schema.get("required", []))
    inputs = [
        f"{name} ({schema.get('type', 'any')}{', required' if name in required else ''})"
        for name, schema in properties.items()
    ]
    return ", ".join(inputs) or "no inputs"
