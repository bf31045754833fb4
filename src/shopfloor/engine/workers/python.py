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

from shopfloor.decoding import convert
from shopfloor.engine.workers.approval_patterns import check_patterns
from shopfloor.engine.workers.definition import (
    Definition,
    HostRequirements,
    InputField,
    InputType,
    ToolDefinition,
    is_slug,
)
from shopfloor.engine.workers.imports import load_object
from shopfloor.engine.workers.source_hash import source_hashes
from shopfloor.errors import InvalidInput, InvalidWorker, ToolFailed
from shopfloor.limits import WORKER_FUNCTIONS
from shopfloor.ports import label_problem

__all__ = ["PythonTool", "PythonWorker", "accepted_arguments", "load_object", "tool", "worker"]

BYTECODE = "bytecode1"
"""Prefix of the hash of a function that has no source."""

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
    """A function that is a tool. Calling it calls the function."""

    def __init__(self, function: Callable[P, R], name: str, definition: ToolDefinition) -> None:
        self.function = function
        self.name = name
        self.definition = definition
        self.__doc__ = function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def handle(self, arguments: Mapping[str, Any]) -> R:
        """Call the function with the arguments from a model. The result of an async function must be awaited."""
        try:
            inspect.signature(self.function).bind(**arguments)
        except TypeError as error:
            raise ToolFailed(f"`{self.name}` cannot be called with these arguments: {error}") from error
        return cast("Callable[..., R]", self.function)(**arguments)


class PythonWorker(Generic[P, R]):
    """A function that is a worker. Calling it calls the function."""

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
    memory: bool = False,
    approve: Sequence[str] = (),
    approve_timeout: float | None = None,
    requires: Mapping[str, Any] | None = None,
) -> Callable[[Callable[P, R]], PythonWorker[P, R]]: ...
def worker(
    function: Callable[..., Any] | None = None,
    /,
    *,
    slug: str | None = None,
    name: str | None = None,
    description: str | None = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - named as in definitions
    tools: Sequence[PythonTool[Any, Any]] = (),
    memory: bool = False,
    approve: Sequence[str] = (),
    approve_timeout: float | None = None,
    requires: Mapping[str, Any] | None = None,
) -> Any:
    """Create a worker from an `async def` whose first parameter is the run and whose other parameters are the inputs.

    The slug defaults to the function's name, the description to its docstring. `input` adds inputs to those of the
    parameters: names with types (`{"NAME": str}`) or `InputField`s. `approve` has patterns of calls that a person has
    to approve (`Bash`, `Bash(git push*)`, `command`, a tool); after `approve_timeout` seconds they are denied.
    `requires` is what a host must have to execute the worker: `{"labels": {"gpu": "yes"}, "providers": ["codex"]}`.
    """

    def decorate(function: Callable[..., Any]) -> PythonWorker[Any, Any]:
        where = f"{function.__module__}:{function.__qualname__}"
        if not inspect.iscoroutinefunction(function):
            raise InvalidWorker(f"{where} is not `async def`", hint="define it with `async def`")
        own_slug = slug or function.__name__.strip("_").replace("_", "-").lower()
        if not is_slug(own_slug):
            raise InvalidWorker(
                f"`{own_slug}` is not a valid slug: lower-case letters, digits and `-`", hint="set slug=…"
            )
        fields = _input_fields(function, where) | {key: _input_field(kind) for key, kind in (input or {}).items()}
        return PythonWorker(
            function,
            Definition(
                slug=own_slug,
                name=name,
                description=description or _docstring_summary(function),
                input=fields,
                tools={tool.name: tool.definition for tool in tools},
                memory=memory,
                approve=_approval_patterns(where, approve, approve_timeout),
                approve_timeout=approve_timeout,
                requires=None if requires is None else _host_requirements(requires, where),
                function=where,
                functions=_function_hashes(function),
            ),
        )

    return decorate if function is None else decorate(function)


def _approval_patterns(where: str, patterns: Sequence[str], timeout_seconds: float | None) -> list[str]:
    if timeout_seconds is not None and timeout_seconds <= 0:
        raise InvalidWorker(f"{where}: `approve_timeout` must be greater than 0, got {timeout_seconds:g}")
    try:
        check_patterns(patterns)
    except InvalidInput as error:
        raise InvalidWorker(f"{where}: {error.message}", hint=error.hint) from error
    return list(patterns)


def _host_requirements(requires: Mapping[str, Any], where: str) -> HostRequirements:
    """Convert `requires` of a worker. Raises `InvalidWorker`."""
    try:
        found = convert(dict(requires), HostRequirements)
    except msgspec.ValidationError as error:
        raise InvalidWorker(f"`requires` of {where} is invalid: {error}") from error
    for name, value in found.labels.items():
        if problem := label_problem(name, value):
            raise InvalidWorker(f"`requires` of {where} is invalid: {problem}")
    return found


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
    """Create a tool from a function, plain or async. The annotations of its parameters define its schema."""

    def decorate(function: Callable[..., Any]) -> PythonTool[Any, Any]:
        where = f"{function.__module__}:{function.__qualname__}"
        definition = ToolDefinition(
            description=description or _docstring_summary(function) or "",
            parameters=_parameters_schema(function, where),
            handler=where,
            read_only=read_only,
        )
        return PythonTool(function, name or function.__name__.replace("_", "-"), definition)

    return decorate if function is None else decorate(function)


