"""Templates: filling `{{NAME}}` and `{{NAME.field.0}}` with values. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from shopfloor.engine.workers.definition import Condition, Definition
from shopfloor.engine.workers.problems import did_you_mean
from shopfloor.engine.workers.shell import (
    NUMBER,
    PlaceholderSlot,
    Rejection,
    find_placeholder_slots,
    new_variable_name,
    rejected_arguments,
    variable_reference,
)
from shopfloor.errors import StepFailed
from shopfloor.limits import ARGUMENT_BYTES

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
"""The form of a name."""
_PLACEHOLDER = re.compile(r"(?P<escape>\\?)\{\{[ \t]*(?P<path>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)[ \t]*\}\}")


_FIRST_NAME = re.compile(r"(?P<escape>\\?)\{\{[ \t]*(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?P<rest>[^{}\n]*)\}\}")
"""A name between braces, followed by any text."""


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    r"""Replace the placeholders of a template with values. A text that is one placeholder becomes the value itself.

    `\{{NAME}}` is an escape for the text `{{NAME}}`.
    """
    if isinstance(template, str):
        single = _PLACEHOLDER.fullmatch(template)
        if single and not single["escape"]:
            return _look_up(single["path"], values)
        return _PLACEHOLDER.sub(lambda found: _replacement(found, values), template)
    if isinstance(template, dict):
        return {key: fill(value, values) for key, value in cast("dict[str, Any]", template).items()}
    if isinstance(template, list):
        return [fill(value, values) for value in cast("list[Any]", template)]
    return template


def fill_text(template: str, values: Mapping[str, Any]) -> str:
    """Fill a template that must become text, such as a prompt."""
    return as_text(fill(template, values))


class ShellScript(msgspec.Struct, frozen=True):
    """A shell script, and the variables by which it refers to values."""

    text: str
    variables: dict[str, str]


def fill_shell(command: str, values: Mapping[str, Any]) -> ShellScript:
    """Put values into a shell command. Each value stays one word; no value becomes text of the script."""
    slots = _slots(command)
    variables: dict[str, str] = {}
    names: dict[str, str] = {}

    def replace(found: re.Match[str]) -> str:
        if found["escape"]:
            return found[0][1:]
        slot = slots[found.start()]
        if isinstance(slot, Rejection):
            raise StepFailed(f"`{found[0]}` {slot.reason}", hint=slot.hint)
        path = found["path"]
        if path not in names:
            names[path] = new_variable_name(path, variables)
            variables[names[path]] = as_argument(found[0], _look_up(path, values))
        if slot.is_number and not NUMBER.fullmatch(variables[names[path]]):
            shown = json.dumps(variables[names[path]][:80], ensure_ascii=False)
            raise StepFailed(f"the value of `{found[0]}` must be a number at this place, got {shown}")
        return variable_reference(names[path], slot.quotes)

    return ShellScript(_PLACEHOLDER.sub(replace, command), variables)


def fill_argv(argv: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Put values into a command that is executed without a shell: each part is one argument."""
    for problem in argv_problems(argv):
        raise StepFailed(problem)
    return [as_argument(f"argument {n}", fill(part, values)) for n, part in enumerate(argv)]


def as_argument(name: str, value: Any) -> str:
    """Convert a value to an argument of a program. Raises `StepFailed` if no program can take it."""
    text = as_text(value)
    if "\0" in text:
        raise StepFailed(f"the value of {name} contains a NUL character, which no command accepts")
    if len(text.encode()) > ARGUMENT_BYTES:
        raise StepFailed(
            f"the value of {name} is longer than {ARGUMENT_BYTES} bytes, which no command accepts",
            hint="write it to a file, or pass it on standard input",
        )
    return text


def argv_problems(argv: Sequence[str]) -> Iterator[str]:
    """Yield why a placeholder is not allowed, for each such part of a command without a shell."""
    parts = [(_PLACEHOLDER.sub("", part), any(True for _ in find_placeholders(part))) for part in argv]
    for index, rejection in rejected_arguments(parts).items():
        yield f"`{argv[index]}` {rejection.reason}; {rejection.hint}"


def shell_problems(command: str) -> Iterator[tuple[int, str]]:
    """Yield the offset of each placeholder that is not allowed in a shell command, and why."""
    matches = {match.start(): match for match in _PLACEHOLDER.finditer(command)}
    for start, slot in sorted(_slots(command).items()):
        if isinstance(slot, Rejection):
            yield start, f"`{matches[start][0]}` {slot.reason}; {slot.hint}"


def _slots(command: str) -> dict[int, PlaceholderSlot | Rejection]:
    return find_placeholder_slots(
        command, {found.start(): found.end() for found in _PLACEHOLDER.finditer(command) if not found["escape"]}
    )


