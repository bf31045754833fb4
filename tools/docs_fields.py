"""Structs as tables: each field with its JSON type and its docstring."""

from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from shopfloor.log import BLOCK_TYPES, PAYLOAD_TYPES
from tools.docs_markdown import code, table
from tools.docs_source import field_docs

HEAD = ("field", "type", "present", "meaning")

_NAMES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    Any: "any",
    NoneType: "null",
    msgspec.Raw: "object",
}


def field_table(cls: type[msgspec.Struct]) -> str:
    """Return a table of the fields, in the order in which they are encoded."""
    return table(HEAD, [*_tag_row(cls), *_field_rows(cls)])


def _tag_row(cls: type[msgspec.Struct]) -> list[tuple[str, ...]]:
    config = cls.__struct_config__
    if config.tag_field is None:
        return []
    return [(code(config.tag_field), code(f'"{config.tag}"'), "always", "The same for every object of this type.")]


def _field_rows(cls: type[msgspec.Struct]) -> list[tuple[str, ...]]:
    docs = field_docs(cls)
    omits_defaults = cls.__struct_config__.omit_defaults
    rows: list[tuple[str, ...]] = []
    for field in msgspec.structs.fields(cls):
        optional = (omits_defaults and not field.required) or field.default is msgspec.UNSET
        json_type = type_name(without_null(field.type) if optional else field.type)
        present = "optional" if optional else "always"
        rows.append((code(field.encode_name), json_type, present, docs.get(field.name, "")))
    return rows


def without_null(annotation: Any) -> Any:
    """Return the type of a field that is present."""
    if not _is_union(annotation):
        return annotation
    return Union[tuple(arg for arg in get_args(annotation) if arg not in (NoneType, msgspec.UnsetType))]  # noqa: UP007


def type_name(annotation: Any) -> str:
    """Return the JSON type, with a link to its section if it has one."""
    if annotation in _NAMES:
        return _NAMES[annotation]
    arguments = get_args(annotation)
    if _is_union(annotation):
        if set(arguments) == set(BLOCK_TYPES.values()):
            return "[block](#content-blocks)"
        if set(arguments) == set(PAYLOAD_TYPES.values()):
            return "[object](#event-types)"
        return " or ".join(type_name(argument) for argument in arguments)
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(code(f'"{value}"') for value in arguments)
    if origin is list:
        return f"array of {type_name(arguments[0])}"
    if origin is dict:
        return "object"
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    raise TypeError(f"unknown JSON type for {annotation!r}: add it to tools/docs_fields.py")


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, UnionType)
