"""Tools: what a worker may call, who executes it, and what is on record of that."""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import anyio
import anyio.to_thread
import msgspec

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.awaited_calls import wait_for_answer
from shopfloor.engine.error_mapping import CANCELLATION_EXCEPTIONS, as_run_failed
from shopfloor.engine.replay_state import StepKey
from shopfloor.engine.workers.definition import Definition, ToolDefinition
from shopfloor.engine.workers.imports import load_object
from shopfloor.engine.workers.python import PythonTool
from shopfloor.errors import OutcomeUnknown, StepFailed
from shopfloor.limits import TOOL_OUTPUT_BYTES
from shopfloor.log import Awaits, ToolCall, ToolResult, ToolUseBlock, format_timestamp
from shopfloor.ports import ToolSpec

Handler = Callable[[dict[str, Any]], Any]
"""Takes the arguments as a dict; may be async."""

ASK = "ask"
LOG_QUESTION = "log_question"
UPDATE_SUMMARY = "update_summary"


class Tool(msgspec.Struct, frozen=True):
    """Without a handler it is a client's: the run waits for whoever watches it."""

    spec: ToolSpec
    handler: Handler | None = None
    read_only: bool = False


def build_tool(name: str, definition: ToolDefinition, handler: Any = None) -> Tool:
    """A tool as it is defined, with who executes it here. A plain function is given the arguments as one dict."""
    if handler is None and definition.handler:
        handler = load_object(definition.handler)
    if isinstance(handler, PythonTool):
        handler = cast("PythonTool[Any, Any]", handler).handle
    return Tool(ToolSpec(name, definition.description, definition.parameters), handler, definition.read_only)


def build_tools(definition: Definition) -> dict[str, Tool]:
    return {name: build_tool(name, tool) for name, tool in definition.tools.items()}


