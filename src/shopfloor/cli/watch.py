"""Following a run to its end: what it does is shown, what it waits for is asked of who is there."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

import anyio

from shopfloor.cli import pending_calls
from shopfloor.cli.client_session import wait_for_outcome
from shopfloor.cli.echo import Echo
from shopfloor.cli.pending_calls import (
    PendingCall,
    call_summary,
    fetch_pending_calls,
    pending_call_lines,
    question_options,
    waiting_run_id,
)
from shopfloor.cli.renderer import RenderOptions, RunRenderer, summary_line
from shopfloor.cli.style import escape_controls, one_line
from shopfloor.client import (
    CallResult,
    Client,
    ClientToolRequest,
    ErrorEvent,
    Finish,
    Notice,
    Question,
    Start,
    StreamEvent,
    ToolHandlers,
    ToolOutputAvailable,
    ToolOutputError,
    ToolRequest,
    UnknownEvent,
    WorkerResult,
    failure_of,
)
from shopfloor.errors import ExecutionCancelled, ServerUnreachable, ShopfloorError, exit_code_of
from shopfloor.limits import FOLLOW_SILENCE_SECONDS, PREVIEW_CHARS, PROGRESS_REDRAW_SECONDS
from shopfloor.ports import OutputChunk
from shopfloor.views import CLIENT_TOOL, DEFINITION_CHANGED, finish, split_call_id

EventStream = AsyncGenerator[StreamEvent | UnknownEvent]
WAITING_EXIT = 75
"""As EX_TEMPFAIL: not now, but later."""
_WAITS = frozenset({"tool-calls", "question", "waiting"})


class ContinueRun(Protocol):
    """Goes on with a run that waits, with what somebody gave."""

    def __call__(self, run_id: str, results: list[CallResult]) -> EventStream: ...


class RunWatcher:
    """One run, followed. It is cancelled by the first signal that comes, unless `cancel_on_signal` is False."""

    def __init__(self, look: RenderOptions, *, cancel_on_signal: bool = True) -> None:
        self.tools: ToolHandlers = {}
        """The tools that are executed here."""
        self.requested_tools: set[str] = set()
        """The tools that were asked for, by the run or by one below it."""
        self._look = look
        self._live = RunRenderer(look)
        self._cancels = cancel_on_signal
        self._began: float | None = None
        """When we were told that it is there."""
        self._run_id: str | None = None
        self._open: dict[str, PendingCall] = {}
        """What it waits for, by call."""
        self._held: str | None = None
        """Why nobody can give what it waits for: its definition changed."""
        self._finish: Finish | None = None
        self._error: ErrorEvent | None = None
        self._result: WorkerResult | None = None
        self._failure: ShopfloorError | None = None
        self._code: int | None = None
        """Our exit code, where it is not for the run to say."""
        self._reason = ""
        self._typing = False
        self._following = False
        self._told_at = 0.0
        """When it was last heard of."""

    def add_open_questions(self, run_id: str, calls: Sequence[dict[str, Any]]) -> None:
        """Take in what a run that is resumed has asked before; client tools are requested again by the run."""
        for call in calls:
            if call["kind"] == "question" and waiting_run_id(call, run_id) == run_id and not call.get("answered"):
                given: dict[str, Any] = call["input"] or {}
                self._open[call["call_id"]] = Question(
                    execution_id=run_id,
                    call_id=call["call_id"],
                    question=str(given.get("question", "")),
                    options=question_options(call) or None,
                )

    # Being told to stop.

    def on_signal(self, number: int) -> bool:
        """Takes in a signal. The second is for whoever wants to leave at once."""
        if not self._cancels or not self._following or self._code is not None:
            return False
        self._stop(f"cancelled by {signal.Signals(number).name}", 128 + number)
        return True

    def _output_closed(self) -> None:
        if self._code is None:
            self._stop("the output was closed", 128 + signal.SIGPIPE)

    def _stop(self, reason: str, code: int) -> None:
        self._reason, self._code = reason, code
        self._stopping.set()

    async def _cancel_when_told(self, client: Client, abort: anyio.Event, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        if not self._cancels:
            scope.cancel()
            return
        await self._write(self._live.note("cancelling; Ctrl-C again leaves at once"))
        if self._run_id is None:
            abort.set()
        else:
            # That it has ended by itself is just as well.
            with suppress(ShopfloorError):
                await client.workers.cancel(self._run_id, reason=self._reason)

    # Following.

    async def follow(self, client: Client, begin: StartRun, continue_run: ContinueRun | None = None) -> int:
        """Shows it up to its end, or until it waits for somebody who is not here. Gives the exit code.

        Raises what kept the run from being made.
        """
        abort = anyio.Event()
        self._stopping = anyio.Event()
        self._echo = Echo(self._output_closed)
        self._following = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_when_told, client, abort, tasks.cancel_scope)
            tasks.start_soon(self._draw)
            tasks.start_soon(self._look_below, client)
            try:
                await self._to_the_end(client, begin(abort), continue_run)
            except ShopfloorError as error:
                self._failure = error
            tasks.cancel_scope.cancel()
        await self._write(self._live.pause())
        return await self._closed()

    async def _to_the_end(self, client: Client, events: EventStream, continue_run: ContinueRun | None) -> None:
        while await self._waits_after(events) and continue_run is not None and self._run_id is not None:
            results = await self._asked_of_a_person()
            if not results:
                break
            for one in results:
                self._open.pop(one.tool_call_id, None)
            events = continue_run(self._run_id, results)
        if self._code is not None and self._cancels and self._run_id is not None and self._result is None:
            detail = await wait_for_outcome(client, self._run_id)
            self._result = WorkerResult(worker_id=self._run_id, error=self._reason)
            self._finish = finish("stop" if detail["status"] == "done" else "cancelled")

    async def _waits_after(self, events: EventStream) -> bool:
        """Tells of these events; whether the run waits for somebody then."""
        self._finish = None
        async with aclosing(events):
            async for event in events:
                self._told_at = time.monotonic()
                self._note(event)
                await self._write(self._live.render_event(event))
                if isinstance(event, ToolRequest):
                    await self._tell_of_calls_below(event)
                if isinstance(event, Finish) and not self._cancels:
                    await self._say_what_is_open()
        last = self._finish
        return last is not None and last.reason in _WAITS and self._code is None

    def _note(self, event: StreamEvent | UnknownEvent) -> None:
        match event:
            case Start(execution_id=run_id):
                self._run_id = run_id
                self._began = self._began or time.monotonic()
            case ToolRequest(tool_calls=calls) | ClientToolRequest(tool_calls=calls):
                self._open |= {call.tool_call_id: call for call in calls}
                self.requested_tools |= {call.tool_name for call in calls}
            case Question(call_id=call_id, waits=True):
                self._open[call_id] = event
            case ToolOutputAvailable(tool_call_id=call_id) | ToolOutputError(tool_call_id=call_id):
                self._open.pop(call_id, None)
            case Notice(kind=kind, message=message) if kind == DEFINITION_CHANGED:
                self._held = message
            case ErrorEvent():
                self._error = event
            case WorkerResult():
                self._result = event
            case Finish():
                self._finish = event
            case _:
                pass

    async def _say_what_is_open(self) -> None:
        """To whoever follows a run of somebody else's: it goes on when that is answered."""
        calls = [_as_awaited(one) for one in self._open.values()]
        for line in pending_call_lines(self._run_id or "", calls):
            await self._write(self._live.note(line))

    async def _tell_of_calls_below(self, request: ToolRequest) -> None:
        for call in request.tool_calls:
            below, _ = split_call_id(call.tool_call_id)
            if below is not None:
                await self._write(self._live.note(f"sub-run {below[:8]} asks for {call_summary(_as_awaited(call))}"))

    async def _look_below(self, client: Client) -> None:
        """A run that says nothing may have called one that waits for somebody."""
        seen: set[str] = set()
        while True:
            await anyio.sleep(FOLLOW_SILENCE_SECONDS)
            silent = time.monotonic() - self._told_at >= FOLLOW_SILENCE_SECONDS
            if self._run_id is None or self._typing or not silent:
                continue
            for call in await _awaited_below(client, self._run_id):
                served = call["kind"] == CLIENT_TOOL and call["name"] in self.tools
                if call["call_id"] not in seen and not served:
                    seen.add(call["call_id"])
                    for line in pending_call_lines(self._run_id, [call]):
                        await self._write(self._live.note(line))

    async def _asked_of_a_person(self) -> list[CallResult]:
        results: list[CallResult] = []
        if self._look.as_json or self._held or not pending_calls.is_interactive():
            return results
        self._typing = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._leave_when_told, tasks.cancel_scope)
            results = await pending_calls.prompt_for_results(list(self._open.values()), self._say)
            tasks.cancel_scope.cancel()
        self._typing = False
        return results

    async def _leave_when_told(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    async def _say(self, text: str) -> None:
        await self._write([*self._live.pause(), OutputChunk("stderr", text.encode("utf-8", "replace"))])

    async def _draw(self) -> None:
        while True:
            if not self._typing:
                await self._write(self._live.tick())
            await anyio.sleep(PROGRESS_REDRAW_SECONDS)

    async def _write(self, pieces: Sequence[OutputChunk]) -> None:
        if pieces:
            await self._echo.pieces(pieces)

    # How it ended.

    async def _closed(self) -> int:
        if self._run_id is None or (self._failure is not None and self._result is None):
            return self._not_followed()
        if self._result is None:
            return await self._left_waiting(self._run_id)
        cancelled = self._finish is not None and self._finish.reason == "cancelled"
        lines: list[str] = []
        if self._error is not None:
            lines = error_lines(self._error.code, self._error.message, self._error.hint)
        elif cancelled and self._code is None:
            lines = error_lines(ExecutionCancelled.code, self._result.error or "the run was cancelled", None)
        status = "failed" if self._error else "cancelled" if cancelled else "completed"
        await self._last_words(status, self._run_id, lines)
        if self._code is not None:
            return self._code
        if self._error is not None:
            return exit_code_of(self._error.code)
        return ExecutionCancelled.exit_code if cancelled else 0

    def _not_followed(self) -> int:
        if self._code is not None:
            return self._code
        if self._failure is not None:
            raise self._failure
        if self._error is not None:
            raise failure_of(self._error)
        raise ServerUnreachable("the server said nothing of a run", hint="is it a Shopfloor server?")

    async def _left_waiting(self, run_id: str) -> int:
        calls = [_as_awaited(one) for one in self._open.values()]
        lines = [
            *([one_line(self._held, PREVIEW_CHARS)] if self._held else []),
            *pending_call_lines(run_id, calls),
        ] or [f"waits; shopfloor answer {run_id[:8]} --list says for what"]
        await self._last_words("waiting", run_id, lines)
        return self._code if self._code is not None else WAITING_EXIT

    async def _last_words(self, status: str, run_id: str, lines: list[str]) -> None:
        if self._look.quiet and status == "waiting":
            return
        if not self._look.quiet:
            took = None if self._began is None else round((time.monotonic() - self._began) * 1000)
            lines = [*lines, summary_line(status, run_id, None if status == "waiting" else took, self._facts())]
        for line in lines:
            await self._write(self._live.line(line))

    def _facts(self) -> list[str]:
        live = self._live
        facts: list[str] = []
        if live.input_tokens or live.output_tokens:
            facts.append(f"{live.input_tokens:,} tokens in, {live.output_tokens:,} out")
        if live.cost is not None:
            facts.append(f"{live.cost:.4f} USD")
        return facts


class StartRun(Protocol):
    """Begins what is followed; `abort` leaves it."""

    def __call__(self, abort: anyio.Event) -> EventStream: ...


async def _awaited_below(client: Client, run_id: str) -> list[dict[str, Any]]:
    """What runs below this one wait for, and nobody has given."""
    calls: list[dict[str, Any]] = []
    with suppress(ShopfloorError):
        _, calls = await fetch_pending_calls(client, run_id)
    return [call for call in calls if waiting_run_id(call, run_id) != run_id and not call["answered"]]


def error_lines(code: str, message: str, hint: str | None) -> list[str]:
    """An error of a run, as ours are said."""
    return [
        f"error[{escape_controls(code)}]: {escape_controls(message)}",
        *([f"hint: {escape_controls(hint)}"] if hint else []),
    ]


def _as_awaited(one: PendingCall) -> dict[str, Any]:
    if isinstance(one, Question):
        given = {"question": one.question, "options": one.options}
        return {"call_id": one.call_id, "kind": "question", "name": "ask", "input": given}
    below, call_id = split_call_id(one.tool_call_id)
    call = {"call_id": call_id, "kind": CLIENT_TOOL, "name": one.tool_name, "input": one.args}
    return call if below is None else {**call, "run_id": below}
