"""Tool calls: execution and recording."""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from shopfloor.engine.approvals import ApprovalGate, step_call_key
from shopfloor.engine.attempt import Attempt
from shopfloor.engine.awaited_calls import wait_for_answer
from shopfloor.engine.error_mapping import CANCELLATION_EXCEPTIONS, as_run_failed, format_worker_traceback
from shopfloor.engine.replay_state import StepKey
from shopfloor.engine.steps.builtin_tools import ASK, BUILTIN_TOOLS
from shopfloor.engine.steps.tool_definitions import Tool, ToolContext
from shopfloor.engine.worker_output import capture_output
from shopfloor.errors import OutcomeUnknown, StepFailed
from shopfloor.limits import TOOL_OUTPUT_BYTES
from shopfloor.log import Awaits, ToolCall, ToolResult, ToolUseBlock, format_timestamp
from shopfloor.ports import Blobs


class Tools:
    """The tools of one run."""

    def __init__(self, tools: Mapping[str, Tool], blobs: Blobs, gate: ApprovalGate | None = None) -> None:
        """Create the tools. Calls that match a pattern of `gate` are made only once a person has approved them."""
        self._tools = {**BUILTIN_TOOLS, **tools}
        self._blobs = blobs
        self._gate = gate

    def select(self, names: Sequence[str]) -> list[Tool]:
        return [self.get(name) for name in names]

    def get(self, name: str) -> Tool:
        tool = self._tools.get(name)
        if tool is None:
            raise StepFailed(
                f"there is no tool {name!r}", hint=f"the tools of this worker are {', '.join(sorted(self._tools))}"
            )
        return tool

    async def call_all(self, attempt: Attempt, step_key: StepKey, uses: Sequence[ToolUseBlock]) -> None:
        """Make every call of a message and wait for all results: first our own tools, then those of clients."""
        replay_state = attempt.replay_state
        open_uses = [use for use in uses if use.tool_id not in replay_state.results]
        waiting: list[ToolUseBlock] = []
        approvals = await self._request_approvals(attempt, step_key, open_uses)
        for use in open_uses:
            tool = self._tools.get(use.tool_name)
            approval_id = approvals.get(use.tool_id)
            denial = await self._gate.wait(approval_id) if self._gate is not None and approval_id is not None else None
            if tool is None:
                await self._record_error(attempt, step_key, use, f"there is no tool {use.tool_name!r}")
            elif denial is not None:
                await self._record_error(attempt, step_key, use, denial)
            elif tool.handler is None:
                waiting.append(use)
            else:
                await self._execute(attempt, step_key, use, tool)
        for n, use in enumerate(waiting):
            if use.tool_id not in replay_state.calls or use.tool_id in replay_state.stale_calls:
                awaits = _awaits(attempt, use.tool_name, more=len(waiting) - n - 1)
                await attempt.append(_tool_call(use, awaits), step_key)
        for use in waiting:
            # If the result came before this wait, the call is closed.
            recorded = replay_state.calls.get(use.tool_id)
            awaits = recorded[1].awaits if recorded else None
            await wait_for_answer(attempt, use.tool_id, awaits or Awaits(kind="client_tool"))

    async def _request_approvals(
        self, attempt: Attempt, step_key: StepKey, uses: Sequence[ToolUseBlock]
    ) -> dict[str, str]:
        """Request the approvals of all calls at once; return the id of each approval by the id of its call."""
        found: dict[str, str] = {}
        if self._gate is None:
            return found
        # A call in the log was approved before.
        unmade = [use for use in uses if use.tool_id not in attempt.replay_state.calls and use.tool_name in self._tools]
        for n, use in enumerate(unmade):
            more = [
                later
                for later in unmade[n + 1 :]
                if await self._gate.find_pattern(later.tool_name, later.tool_input) is not None
            ]
            approval_id = await self._gate.request(step_key, use.tool_id, use.tool_name, use.tool_input, more=len(more))
            if approval_id is not None:
                found[use.tool_id] = approval_id
        return found

    async def call(
        self,
        attempt: Attempt,
        step_key: StepKey,
        name: str,
        tool_input: Any,
        *,
        try_: int = 1,
        timeout_seconds: float | None = None,
    ) -> ToolResult:
        """Make a call that no model requested. The log has its id, by which a later attempt recognizes it.

        A further try of the step makes a further call: the log has at most one per try.
        """
        calls = [event for event in attempt.conversation(step_key) if isinstance(event, ToolCall)]
        recorded = calls[-1] if len(calls) >= try_ else None
        call_id = recorded.call_id if recorded else f"call_{uuid.uuid4().hex}"
        if call_id in attempt.replay_state.results:
            return attempt.replay_state.results[call_id]
        use = ToolUseBlock(fidelity="router", tool_name=name, tool_id=call_id, tool_input=tool_input)
        tool = self.get(name)
        if self._gate is not None and recorded is None:
            denial = await self._gate.check(step_key, step_call_key(step_key, try_), name, tool_input)
            if denial is not None:
                return await self._record_error(attempt, step_key, use, denial)
        if tool.handler is not None:
            return await self._execute(attempt, step_key, use, tool)
        awaits = (recorded and recorded.awaits) or _awaits(attempt, name, timeout_seconds=timeout_seconds)
        if recorded is None:
            await attempt.append(_tool_call(use, awaits), step_key)
        return await wait_for_answer(attempt, call_id, awaits)

    async def _execute(self, attempt: Attempt, step_key: StepKey, use: ToolUseBlock, tool: Tool) -> ToolResult:
        if use.tool_id not in attempt.replay_state.calls:
            await attempt.append(_tool_call(use, None), step_key)
        elif not tool.read_only:
            raise OutcomeUnknown(
                f"a crash interrupted the call of {use.tool_name!r}, and its outcome is unknown",
                hint="check what the tool did; only tools marked `readOnly` are called again",
            )
        if not tool.read_only:
            # The call is recorded first, so that a crash or a power cut cannot hide it.
            await attempt.make_durable()
        started = time.monotonic()
        output: Any = None
        error: str | None = None
        if tool.handler is not None:
            try:
                async with attempt.hold_slot():
                    context = (ToolContext(attempt, self._blobs),) if tool.needs_context else ()
                    with capture_output(attempt, step_key):
                        output = to_json_value(await call_function(tool.handler, *context, use.tool_input))
            except CANCELLATION_EXCEPTIONS:
                raise
            except BaseException as raised:  # noqa: BLE001 - any exception of the tool is its result
                failure = as_run_failed(raised)
                error = failure.message
                if (traceback := format_worker_traceback(failure)) is not None:
                    attempt.output.add(step_key, "stderr", f"{traceback}\n", attempt.mask)
        result = ToolResult(
            name=use.tool_name,
            call_id=use.tool_id,
            input=None,
            output=output,
            error=error,
            duration_ms=round((time.monotonic() - started) * 1000),
            fidelity="router",
        )
        # The tool has been executed, so record the result even if the run is being abandoned.
        with anyio.CancelScope(shield=True):
            await attempt.append(result, step_key)
        return result

    async def _record_error(self, attempt: Attempt, step_key: StepKey, use: ToolUseBlock, error: str) -> ToolResult:
        """Record a call that is not made, with the reason as its result. A model sees the reason and continues."""
        if use.tool_id not in attempt.replay_state.calls:
            await attempt.append(_tool_call(use, None), step_key)
        result = ToolResult(
            name=use.tool_name, call_id=use.tool_id, input=None, output=None, error=error, fidelity="router"
        )
        await attempt.append(result, step_key)
        return result


