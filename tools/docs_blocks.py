"""docs/reference/worker-yaml.md: every field of worker.yaml and every block, with its shape and an example."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo, fields

from shopfloor.engine.workers import definition
from shopfloor.engine.workers.definition import (
    Condition,
    Definition,
    HostRequirements,
    InputField,
    Retry,
    ToolDefinition,
    Variable,
)
from shopfloor.engine.workers.validation import BLOCKS
from tools.docs_blocks_text import BLOCK_EXAMPLES, FIELDS, INTRO, SUMMARIES, TOOL_EXAMPLES
from tools.docs_markdown import code, fenced, generated, page, section, table

HEAD = ("field", "type", "default", "meaning")
_NOT_IN_YAML = {"slug", "prompts", "function", "functions", "sourceHash"}
_SHARED: dict[type[msgspec.Struct], str] = {
    InputField: "Input",
    Variable: "Variable",
    ToolDefinition: "Tool",
    HostRequirements: "Requires",
    Retry: "Retry",
    Condition: "Condition",
}
_NAMES: dict[Any, str] = {str: "text", int: "integer", float: "number", bool: "true or false", Any: "any"}


def worker_yaml_page() -> str:
    return page(
        "worker.yaml",
        generated("the definition of a worker"),
        INTRO,
        section("The document", _shape(Definition, "Document")),
        *(section(title, SUMMARIES[title], _shape(struct, title)) for struct, title in _SHARED.items()),
        section("Blocks", SUMMARIES["Blocks"]),
        *(
            section(code(name), SUMMARIES[name], _shape(struct, name), _example(name, BLOCK_EXAMPLES[name]), level=3)
            for name, struct in BLOCKS.items()
        ),
        section("Built-in tools", SUMMARIES["Built-in tools"]),
        *(
            section(code(name), SUMMARIES[name], _example(name, TOOL_EXAMPLES[name]), level=3)
            for name in sorted(definition.BUILTIN_TOOL_NAMES)
        ),
    )


def example_workers() -> dict[str, str]:
    """Return the complete workers that the page shows, by slug."""
    return {f"example-{name.replace('_', '-')}": text for name, text in (BLOCK_EXAMPLES | TOOL_EXAMPLES).items()}


def _example(name: str, text: str) -> str:
    return fenced(f'yaml title="workers/example-{name.replace("_", "-")}/worker.yaml"', text)


def _shape(struct: type[msgspec.Struct], owner: str) -> str:
    rows = [_row(field, owner) for field in fields(struct) if field.encode_name not in _NOT_IN_YAML]
    return table(HEAD, rows)


def _row(field: FieldInfo, owner: str) -> tuple[str, ...]:
    name = field.encode_name
    meaning = FIELDS.get(f"{owner}.{name}") or FIELDS.get(name)
    if meaning is None:
        raise LookupError(f"tools/docs_blocks_text.py does not explain the field {name!r} of {owner}")
    return code(name), type_text(field.type), _default(field), meaning


def _default(field: FieldInfo) -> str:
    if field.required:
        return "**required**"
    value = field.default if field.default is not msgspec.NODEFAULT else None
    if value in (None, "", msgspec.UNSET):
        return ""
    return code(str(value).lower() if isinstance(value, bool) else str(value))


def type_text(annotation: Any) -> str:
    """Return a type as text for the page."""
    if annotation == definition.Step:
        return "[step](#blocks)"
    if annotation in _NAMES:
        return _NAMES[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0]) + _range(arguments[1])
    if origin in (Union, UnionType):
        parts = [part for part in arguments if part not in (NoneType, msgspec.UnsetType)]
        return " or ".join(type_text(part) for part in parts)
    if origin is Literal:
        return ", ".join(code(str(value)) for value in arguments)
    if origin is list:
        return f"list of {type_text(arguments[0])}"
    if origin is dict:
        return f"map of {type_text(arguments[1])}"
    if isinstance(annotation, type) and annotation in _SHARED:
        title = _SHARED[annotation]
        return f"[{title.lower()}](#{title.lower()})"
    raise TypeError(f"unknown type {annotation!r}: add it to tools/docs_blocks.py")


def _range(meta: msgspec.Meta) -> str:
    if meta.ge is not None:
        return f" ≥ {meta.ge:g}"
    return f" > {meta.gt:g}" if meta.gt is not None else ""
