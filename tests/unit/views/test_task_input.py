"""The input that a task in one text becomes."""

from __future__ import annotations

from typing import Any

import pytest

from shopfloor.errors import InvalidInput
from shopfloor.views import input_from_task


def schema(required: tuple[str, ...] = (), **types: str) -> dict[str, Any]:
    properties = {name: {} if kind == "any" else {"type": kind} for name, kind in types.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


def test_task_becomes_the_prompt_of_a_provider_worker() -> None:
    provider = schema(("prompt",), prompt="string", model="string", resume="string", read_only="boolean")
    assert input_from_task("fix it", "codex", provider) == {"prompt": "fix it"}


def test_task_becomes_the_task_of_a_plugin_worker() -> None:
    plugin = schema(("description", "task"), description="string", task="string", config="object")
    assert input_from_task("look into tea", "researcher", plugin) == {"task": "look into tea"}


def test_task_becomes_the_required_text_input() -> None:
    worker = schema(("TOPIC",), TOPIC="string", STYLE="string", COUNT="integer")
    assert input_from_task("tea", "writer", worker) == {"TOPIC": "tea"}


def test_task_becomes_the_only_text_input_if_none_is_required() -> None:
    assert input_from_task("Ada", "hello", schema(NAME="string", COUNT="integer")) == {"NAME": "Ada"}


def test_an_input_of_any_type_takes_text() -> None:
    assert input_from_task("x", "any", schema(("VALUE",), VALUE="any", COUNT="integer")) == {"VALUE": "x"}


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        (schema(("FROM", "TO"), FROM="string", TO="string"), "FROM (string, required), TO (string, required)"),
        (schema(("COUNT",), COUNT="integer"), "COUNT (integer, required)"),
        (schema(A="string", B="string"), "A (string), B (string)"),
        (schema(), "no inputs"),
    ],
)
def test_a_worker_without_one_text_input_is_refused_with_the_names_of_its_inputs(
    inputs: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        input_from_task("tea", "form", inputs)
    assert "`form`" in caught.value.message
    assert caught.value.hint is not None
    assert named in caught.value.hint
