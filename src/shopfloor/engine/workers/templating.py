"""Values where a definition speaks of them: `{{NAME}}`, `{{NAME.field.0}}`. Pure."""

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
"""What a value may be called."""
_PLACEHOLDER = re.compile(r"(?P<kept>\\?)\{\{[ \t]*(?P<path>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)[ \t]*\}\}")


_FIRST_NAME = re.compile(r"(?P<kept>\\?)\{\{[ \t]*(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?P<rest>[^{}\n]*)\}\}")
"""Text between braces that begins with a name, whatever follows."""


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """The template with values in the place of their names; a text that is one name alone becomes the value itself.

    `\\{{NAME}}` stays as `{{NAME}}`.
    """
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole and not whole["kept"]:
            return _looked_up(whole["path"], values)
        return _PLACEHOLDER.sub(lambda found: _text_for(found, values), template)
    if isinstance(template, dict):
        return {key: fill(value, values) for key, value in cast("dict[str, Any]", template).items()}
    if isinstance(template, list):
        return [fill(value, values) for value in cast("list[Any]", template)]
    return template


def fill_text(template: str, values: Mapping[str, Any]) -> str:
    """The same where only text will do, as for a prompt."""
    return as_text(fill(template, values))


class ShellScript(msgspec.Struct, frozen=True):
    """A shell script, and the variables by which it refers to values."""

    text: str
    variables: dict[str, str]


def fill_shell(command: str, values: Mapping[str, Any]) -> ShellScript:
    """Put values into a shell command. Each stays one word whatever it holds; none becomes text of the script."""
    slots = _slots(command)
    variables: dict[str, str] = {}
    names: dict[str, str] = {}

    def put(found: re.Match[str]) -> str:
        if found["kept"]:
            return found[0][1:]
        slot = slots[found.start()]
        if isinstance(slot, Rejection):
            raise StepFailed(f"`{found[0]}` {slot.why}", hint=slot.hint)
        path = found["path"]
        if path not in names:
            names[path] = new_variable_name(path, variables)
            variables[names[path]] = as_argument(found[0], _looked_up(path, values))
        if slot.is_number and not NUMBER.fullmatch(variables[names[path]]):
            shown = json.dumps(variables[names[path]][:80], ensure_ascii=False)
            raise StepFailed(f"the value of `{found[0]}` must be a number where it stands, got {shown}")
        return variable_reference(names[path], slot.quotes)

    return ShellScript(_PLACEHOLDER.sub(put, command), variables)


