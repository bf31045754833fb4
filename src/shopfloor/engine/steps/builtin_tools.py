"""The tools that every worker may use without defining them.

A call is recorded before it has an effect, and each effect may be repeated, so that a crash in between does no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from shopfloor.decoding import convert
from shopfloor.engine.replay_state import SUBMITTED
from shopfloor.engine.steps.arguments import check_arguments
from shopfloor.engine.steps.tool_definitions import Handler, Tool, ToolContext
from shopfloor.engine.worker_memory import WorkerMemory
from shopfloor.errors import ToolFailed
from shopfloor.limits import ARTIFACT_BYTES, RUN_ARTIFACTS
from shopfloor.ports import ToolSpec, artifacts_folder, memory_folder, validate_name
from shopfloor.views import LOG_QUESTION, RECORD_DECISION, STORE_MEMORY, SUBMIT_RESULT, UPDATE_SUMMARY

ASK: Final = "ask"
_TEXT: Final = {"type": "string", "pattern": r"\S"}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required or properties)}


_QUESTION = _object({"question": _TEXT, "options": {"type": "array", "items": {"type": "string"}}}, "question")
_ARTIFACT = _object({"name": _TEXT, "content": {"type": "string"}})


class _Artifact(msgspec.Struct, frozen=True):
    name: str
    content: str


def worker_memory(context: ToolContext) -> WorkerMemory:
    """Return the memory of the worker of this run."""
    first = context.attempt.replay_state.first
    slug, origin = (first.name, first.origin) if first is not None else ("", None)
    return WorkerMemory(context.blobs, memory_folder(slug, origin))


async def _record(context: ToolContext, arguments: Any) -> dict[str, Any]:
    """Do nothing: the recorded call is the effect."""
    return {"noted": True}


async def _store_memory(context: ToolContext, arguments: dict[str, Any]) -> dict[str, Any]:
    await worker_memory(context).store(arguments["key"], _masked(context, arguments["content"]))
    return {"stored": arguments["key"]}


async def _submit_result(context: ToolContext, arguments: dict[str, Any]) -> dict[str, Any]:
    """Store the artifacts. The text is in the log, and becomes the result of the run."""
    artifacts = convert(arguments.get("artifacts", []), list[_Artifact])
    folder = artifacts_folder(context.attempt.run_id)
    contents: dict[str, bytes] = {}
    for artifact in artifacts:
        validate_name(artifact.name, "the artifact name")
        contents[artifact.name] = _masked(context, artifact.content).encode("utf-8", "replace")
        if len(contents[artifact.name]) > ARTIFACT_BYTES:
            raise ToolFailed(f"the artifact {artifact.name!r} is larger than {ARTIFACT_BYTES:,} bytes")
    known = {info.name for info in await context.blobs.list(folder)} if contents else set[str]()
    if len(known | contents.keys()) > RUN_ARTIFACTS:
        raise ToolFailed(f"a run has at most {RUN_ARTIFACTS} artifacts")
    for name, content in contents.items():
        await context.blobs.put(f"{folder}/{name}", content)
    return SUBMITTED


def _masked(context: ToolContext, text: str) -> str:
    mask = context.attempt.mask
    return mask.text(text) if mask is not None else text


def _tool(name: str, description: str, parameters: dict[str, Any], handler: Handler) -> Tool:
    async def handle(context: ToolContext, arguments: Any) -> Any:
        check_arguments(name, parameters, arguments)
        return await handler(context, arguments)

    # A repeated call has the same effect, so a call that a crash interrupted is made again.
    return Tool(ToolSpec(name, description, parameters), handle, read_only=True, needs_context=True)


BUILTIN_TOOLS: Mapping[str, Tool] = {
    tool.spec.name: tool
    for tool in (
        Tool(ToolSpec(ASK, "Asks a person, and waits for the answer.", _QUESTION)),
        _tool(LOG_QUESTION, "Notes a question for a person, and goes on.", _QUESTION, _record),
        _tool(
            UPDATE_SUMMARY,
            "Says in a line what you are doing now, and, if you know it, how far you are: `progress` from 0 to 1.",
            _object({"summary": _TEXT, "progress": {"type": "number", "minimum": 0, "maximum": 1}}, "summary"),
            _record,
        ),
        _tool(
            RECORD_DECISION,
            "Records a decision that you made yourself because the task left it open.",
            _object({"question": _TEXT, "decision": _TEXT, "reasoning": _TEXT}),
            _record,
        ),
        _tool(
            STORE_MEMORY,
            "Keeps knowledge for later runs under a short key. An existing key is overwritten.",
            _object({"key": _TEXT, "content": _TEXT}),
            _store_memory,
        ),
        _tool(
            SUBMIT_RESULT,
            "Submits the whole result. Call it once, at the end. Artifacts are files beside the text.",
            _object({"text": _TEXT, "artifacts": {"type": "array", "items": _ARTIFACT}}, "text"),
            _submit_result,
        ),
    )
}
"""All of them by name."""
