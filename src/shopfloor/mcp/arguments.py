"""The arguments of the tools. Their JSON Schemas, which a model reads, are made from these classes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from shopfloor.decoding import convert
from shopfloor.errors import InvalidParameter
from shopfloor.limits import FILTER_MAX_CHARS, TASK_MAX_CHARS, WORKER_NAME_MAX_CHARS
from shopfloor.mcp.limits import MCP_WAIT_MAX_SECONDS, MCP_WAIT_RUNS, MCP_WAIT_SECONDS

T = TypeVar("T", bound="ToolArguments")
Status = Literal["queued", "running", "waiting", "completed", "failed", "cancelled"]
# Limits are checked but left out of the schemas, which every request to the model carries.
_ShortText = Annotated[str, Meta(min_length=1, max_length=FILTER_MAX_CHARS)]
_TaskText = Annotated[str, Meta(min_length=1, max_length=TASK_MAX_CHARS)]
_Seconds = Annotated[float, Meta(gt=0, le=MCP_WAIT_MAX_SECONDS)]

RunRef = Annotated[_ShortText, Meta(description="Run id.")]
Cursor = Annotated[_ShortText | UnsetType, Meta(description="`next` of the previous page.")]
Timeout = Annotated[_Seconds | UnsetType, Meta(description=f"Default {MCP_WAIT_SECONDS:g}.")]


class ToolArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of a tool. A field that may be left out is UNSET, so that its schema has no null."""


class ListArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `worker_list`."""

    query: Annotated[
        _ShortText | UnsetType, Meta(description="Only workers whose name or description has this text.")
    ] = UNSET
    cursor: Cursor = UNSET


class DispatchArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `worker_dispatch`."""

    worker: Annotated[str, Meta(description="Name from worker_list.", min_length=1, max_length=WORKER_NAME_MAX_CHARS)]
    task: Annotated[
        _TaskText | UnsetType,
        Meta(description="The whole task in words. The worker does not see this conversation."),
    ] = UNSET
    input: Annotated[
        dict[str, Any] | UnsetType, Meta(description="The worker's inputs by name, instead of `task`.")
    ] = UNSET
    description: Annotated[_ShortText | UnsetType, Meta(description="Short label for lists.")] = UNSET
    cwd: Annotated[
        _ShortText | UnsetType, Meta(description="Absolute folder to work in. Default: the current project.")
    ] = UNSET


class RunArguments(DispatchArguments, frozen=True, kw_only=True):
    """Arguments of `worker_run`."""

    timeout_seconds: Timeout = UNSET


class StatusArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `worker_status`."""

    run_id: RunRef


class WaitArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `worker_wait`."""

    run_ids: Annotated[list[RunRef], Meta(min_length=1, max_length=MCP_WAIT_RUNS)]
    timeout_seconds: Timeout = UNSET


class ResultArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `worker_result`."""

    run_id: RunRef
    cursor: Cursor = UNSET


class AnswerArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `worker_answer`."""

    run_id: RunRef
    answer: Annotated[
        Any,
        Meta(
            description="Text, or the number of an option; for a tool call its result, as JSON.",
            # Not all agents accept a schema without a type.
            extra_json_schema={"type": "string"},
        ),
    ]
    call_id: Annotated[_ShortText | UnsetType, Meta(description="Which question, if several are open.")] = UNSET


class CancelArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `worker_cancel`."""

    run_id: RunRef
    reason: _ShortText | UnsetType = UNSET


class DeleteArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `worker_delete`."""

    run_id: RunRef


class SearchArguments(ToolArguments, frozen=True, kw_only=True):
    """Arguments of `run_search`."""

    query: Annotated[_ShortText | UnsetType, Meta(description="Words in the task, transcript or result.")] = UNSET
    worker: _ShortText | UnsetType = UNSET
    status: Annotated[Status | UnsetType, Meta(extra_json_schema={"type": "string"})] = UNSET
    since: Annotated[_ShortText | UnsetType, Meta(description="RFC 3339 time.")] = UNSET
    cursor: Cursor = UNSET


def parse_arguments(tool: str, arguments: dict[str, Any] | None, kind: type[T]) -> T:
    """Return the arguments as an object of this class. Raises `InvalidParameter`, which names the arguments."""
    try:
        return convert(arguments or {}, kind)
    except msgspec.ValidationError as error:
        text = str(error).removeprefix("Object ").removeprefix("contains ")
        names = ", ".join(
            field.name if field.required else f"{field.name} (optional)" for field in msgspec.structs.fields(kind)
        )
        raise InvalidParameter(
            f"{tool}: {text[:1].lower()}{text[1:]}", hint=f"the arguments of {tool} are: {names}"
        ) from error


def json_schema(kind: type[ToolArguments]) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, as short as it can be."""
    (_,), components = msgspec.json.schema_components((kind,))
    schema = components[kind.__name__]
    properties = cast("dict[str, dict[str, Any]]", schema["properties"])
    shown = {
        name: {key: value for key, value in field.items() if key not in _UNSHOWN} for name, field in properties.items()
    }
    return {
        "type": "object",
        "properties": {name: _clean_items(field) for name, field in shown.items()},
        "required": schema["required"],
        "additionalProperties": False,
    }


_UNSHOWN = frozenset({"minLength", "maxLength", "exclusiveMinimum", "minItems", "title"})


def _clean_items(field: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list without the description of its items, which its name has."""
    return {**field, "items": {"type": field["items"]["type"]}} if "items" in field else field