def accepted_arguments(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs that the function accepts; all of them if it accepts `**kwargs`."""
    accepted = _accepted_names(function)
    return {name: value for name, value in values.items() if accepted is None or name in accepted}


@lru_cache(maxsize=WORKER_FUNCTIONS)
def _accepted_names(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names of the inputs that a function accepts, or None if it accepts any."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters)


def _named_parameters(function: Callable[..., Any], where: str, *, skip: int) -> list[tuple[inspect.Parameter, Any]]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError) as error:
        raise InvalidWorker(f"an annotation of {where} cannot be resolved: {error}") from error
    found: list[tuple[inspect.Parameter, Any]] = []
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        if parameter.kind is parameter.POSITIONAL_ONLY or parameter.kind is parameter.VAR_POSITIONAL:
            raise InvalidWorker(f"{where} takes `{parameter.name}` by position, but inputs are passed by name")
        if parameter.kind is not parameter.VAR_KEYWORD:
            found.append((parameter, hints.get(parameter.name, Any)))
    return found


def _input_fields(function: Callable[..., Any], where: str) -> dict[str, InputField]:
    if not inspect.signature(function).parameters:
        raise InvalidWorker(
            f"{where} takes no parameter", hint="the first parameter is the run: `async def work(run, …)`"
        )
    fields: dict[str, InputField] = {}
    for parameter, hint in _named_parameters(function, where, skip=1):
        field = _input_field(hint)
        if parameter.default is not parameter.empty:
            optional = field.optional or parameter.default is None
            field = msgspec.structs.replace(field, default=parameter.default, optional=optional)
        fields[parameter.name] = field
    return fields


def _input_field(kind: Any) -> InputField:
    """Convert an annotation to an input: its type, whether it is optional, and its description."""
    if isinstance(kind, InputField):
        return kind
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        field = _input_field(parts[0])
        text = next((note for note in parts[1:] if isinstance(note, str)), None)
        return msgspec.structs.replace(field, description=text or field.description)
    if origin in (Union, types.UnionType):
        others = [part for part in parts if part is not type(None)]
        inside = _input_field(others[0]) if len(others) == 1 else InputField(type="any")
        return msgspec.structs.replace(inside, optional=len(others) < len(parts))
    if origin is Literal:
        input_types: set[InputType] = {_TYPES.get(type(value), "any") for value in parts}
        choices = [value for value in parts if value is not None]
        field_type = input_types.pop() if len(input_types) == 1 else "any"
        return InputField(type=field_type, choices=choices, optional=None in parts)
    return InputField(type=_TYPES.get(origin or kind, "any"))


def _parameters_schema(function: Callable[..., Any], where: str) -> dict[str, Any]:
    fields: list[tuple[str, Any, Any]] = []
    for parameter, hint in _named_parameters(function, where, skip=0):
        default = parameter.default
        required = default is parameter.empty
        struct_field = msgspec.field() if required else msgspec.field(default_factory=lambda value=default: value)
        fields.append((parameter.name, _with_description(hint), struct_field))
    try:
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        (schema,), components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    except (TypeError, ValueError) as error:
        raise InvalidWorker(f"{where} has a parameter that JSON cannot represent: {error}") from error
    del schema
    own: dict[str, Any] = components.pop("Arguments")
    own.pop("title", None)
    for parameter, _ in _named_parameters(function, where, skip=0):
        if parameter.default is not parameter.empty and _is_scalar(parameter.default):
            own["properties"][parameter.name]["default"] = parameter.default
    return own | ({"$defs": components} if components else {})


def _with_description(hint: Any) -> Any:
    if get_origin(hint) is not Annotated:
        return hint
    kind, *notes = get_args(hint)
    metadata = [msgspec.Meta(description=note) if isinstance(note, str) else note for note in notes]
    for note in metadata:
        kind = cast("Any", Annotated)[kind, note]
    return kind


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _docstring_summary(function: Callable[..., Any]) -> str | None:
    """Return the first paragraph of the docstring on one line."""
    doc = inspect.getdoc(function)
    return " ".join(doc.split("\n\n")[0].split()) if doc else None


def _function_hashes(function: Callable[..., Any]) -> dict[str, str]:
    """Return the hashes of the function and of what it uses in its file, in their current state."""
    own = cast("types.FunctionType", inspect.unwrap(function))
    try:
        lines, _ = inspect.findsource(own)
        found = source_hashes("".join(lines), own.__code__.co_firstlineno)
    except (OSError, TypeError, SyntaxError):
        found = {}
    # A function typed in an interactive session has no source, so hash its bytecode.
    return found or {own.__qualname__: f"{BYTECODE}:{hashlib.sha256(own.__code__.co_code).hexdigest()}"}
