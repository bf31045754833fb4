"""Calls that a run waits for: questions answered from outside, and durable timers that end by themselves."""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from typing import Any

import anyio

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.replay_state import StepKey
from shopfloor.errors import AnswerTimeout
from shopfloor.log import Awaits, ToolCall, ToolResult, format_timestamp, now
from shopfloor.ports import ControlMessage


async def wait_for_answer(attempt: Attempt, call_id: str, awaits: Awaits) -> ToolResult:
    """Wait for the result of a call and return it. Raises `AnswerTimeout` after `awaits.until`.

    If `awaits.cancels` is set, a time-out cancels the whole tree of the run instead.
    """
    await _wait(attempt, call_id, awaits.until)
    async with attempt.answer_lock:
        if call_id in attempt.replay_state.results:
            return attempt.replay_state.results[call_id]
        step_key, call = attempt.replay_state.calls[call_id]
        timeout = AnswerTimeout(f"no answer to {call.name!r} by {awaits.until}")
        if not awaits.cancels:
            await attempt.append(_result(call, error=timeout.message), step_key)
            raise timeout
    await attempt.cancel_tree(attempt, f"the client did not answer {call.name!r} by {awaits.until}")
    async with attempt.yield_slot():
        await anyio.sleep_forever()
    raise timeout


async def durable_sleep(attempt: Attempt, step_key: StepKey, reason: str, seconds: float) -> None:
    """Sleep, recorded as a call that ends by itself, so that viewers see the wait and it survives restarts."""
    until = format_timestamp(round((time.time() + seconds) * 1000))
    call = ToolCall(
        name=reason,
        call_id=f"{reason}_{uuid.uuid4().hex}",
        input={"until": until},
        output=None,
        fidelity="router",
        awaits=Awaits(kind=reason, until=until),
    )
    await attempt.append(call, step_key)
    await finish_durable_sleeps(attempt, step_key, reason)


async def finish_durable_sleeps(attempt: Attempt, step_key: StepKey, reason: str) -> None:
    """Wait for the end of the open durable sleeps of a step, which an earlier attempt may have started."""
    for call in [call for at, call in attempt.replay_state.calls.values() if at == step_key and call.name == reason]:
        await _wait(attempt, call.call_id, call.awaits.until if call.awaits else None)
        async with attempt.answer_lock:
            if call.call_id not in attempt.replay_state.results:
                await attempt.append(_result(call), step_key)


async def deliver(attempt: Attempt, message: ControlMessage) -> None:
    """Apply a control message: record an answer, or request the cancellation of the run.

    On return the log has the answer, or the message does not concern this attempt. The outcome of the run records a
    cancellation.
    """
    if message.kind == "cancel":
        if attempt.interruption != "cancelled":
            attempt.cancel(str(message.body.get("reason") or "cancelled"))
        return
    call_id = str(message.body.get("call_id"))
    async with attempt.answer_lock:
        if message.kind != "answer" or call_id not in attempt.replay_state.pending_call_ids:
            return
        step_key, call = attempt.replay_state.calls[call_id]
        await attempt.append(_result(call, message.body.get("result"), error=message.body.get("error")), step_key)
    attempt.notify(call_id)


async def _wait(attempt: Attempt, call_id: str, until: str | None) -> None:
    """Return when the call has a result, or at the time `until`."""
    with attempt.notification(call_id) as notification:
        if call_id not in attempt.replay_state.results:
            async with attempt.yield_slot():
                with anyio.move_on_after(_seconds_until(until)):
                    await notification.wait()


def _result(call: ToolCall, output: Any = None, *, error: str | None = None) -> ToolResult:
    return ToolResult(name=call.name, call_id=call.call_id, input=None, output=output, error=error, fidelity="router")


def _seconds_until(until: str | None) -> float | None:
    if until is None:
        return None
    return max(0.0, (datetime.fromisoformat(until) - datetime.fromisoformat(now())).total_seconds())
