"""Tools that the caller's side executes: handlers by name, and what they gave."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from shopfloor.views import RequestedCall

Handler = Callable[[dict[str, Any]], Any]
"""Takes the arguments as a dict and gives the result; may be async. One that is not works in a thread of its own."""
ToolHandlers = Mapping[str, Handler]


class CallResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a call gave, or why it gave nothing."""

    tool_call_id: str
    tool_name: str | None = None
    result: Any = msgspec.UNSET
    """Anything that can be sent as JSON; also None. Left out where there is an error."""
    error: str | None = None


async def executed(handlers: ToolHandlers, calls: Sequence[RequestedCall]) -> list[CallResult]:
    """What the handlers give for these calls, in their order. They work at the same time."""
    results: dict[str, CallResult] = {}

    async def execute(call: RequestedCall) -> None:
        results[call.tool_call_id] = await _result(handlers[call.tool_name], call)

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(execute, call)
    return [results[call.tool_call_id] for call in calls]


async def _result(handler: Handler, call: RequestedCall) -> CallResult:
    try:
        given = await _called(handler, call.args)
    except Exception as error:  # noqa: BLE001 - a handler may raise anything; the worker is told
        said = str(error) or type(error).__name__
        return CallResult(tool_call_id=call.tool_call_id, tool_name=call.tool_name, error=said)
    try:
        msgspec.json.encode(given)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        said = f"the handler of {call.tool_name!r} gave what cannot be sent as JSON: {error}"
        return CallResult(tool_call_id=call.tool_call_id, tool_name=call.tool_name, error=said)
    return CallResult(tool_call_id=call.tool_call_id, tool_name=call.tool_name, result=given)


async def _called(handler: Handler, args: Any) -> Any:
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return await handler(args)
    # Left alone when the execution is cancelled: a thread cannot be ended, and the caller need not wait for it.
    given = await anyio.to_thread.run_sync(handler, args, abandon_on_cancel=True)
    return await given if inspect.isawaitable(given) else given
