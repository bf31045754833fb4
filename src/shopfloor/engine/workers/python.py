"""Workers and tools in Python: `@worker` and `@tool`."""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec

from shopfloor.engine.workers.definition import Definition, InputField, InputType, ToolDefinition, is_slug
from shopfloor.engine.workers.imports import load_object
from shopfloor.engine.workers.source_hash import source_hashes
from shopfloor.errors import InvalidWorker, ToolFailed
from shopfloor.limits import WORKER_FUNCTIONS

__all__ = ["PythonTool", "PythonWorker", "accepted_arguments", "load_object", "tool", "worker"]

BYTECODE = "bytecode1"
"""What the hash of a function begins with that has no source."""

P = ParamSpec("P")
R = TypeVar("R")

_TYPES: dict[Any, InputType] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    tuple: "array",
    set: "array",
    dict: "object",
}


class PythonTool(Generic[P, R]):
    """A function that is a tool too. Calling it calls the function."""

    def __init__(self, function: Callable[P, R], name: str, definition: ToolDefinition) -> None:
        self.function = function
        self.name = name
        self.definition = definition
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def handle(self, given: Mapping[str, Any]) -> R:
        """Calls it with arguments as a model gives them; what an async function gives has to be awaited."""
        try:
            inspect.signature(self.function).bind(**given)
        except TypeError as error:
            raise ToolFailed(f"`{self.name}` cannot be called like that: {error}") from error
        return cast("Callable[..., R]", self.function)(**given)


class PythonWorker(Generic[P, R]):
    """A function that is a worker too. Calling it calls the function."""

    def __init__(self, function: Callable[P, R], definition: Definition) -> None:
        self.function = function
        self.definition = definition
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


@overload
def worker(function: Callable[P, R], /) -> PythonWorker[P, R]: ...
@overload
def worker(
    *,
    slug: str | None = None,
    name: str | None = None,
    description: str | None = None,
    input: Mapping[str, Any] | None = None,
    tools: Sequence[PythonTool[Any, Any]] = (),
) -> Callable[[Callable[P, R]], PythonWorker[P, R]]: ...
def worker(
    function: Callable[..., Any] | None = None,
    /,
    *,
    slug: str | None = None,
    name: str | None = None,
    description: str | None = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word of a definition
    tools: Sequence[PythonTool[Any, Any]] = (),
) -> Any:
    """Makes a worker of an `async def` whose first parameter is the run and whose others are the inputs.

    The slug is the function's name unless one is given, the description its docstring. `input` adds to the parameters:
    names with types (`{"NAME": str}`) or `InputField`s.
    """

    def made(function: Callable[..., Any]) -> PythonWorker[Any, Any]:
        where = f"{function.__module__}:{function.__qualname__}"
        if not inspect.iscoroutinefunction(function):
            raise InvalidWorker(f"{where} is not `async def`", hint="a worker waits for its run: write `async def`")
        own_slug = slug or function.__name__.strip("_").replace("_", "-").lower()
        if not is_slug(own_slug):
            raise InvalidWorker(f"`{own_slug}` is no slug: lower-case letters, digits and `-`", hint="give slug=…")
        fields = _inputs(function, where) | {key: _field(kind) for key, kind in (input or {}).items()}
        return PythonWorker(
            function,
            Definition(
                slug=own_slug,
                name=name,
                description=description or _described(function),
                input=fields,
                tools={tool.name: tool.definition for tool in tools},
                function=where,
                functions=_function_hashes(function),
            ),
        )

    return made if function is None else made(function)


@overload
def tool(function: Callable[P, R], /) -> PythonTool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, read_only: bool = False
) -> Callable[[Callable[P, R]], PythonTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
) -> Any:
    """Makes a tool of a function, plain or async; its parameters' annotations are the schema of its input."""

    def made(function: Callable[..., Any]) -> PythonTool[Any, Any]:
        where = f"{function.__module__}:{function.__qualname__}"
        definition = ToolDefinition(
            description=description or _described(function) or "",
            parameters=_schema(function, where),
            handler=where,
            read_only=read_only,
        )
        return PythonTool(function, name or function.__name__.replace("_", "-"), definition)

    return made if function is None else made(function)


