"""Calls that a run waits for: answered from outside, or by themselves when their time has come."""

from __future__ import annotations

import time
import uuid
from datetime import datetime
from typing import Any

import anyio

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.journal import Place
from shopfloor.errors import AnswerTimeout
from shopfloor.log import Awaits, ToolCall, ToolResult, now, timestamp_of
from shopfloor.ports import Order


async def answer(attempt: Attempt, call_id: str, awaits: Awaits) -> ToolResult:
    """Wait for the result of a call, however long that takes. Raises `AnswerTimeout` where its time has passed."""
    await _wait(attempt, call_id, awaits.until)
    async with attempt.settling:
        if call_id in attempt.journal.results:
            return attempt.journal.results[call_id]
        place, call = attempt.journal.calls[call_id]
        late = AnswerTimeout(f"nobody answered {call.name!r} until {awaits.until}")
        if not awaits.cancels:
            await attempt.append(_result(call, error=late.message), place)
            raise late
    await attempt.cancel_tree(attempt, f"its client did not continue it: {call.name!r} waited until {awaits.until}")
    async with attempt.waiting():
        await anyio.sleep_forever()
    raise late


async def rest_for(attempt: Attempt, place: Place, reason: str, seconds: float) -> None:
    """Wait by a call that answers itself: everybody sees it, and no restart cuts it short."""
    until = timestamp_of(round((time.time() + seconds) * 1000))
    call = ToolCall(
        name=reason,
        call_id=f"{reason}_{uuid.uuid4().hex}",
        input={"until": until},
        output=None,
        fidelity="router",
        awaits=Awaits(kind=reason, until=until),
    )
    await attempt.append(call, place)
    await rest_on(attempt, place, reason)


async def rest_on(attempt: Attempt, place: Place, reason: str) -> None:
    """Wait out what is left of such calls; an earlier attempt may have begun them."""
    for call in [call for at, call in attempt.journal.calls.values() if at == place and call.name == reason]:
        await _wait(attempt, call.call_id, call.awaits.until if call.awaits else None)
        async with attempt.settling:
            if call.call_id not in attempt.journal.results:
                await attempt.append(_result(call), place)


async def deliver(attempt: Attempt, order: Order) -> None:
    """Take up an order: when this returns the log has it, or it means nothing here."""
    if order.kind == "cancel":
        if attempt.leaving != "cancelled":
            attempt.cancel(str(order.body.get("reason") or "cancelled"))
        return
    call_id = str(order.body.get("call_id"))
    async with attempt.settling:
        if order.kind != "answer" or call_id not in attempt.journal.awaited:
            return
        place, call = attempt.journal.calls[call_id]
        await attempt.append(_result(call, order.body.get("result"), error=order.body.get("error")), place)
    attempt.notify(call_id)


async def _wait(attempt: Attempt, call_id: str, until: str | None) -> None:
    """Return when the call has its result, or its time has come."""
    with attempt.news(call_id) as news:
        if call_id not in attempt.journal.results:
            async with attempt.waiting():
                with anyio.move_on_after(_seconds_until(until)):
                    await news.wait()


def _result(call: ToolCall, output: Any = None, *, error: str | None = None) -> ToolResult:
    return ToolResult(name=call.name, call_id=call.call_id, input=None, output=output, error=error, fidelity="router")


def _seconds_until(until: str | None) -> float | None:
    if until is None:
        return None
    return max(0.0, (datetime.fromisoformat(until) - datetime.fromisoformat(now())).total_seconds())