def _tool_call(use: ToolUseBlock, awaits: Awaits | None) -> ToolCall:
    return ToolCall(
        name=use.tool_name, call_id=use.tool_id, input=use.tool_input, output=None, fidelity="router", awaits=awaits
    )


def _awaits(attempt: Attempt, name: str, *, more: int = 0, timeout_seconds: float | None = None) -> Awaits:
    """Return what a call waits for, and until when: `timeout_seconds` or the client's own limit if that is earlier."""
    kind = "question" if name == ASK else "client_tool"
    first = attempt.replay_state.first
    client_wait = first.client_wait_seconds if first is not None and kind == "client_tool" else None
    cancels = client_wait is not None and (timeout_seconds is None or client_wait < timeout_seconds)
    seconds = client_wait if cancels else timeout_seconds
    until = None if seconds is None else format_timestamp(int((time.time() + seconds) * 1000))
    return Awaits(kind=kind, until=until, more=more, cancels=cancels)


async def call_function(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the worker, in a thread if it is not async."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    # A thread cannot be stopped, so a cancelled caller does not wait for it.
    result = await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def to_json_value(output: Any) -> Any:
    """Return the output as plain JSON values. Raises `StepFailed` if it is not JSON or too large."""
    try:
        encoded = msgspec.json.encode(output)
    except TypeError as error:
        raise StepFailed(f"the tool returned a value that cannot be encoded as JSON: {error}") from error
    if len(encoded) > TOOL_OUTPUT_BYTES:
        raise StepFailed(f"the tool returned {len(encoded):,} bytes; at most {TOOL_OUTPUT_BYTES:,} are allowed")
    return msgspec.json.decode(encoded)