def accepted_arguments(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the inputs that the function takes; all of them where it takes `**anything`."""
    taken = _taken_by(function)
    return {name: value for name, value in values.items() if taken is None or name in taken}


@lru_cache(maxsize=WORKER_FUNCTIONS)
def _taken_by(function: Callable[..., Any]) -> frozenset[str] | None:
    """The inputs that a function takes; None where it takes any."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


def _named_parameters(function: Callable[..., Any], where: str, *, skip: int) -> list[tuple[inspect.Parameter, Any]]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InvalidWorker(f"an annotation of {where} means nothing: {error}") from error
    found: list[tuple[inspect.Parameter, Any]] = []
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        if parameter.kind is parameter.POSITIONAL_ONLY or parameter.kind is parameter.VAR_POSITIONAL:
            raise InvalidWorker(f"{where} takes `{parameter.name}` by position; inputs are given by name")
        if parameter.kind is not parameter.VAR_KEYWORD:
            found.append((parameter, hints.get(parameter.name, Any)))
    return found


def _inputs(function: Callable[..., Any], where: str) -> dict[str, InputField]:
    if not inspect.signature(function).parameters:
        raise InvalidWorker(f"{where} takes no parameter", hint="its first is the run: `async def work(run, …)`")
    fields: dict[str, InputField] = {}
    for parameter, hint in _named_parameters(function, where, skip=1):
        field = _field(hint)
        if parameter.default is not parameter.empty:
            optional = field.optional or parameter.default is None
            field = msgspec.structs.replace(field, default=parameter.default, optional=optional)
        fields[parameter.name] = field
    return fields


def _field(kind: Any) -> InputField:
    """What an annotation says of an input: its type, whether it may be left out, and what it is."""
    if isinstance(kind, InputField):
        return kind
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        field = _field(parts[0])
        said = next((note for note in parts[1:] if isinstance(note, str)), None)
        return msgspec.structs.replace(field, description=said or field.description)
    if origin in (Union, types.UnionType):
        others = [part for part in parts if part is not type(None)]
        inside = _field(others[0]) if len(others) == 1 else InputField(type="any")
        return msgspec.structs.replace(inside, optional=len(others) < len(parts))
    if origin is Literal:
        named: set[InputType] = {_TYPES.get(type(value), "any") for value in parts}
        return InputField(type=named.pop() if len(named) == 1 else "any")
    return InputField(type=_TYPES.get(origin or kind, "any"))


def _schema(function: Callable[..., Any], where: str) -> dict[str, Any]:
    fields: list[tuple[str, Any, Any]] = []
    for parameter, hint in _named_parameters(function, where, skip=0):
        default = parameter.default
        required = default is parameter.empty
        kept = msgspec.field() if required else msgspec.field(default_factory=lambda kept=default: kept)
        fields.append((parameter.name, _with_description(hint), kept))
    try:
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        (schema,), components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    except (TypeError, ValueError) as error:
        raise InvalidWorker(f"{where} takes what JSON cannot say: {error}") from error
    del schema
    own: dict[str, Any] = components.pop("Arguments")
    own.pop("title", None)
    for parameter, _ in _named_parameters(function, where, skip=0):
        if parameter.default is not parameter.empty and _is_plain(parameter.default):
            own["properties"][parameter.name]["default"] = parameter.default
    return own | ({"$defs": components} if components else {})


def _with_description(hint: Any) -> Any:
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    said = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    for note in said:
        kind = cast("Any", Annotated)[kind, note]
    return kind


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _described(function: Callable[..., Any]) -> str | None:
    """The first paragraph of its docstring, on one line."""
    doc = inspect.getdoc(function)
    return " ".join(doc.split("\n\n")[0].split()) if doc else None


def _function_hashes(function: Callable[..., Any]) -> dict[str, str]:
    """Hash the function and what it uses of its file, as they are now."""
    own = cast("types.FunctionType", inspect.unwrap(function))
    try:
        lines, _ = inspect.findsource(own)
        found = source_hashes("".join(lines), own.__code__.co_firstlineno)
    except (OSError, TypeError, SyntaxError):
        found = {}
    # Typed in, not written down: then its code is all that there is of it.
    return found or {own.__qualname__: f"{BYTECODE}:{hashlib.sha256(own.__code__.co_code).hexdigest()}"}
