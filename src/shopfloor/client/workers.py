"""Workers, as a caller sees them: execute one and read what it does, go on after its questions, leave it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

import anyio
import msgspec

from shopfloor.client.api import Api
from shopfloor.client.execution import ContinueRequest, Execution, FirstSegment, ReceivedEvent, ResumedRun, StartRequest
from shopfloor.client.replay import follow_log, replay_log, retry_unreachable, with_seq
from shopfloor.client.tools import CallResult, ToolHandlers, executed
from shopfloor.client.transport import failure_of, require_run_id
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
    """What cancels an execution once it is set: an `anyio.Event`, or an `asyncio.Event`."""

    def is_set(self) -> bool: ...

    async def wait(self) -> Any: ...


class WorkersApi:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._executions: list[Execution] = []
        """Those whose events are being read: a stream that paused for a call goes on when the call is answered."""

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
    ) -> AsyncGenerator[StreamEvent | UnknownEvent]:
        """Runs a worker; its events as they come. A stream that pauses for a question goes on once it is answered.

        Leaving before the end cancels the run, unless it is detached or waits for whoever leaves. With an
        `idempotency_key` a request that was cut before the run was known is made again.
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
        )
        return self._led(slug, first, tools, signal)

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
        """Goes on with a run that waits, with what its calls gave; the events that remain."""
        results = [_call_result(one) for one in tool_results]
        first = ContinueRequest(execution_id=execution_id, tool_results=results, detach=detach)
        return self._led(slug, first, tools, signal)

    async def resume(
        self, slug: str, run_id: str, *, tools: ToolHandlers | None = None, signal: Signal | None = None
    ) -> AsyncGenerator[StreamEvent | UnknownEvent]:
        """Resumes a run that has no host; the events that remain. Leaving before the end cancels the run, as for
        `execute`."""
        detail = await self._api.run(require_run_id(run_id))
        await self._api.post(f"/api/runs/{run_id}/resume", {})
        answered = frozenset(call["call_id"] for call in detail.get("awaits") or () if call.get("answered"))
        first = ResumedRun(execution_id=run_id, after=detail["last_seq"], answered=answered)
        async with aclosing(self._led(slug, first, tools, signal)) as events:
            async for event in events:
                yield event

    async def generate(
        self,
        slug: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - the worker's own word
        *,
        tools: ToolHandlers | None = None,
        signal: Signal | None = None,
        **asked: Any,
    ) -> Any:
        """Just the output of a worker. Raises the error that the run failed with; its `run_id` names the run."""
        output: Any = None
        run_id: str | None = None
        async with aclosing(self.execute(slug, input, tools=tools, signal=signal, **asked)) as events:
            async for event in events:
                if isinstance(event, Start):
                    run_id = event.execution_id
                elif (failure := _failure_in_output(event)) is not None:
                    failure.run_id = run_id
                    if isinstance(event, ClientToolRequest):
                        await self._leave(event.execution_id)
                    raise failure
                elif isinstance(event, WorkerResult):
                    output = event.output
        return output

    async def stream(self, run_id: str, *, after: int = 0) -> AsyncGenerator[StreamEvent]:
        """A run that somebody started, as its events from the `seq` after `after` on. Leaving does nothing to it."""
        require_run_id(run_id)
        start = await retry_unreachable(lambda: replay_log(self._api, run_id, to=after)) if after else StreamState()
        is_open = False

        async def load() -> StreamState:
            return start

        async with aclosing(follow_log(self._api, run_id, after=start.seq, load=load)) as steps:
            async for state, before, events in steps:
                if not is_open:
                    is_open = True
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
    ) -> str:
        """Has a worker run without waiting for it; the run's id."""
        said = {
            "task": task,
            "owner": owner,
            "channel_id": channel_id,
            "channel_name": channel_name,
            "idempotency_key": idempotency_key,
        }
        given = {name: value for name, value in said.items() if value is not None}
        answer = await self._api.post("/api/runs", {"worker": slug, "input": input or {}, **given})
        return str(answer["run_id"])

    async def cancel(self, run_id: str, *, reason: str | None = None) -> None:
        """Returns when the order is kept; the run ends soon after."""
        body = {} if reason is None else {"reason": reason}
        await self._api.post(f"/api/runs/{require_run_id(run_id)}/cancel", body)

    async def answer(self, run_id: str, call_id: str, answer: Any) -> None:
        """Answers a question that a run waits for; a stream of `execute` that paused there goes on."""
        await self._answer(run_id, call_id, {"answer": answer})

    async def execute_call(self, run_id: str, call: RequestedCall, tools: ToolHandlers) -> None:
        """Executes a call that a run waits for, and answers it with what that gave."""
        (done,) = await executed(tools, [call])
        gave = {"answer": done.result} if done.error is None else {"error": done.error}
        await self._answer(run_id, call.tool_call_id, gave)

    async def _answer(self, run_id: str, call_id: str, gave: dict[str, Any]) -> None:
        await self._api.post(f"/api/runs/{require_run_id(run_id)}/answer", {"call_id": call_id, **gave})
        for execution in self._executions:
            execution.mark_answered(run_id, call_id)

    async def _led(
        self, slug: str, first: FirstSegment, tools: ToolHandlers | None, signal: Signal | None
    ) -> AsyncGenerator[ReceivedEvent]:
        execution = Execution(self._api, slug, first, tools or {})
        last: ReceivedEvent | None = None
        ended = aborted = False
        self._executions.append(execution)
        try:
            async with aclosing(execution.events()) as events:
                while (event := await _next(events, None if _over(last) else signal)) is not None:
                    last = event
                    yield event
            ended = True
        except ShopfloorError as error:
            error.run_id = execution.run_id
            aborted = isinstance(error, ExecutionCancelled)
            raise
        finally:
            self._executions.remove(execution)
            kept = first.detach or _over(last) or _waits(last)
            if execution.run_id is not None and not ended and (aborted or not kept):
                await self._leave(execution.run_id)

    async def _leave(self, run_id: str) -> None:
        """Cancels a run that nobody waits for any more; that it has ended by itself is just as well."""
        with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(ShopfloorError):
            await self.cancel(run_id, reason="its caller has left")