def fill_argv(argv: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Put values into a command that is executed without a shell: each part is one argument."""
    for problem in argv_problems(argv):
        raise StepFailed(problem)
    return [as_argument(f"argument {n}", fill(part, values)) for n, part in enumerate(argv)]


def as_argument(name: str, value: Any) -> str:
    """A value as a program can take it. Raises StepFailed for what no program can be given."""
    text = as_text(value)
    if "\0" in text:
        raise StepFailed(f"the value of {name} has a NUL in it, which no command can take")
    if len(text.encode()) > ARGUMENT_BYTES:
        raise StepFailed(
            f"the value of {name} is longer than {ARGUMENT_BYTES} bytes, which no command can take",
            hint="write it to a file, or pass it on standard input",
        )
    return text


def argv_problems(argv: Sequence[str]) -> Iterator[str]:
    """Find the parts of a command without a shell where no value may stand, and say why."""
    parts = [(_PLACEHOLDER.sub("", part), any(True for _ in find_placeholders(part))) for part in argv]
    for at, refused in rejected_arguments(parts).items():
        yield f"`{argv[at]}` {refused.why}; {refused.hint}"


def shell_problems(command: str) -> Iterator[tuple[int, str]]:
    """Find the places of a command where no value may stand: their offset, and why."""
    found = {match.start(): match for match in _found(command)}
    for start, slot in sorted(_slots(command).items()):
        if isinstance(slot, Rejection):
            yield start, f"`{found[start][0]}` {slot.why}; {slot.hint}"


def _slots(command: str) -> dict[int, PlaceholderSlot | Rejection]:
    return find_placeholder_slots(
        command, {found.start(): found.end() for found in _found(command) if not found["kept"]}
    )


def as_text(value: Any) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def placeholders(template: Any) -> set[str]:
    """The names that it speaks of, without their fields."""
    if isinstance(template, str):
        return {name for _, name in find_placeholders(template)}
    if isinstance(template, dict):
        return {name for value in cast("dict[str, Any]", template).values() for name in placeholders(value)}
    if isinstance(template, list):
        return {name for value in cast("list[Any]", template) for name in placeholders(value)}
    return set()


def find_placeholders(text: str) -> Iterator[tuple[int, str]]:
    """The names in a text, each with its offset."""
    for found in _found(text):
        if not found["kept"]:
            yield found.start(), found["path"].partition(".")[0]


def is_single_placeholder(template: Any) -> bool:
    """Whether it is one name alone, so that it becomes the value itself and not text."""
    whole = _PLACEHOLDER.fullmatch(template) if isinstance(template, str) else None
    return whole is not None and not whole["kept"]


def invalid_placeholders(text: str, names: Collection[str]) -> Iterator[tuple[int, str]]:
    """Braces around more than a value: a filter, or an expression on a known name. Their offset, and what is wrong.

    Other braces are text, as in the templates of other tools.
    """
    for found in _FIRST_NAME.finditer(text):
        rest = found["rest"].strip()
        if found["kept"] or _PLACEHOLDER.fullmatch(found[0]):
            continue
        write = (
            f"write `{{{{{found['name']}}}}}` or `{{{{{found['name']}.field}}}}`, or `\\{{{{` for the braces themselves"
        )
        if rest.startswith("|"):
            yield found.start(), f"`{found[0]}`: there is no filter `{rest[1:].strip()}`, nor any other; {write}"
        elif found["name"] in names:
            yield found.start(), f"`{found[0]}` is more than the name of a value; {write}"


def evaluate_condition(condition: Condition, values: Mapping[str, Any]) -> bool:
    """Whether all that is said of the value is so; where nothing is said, whether there is something at all."""
    value = fill(condition.value, values)
    said = [
        (test, fill(expected, values))
        for test, expected in (
            (_same, condition.is_),
            (_differs, condition.not_),
            (_is_less, condition.less),
            (_is_more, condition.more),
            (_contains, condition.contains),
            (_is_within, condition.within),
        )
        if expected is not msgspec.UNSET
    ]
    return all(test(value, expected) for test, expected in said) if said else bool(value)


def output_value(definition: Definition, values: Mapping[str, Any]) -> Any:
    """What a worker gives: the variable that its output names, or the value that it describes."""
    output = definition.output
    if isinstance(output, str) and output in values:
        return values[output]
    return fill(output, values)


def _found(text: str) -> Iterator[re.Match[str]]:
    return _PLACEHOLDER.finditer(text)


def _text_for(found: re.Match[str], values: Mapping[str, Any]) -> str:
    return found[0][1:] if found["kept"] else as_text(_looked_up(found["path"], values))


def _looked_up(path: str, values: Mapping[str, Any]) -> Any:
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


def _same(value: Any, expected: Any) -> bool:
    # To Python, 1 is True.
    return isinstance(value, bool) == isinstance(expected, bool) and value == expected


def _differs(value: Any, expected: Any) -> bool:
    return not _same(value, expected)


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
        return any(_same(item, expected) for item in cast("list[Any] | dict[str, Any]", value))
    raise StepFailed(f"{as_text(value)[:80]} is no text, list or object that could contain something")


def _is_within(value: Any, expected: Any) -> bool:
    return any(_same(value, item) for item in expected)


def _comparable(*pair: Any) -> tuple[Any, Any]:
    """Both as numbers, where what a command printed is compared with one; or both as texts."""
    if all(isinstance(value, str) for value in pair):
        return pair[0], pair[1]
    try:
        left, right = (value if isinstance(value, int) else float(value) for value in pair)
    except (TypeError, ValueError):
        shown = " and ".join(as_text(value)[:80] for value in pair)
        raise StepFailed(f"{shown} cannot be compared") from None
    return left, right
