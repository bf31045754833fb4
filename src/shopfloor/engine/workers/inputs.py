"""Validation of a run's input against the inputs of its worker."""

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
_VALUE_CHARS = 40
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def is_required(field: InputField) -> bool:
    """Return whether a value must be given."""
    return not field.optional and field.default is None


def validate_input(definition: Definition, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each input: the given one, else the default, else None for an optional input.

    Raises `InvalidInput` with all problems at once.
    """
    if problems := [reason for _, reason in input_problems(definition, values)]:
        raise _invalid_input(definition, problems)
    validated: dict[str, Any] = {}
    for name, field in definition.input.items():
        value = values.get(name)
        if value is None:
            validated[name] = field.default
        else:
            validated[name] = _to_integer(value) if field.type == "integer" else value
    return validated


def input_problems(
    definition: Definition, values: Mapping[str, Any], *, unknown: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Yield the name of each invalid input and the problem. Inputs in `unknown` are assumed to have valid values."""
    for name, field in definition.input.items():
        value = values.get(name)
        if name in unknown:
            continue
        if value is not None:
            if problem := type_problem(value, field.type) or _choice_problem(value, field):
                yield name, f"`{name}` {problem}"
        elif is_required(field):
            yield name, f"`{name}` is missing; it {_expected(field)}"
    for name in values:
        if name not in definition.input:
            yield name, f"`{name}` is not an input of this worker; {did_you_mean(name, definition.input)}"


def type_problem(value: Any, wanted: InputType) -> str | None:
    """Return what is wrong with a value as the end of a sentence, or None if it has this type."""
    match wanted:
        case "string":
            fits = isinstance(value, str)
        case "number":
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        case "integer":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            fits = is_whole and not isinstance(value, bool)
        case "boolean":
            fits = isinstance(value, bool)
        case "array":
            fits = isinstance(value, list)
        case "object":
            fits = isinstance(value, dict)
        case "any":
            fits = True
    return None if fits else f"must be {_WORDS[wanted]}, got {_format_value(value)}"


def input_schema(definition: Definition) -> dict[str, Any]:
    """Return the JSON Schema of a worker's input."""
    properties: dict[str, Any] = {}
    for name, field in definition.input.items():
        schema = {"type": field.type if field.type != "any" else None, "description": field.description}
        properties[name] = {key: value for key, value in schema.items() if value is not None}
        if field.choices:
            properties[name]["enum"] = field.choices
        if field.default is not None:
            properties[name]["default"] = field.default
    required = [name for name, field in definition.input.items() if is_required(field)]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def parse_input_arguments(definition: Definition, arguments: Iterable[str]) -> dict[str, Any]:
    """Parse inputs from the command line: `NAME=value`, or `NAME=@file` for the content of a file.

    `@@` is a literal @. Each value is converted to the type of its input; lists and objects are JSON. Unknown inputs
    stay text, so that `validate_input` reports them.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    for argument in arguments:
        name, equals, text = argument.partition("=")
        if not name:
            problems.append(f"`-i {argument}` has no name: write -i NAME=VALUE")
        elif not equals:
            problems.append(f"`-i {name}` has no value: write -i {name}=VALUE")
        elif name in values:
            problems.append(f"`{name}` is given twice")
        else:
            field = definition.input.get(name, InputField())
            try:
                values[name] = _convert(_read_text(text), field.type)
            except ValueError as error:
                problems.append(f"`{name}` {error}")
                values[name] = None
    if problems:
        raise _invalid_input(definition, problems)
    return values


def _read_text(text: str) -> str:
    if text.startswith("@@") or not text.startswith("@"):
        return text.removeprefix("@") if text.startswith("@@") else text
    path = Path(text[1:])
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"cannot be read from {path}: not UTF-8 text") from None
    except (OSError, RuntimeError) as error:
        raise ValueError(f"cannot be read from {path}: {getattr(error, 'strerror', None) or error}") from None


def _convert(text: str, wanted: InputType) -> Any:
    match wanted:
        case "string":
            return text
        case "boolean":
            word = text.strip().lower()
            if word not in _TRUE | _FALSE:
                raise ValueError(f"must be true or false, got {_format_value(text)}")
            return word in _TRUE
        case "any":
            try:
                return _parse_json(text)
            except ValueError:
                return text
        case _:
            try:
                value = _parse_json(text)
            except ValueError:
                as_json = " (as JSON)" if wanted in ("array", "object") else ""
                raise ValueError(f"must be {_WORDS[wanted]}{as_json}, got {_format_value(text)}") from None
            if problem := type_problem(value, wanted):
                raise ValueError(problem)
            return value


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except RecursionError:
        raise ValueError("is nested too deep") from None


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def _to_integer(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _choice_problem(value: Any, field: InputField) -> str | None:
    """Return why the value is not one of the choices of the input; None if it is, or if there are none."""
    choices = field.choices
    # In Python 1 == True; in JSON they differ.
    if not choices or any(
        value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in choices
    ):
        return None
    return f"must be one of {', '.join(map(_format_value, choices))}, got {_format_value(value)}"


def _expected(field: InputField) -> str:
    verb = "can" if field.type == "any" else "must"
    return f"{verb} be {_WORDS[field.type]}" + (f" ({field.description.strip()})" if field.description else "")


def _format_value(value: Any) -> str:
    match value:
        case str():
            return repr(value if len(value) <= _VALUE_CHARS else f"{value[:_VALUE_CHARS]}…")
        case list():
            return f"a list of {len(cast('list[Any]', value))}"
        case dict():
            return "an object"
        case _:
            return json.dumps(value, default=str)


def _invalid_input(definition: Definition, problems: list[str]) -> InvalidInput:
    return InvalidInput(
        f"invalid input for the worker `{definition.slug}`: {'; '.join(problems)}",
        hint=f"run `shopfloor workers show {definition.slug}` to see its inputs; -i NAME=VALUE sets one",
    )
