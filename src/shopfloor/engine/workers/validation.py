"""Validation of the structure of `worker.yaml`: finds all problems, and returns the values for the definition.

An invalid part is left out, or read as the most similar valid one, so that the references of the rest can still be
checked.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, Union, cast, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from shopfloor.decoding import convert
from shopfloor.engine.workers.definition import (
    Custom,
    Definition,
    InputField,
    PluginJob,
    Step,
    ToolDefinition,
    Variable,
)
from shopfloor.engine.workers.problems import closest, did_you_mean, quoted_list
from shopfloor.yaml_document import YamlDocument, YamlPath

BLOCKS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(Step) if kind not in (Custom, PluginJob)
}
"""The kinds of steps that are available to every worker."""
_NOT_IN_YAML = {
    "slug": "the slug is the name of the folder",
    "prompts": "prompts are files: prompts/<name>.md",
    "function": "a worker in Python is a file worker.py",
    "sourceHash": "a worker in Python is a file worker.py",
    "functions": "a worker in Python is a file worker.py",
}
_MAY_BE_EMPTY = (InputField, Variable, ToolDefinition)
_COMMON_STEP_FIELDS = ("block", "description", "retry")
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_INVALID: Any = object()
"""Marks a value that is invalid."""
_SECTIONS = (("input",), ("variables",), ("tools",), ("kinds",), ("steps",))
_DEFINING_FIELDS = ("output", "as", "thread")
"""Fields by which a step defines a name that other steps refer to."""
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<more>[^,-]*)(?:, got `(?P<got>[^`]+)`)?")


class StructureValidator:
    """Validator of one document. Collects all problems with their lines."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self._kinds: Mapping[str, Any] = {}
        self.problems: list[tuple[int, str]] = []
        self.broken: set[YamlPath] = set()
        """Places with a problem. Nothing else is reported about them."""
        self.incomplete = bool(document.problems)
        """Whether an invalid part may define names, threads or tools."""

    def definition(self) -> dict[str, Any]:
        """Return the valid values, as needed to build a `Definition`."""
        value = self._document.value
        if not isinstance(value, dict):
            self._report((), f"a worker is a mapping with `steps`, not {_describe_value(value)}")
            return {}
        section = cast("dict[str, Any]", value)
        kinds = section.get("kinds")
        self._kinds = cast("dict[str, Any]", kinds) if isinstance(kinds, dict) else {}
        for name in _NOT_IN_YAML.keys() & section.keys():
            self._report((name,), f"`{name}` cannot be set here: {_NOT_IN_YAML[name]}")
        known = {field.encode_name: field for field in fields(Definition) if field.encode_name not in _NOT_IN_YAML}
        rest = {name: value for name, value in section.items() if name not in _NOT_IN_YAML}
        if not section.get("steps"):
            self._report((), "a worker needs `steps`: a mapping of names to steps")
            self.incomplete = True
        return self._fields(rest, known, (), "a worker")

    def _report(self, place: YamlPath, reason: str) -> None:
        self.problems.append((self._document.line_of(place), reason))
        self.broken.add(place)
        if place in _SECTIONS or (len(place) > 1 and place[-1] in _DEFINING_FIELDS):
            self.incomplete = True

    def _fields(
        self, values: dict[str, Any], known: dict[str, FieldInfo], place: YamlPath, owner: str
    ) -> dict[str, Any]:
        valid: dict[str, Any] = {}
        for name, value in values.items():
            if name in known:
                valid[name] = self._value(value, (*place, name), known[name].type)
            else:
                self._report((*place, name), f"{owner} has no field `{name}`; {_suggest_field(name, known)}")
                meant = closest(name, known)
                if meant is not None and meant not in values:
                    # Read the value as that of the intended field, to avoid further problems that follow from the
                    # misspelling.
                    valid[meant] = self._value(value, (*place, name), known[meant].type)
        for name, field in known.items():
            if field.required and valid.get(name, _INVALID) is _INVALID:
                if name not in valid:
                    self._report((*place, name), f"{owner} needs `{name}`: {_describe_type(field.type)}")
                valid[name] = _placeholder_value(field.type)
        return {name: value for name, value in valid.items() if value is not _INVALID}

    def _value(self, value: Any, place: YamlPath, wanted: Any) -> Any:
        """Return the value converted to this type, or `_INVALID` with a problem added."""
        if _is_steps(wanted):
            return self._mapping(value, place, self._step)
        structs = [part for part in _union_members(wanted) if _is_struct(part)]
        if structs:
            return None if value is None and None in _union_members(wanted) else self._struct(value, structs[0], place)
        if get_origin(wanted) is dict and (inside := get_args(wanted)[1]) and (_is_steps(inside) or _is_struct(inside)):
            return self._mapping(value, place, partial(self._value, wanted=inside))
        if place == ("output",) or wanted is Any:
            return value
        return self._plain(value, wanted, place)

    def _mapping(self, value: Any, place: YamlPath, read_item: Callable[[Any, YamlPath], Any]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._report(place, f"`{place[-1]}` must be a mapping of names, got {_describe_value(value)}")
            self.incomplete = True
            return {}
        items = {name: read_item(item, (*place, name)) for name, item in cast("dict[str, Any]", value).items()}
        return {name: item for name, item in items.items() if item is not _INVALID}

    def _struct(self, value: Any, struct: type[msgspec.Struct], place: YamlPath) -> Any:
        if value is None and struct in _MAY_BE_EMPTY:
            value = {}
        if not isinstance(value, dict):
            self._report(place, f"`{place[-1]}` must be a mapping, got {_describe_value(value)}")
            return _placeholder_value(struct)
        values = cast("dict[str, Any]", value)
        if struct is ToolDefinition and "parameters" in values:
            values = {**values, "parameters": _parameters_schema(values["parameters"])}
        known = {field.encode_name: field for field in fields(struct)}
        return self._fields(values, known, place, f"`{place[-1]}`")

    def _step(self, value: Any, place: YamlPath) -> Any:
        if not isinstance(value, dict):
            self._report(place, f"the step `{place[-1]}` must be a mapping with `block`, got {_describe_value(value)}")
            self.incomplete = True
            return _INVALID
        values = cast("dict[str, Any]", value)
        block = values.get("block")
        if not isinstance(block, str):
            self._report(place, f"the step `{place[-1]}` needs `block`: one of {quoted_list(BLOCKS)}")
            self.incomplete = True
            return _INVALID
        name = block.replace("_", "-")
        if kind := BLOCKS.get(name):
            known = {field.encode_name: field for field in fields(kind)}
            rest = {key: part for key, part in values.items() if key != "block"}
            return {"block": name, **self._fields(rest, known, place, f"a `{name}` step")}
        return self._custom_step(block, values, place)

    def _custom_step(self, block: str, values: dict[str, Any], place: YamlPath) -> Any:
        by_spelling = {kind.replace("_", "-"): kind for kind in self._kinds}
        own = by_spelling.get(block.replace("_", "-"))
        known = {field.encode_name: field for field in fields(Custom)}
        if own is None and block == "custom":
            kind = values.get("kind")
            if isinstance(kind, str) and kind not in self._kinds:
                self._report((*place, "kind"), f"`kinds` does not name `{kind}`; {did_you_mean(kind, self._kinds)}")
            rest = {key: part for key, part in values.items() if key != "block"}
            return {"block": "custom", **self._fields(rest, known, place, "a `custom` step")}
        if own is None:
            close = closest(block.replace("_", "-"), [*BLOCKS, *by_spelling])
            meant = f"did you mean `{close}`?" if close else f"there are {quoted_list([*BLOCKS, *by_spelling])}"
            self._report((*place, "block"), f"there is no block `{block}`; {meant}")
            if close is not None:
                return self._step({**values, "block": close}, place)
            self.incomplete = True
            return _INVALID
        common = {key: part for key, part in values.items() if key in (*_COMMON_STEP_FIELDS[1:], "output")}
        rest = {key: part for key, part in values.items() if key not in (*_COMMON_STEP_FIELDS, "output")}
        fields_of_custom = {"kind": own, "with": rest, **common}
        return {"block": "custom", **self._fields(fields_of_custom, known, place, f"a `{block}` step")}

    def _plain(self, value: Any, wanted: Any, place: YamlPath) -> Any:
        try:
            convert(value, wanted)
        except msgspec.ValidationError as error:
            reason, inside = _explain_error(str(error), wanted, value)
            self._report((*place, *inside), f"`{_field_name((*place, *inside))}` {reason}")
            self.broken.add(place)
            return _INVALID
        return value


def _union_members(wanted: Any) -> list[Any]:
    if get_origin(wanted) in (Union, types.UnionType):
        return [None if part is type(None) else part for part in get_args(wanted)]
    return [wanted]


def _suggest_field(name: str, known: Iterable[str]) -> str:
    """Return the field that was probably meant, and all known fields."""
    names = [*known]
    close = closest(name, names)
    return f"did you mean `{close}`? There are {quoted_list(names)}" if close else did_you_mean(name, names)


def _placeholder_value(wanted: Any) -> Any:
    """Return a valid value of the type, to replace a missing or invalid one."""
    part = next(part for part in _union_members(wanted) if part is not None)
    if _is_struct(part):
        known = fields(part)
        return {field.encode_name: _placeholder_value(field.type) for field in known if field.required}
    if part is Any:
        return None
    return "" if part is str else {} if get_origin(part) is dict else _INVALID


def _describe_type(wanted: Any) -> str:
    """Describe the values that a field accepts."""
    words: list[str] = []
    for part in _union_members(wanted):
        if get_origin(part) is Literal:
            words += [f"`{choice}`" for choice in get_args(part)]
        elif _is_struct(part) or get_origin(part) is dict:
            words.append("a mapping")
        elif get_origin(part) is list:
            words.append("a list")
        elif part is Any:
            words.append("any value")
        elif isinstance(part, type):
            words.append(_WORDS.get(part.__name__, part.__name__))
    return _join_or(words or ["any value"])


def _is_struct(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)


def _is_steps(wanted: Any) -> bool:
    return get_origin(wanted) is dict and get_args(wanted)[1] == Step


def _parameters_schema(parameters: Any) -> Any:
    """Return a JSON Schema. If only the properties are given, all are required except those marked optional."""
    if not isinstance(parameters, dict):
        return parameters
    schema = cast("dict[str, Any]", parameters)
    if isinstance(schema.get("type"), str) or not all(isinstance(value, dict) for value in schema.values()):
        return schema
    properties = {
        name: {key: part for key, part in value.items() if key != "optional"} for name, value in schema.items()
    }
    required = [name for name, value in schema.items() if value.get("optional") is not True]
    return {"type": "object", "properties": properties, "required": required}


def _explain_error(error: str, wanted: Any, value: Any) -> tuple[str, YamlPath]:
    """Rephrase an error of msgspec, and return where inside of the value the error is."""
    choices = [choice for part in _union_members(wanted) if get_origin(part) is Literal for choice in get_args(part)]
    if choices:
        return f"must be {_join_or(map(str, choices))}, got {_describe_value(value)}", ()
    message, _, path = error.partition(" - at `")
    inside = tuple(int(part) for part in re.findall(r"\[(\d+)\]", path))
    if found := _EXPECTED.search(message):
        wanted_words = _join_or(_WORDS.get(part.strip(), part.strip()) for part in found["wanted"].split("|"))
        got = f", got {_WORDS.get(found['got'], found['got'])}" if found["got"] else ""
        return f"must be {wanted_words}{found['more'].rstrip()}{got}", inside
    return message, inside


def _join_or(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _field_name(place: YamlPath) -> str:
    names = [part for part in place if isinstance(part, str)]
    return names[-1] if names else "worker.yaml"


def _describe_value(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return f"`{value[:40]}`"
        case int() | float():
            return str(value)
        case list():
            return "a list"
        case _:
            return "a mapping"
