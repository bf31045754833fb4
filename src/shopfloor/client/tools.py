"""Client tools: handlers that the caller provides by name, and their results."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from shopfloor.views import RequestedCall

Handler = Callable[[dict[str, Any]], Any]
"""Takes the arguments as a dict and returns the result. May be async; a plain function runs in a thread."""
ToolHandlers = Mapping[str, Handler]


class CallResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The result of a call, or why it failed."""

    tool_call_id: str
    tool_name: str | None = None
    result: Any = msgspec.UNSET
    """Anything that JSON can represent, None included. Unset if there is an error."""
    error: str | None = None


async def executed(handlers: ToolHandlers, calls: Sequence[RequestedCall]) -> list[CallResult]:
    """Execute calls with their handlers, all at the same time. Return the results in the order of the calls.

    An exception of a handler becomes the error of its result.
    """
    results: dict[str, CallResult] = {}

    async def execute(call: RequestedCall) -> None:
        results[call.tool_call_id] = await _execute_call(handlers[call.tool_name], call)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(execute, call)
    return [results[call.tool_call_id] for call in calls]


async def _execute_call(handler: Handler, call: RequestedCall) -> CallResult:
    try:
        result = await _call_handler(handler, call.args)
    except Exception as error:  # noqa: BLE001 - a handler may raise anything; the worker gets it as an error
        message = str(error) or type(error).__name__
        return CallResult(tool_call_id=call.tool_call_id, tool_name=call.tool_name, error=message)
    try:
        msgspec.json.encode(result)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"the handler of {call.tool_name!r} returned a value that cannot be sent as JSON: {error}"
        return CallResult(tool_call_id=call.tool_call_id, tool_name=call.tool_name, error=message)
    return CallResult(tool_call_id=call.tool_call_id, tool_name=call.tool_name, result=result)


async def _call_handler(handler: Handler, args: Any) -> Any:
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return await handler(args)
    # Abandoned when the execution is cancelled: a thread cannot be stopped, and the caller must not wait for it.
    result = await anyio.to_thread.run_sync(handler, args, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result
