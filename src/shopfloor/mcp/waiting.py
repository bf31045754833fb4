"""Waiting for runs: until one changes its status, asks something or ends. Questions are put to the client's user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio

from shopfloor.errors import ConflictError, RunEnded
from shopfloor.mcp.limits import MCP_POLL_MAX_SECONDS, MCP_POLL_SECONDS, MCP_PROGRESS_SECONDS
from shopfloor.mcp.output import is_answerable, pending_calls, question_options, question_text, to_status
from shopfloor.mcp.session import InputRequired, Session

Detail = dict[str, Any]


async def fetch_detail(session: Session, run_id: str) -> Detail:
    """Return the detail of a run, without its transcript."""
    return await session.api.get("/api/agents/workers/detail", worker_id=run_id, transcript=False)


async def wait_for_change(
    session: Session, run_ids: Sequence[str], timeout_seconds: float, *, until_end: bool = False
) -> list[Detail]:
    """Wait until one of the runs ends, asks something or changes its status; return the details of all of them.

    A run that had ended before counts only if all have ended. With `until_end` a start is no change. A question that
    the client's user answers is no change either: the run continues. Returns after the timeout at the latest, not
    counting the time that the user takes for an answer.
    """
    first: dict[str, str] = {}
    declined: set[str] = set()
    pause_seconds = MCP_POLL_SECONDS
    progress = _Progress(session)
    deadline = anyio.current_time() + timeout_seconds
    while True:
        details = [await fetch_detail(session, run_id) for run_id in run_ids]
        for detail in details:
            first.setdefault(detail["id"], detail["status"])
        question = next((found for detail in details if (found := _question(detail, declined))), None)
        if question is not None and session.ask_mode != "none":
            paused_at = anyio.current_time()
            if not await _ask_user(session, *question):
                declined.add(question[1]["call_id"])
            deadline += anyio.current_time() - paused_at
            pause_seconds = MCP_POLL_SECONDS
            continue
        changed = any(_has_changed(detail, first[detail["id"]], until_end=until_end) for detail in details)
        all_ended = all(detail["completed_at"] is not None for detail in details)
        if changed or all_ended or anyio.current_time() >= deadline:
            return details
        await progress.report(details)
        await anyio.sleep(min(pause_seconds, max(0.0, deadline - anyio.current_time())))
        pause_seconds = min(pause_seconds * 1.5, MCP_POLL_MAX_SECONDS)


async def wait_for_end(session: Session, run_id: str, timeout_seconds: float) -> Detail:
    """Wait until a run has ended, whatever it asks; return its detail, after the timeout at the latest."""
    pause_seconds = MCP_POLL_SECONDS
    deadline = anyio.current_time() + timeout_seconds
    while True:
        detail = await fetch_detail(session, run_id)
        if detail["completed_at"] is not None or anyio.current_time() >= deadline:
            return detail
        await anyio.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, MCP_POLL_MAX_SECONDS)


def _has_changed(detail: Detail, first_status: str, *, until_end: bool) -> bool:
    if any(map(is_answerable, pending_calls(detail))):
        return True
    is_change = detail["status"] != first_status
    return is_change and (not until_end or detail["completed_at"] is not None)


def _question(detail: Detail, declined: set[str]) -> tuple[str, Mapping[str, Any]] | None:
    """Return a question of the run for the user. Tool calls are for the agent."""
    for call in pending_calls(detail):
        if is_answerable(call) and call["kind"] != "client_tool" and call["call_id"] not in declined:
            return detail["id"], call
    return None


async def _ask_user(session: Session, run_id: str, call: Mapping[str, Any]) -> bool:
    """Ask the client's user and send the answer to the run; return False if the user declined."""
    if session.ask_mode == "retry":
        is_known, answer = session.repeated_answer(call["call_id"])
        if not is_known:
            raise InputRequired(call, run_id)
    else:
        answer = await _ask_until_answered(session, run_id, call)
    if answer is _ANSWERED_ELSEWHERE:
        return True
    if answer is None:
        return False
    try:
        await session.api.post(f"/api/runs/{call['run_id']}/answer", {"call_id": call["call_id"], "answer": answer})
    except (ConflictError, RunEnded):
        # Answered elsewhere, or the run has ended: the next look at the run shows it.
        return True
    return True


_ANSWERED_ELSEWHERE = object()


async def _ask_until_answered(session: Session, run_id: str, call: Mapping[str, Any]) -> Any:
    """Ask the user. Stop asking when the question is answered elsewhere, for example on the run's page."""
    answer: Any = _ANSWERED_ELSEWHERE

    async def stop_when_answered() -> None:
        is_open = True
        while is_open:
            await anyio.sleep(MCP_POLL_MAX_SECONDS)
            calls = pending_calls(await fetch_detail(session, run_id))
            is_open = any(other["call_id"] == call["call_id"] for other in calls)
        tasks.cancel_scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop_when_answered)
        message = f"Run {run_id[:8]} asks: {question_text(call)}"
        answer = await session.ask(message, question_options(call))
        tasks.cancel_scope.cancel()
    return answer


class _Progress:
    """Reports progress when something has changed, and every few seconds."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._started_at = anyio.current_time()
        self._reported_at = 0.0
        self._message = ""

    async def report(self, details: Sequence[Detail]) -> None:
        message = "; ".join(_progress_line(detail) for detail in details)
        now = anyio.current_time()
        if message != self._message or now >= self._reported_at + MCP_PROGRESS_SECONDS:
            self._message, self._reported_at = message, now
            await self._session.report_progress(round(now - self._started_at, 3), message)


def _progress_line(detail: Detail) -> str:
    calls = f", {detail['tool_calls']} tool calls" if detail["tool_calls"] else ""
    return f"{detail['name']} {detail['id'][:8]} {to_status(detail['status'])}{calls}"
