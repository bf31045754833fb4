"""Operations on workers and their runs: execute, continue, resume, answer, cancel, stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

import anyio
import msgspec

from shopfloor.client.api import Api, failure_of, require_run_id
from shopfloor.client.execution import ContinueRequest, Execution, FirstSegment, ReceivedEvent, ResumedRun, StartRequest
from shopfloor.client.resumable_stream import follow_log, replay_log, retry_unreachable, with_seq
from shopfloor.client.tools import CallResult, ToolHandlers, executed
from shopfloor.decoding import convert
from shopfloor.errors import (
    DefinitionChanged,
    ExecutionCancelled,
    InvalidInput,
    RunFailed,
    ShopfloorError,
    ToolFailed,
)
from shopfloor.limits import CANCEL_SECONDS
from shopfloor.log import ClientInfo
from shopfloor.views import (
    ClientToolRequest,
    ErrorEvent,
    Finish,
    Notice,
    Question,
    RequestedCall,
    Start,
    StreamEvent,
    StreamState,
    UnknownEvent,
    WorkerResult,
    start_event,
)


class Signal(Protocol):
    """An event that cancels an execution when it is set: an `anyio.Event`, or an `asyncio.Event`."""

    def is_set(self) -> bool: ...

    async def wait(self) -> Any: ...


class WorkersApi:
    """Executes workers, and acts on their runs."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._executions: list[Execution] = []
        """Executions whose events are being read. `answer` notifies them, so that a paused stream continues."""

    def execute(
        self,
        slug: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - the worker's own word
        *,
        tools: ToolHandlers | None = None,
        signal: Signal | None = None,
        detach: bool = False,
        task: str | None = None,
        owner: str | None = None,
        channel_id: str | None = None,
        channel_name: str | None = None,
        idempotency_key: str | None = None,
        cwd: str | None = None,
        client: ClientInfo | None = None,
        approve: Sequence[str] = (),
        approve_timeout: float | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[StreamEvent | UnknownEvent]:
        """Run a worker and yield its events. A stream that pauses for a question continues once it is answered.

        Closing the stream before its end cancels the run, unless the run is detached or waits for this caller. With an
        `idempotency_key`, a request that failed before the run's id was known is sent again.
        """
        first = StartRequest(
            input=input or {},
            task=task,
            owner=owner,
            channel_id=channel_id,
            channel_name=channel_name,
            idempotency_key=idempotency_key,
            detach=detach,
            cwd=cwd,
            client=client,
            approve=list(approve),
            approve_timeout=approve_timeout,
            priority=priority,
            labels=dict(labels or {}),
        )
        return self._stream_events(slug, first, tools, signal)

    def continue_(
        self,
        slug: str,
        execution_id: str,
        tool_results: Sequence[CallResult | dict[str, Any]],
        *,
        tools: ToolHandlers | None = None,
        signal: Signal | None = None,
        detach: bool = False,
    ) -> AsyncGenerator[StreamEvent | UnknownEvent]:
        """Continue a waiting run with results of its calls, and yield the further events."""
        results = [_to_call_result(result) for result in tool_results]
        first = ContinueRequest(execution_id=execution_id, tool_results=results, detach=detach)
        return self._stream_events(slug, first, tools, signal)

    async def resume(
        self, slug: str, run_id: str, *, tools: ToolHandlers | None = None, signal: Signal | None = None
    ) -> AsyncGenerator[StreamEvent | UnknownEvent]:
        """Resume a run that has no host, and yield the further events.

        Closing the stream before its end cancels the run, as for `execute`.
        """
        detail = await self._api.run(require_run_id(run_id))
        await self._api.post(f"/api/runs/{run_id}/resume", {})
        answered = frozenset(call["call_id"] for call in detail.get("awaits") or () if call.get("answered"))
        first = ResumedRun(execution_id=run_id, after=detail["last_seq"], answered=answered)
        async with aclosing(self._stream_events(slug, first, tools, signal)) as events:
            async for event in events:
                yield event

    def follow(
        self,
        slug: str,
        run_id: str,
        *,
        after: int = 0,
        tools: ToolHandlers | None = None,
        signal: Signal | None = None,
    ) -> AsyncGenerator[StreamEvent | UnknownEvent]:
        """Yield the events of a run that was started by another request, such as a rerun, after the event `after`.

        Closing the stream before its end cancels the run, as for `execute`.
        """
        first = ResumedRun(execution_id=require_run_id(run_id), after=after)
        return self._stream_events(slug, first, tools, signal)

    async def generate(
        self,
        slug: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - the worker's own word
        *,
        tools: ToolHandlers | None = None,
        signal: Signal | None = None,
        **options: Any,
    ) -> Any:
        """Run a worker and return its output. `options` are the same as for `execute`.

        Raises the error that the run failed with; its `run_id` is the run's id.
        """
        output: Any = None
        run_id: str | None = None
        async with aclosing(self.execute(slug, input, tools=tools, signal=signal, **options)) as events:
            async for event in events:
                if isinstance(event, Start):
                    run_id = event.execution_id
                elif (failure := _failure_in_output(event)) is not None:
                    failure.run_id = run_id
                    if isinstance(event, ClientToolRequest):
                        await self._abandon(event.execution_id)
                    raise failure
                elif isinstance(event, WorkerResult):
                    output = event.output
        return output

    async def stream(self, run_id: str, *, after: int = 0) -> AsyncGenerator[StreamEvent]:
        """Yield the events of a started run after the `seq` `after`. Closing the stream does not cancel the run."""
        require_run_id(run_id)
        start = await retry_unreachable(lambda: replay_log(self._api, run_id, to=after)) if after else StreamState()
        has_started = False

        async def load() -> StreamState:
            return start

        async with aclosing(follow_log(self._api, run_id, after=start.seq, load=load)) as updates:
            async for state, before, events in updates:
                if not has_started:
                    has_started = True
                    yield with_seq(start_event(run_id), start.seq)
                for event in events:
                    yield with_seq(event, state.seq if event is events[-1] else before)

    async def dispatch(
        self,
        slug: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - the worker's own word
        *,
        task: str | None = None,
        owner: str | None = None,
        channel_id: str | None = None,
        channel_name: str | None = None,
        idempotency_key: str | None = None,
        client: ClientInfo | None = None,
        priority: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """Start a run of a worker without waiting for it. Return the run's id.

        Queued runs with a higher `priority` (-100 to 100) start first. `labels` are those that the host must have.
        """
        options = {
            "task": task,
            "owner": owner,
            "channel_id": channel_id,
            "channel_name": channel_name,
            "idempotency_key": idempotency_key,
            "client": client,
            "priority": priority or None,
            "labels": dict(labels) if labels else None,
        }
        fields = {name: value for name, value in options.items() if value is not None}
        response = await self._api.post("/api/runs", {"worker": slug, "input": input or {}, **fields})
        return str(response["run_id"])

    async def cancel(self, run_id: str, *, reason: str | None = None) -> None:
        """Cancel a run. Returns when the request is stored; the run ends soon after."""
        body = {} if reason is None else {"reason": reason}
        await self._api.post(f"/api/runs/{require_run_id(run_id)}/cancel", body)

    async def answer(self, run_id: str, call_id: str, answer: Any) -> None:
        """Answer a question that a run waits for. A stream of `execute` that paused for it continues."""
        await self._answer(run_id, call_id, {"answer": answer})

    async def execute_call(self, run_id: str, call: RequestedCall, tools: ToolHandlers) -> None:
        """Execute a call that a run waits for with its handler, and answer it with the result."""
        (result,) = await executed(tools, [call])
        fields = {"answer": result.result} if result.error is None else {"error": result.error}
        await self._answer(run_id, call.tool_call_id, fields)

    async def _answer(self, run_id: str, call_id: str, fields: dict[str, Any]) -> None:
        await self._api.post(f"/api/runs/{require_run_id(run_id)}/answer", {"call_id": call_id, **fields})
        for execution in self._executions:
            execution.mark_answered(run_id, call_id)

    async def _stream_events(
        self, slug: str, first: FirstSegment, tools: ToolHandlers | None, signal: Signal | None
    ) -> AsyncGenerator[ReceivedEvent]:
        """Yield the events of an execution, and cancel the run if the caller leaves it or sets the signal."""
        execution = Execution(self._api, slug, first, tools or {})
        last: ReceivedEvent | None = None
        is_complete = is_cancelled = False
        self._executions.append(execution)
        try:
            async with aclosing(execution.events()) as events:
                while (event := await _next_event(events, None if _is_outcome(last) else signal)) is not None:
                    last = event
                    yield event
            is_complete = True
        except ShopfloorError as error:
            error.run_id = execution.run_id
            is_cancelled = isinstance(error, ExecutionCancelled)
            raise
        finally:
            self._executions.remove(execution)
            may_continue = first.detach or _is_outcome(last) or _is_pause(last)
            if execution.run_id is not None and not is_complete and (is_cancelled or not may_continue):
                await self._abandon(execution.run_id)

    async def _abandon(self, run_id: str) -> None:
        """Cancel a run whose caller has left. Errors are ignored: the run may have ended already."""
        with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(ShopfloorError):
            await self.cancel(run_id, reason="its caller stopped reading")


def _failure_in_output(event: ReceivedEvent) -> ShopfloorError | None:
    """Return the error for an event after which `generate` gets no output, or None for any other event."""
    match event:
        case ErrorEvent():
            return failure_of(event)
        case WorkerResult(error=str() as error):
            # A failed run has sent an `error` event before, so this run was cancelled.
            return ExecutionCancelled(error)
        case ClientToolRequest():
            names = ", ".join(sorted({call.tool_name for call in event.tool_calls}))
            return ToolFailed(
                f"the worker requests {names}, which has no handler",
                hint="pass a handler in `tools`, or use `execute` and `continue_`",
            )
        case Notice(kind=DefinitionChanged.code, message=message):
            return DefinitionChanged(message)
        case Finish(reason="question" | "waiting"):
            return RunFailed(
                "the worker waits for a person", hint="use `execute`, and answer its questions with `answer`"
            )
        case _:
            return None


async def _next_event(events: AsyncGenerator[ReceivedEvent], signal: Signal | None) -> ReceivedEvent | None:
    """Return the next event, or None at the end. Raises `ExecutionCancelled` if the signal is set before."""
    if signal is None:
        return await anext(events, None)
    event: ReceivedEvent | None = None
    failure: Exception | None = None
    if not signal.is_set():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on, signal, tasks.cancel_scope)
            try:
                event = await anext(events, None)
            except Exception as error:  # noqa: BLE001 - raised below, outside of the task group
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if event is None and signal.is_set():
        raise ExecutionCancelled("the execution was cancelled by its caller")
    return event


async def _cancel_on(signal: Signal, scope: anyio.CancelScope) -> None:
    await signal.wait()
    scope.cancel()


def _is_outcome(last: ReceivedEvent | None) -> bool:
    """Return whether the run has ended with this event."""
    return isinstance(last, WorkerResult) or (isinstance(last, Finish) and last.reason in _OUTCOMES)


_OUTCOMES = frozenset({"stop", "error", "cancelled"})


def _is_pause(last: ReceivedEvent | None) -> bool:
    """Return whether the run waits for its caller after this event."""
    return isinstance(last, ClientToolRequest | Finish) or (isinstance(last, Question) and last.waits)


def _to_call_result(result: CallResult | dict[str, Any]) -> CallResult:
    if isinstance(result, CallResult):
        return result
    try:
        return convert(result, CallResult)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"invalid result of a call: {error}",
            hint="set `toolCallId`, and `result` or `error`",
        ) from error
