"""Whether a `worker.yaml` has the shape of a definition: all problems, and the values as the definition has them.

What is wrong is left out or read as what was probably meant, so that the rest can still be checked for its meaning.
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
from shopfloor.engine.workers.definition import Custom, Definition, InputField, Step, ToolDefinition, Variable
from shopfloor.engine.workers.problems import closest, did_you_mean, quoted_list
from shopfloor.yaml_document import YamlDocument, YamlPath

BLOCKS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(Step) if kind is not Custom
}
"""The kinds of step that every worker knows."""
_NOT_IN_YAML = {
    "slug": "the slug is the name of the folder",
    "prompts": "prompts are files: prompts/<name>.md",
    "function": "a worker in Python is a file worker.py",
    "sourceHash": "a worker in Python is a file worker.py",
    "functions": "a worker in Python is a file worker.py",
}
_MAY_BE_NOTHING = (InputField, Variable, ToolDefinition)
_OF_EVERY_STEP = ("block", "description", "retry")
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "nothing",
}
_NOT_READ: Any = object()
"""Stands for a value that has not the shape of one."""
_SECTIONS = (("input",), ("variables",), ("tools",), ("kinds",), ("steps",))
_DEFINES = ("output", "as", "thread")
"""Fields by which a step defines what others speak of."""
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<more>[^,-]*)(?:, got `(?P<got>[^`]+)`)?")


class StructureValidator:
    """Collects what is wrong, line by line."""

    def __init__(self, document: YamlDocument) -> None:
        self._document = document
        self._kinds: Mapping[str, Any] = {}
        self.problems: list[tuple[int, str]] = []
        self.broken: set[YamlPath] = set()
        """Where something is wrong or missing: nothing further needs to be said of it."""
        self.incomplete = bool(document.problems)
        """Whether names, threads or tools may be defined by what could not be read."""

    def definition(self) -> dict[str, Any]:
        """The values as the definition's struct takes them: all that have their shape."""
        value = self._document.value
        if not isinstance(value, dict):
            self._wrong((), f"a worker is a mapping with `steps`, not {_word_for(value)}")
            return {}
        given = cast("dict[str, Any]", value)
        kinds = given.get("kinds")
        self._kinds = cast("dict[str, Any]", kinds) if isinstance(kinds, dict) else {}
        for name in _NOT_IN_YAML.keys() & given.keys():
            self._wrong((name,), f"`{name}` is not said here: {_NOT_IN_YAML[name]}")
        known = {field.encode_name: field for field in fields(Definition) if field.encode_name not in _NOT_IN_YAML}
        rest = {name: value for name, value in given.items() if name not in _NOT_IN_YAML}
        if not given.get("steps"):
            self._wrong((), "a worker needs `steps`: a mapping of names and what is done")
            self.incomplete = True
        return self._fields(rest, known, (), "a worker")

    def _wrong(self, place: YamlPath, reason: str) -> None:
        self.problems.append((self._document.line_of(place), reason))
        self.broken.add(place)
        if place in _SECTIONS or (len(place) > 1 and place[-1] in _DEFINES):
            self.incomplete = True

    def _fields(
        self, given: dict[str, Any], known: dict[str, FieldInfo], place: YamlPath, owner: str
    ) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in given.items():
            if name in known:
                made[name] = self._value(value, (*place, name), known[name].type)
            else:
                self._wrong((*place, name), f"{owner} has no field `{name}`; {_meant(name, known)}")
                meant = closest(name, known)
                if meant is not None and meant not in given:
                    # Read as what was meant, so that nothing that follows from the slip has to be said.
                    made[meant] = self._value(value, (*place, name), known[meant].type)
        for name, field in known.items():
            if field.required and made.get(name, _NOT_READ) is _NOT_READ:
                if name not in made:
                    self._wrong((*place, name), f"{owner} needs `{name}`: {_expected(field.type)}")
                made[name] = _stand_in(field.type)
        return {name: value for name, value in made.items() if value is not _NOT_READ}

    def _value(self, value: Any, place: YamlPath, wanted: Any) -> Any:
        """The value as this type has it; what is wrong with it is said."""
        if _is_steps(wanted):
            return self._each(value, place, self._step)
        structs = [part for part in _parts(wanted) if _is_struct(part)]
        if structs:
            return None if value is None and None in _parts(wanted) else self._struct(value, structs[0], place)
        if get_origin(wanted) is dict and (inside := get_args(wanted)[1]) and (_is_steps(inside) or _is_struct(inside)):
            return self._each(value, place, partial(self._value, wanted=inside))
        if place == ("output",) or wanted is Any:
            return value
        return self._plain(value, wanted, place)

    def _each(self, value: Any, place: YamlPath, made: Callable[[Any, YamlPath], Any]) -> dict[str, Any]:
        if not isinstance(value, dict):
            self._wrong(place, f"`{place[-1]}` is to be a mapping of names, not {_word_for(value)}")
            self.incomplete = True
            return {}
        items = {name: made(item, (*place, name)) for name, item in cast("dict[str, Any]", value).items()}
        return {name: item for name, item in items.items() if item is not _NOT_READ}

    def _struct(self, value: Any, struct: type[msgspec.Struct], place: YamlPath) -> Any:
        if value is None and struct in _MAY_BE_NOTHING:
            value = {}
        if not isinstance(value, dict):
            self._wrong(place, f"`{place[-1]}` is to be a mapping, not {_word_for(value)}")
            return _stand_in(struct)
        given = cast("dict[str, Any]", value)
        if struct is ToolDefinition and "parameters" in given:
            given = {**given, "parameters": _parameters(given["parameters"])}
        known = {field.encode_name: field for field in fields(struct)}
        return self._fields(given, known, place, f"`{place[-1]}`")

    def _step(self, value: Any, place: YamlPath) -> Any:
        if not isinstance(value, dict):
            self._wrong(place, f"the step `{place[-1]}` is to be a mapping with `block`, not {_word_for(value)}")
            self.incomplete = True
            return _NOT_READ
        given = cast("dict[str, Any]", value)
        block = given.get("block")
        if not isinstance(block, str):
            self._wrong(place, f"the step `{place[-1]}` needs `block`: one of {quoted_list(BLOCKS)}")
            self.incomplete = True
            return _NOT_READ
        name = block.replace("_", "-")
        if kind := BLOCKS.get(name):
            known = {field.encode_name: field for field in fields(kind)}
            rest = {key: part for key, part in given.items() if key != "block"}
            return {"block": name, **self._fields(rest, known, place, f"a `{name}` step")}
        return self._own_kind(block, given, place)

    def _own_kind(self, block: str, given: dict[str, Any], place: YamlPath) -> Any:
        spelled = {kind.replace("_", "-"): kind for kind in self._kinds}
        own = spelled.get(block.replace("_", "-"))
        known = {field.encode_name: field for field in fields(Custom)}
        if own is None and block == "custom":
            kind = given.get("kind")
            if isinstance(kind, str) and kind not in self._kinds:
                self._wrong((*place, "kind"), f"`kinds` does not name `{kind}`; {did_you_mean(kind, self._kinds)}")
            rest = {key: part for key, part in given.items() if key != "block"}
            return {"block": "custom", **self._fields(rest, known, place, "a `custom` step")}
        if own is None:
            close = closest(block.replace("_", "-"), [*BLOCKS, *spelled])
            meant = f"did you mean `{close}`?" if close else f"there are {quoted_list([*BLOCKS, *spelled])}"
            self._wrong((*place, "block"), f"there is no block `{block}`; {meant}")
            if close is not None:
                return self._step({**given, "block": close}, place)
            self.incomplete = True
            return _NOT_READ
        common = {key: part for key, part in given.items() if key in (*_OF_EVERY_STEP[1:], "output")}
        rest = {key: part for key, part in given.items() if key not in (*_OF_EVERY_STEP, "output")}
        made = {"kind": own, "with": rest, **common}
        return {"block": "custom", **self._fields(made, known, place, f"a `{block}` step")}

    def _plain(self, value: Any, wanted: Any, place: YamlPath) -> Any:
        try:
            convert(value, wanted)
        except msgspec.ValidationError as error:
            reason, inside = _explained(str(error), wanted, value)
            self._wrong((*place, *inside), f"`{_name_of((*place, *inside))}` {reason}")
            self.broken.add(place)
            return _NOT_READ
        return value