def as_text(value: Any) -> str:
    """Return a text unchanged and any other value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def placeholders(template: Any) -> set[str]:
    """Return the names that a template refers to, without their fields."""
    if isinstance(template, str):
        return {name for _, name in find_placeholders(template)}
    if isinstance(template, dict):
        return {name for value in cast("dict[str, Any]", template).values() for name in placeholders(value)}
    if isinstance(template, list):
        return {name for value in cast("list[Any]", template) for name in placeholders(value)}
    return set()


def find_placeholders(text: str) -> Iterator[tuple[int, str]]:
    """Yield the names in a text, each with its offset."""
    for found in _PLACEHOLDER.finditer(text):
        if not found["escape"]:
            yield found.start(), found["path"].partition(".")[0]


def is_single_placeholder(template: Any) -> bool:
    """Return whether a template is a single placeholder, so that it becomes the value itself and not text."""
    single = _PLACEHOLDER.fullmatch(template) if isinstance(template, str) else None
    return single is not None and not single["escape"]


def invalid_placeholders(text: str, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield the offset of placeholders that are more than a name, and why: a filter, or an expression on a known name.

    Other braces are plain text, as in the templates of other tools.
    """
    for found in _FIRST_NAME.finditer(text):
        rest = found["rest"].strip()
        if found["escape"] or _PLACEHOLDER.fullmatch(found[0]):
            continue
        advice = (
            f"write `{{{{{found['name']}}}}}` or `{{{{{found['name']}.field}}}}`, or `\\{{{{` for the braces themselves"
        )
        if rest.startswith("|"):
            yield found.start(), f"`{found[0]}`: filters such as `{rest[1:].strip()}` are not supported; {advice}"
        elif found["name"] in names:
            yield found.start(), f"`{found[0]}` is an expression, not the name of a value; {advice}"


def evaluate_condition(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Return whether all comparisons of a condition are true; without comparisons, whether the value is true."""
    value = fill(condition.value, values)
    tests = [
        (test, fill(expected, values))
        for test, expected in (
            (_is_equal, condition.is_),
            (_is_different, condition.not_),
            (_is_less, condition.less),
            (_is_more, condition.more),
            (_contains, condition.contains),
            (_is_within, condition.within),
        )
        if expected is not msgspec.UNSET
    ]
    return all(test(value, expected) for test, expected in tests) if tests else bool(value)


def output_value(definition: Definition, values: Mapping[str, Any]) -> Any:
    """Return the output of a worker: the variable that `output` names, or `output` filled as a template."""
    output = definition.output
    if isinstance(output, str) and output in values:
        return values[output]
    return fill(output, values)


def _replacement(found: re.Match[str], values: Mapping[str, Any]) -> str:
    return found[0][1:] if found["escape"] else as_text(_look_up(found["path"], values))


def _look_up(path: str, values: Mapping[str, Any]) -> Any:
    name, *fields = path.split(".")
    if name not in values:
        raise StepFailed(f"`{{{{{path}}}}}`: there is no value `{name}`", hint=did_you_mean(name, values))
    value = values[name]
    for field in fields:
        match value:
            case dict() if field in value:
                value = cast("dict[str, Any]", value)[field]
            case list() if field.isdecimal() and int(field[:9]) < len(cast("list[Any]", value)):
                value = cast("list[Any]", value)[int(field[:9])]
            case dict():
                keys = cast("dict[str, Any]", value)
                raise StepFailed(f"`{{{{{path}}}}}`: there is no `{field}`", hint=did_you_mean(field, keys))
            case list():
                size = len(cast("list[Any]", value))
                raise StepFailed(f"`{{{{{path}}}}}`: there is no item {field} in a list of {size}")
            case _:
                raise StepFailed(f"`{{{{{path}}}}}`: there is no `{field}` in {as_text(value)[:80]}")
    return value


def _is_equal(value: Any, expected: Any) -> bool:
    # In Python, 1 == True.
    return isinstance(value, bool) == isinstance(expected, bool) and value == expected


def _is_different(value: Any, expected: Any) -> bool:
    return not _is_equal(value, expected)


def _is_less(value: Any, expected: Any) -> bool:
    left, right = _comparable(value, expected)
    return left < right


def _is_more(value: Any, expected: Any) -> bool:
    left, right = _comparable(value, expected)
    return left > right


def _contains(value: Any, expected: Any) -> bool:
    if isinstance(value, str):
        return as_text(expected) in value
    if isinstance(value, list | dict):
        return any(_is_equal(item, expected) for item in cast("list[Any] | dict[str, Any]", value))
    raise StepFailed(f"{as_text(value)[:80]} is not a text, list or object, so `contains` cannot be tested")


def _is_within(value: Any, expected: Any) -> bool:
    return any(_is_equal(value, item) for item in expected)


def _comparable(*pair: Any) -> tuple[Any, Any]:
    """Return both as texts or both as numbers, so that the output of a command can be compared with a number."""
    if all(isinstance(value, str) for value in pair):
        return pair[0], pair[1]
    try:
        left, right = (value if isinstance(value, int) else float(value) for value in pair)
    except (TypeError, ValueError):
        shown = " and ".join(as_text(value)[:80] for value in pair)
        raise StepFailed(f"{shown} cannot be compared") from None
    return left, right
