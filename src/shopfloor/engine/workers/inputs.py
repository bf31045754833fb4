"""What a run is given, held against what its worker takes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from shopfloor.engine.workers.definition import Definition, InputField, InputType
from shopfloor.engine.workers.problems import did_you_mean
from shopfloor.errors import InvalidInput

_WORDS: dict[InputType, str] = {
    "string": "text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "any": "any value",
}
_SHOWN_CHARS = 40
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def is_required(field: InputField) -> bool:
    return not field.optional and field.default is None


def validate_input(definition: Definition, given: Mapping[str, Any]) -> dict[str, Any]:
    """The value of each input: what was given, or else its default, or else None where it is optional.

    Raises `InvalidInput`, which says all that is wrong at once.
    """
    if problems := [reason for _, reason in input_problems(definition, given)]:
        raise _invalid(definition, problems)
    values: dict[str, Any] = {}
    for name, field in definition.input.items():
        value = given.get(name)
        if value is None:
            values[name] = field.default
        else:
            values[name] = _whole(value) if field.type == "integer" else value
    return values


def input_problems(
    definition: Definition, given: Mapping[str, Any], *, unknown: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """The names of inputs and what is wrong with each. The values of `unknown` ones are taken to fit."""
    for name, field in definition.input.items():
        value = given.get(name)
        if name in unknown:
            continue
        if value is not None:
            if problem := type_problem(value, field.type):
                yield name, f"`{name}` {problem}"
        elif is_required(field):
            yield name, f"`{name}` is missing: {_expected(field)}"
    for name in given:
        if name not in definition.input:
            yield name, f"`{name}` is nothing that it takes; {did_you_mean(name, definition.input)}"


def type_problem(value: Any, wanted: InputType) -> str | None:
    """What is wrong with a value of this type, as the end of a sentence."""
    match wanted:
        case "string":
            fits = isinstance(value, str)
        case "number":
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            fits = whole and not isinstance(value, bool)
        case "boolean":
            fits = isinstance(value, bool)
        case "array":
            fits = isinstance(value, list)
        case "object":
            fits = isinstance(value, dict)
        case "any":
            fits = True
    return None if fits else f"is to be {_WORDS[wanted]}, not {_shown(value)}"


def input_schema(definition: Definition) -> dict[str, Any]:
    """JSON Schema of what it takes."""
    properties: dict[str, Any] = {}
    for name, field in definition.input.items():
        said = {"type": field.type if field.type != "any" else None, "description": field.description}
        properties[name] = {key: value for key, value in said.items() if value is not None}
        if field.default is not None:
            properties[name]["default"] = field.default
    required = [name for name, field in definition.input.items() if is_required(field)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def parse_input_arguments(definition: Definition, words: Iterable[str]) -> dict[str, Any]:
    """Inputs as somebody types them: `NAME=value`, or `NAME=@file` for what is in a file (`@@` for an @ itself).

    Each becomes what its type says; lists and objects are JSON. What the worker does not take stays text, for
    `validate_input` to speak of.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    for word in words:
        name, equals, said = word.partition("=")
        if not equals or not name:
            problems.append(f"`{word}` is not NAME=value")
        elif name in values:
            problems.append(f"`{name}` is given twice")
        else:
            field = definition.input.get(name, InputField())
            try:
                values[name] = _coerced(_read(said), field.type)
            except ValueError as error:
                problems.append(f"`{name}` {error}")
                values[name] = None
    if problems:
        raise _invalid(definition, problems)
    return values


def _read(said: str) -> str:
    if said.startswith("@@") or not said.startswith("@"):
        return said.removeprefix("@") if said.startswith("@@") else said
    path = Path(said[1:])
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"is to be read from {path}, which is no UTF-8 text") from None
    except (OSError, RuntimeError) as error:
        raise ValueError(f"cannot be read from {path}: {getattr(error, 'strerror', None) or error}") from None


def _coerced(text: str, wanted: InputType) -> Any:
    match wanted:
        case "string":
            return text
        case "boolean":
            word = text.strip().lower()
            if word not in _TRUE | _FALSE:
                raise ValueError(f"is to be true or false, not {_shown(text)}")
            return word in _TRUE
        case "any":
            try:
                return _json(text)
            except ValueError:
                return text
        case _:
            try:
                value = _json(text)
            except ValueError:
                json_too = " (as JSON)" if wanted in ("array", "object") else ""
                raise ValueError(f"is to be {_WORDS[wanted]}{json_too}, not {_shown(text)}") from None
            if problem := type_problem(value, wanted):
                raise ValueError(problem)
            return value


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("is nested too deep") from None


def _no_number(said: str) -> Any:
    raise ValueError(f"{said} is no number that JSON knows")


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _expected(field: InputField) -> str:
    return _WORDS[field.type] + (f" ({field.description.strip()})" if field.description else "")


def _shown(value: Any) -> str:
    match value:
        case str():
            return repr(value if len(value) <= _SHOWN_CHARS else f"{value[:_SHOWN_CHARS]}…")
        case list():
            return f"a list of {len(cast('list[Any]', value))}"
        case dict():
            return "an object"
        case _:
            return json.dumps(value, default=str)


def _invalid(definition: Definition, problems: list[str]) -> InvalidInput:
    return InvalidInput(
        f"the input does not fit `{definition.slug}`: {'; '.join(problems)}",
        hint=f"`shopfloor workers show {definition.slug}` says what it takes",
    )