def _failure_in_output(event: ReceivedEvent) -> ShopfloorError | None:
    """The error for an event after which a run gives no output to a caller who only waits for that."""
    match event:
        case ErrorEvent():
            return failure_of(event)
        case WorkerResult(error=str() as error):
            # What failed has said so before; this one was cancelled.
            return ExecutionCancelled(error)
        case ClientToolRequest():
            names = ", ".join(sorted({call.tool_name for call in event.tool_calls}))
            return ToolFailed(
                f"the worker asks for {names}, and there is no handler for it",
                hint="give one in `tools`, or use `execute` and `continue_`",
            )
        case Notice(kind=DefinitionChanged.code, message=message):
            return DefinitionChanged(message)
        case Finish(reason="question" | "waiting"):
            return RunFailed(
                "the worker waits for a person", hint="use `execute`, and answer what it asks with `answer`"
            )
        case _:
            return None


async def _next(events: AsyncGenerator[ReceivedEvent], signal: Signal | None) -> ReceivedEvent | None:
    """The next event, or None at the end. Raises `ExecutionCancelled` where the signal is given before."""
    if signal is None:
        return await anext(events, None)
    got: ReceivedEvent | None = None
    failure: Exception | None = None
    if not signal.is_set():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on, signal, tasks.cancel_scope)
            try:
                got = await anext(events, None)
            except Exception as error:  # noqa: BLE001 - raised below, without the group around it
                failure = error
            tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if got is None and signal.is_set():
        raise ExecutionCancelled("the execution was cancelled by its caller")
    return got


async def _cancel_on(signal: Signal, scope: anyio.CancelScope) -> None:
    await signal.wait()
    scope.cancel()


def _over(last: ReceivedEvent | None) -> bool:
    """Whether the run has its outcome."""
    return isinstance(last, WorkerResult) or (isinstance(last, Finish) and last.reason in _OUTCOMES)


_OUTCOMES = frozenset({"stop", "error", "cancelled"})


def _waits(last: ReceivedEvent | None) -> bool:
    """Whether the run waits for the one who was told this."""
    return isinstance(last, ClientToolRequest | Finish) or (isinstance(last, Question) and last.waits)


def _call_result(one: CallResult | dict[str, Any]) -> CallResult:
    if isinstance(one, CallResult):
        return one
    try:
        return convert(one, CallResult)
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"this is no result of a call: {error}",
            hint="give `toolCallId`, and `result` or `error`",
        ) from error