def _text(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


_QUESTION = {
    "type": "object",
    "properties": {"question": {"type": "string"}, "options": {"type": "array", "items": {"type": "string"}}},
    "required": ["question"],
}

BUILTIN_TOOLS: Mapping[str, Tool] = {
    tool.spec.name: tool
    for tool in (
        Tool(ToolSpec(ASK, "Asks a person, and waits for the answer.", _QUESTION)),
        Tool(
            ToolSpec(LOG_QUESTION, "Notes a question for a person, and goes on.", _QUESTION),
            lambda given: {"noted": True},
            read_only=True,
        ),
        Tool(
            ToolSpec(UPDATE_SUMMARY, "Says in a line what you are doing now.", _text("summary")),
            lambda given: {"noted": True},
            read_only=True,
        ),
    )
}
"""Tools that every worker may name: what they are called with is all that they do."""


class Tools:
    """The tools of one run."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = {**BUILTIN_TOOLS, **tools}

    def select(self, names: Sequence[str]) -> list[Tool]:
        return [self.get(name) for name in names]

    def get(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise StepFailed(f"there is no tool {name!r}", hint=f"this worker has {', '.join(sorted(self._tools))}")
        return tool

    async def call_all(self, attempt: Attempt, step_key: StepKey, uses: Sequence[ToolUseBlock]) -> None:
        """Every call of a message until each has its result: ours first, then those that others execute."""
        replay_state = attempt.replay_state
        open_uses = [use for use in uses if use.tool_id not in replay_state.results]
        waiting: list[ToolUseBlock] = []
        for use in open_uses:
            tool = self._tools.get(use.tool_name)
            if tool is None:
                await self._refuse(attempt, step_key, use)
            elif tool.handler is None:
                waiting.append(use)
            else:
                await self._execute(attempt, step_key, use, tool)
        for n, use in enumerate(waiting):
            if use.tool_id not in replay_state.calls or use.tool_id in replay_state.stale_calls:
                awaits = _awaits(attempt, use.tool_name, more=len(waiting) - n - 1)
                await attempt.append(_call(use, awaits), step_key)
        for use in waiting:
            # A result may have come before we asked; its call is closed then.
            known = replay_state.calls.get(use.tool_id)
            awaits = known[1].awaits if known else None
            await wait_for_answer(attempt, use.tool_id, awaits or Awaits(kind="client_tool"))

    async def call(
        self,
        attempt: Attempt,
        step_key: StepKey,
        name: str,
        given: Any,
        *,
        try_: int = 1,
        timeout_seconds: float | None = None,
    ) -> ToolResult:
        """A call that no model asked for. Its id is in the log, so that an attempt knows it again.

        A further try of the step is a further call: the log has at most one for each.
        """
        calls = [one for one in attempt.conversation(step_key) if isinstance(one, ToolCall)]
        made = calls[-1] if len(calls) >= try_ else None
        call_id = made.call_id if made else f"call_{uuid.uuid4().hex}"
        if call_id in attempt.replay_state.results:
            return attempt.replay_state.results[call_id]
        use = ToolUseBlock(fidelity="router", tool_name=name, tool_id=call_id, tool_input=given)
        tool = self.get(name)
        if tool.handler is not None:
            return await self._execute(attempt, step_key, use, tool)
        awaits = (made and made.awaits) or _awaits(attempt, name, timeout_seconds=timeout_seconds)
        if made is None:
            await attempt.append(_call(use, awaits), step_key)
        return await wait_for_answer(attempt, call_id, awaits)

    async def _execute(self, attempt: Attempt, step_key: StepKey, use: ToolUseBlock, tool: Tool) -> ToolResult:
        if use.tool_id not in attempt.replay_state.calls:
            await attempt.append(_call(use, None), step_key)
        elif not tool.read_only:
            raise OutcomeUnknown(
                f"a crash cut off the call of {use.tool_name!r}: whether it was done is not known",
                hint="look at what it did; a tool marked `readOnly` is called again",
            )
        if not tool.read_only:
            # Intent before effect: a power cut must not make us forget that it was called.
            await attempt.make_durable()
        began = time.monotonic()
        output: Any = None
        error: str | None = None
        if tool.handler is not None:
            try:
                async with attempt.hold_slot():
                    output = _kept(await call_function(tool.handler, use.tool_input))
            except CANCELLATION_EXCEPTIONS:
                raise
            except BaseException as raised:  # noqa: BLE001 - whatever its code raises is what the call gave
                error = as_run_failed(raised).message
        result = ToolResult(
            name=use.tool_name,
            call_id=use.tool_id,
            input=None,
            output=output,
            error=error,
            duration_ms=round((time.monotonic() - began) * 1000),
            fidelity="router",
        )
        # It is done: that is on record, also where the run is being left just now.
        with anyio.CancelScope(shield=True):
            await attempt.append(result, step_key)
        return result

    async def _refuse(self, attempt: Attempt, step_key: StepKey, use: ToolUseBlock) -> None:
        """A model may ask for what is not there: it is told so, and goes on."""
        if use.tool_id not in attempt.replay_state.calls:
            await attempt.append(_call(use, None), step_key)
        refusal = f"there is no tool {use.tool_name!r}"
        await attempt.append(
            ToolResult(
                name=use.tool_name, call_id=use.tool_id, input=None, output=None, error=refusal, fidelity="router"
            ),
            step_key,
        )


def _call(use: ToolUseBlock, awaits: Awaits | None) -> ToolCall:
    return ToolCall(
        name=use.tool_name, call_id=use.tool_id, input=use.tool_input, output=None, fidelity="router", awaits=awaits
    )


def _awaits(attempt: Attempt, name: str, *, more: int = 0, timeout_seconds: float | None = None) -> Awaits:
    """What a call waits for, and until when: `timeout_seconds` is the worker's limit, the client has one of its own."""
    kind = "question" if name == ASK else "client_tool"
    first = attempt.replay_state.first
    client_wait = first.client_wait_seconds if first is not None and kind == "client_tool" else None
    cancels = client_wait is not None and (timeout_seconds is None or client_wait < timeout_seconds)
    seconds = client_wait if cancels else timeout_seconds
    until = None if seconds is None else format_timestamp(int((time.time() + seconds) * 1000))
    return Awaits(kind=kind, until=until, more=more, cancels=cancels)


async def call_function(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the worker's: one that is not async in a thread."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    # A thread cannot be stopped: who leaves does not wait for it.
    result = await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def _kept(output: Any) -> Any:
    """What a tool gave, as the log can hold it."""
    try:
        encoded = msgspec.json.encode(output)
    except TypeError as error:
        raise StepFailed(f"the tool gave what is no JSON: {error}") from error
    if len(encoded) > TOOL_OUTPUT_BYTES:
        raise StepFailed(f"the tool gave {len(encoded):,} bytes, and {TOOL_OUTPUT_BYTES:,} is the most")
    return msgspec.json.decode(encoded)
