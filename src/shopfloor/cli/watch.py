"""Watch a run until it ends: render its events, and prompt the user for the answers it is waiting for."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

import anyio

from shopfloor.cli import pending_calls
from shopfloor.cli.client_session import API_COMPLETED, wait_for_outcome
from shopfloor.cli.limits import FOLLOW_SILENCE_SECONDS, PROGRESS_REDRAW_SECONDS
from shopfloor.cli.output_writer import OutputWriter
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
from shopfloor.errors import ExecutionCancelled, ServerUnreachable, ShopfloorError, error_class
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.ports import OutputChunk
from shopfloor.views import (
    APPROVAL,
    APPROVAL_OPTIONS,
    CLIENT_TOOL,
    DEFINITION_CHANGED,
    approval_question,
    finish,
    split_call_id,
)

EventStream = AsyncGenerator[StreamEvent | UnknownEvent]
WAITING_EXIT = 75
"""The value of EX_TEMPFAIL: the run may complete later."""
_WAITING_REASONS = frozenset({"tool-calls", "question", "waiting"})
_ANSWERED_KINDS = frozenset({APPROVAL, CLIENT_TOOL, "question"})
"""The kinds of calls that a person can answer."""


class StartRun(Protocol):
    """Starts the run to watch and returns its events. Setting `abort` cancels the start."""

    def __call__(self, abort: anyio.Event) -> EventStream: ...


class RunWatcher:
    """Watches one run. The first signal cancels the run, unless `cancel_on_signal` is False."""

    def __init__(self, options: RenderOptions, *, cancel_on_signal: bool = True) -> None:
        self.tools: ToolHandlers = {}
        """The tools that commands of the user execute."""
        self.requested_tools: set[str] = set()
        """The client tools that the run or one of its sub-runs called."""
        self._options = options
        self._renderer = RunRenderer(options)
        self._cancel_on_signal = cancel_on_signal
        self._run_id: str | None = None
        self._pending: dict[str, PendingCall] = {}
        """The calls that the run is waiting for, by call id."""
        self._printed: set[str] = set()
        """The calls that were printed while the run went on, by call id."""
        self._definition_changed: str | None = None
        """Why no answer can continue the run: the definition of its worker changed."""
        self._finish: Finish | None = None
        self._error: ErrorEvent | None = None
        self._result: WorkerResult | None = None
        self._failure: ShopfloorError | None = None
        self._code: int | None = None
        """The exit code after a signal or a closed output; otherwise the outcome of the run decides."""
        self._stop_reason = ""
        self._is_prompting = False
        self._is_watching = False
        self._last_event_at = 0.0
        self._last_seq = 0
        """The `seq` up to which the run is rendered."""

    @property
    def run_id(self) -> str | None:
        """The id of the run; None before its first event."""
        return self._run_id

    def add_open_questions(self, run_id: str, calls: Sequence[dict[str, Any]]) -> None:
        """Add the open questions of a run that is resumed. The run requests its client tools again by itself."""
        for call in calls:
            is_approval = call["kind"] == APPROVAL
            is_own = waiting_run_id(call, run_id) == run_id and not call.get("answered")
            if is_own and (is_approval or call["kind"] == "question"):
                arguments: dict[str, Any] = call["input"] or {}
                self._pending[call["call_id"]] = Question(
                    execution_id=run_id,
                    call_id=call["call_id"],
                    question=approval_question(arguments) if is_approval else str(arguments.get("question", "")),
                    options=question_options(call) or None,
                )

    def add_usage(self, detail: Mapping[str, Any]) -> None:
        """Count what a run and its sub-runs used before it was resumed."""
        usage = detail["tree_usage"]
        self._renderer.input_tokens += usage["input"] + usage["cache_read"] + usage["cache_write"]
        self._renderer.output_tokens += usage["output"]
        self._renderer.cost = detail["tree_cost_usd"]

    # Stopping.

    def on_signal(self, number: int) -> bool:
        """Cancel the run at the first signal and return True; return False if the process should exit at once."""
        if not self._cancel_on_signal or not self._is_watching or self._code is not None:
            return False
        self._stop(f"cancelled by {signal.Signals(number).name}", 128 + number)
        return True

    def _output_closed(self) -> None:
        if self._code is None:
            self._stop("the output was closed", 128 + signal.SIGPIPE)

    def _stop(self, reason: str, code: int) -> None:
        self._stop_reason, self._code = reason, code
        self._stopping.set()

    async def _cancel_on_stop(self, client: Client, abort: anyio.Event, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        if not self._cancel_on_signal:
            scope.cancel()
            return
        await self._write(self._renderer.note("cancelling the run; press Ctrl-C again to exit at once"))
        if self._run_id is None:
            abort.set()
        else:
            # The run may have ended in the meantime.
            with suppress(ShopfloorError):
                await client.workers.cancel(self._run_id, reason=self._stop_reason)

    # Watching.

    async def follow(self, client: Client, start: StartRun, worker: str | None = None) -> int:
        """Render the run until it ends, or waits for an answer that the user cannot type here. Return the exit code.

        Without its worker, a run that waits is only followed. Raises the error that kept the run from being started.
        """
        abort = anyio.Event()
        self._stopping = anyio.Event()
        self._writer = OutputWriter(self._output_closed)
        self._is_watching = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_on_stop, client, abort, tasks.cancel_scope)
            tasks.start_soon(self._draw_progress)
            tasks.start_soon(self._report_pending, client)
            try:
                await self._run_to_end(client, start(abort), worker)
            except ShopfloorError as error:
                self._failure = error
            tasks.cancel_scope.cancel()
        await self._write(self._renderer.clear_progress())
        return await self._finish_output()

    async def _run_to_end(self, client: Client, events: EventStream, worker: str | None) -> None:
        while await self._render_until_pause(events) and worker is not None and self._run_id is not None:
            results = await self._prompt_for_results(client, self._run_id)
            if results is None:
                events = client.workers.follow(worker, self._run_id, after=self._last_seq, tools=self.tools)
                continue
            if not results:
                break
            for result in results:
                self._pending.pop(result.tool_call_id, None)
            events = client.workers.continue_(worker, self._run_id, results, tools=self.tools)
        if self._code is not None and self._cancel_on_signal and self._run_id is not None and self._result is None:
            detail = await wait_for_outcome(client, self._run_id)
            self._result = WorkerResult(
                worker_id=self._run_id, error=self._stop_reason, duration_ms=detail["duration_ms"]
            )
            self._finish = finish("stop" if detail["status"] == API_COMPLETED else "cancelled")

    async def _render_until_pause(self, events: EventStream) -> bool:
        """Render these events; return whether the run then waits for an answer."""
        self._finish = None
        async with aclosing(events):
            async for event in events:
                self._last_event_at = time.monotonic()
                self._last_seq = event.seq or self._last_seq
                self._record(event)
                await self._write(self._renderer.render_event(event))
                if isinstance(event, ToolRequest):
                    await self._print_calls_below(event)
                if isinstance(event, Finish) and not self._cancel_on_signal:
                    await self._print_pending()
        last = self._finish
        return last is not None and last.reason in _WAITING_REASONS and self._code is None

    def _record(self, event: StreamEvent | UnknownEvent) -> None:
        match event:
            case Start(execution_id=run_id):
                self._run_id = run_id
            case ToolRequest(tool_calls=calls) | ClientToolRequest(tool_calls=calls):
                self._pending |= {call.tool_call_id: call for call in calls}
                self.requested_tools |= {call.tool_name for call in calls}
            case Question(call_id=call_id, waits=True):
                self._pending[call_id] = event
            case ToolOutputAvailable(tool_call_id=call_id) | ToolOutputError(tool_call_id=call_id):
                self._pending.pop(call_id, None)
            case Notice(kind=kind, message=message) if kind == DEFINITION_CHANGED:
                self._definition_changed = message
            case ErrorEvent():
                self._error = event
            case WorkerResult():
                self._result = event
            case Finish():
                self._finish = event
            case _:
                pass

    async def _print_pending(self) -> None:
        """Print the pending calls of a dispatched run, which continues when they are answered elsewhere."""
        calls = [_to_api_call(call) for call in self._pending.values()]
        self._printed |= {call["call_id"] for call in calls}
        for line in pending_call_lines(self._run_id or "", calls):
            await self._write(self._renderer.note(line))

    async def _print_calls_below(self, request: ToolRequest) -> None:
        for call in request.tool_calls:
            below, _ = split_call_id(call.tool_call_id)
            if below is not None:
                await self._write(self._renderer.note(f"sub-run {below[:8]} calls {call_summary(_to_api_call(call))}"))

    async def _report_pending(self, client: Client) -> None:
        """Print what waits for an answer while the run is silent.

        The stream does not report the calls of sub-runs. It pauses for those of the run only if nothing else of the
        run is active: no other branch, and no sub-agent, such as the one that asks for an approval.
        """
        while True:
            await anyio.sleep(FOLLOW_SILENCE_SECONDS)
            is_silent = time.monotonic() - self._last_event_at >= FOLLOW_SILENCE_SECONDS
            if self._run_id is None or self._is_prompting or not is_silent:
                continue
            calls = await _fetch_unanswered(client, self._run_id)
            for call in calls:
                if waiting_run_id(call, self._run_id) == self._run_id and call["kind"] not in _ANSWERED_KINDS:
                    continue
                is_handled = call["kind"] == CLIENT_TOOL and call["name"] in self.tools
                if call["call_id"] not in self._printed and not is_handled:
                    self._printed.add(call["call_id"])
                    for line in pending_call_lines(self._run_id, [call], all_calls=calls):
                        await self._write(self._renderer.note(line))

    async def _prompt_for_results(self, client: Client, run_id: str) -> list[CallResult] | None:
        """Return what the user types; None if the run meanwhile got an answer from elsewhere, or ended."""
        results: list[CallResult] = []
        if self._options.as_json or self._definition_changed or not pending_calls.is_interactive():
            return results
        last_seq, is_over = self._last_seq, anyio.Event()
        self._is_prompting = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_prompt_on_stop, tasks.cancel_scope)
            tasks.start_soon(self._watch_pending, client, run_id, last_seq, is_over, tasks.cancel_scope)
            results = await pending_calls.prompt_for_results(list(self._pending.values()), self._write_prompt)
            tasks.cancel_scope.cancel()
        self._is_prompting = False
        if is_over.is_set():
            await self._write_prompt("\n")
            await self._write(self._renderer.note("the run no longer waits for this answer"))
            return None
        return results

    async def _watch_pending(
        self, client: Client, run_id: str, last_seq: int, is_over: anyio.Event, prompt_scope: anyio.CancelScope
    ) -> None:
        """Cancel the prompt when a call was answered elsewhere, timed out, or ended with its run.

        Calls that are still open stay pending.
        """
        while not is_over.is_set():
            await anyio.sleep(FOLLOW_SILENCE_SECONDS)
            with suppress(ShopfloorError):
                detail, calls = await fetch_pending_calls(client, run_id)
                unanswered = {call["call_id"] for call in calls if not call["answered"]}
                over = [call_id for call_id in self._pending if split_call_id(call_id)[1] not in unanswered]
                # The row may be behind the events that this process has seen.
                if over and detail["last_seq"] >= last_seq:
                    for call_id in over:
                        del self._pending[call_id]
                    is_over.set()
                    prompt_scope.cancel()

    async def _cancel_prompt_on_stop(self, scope: anyio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    async def _write_prompt(self, text: str) -> None:
        await self._write([*self._renderer.clear_progress(), OutputChunk("stderr", text.encode("utf-8", "replace"))])

    async def _draw_progress(self) -> None:
        while True:
            if not self._is_prompting:
                await self._write(self._renderer.tick())
            await anyio.sleep(PROGRESS_REDRAW_SECONDS)

    async def _write(self, chunks: Sequence[OutputChunk]) -> None:
        if chunks:
            await self._writer.write(chunks)

    # The outcome.

    async def _finish_output(self) -> int:
        if self._run_id is None or (self._failure is not None and self._result is None):
            return self._not_started()
        if self._result is None:
            return await self._finish_waiting(self._run_id)
        is_cancelled = self._finish is not None and self._finish.reason == "cancelled"
        lines: list[str] = []
        if self._error is not None:
            lines = error_lines(self._error.code, self._error.message, self._error.hint)
        elif is_cancelled and self._code is None:
            lines = error_lines(ExecutionCancelled.code, self._result.error or "the run was cancelled", None)
        status = "failed" if self._error else "cancelled" if is_cancelled else "completed"
        await self._print_summary(status, self._run_id, lines)
        if self._code is not None:
            return self._code
        if self._error is not None:
            return error_class(self._error.code).exit_code
        return ExecutionCancelled.exit_code if is_cancelled else 0

    def _not_started(self) -> int:
        if self._code is not None:
            return self._code
        if self._failure is not None:
            raise self._failure
        if self._error is not None:
            raise failure_of(self._error)
        raise ServerUnreachable(
            "the server did not report a run", hint="check that SHOPFLOOR_URL is the address of a Shopfloor server"
        )

    async def _finish_waiting(self, run_id: str) -> int:
        calls = [_to_api_call(call) for call in self._pending.values()]
        lines = [
            *([one_line(self._definition_changed, PREVIEW_CHARS)] if self._definition_changed else []),
            *pending_call_lines(run_id, calls),
        ] or [f"the run is waiting; `shopfloor answer {run_id[:8]} --list` shows for what"]
        await self._print_summary("waiting", run_id, lines)
        return self._code if self._code is not None else WAITING_EXIT

    async def _print_summary(self, status: str, run_id: str, lines: list[str]) -> None:
        if self._options.quiet and status == "waiting":
            return
        if not self._options.quiet:
            duration_ms = self._result.duration_ms if self._result is not None else None
            lines = [*lines, summary_line(status, run_id, duration_ms, self._facts())]
        for line in lines:
            await self._write(self._renderer.stderr_line(line))

    def _facts(self) -> list[str]:
        renderer = self._renderer
        facts: list[str] = []
        if renderer.input_tokens or renderer.output_tokens:
            facts.append(f"{renderer.input_tokens:,} tokens in, {renderer.output_tokens:,} out")
        if renderer.cost is not None:
            facts.append(f"{renderer.cost:.4f} USD")
        return facts


async def _fetch_unanswered(client: Client, run_id: str) -> list[dict[str, Any]]:
    """Return the unanswered calls of this run and its sub-runs; none if the server does not answer."""
    calls: list[dict[str, Any]] = []
    with suppress(ShopfloorError):
        _, calls = await fetch_pending_calls(client, run_id)
    return [call for call in calls if not call["answered"]]


def error_lines(code: str, message: str, hint: str | None) -> list[str]:
    """Return the lines for the error of a run, in the format of the errors of the program itself."""
    return [
        f"error[{escape_controls(code)}]: {escape_controls(message)}",
        *([f"hint: {escape_controls(hint)}"] if hint else []),
    ]


def _to_api_call(call: PendingCall) -> dict[str, Any]:
    """Return a pending call as the API describes it."""
    if isinstance(call, Question):
        if tuple(call.options or ()) == APPROVAL_OPTIONS:
            described = call.question.removeprefix("approval of ").partition(": ")
            fields = {"tool": described[0], "input": {"command": described[2]}}
            return {"call_id": call.call_id, "kind": APPROVAL, "name": APPROVAL, "input": fields}
        arguments = {"question": call.question, "options": call.options}
        return {"call_id": call.call_id, "kind": "question", "name": "ask", "input": arguments}
    below, call_id = split_call_id(call.tool_call_id)
    described = {"call_id": call_id, "kind": CLIENT_TOOL, "name": call.tool_name, "input": call.args}
    return described if below is None else {**described, "run_id": below}