def _parts(wanted: Any) -> list[Any]:
    if get_origin(wanted) in (Union, types.UnionType):
        return [None if part is type(None) else part for part in get_args(wanted)]
    return [wanted]


def _meant(name: str, known: Iterable[str]) -> str:
    """The field that was probably meant, and all that there are."""
    names = [*known]
    close = closest(name, names)
    return f"did you mean `{close}`? There are {quoted_list(names)}" if close else did_you_mean(name, names)


def _stand_in(wanted: Any) -> Any:
    """A value of the type, in the place of one that is missing or wrong."""
    part = next(part for part in _parts(wanted) if part is not None)
    if _is_struct(part):
        known = fields(part)
        return {field.encode_name: _stand_in(field.type) for field in known if field.required}
    if part is Any:
        return None
    return "" if part is str else {} if get_origin(part) is dict else _NOT_READ


def _expected(wanted: Any) -> str:
    """The values that a field takes, in words."""
    words: list[str] = []
    for part in _parts(wanted):
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
    return _or(words or ["any value"])


def _is_struct(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)


def _is_steps(wanted: Any) -> bool:
    return get_origin(wanted) is dict and get_args(wanted)[1] == Step


def _parameters(given: Any) -> Any:
    """A JSON Schema, also where only the properties are written down; all of them required but the optional ones."""
    if not isinstance(given, dict):
        return given
    schema = cast("dict[str, Any]", given)
    if isinstance(schema.get("type"), str) or not all(isinstance(value, dict) for value in schema.values()):
        return schema
    properties = {
        name: {key: part for key, part in value.items() if key != "optional"} for name, value in schema.items()
    }
    required = [name for name, value in schema.items() if value.get("optional") is not True]
    return {"type": "object", "properties": properties, "required": required}


def _explained(error: str, wanted: Any, value: Any) -> tuple[str, YamlPath]:
    """What msgspec says, in plain words, and how far inside of the value it is."""
    choices = [choice for part in _parts(wanted) if get_origin(part) is Literal for choice in get_args(part)]
    if choices:
        return f"is to be {_or(map(str, choices))}, not {_word_for(value)}", ()
    message, _, path = error.partition(" - at `")
    inside = tuple(int(part) for part in re.findall(r"\[(\d+)\]", path))
    if found := _EXPECTED.search(message):
        wanted_words = _or(_WORDS.get(part.strip(), part.strip()) for part in found["wanted"].split("|"))
        got = f", not {_WORDS.get(found['got'], found['got'])}" if found["got"] else ""
        return f"is to be {wanted_words}{found['more'].rstrip()}{got}", inside
    return message, inside


def _or(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _name_of(place: YamlPath) -> str:
    names = [part for part in place if isinstance(part, str)]
    return names[-1] if names else "worker.yaml"


def _word_for(value: Any) -> str:
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
