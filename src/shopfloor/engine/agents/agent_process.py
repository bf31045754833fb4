"""One process of an agent, from its start to its exit."""

from __future__ import annotations

import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from shopfloor.engine.agents.offline import build_agent_result
from shopfloor.engine.agents.request import AgentRuntime
from shopfloor.engine.agents.transcriber import AgentEnd, PendingEvent, Transcriber
from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.error_mapping import Cancellation
from shopfloor.engine.partial_message_writer import PartialMessageWriter
from shopfloor.engine.replay_state import StepKey, StepRecord
from shopfloor.engine.steps.shell_process import STEP_ABANDONED, graceful_stop, stop_once
from shopfloor.errors import (
    AgentFailed,
    AgentMissing,
    BudgetExceeded,
    CommandNotFound,
    ExecutionCancelled,
    ProcessError,
    RunFailed,
    ShopfloorError,
    StepFailed,
    StorageError,
    error_class,
)
from shopfloor.limits import AGENT_STDERR_CHARS, SESSION_LOOKUPS, STOP_GRACE_SECONDS
from shopfloor.log import (
    AssistantMessage,
    Cost,
    EndedProcess,
    Note,
    Process,
    RunCompleted,
    RunError,
    Session,
    TextBlock,
    Usage,
    UserMessage,
    new_run_id,
)
from shopfloor.ports import (
    MAIN_AGENT,
    AgentExit,
    AgentReport,
    AgentRequest,
    Child,
    Command,
    Exit,
    Launch,
    Log,
    MessageDelta,
    Normalizer,
    Provider,
    SessionEnded,
    TranscriptItem,
    UsageDelta,
)
from shopfloor.views import add_costs, add_usage


class AgentProcess:
    """One process of an agent, from its start to its exit."""

    def __init__(
        self, attempt: Attempt, runtime: AgentRuntime, provider: Provider, request: AgentRequest, step_try: StepTry
    ) -> None:
        self._attempt = attempt
        self._desk = runtime
        self._provider = provider
        self._request = request
        self._trying = step_try
        self._cancellation = Cancellation()
        self._normaliser: Normalizer
        self._transcriber = Transcriber(
            _first_of(attempt),
            run_id=attempt.run_id,
            path=step_try.step_key.path,
            provider=provider.name,
            prices=runtime.prices,
            new_id=lambda key: new_run_id(),
            model=request.model,
            called=len(_calls_below(attempt, step_try.step_key)),
            mask=attempt.mask,
            open_calls=_open_calls(attempt, step_try.step_key),
        )
        self._pieces = PartialMessageWriter(attempt.mask)
        self._logs: dict[str, tuple[Log, AsyncExitStack]] = {}
        self._opened = AsyncExitStack()
        self._stderr = ""
        self._spent = 0.0
        self._model = request.model
        self._model_lookups = 0
        self._failure: RunFailed | StorageError | None = None
        """What ended it from our side."""

    async def run(self) -> tuple[StepResult, RunFailed | None]:
        """What it gave, and what went wrong."""
        await self._end_cut_off()
        launch = self._desk.launch(self._provider, self._request)
        resumed = self._request.resume is not None
        self._normaliser = self._provider.normalizer(resumed=resumed, prior_usage=launch.prior_usage)
        command = Command(argv=launch.argv, cwd=self._request.cwd, env=launch.env, stdin=launch.stdin)
        exit_: Exit | None = None
        async with self._opened, graceful_stop(self._attempt, self._cancellation):
            try:
                async with self._desk.processes.start(command, run_id=self._attempt.run_id) as child:
                    exit_ = await self._serve(child, launch)
            except CommandNotFound as missing:
                self._fail(self._missing(missing))
            except ProcessError as error:
                self._fail(StepFailed(error.message, hint=error.hint))
            end = await self._end(exit_)
        result = StepResult(
            build_agent_result(end.ended, self._exit(exit_)),
            end.ended.usage,
            end.cost,
            self._session(launch, end.ended.session_id, end.ended.session_usage),
            end.ended.limits or None,
            end.sub_usage,
            end.sub_cost,
            end.covers,
            _ended_processes(exit_),
        )
        if isinstance(self._failure, StorageError):
            raise self._failure
        failure = self._failure or _failure(end.ended)
        if self._cancellation.reason == STEP_ABANDONED:
            await self._leave(result, failure)
        await anyio.lowlevel.checkpoint()
        return result, failure

    async def _leave(self, result: StepResult, failure: RunFailed | None) -> None:
        """What it gave and cost is on record, also where nobody waits for it any more."""
        match self._attempt.interruption:
            case _ if failure is None:
                # It had come to its end by itself.
                await self._attempt.end(self._trying, result)
            case "cancelled":
                reason = self._attempt.cancellation.reason or "cancelled"
                await self._attempt.end(self._trying, result, ExecutionCancelled(reason))
            case "stopped" | "suspended":
                await self.record_interruption(result)
            case "failed":
                await self._attempt.end(self._trying, result, self._attempt.failure)
            case None:
                await self._attempt.end(self._trying, result, self._attempt.stop_error(self._trying.step_key))

    async def record_interruption(self, result: StepResult) -> None:
        """The session is gone on with later; what it has spent up to here is on record."""
        spent = add_usage(result.usage or Usage(), result.sub_usage)
        session_id = result.session.session_id if result.session else None
        cost = add_costs(result.cost, result.sub_cost)
        usage = None if spent == Usage() else spent
        left = AssistantMessage(session_id=session_id, usage=usage, cost=cost, note=Note(kind="left"), blocks=[])
        with anyio.CancelScope(shield=True):
            await self._attempt.append(left, self._trying.step_key)

    async def _end_cut_off(self) -> None:
        """Sub-agents of a sitting that was cut off are over."""
        for step_key, record in _calls_below(self._attempt, self._trying.step_key):
            if record.done is None:
                cut = StepTry(step_key, record.name, record.kind, record.try_, self._trying.started_monotonic)
                await self._attempt.end(cut, error=AgentFailed("the agent that it worked for was cut off"))

    async def _serve(self, child: Child, launch: Launch) -> Exit | None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._obey, child)
            tasks.start_soon(self._pieces.run)
            try:
                await self._begin(child, launch)
                while (piece := await child.read()) is not None:
                    if piece.stream == "stderr":
                        self._complain(piece.data.decode(errors="replace"))
                    else:
                        await self._hear(self._normaliser.feed(piece.data))
            except ShopfloorError as error:
                self._fail(error)
                await child.kill()
            try:
                return await child.wait()
            except ProcessError as error:
                self._fail(StepFailed(error.message, hint=error.hint))
                return None
            finally:
                tasks.cancel_scope.cancel()

    def _complain(self, text: str) -> None:
        said, mask = self._stderr + text, self._attempt.mask
        # Before the cut, which could leave the half of a secret that no longer looks like one.
        self._stderr = (mask.text(said) if mask else said)[-AGENT_STDERR_CHARS:]

    async def _begin(self, child: Child, launch: Launch) -> None:
        """Intent before effect: the step, its session and the prompt are on record before the agent does anything."""
        if not self._trying.resumed:
            process = Process(pid=child.pid, command=launch.argv[0], args=_told(launch.argv[1:]), cwd=self._request.cwd)
            session = msgspec.structs.replace(self._session(launch, None), process=process)
            await self._attempt.begin(self._trying, session=session)
        said = TextBlock(fidelity="router", text=self._request.prompt)
        message = UserMessage(system_prompt=self._request.system_prompt, blocks=[said])
        await self._attempt.append(message, self._trying.step_key)
        child.release()

    def _missing(self, error: CommandNotFound) -> RunFailed:
        if not Path(self._request.cwd).is_dir():
            return StepFailed(error.message, hint=error.hint)
        return AgentMissing(f"{self._provider.name} is not installed; to install it: {self._provider.install}")

    def _session(self, launch: Launch, session_id: str | None, usage: Usage | None = None) -> Session:
        return Session(
            provider=self._provider.name,
            access_mode=launch.access_mode,
            session_id=session_id or launch.session_id or self._request.resume,
            capabilities=msgspec.to_builtins(self._provider.capabilities),
            resumed=self._request.resume is not None,
            usage=usage,
        )

    async def _hear(self, reports: list[AgentReport]) -> None:
        for report in reports:
            match report:
                case MessageDelta():
                    self._tell(report)
                case TranscriptItem(is_prompt=True):
                    # It is on record as we gave it.
                    pass
                case TranscriptItem():
                    told = await self._with_model(report)
                    async with self._pieces.lock:
                        await self._take(told)
                case UsageDelta():
                    self._transcriber.take(report)
                    await self._spend(report)
                case _:
                    async with self._pieces.lock:
                        await self._take(report)

    async def _take(self, report: AgentReport) -> None:
        for write in self._transcriber.take(report):
            await self._write(write)

    async def _with_model(self, told: TranscriptItem) -> TranscriptItem:
        message = told.payload
        if not isinstance(message, AssistantMessage) or message.model or not message.blocks or told.agent != MAIN_AGENT:
            return told
        if message.synthetic or (model := await self._find_model(message.session_id)) is None:
            return told
        return msgspec.structs.replace(told, payload=msgspec.structs.replace(message, model=model))

    async def _find_model(self, session_id: str | None) -> str | None:
        """The model, where the stream does not tell it: the one asked for, or what the program keeps of its session."""
        if self._model is None and session_id is not None and self._model_lookups < SESSION_LOOKUPS:
            self._model_lookups += 1
            find = self._provider.session_model
            self._model = await anyio.to_thread.run_sync(find, session_id, self._desk.env)
            self._transcriber.set_default_model(self._model)
        return self._model

    def _tell(self, typed: MessageDelta) -> None:
        """Live only of the session itself: who watches a run sees its own text being typed."""
        partial, offset = self._transcriber.grow(typed)
        self._pieces.schedule_write(partial, lambda piece: self._take(TranscriptItem(agent=typed.agent, payload=piece)))
        if typed.agent != MAIN_AGENT:
            return
        self._attempt.publish_delta(
            self._trying,
            typed.message_id,
            block=typed.block,
            kind=typed.kind,
            offset=offset,
            text=typed.text,
            tool_name=typed.tool_name,
            tool_id=typed.tool_id,
        )

    async def _write(self, write: PendingEvent) -> None:
        if write.run_id == self._attempt.run_id:
            step_key = StepKey(write.path, self._trying.step_key.iteration)
            await self._attempt.append(write.payload, step_key, child_run_id=write.child_run_id, at=write.at)
            return
        if write.run_id not in self._logs:
            kept = await self._opened.enter_async_context(AsyncExitStack())
            opened = self._desk.logs.open(write.run_id, parent_run_id=write.parent_run_id)
            self._logs[write.run_id] = await kept.enter_async_context(opened), kept
        log, kept = self._logs[write.run_id]
        await log.append(write.payload, path=write.path, child_run_id=write.child_run_id, at=write.at)
        if isinstance(write.payload, RunCompleted):
            # Many sub-agents are not to hold many files.
            del self._logs[write.run_id]
            await kept.aclose()

    async def _spend(self, spent: UsageDelta) -> None:
        """On record at once: should we be killed, there will be no total."""
        record = self._attempt.replay_state.steps.get(self._trying.step_key)
        session_id = record.session.session_id if record and record.session else None
        model = spent.model or await self._find_model(session_id)
        cost = None if model is None else self._desk.prices(model, spent.usage)
        if spent.cost_usd is not None:
            cost = Cost(usd=spent.cost_usd, source="agent")
        told = AssistantMessage(
            session_id=session_id,
            model=model,
            usage=spent.usage,
            cost=cost,
            clock="reader",
            blocks=[],
        )
        await self._attempt.append(told, self._trying.step_key)
        self._meter(cost)

    def _meter(self, cost: Cost | None) -> None:
        budget = self._request.max_budget_usd
        self._spent += (cost and cost.usd) or 0.0
        if budget is not None and self._spent > budget:
            self._fail(BudgetExceeded(f"it has spent ${self._spent:.4f} of the ${budget:g} that it was allowed"))
            stop_once(self._cancellation, "the budget is spent")

    async def _obey(self, child: Child) -> None:
        await self._cancellation.requested.wait()
        await child.stop(STOP_GRACE_SECONDS)

    async def _end(self, exit_: Exit | None) -> AgentEnd:
        """The last reports, on record also where the run is being left."""
        *reports, last = self._normaliser.finish(self._exit(exit_))
        ended = last if isinstance(last, SessionEnded) else SessionEnded(status="failed")
        try:
            await self._hear(reports)
            writes, end = self._transcriber.end(ended, self._exit(exit_))
            for write in writes:
                await self._write(write)
        except ShopfloorError as error:
            self._fail(error)
            _, end = self._transcriber.end(ended, self._exit(exit_))
        return end

    def _exit(self, exit_: Exit | None) -> AgentExit:
        cancelled = self._cancellation.reason is not None
        if exit_ is None:
            return AgentExit(stderr=self._stderr, cancelled=cancelled)
        code = exit_.code if exit_.signal is None else None
        return AgentExit(code=code, signal=exit_.signal, stderr=self._stderr, cancelled=cancelled)

    def _fail(self, error: ShopfloorError) -> None:
        if self._failure is None:
            known = isinstance(error, RunFailed | StorageError)
            self._failure = error if known else StepFailed(error.message, hint=error.hint)


_SECRET = re.compile(r"(?i)((?:key|token|secret|password|auth|header)[^=]*=).+", re.DOTALL)


def _told(args: list[str]) -> list[str]:
    """What a program was started with, but for what looks like a secret: a log is read by many."""
    return [_SECRET.sub(r"\1…", arg) for arg in args]


def _open_calls(attempt: Attempt, step_key: StepKey) -> list[str]:
    """The calls of tools of earlier processes of this step that have no result."""
    record = attempt.replay_state.steps.get(step_key)
    return list(record.open_calls) if record is not None else []


def _ended_processes(exit_: Exit | None) -> list[EndedProcess]:
    return [msgspec.structs.replace(one, args=_told(one.args)) for one in (exit_.ended_processes if exit_ else ())]


def _calls_below(attempt: Attempt, step_key: StepKey) -> list[tuple[StepKey, StepRecord]]:
    """The sub-agents that this step has called, in whatever sitting."""
    inside = f"{step_key.path}."
    return [
        (at, record)
        for at, record in attempt.replay_state.steps.items()
        if record.child_run_id is not None and at.path.startswith(inside) and at.iteration == step_key.iteration
    ]


def _first_of(attempt: Attempt) -> Any:
    first = attempt.replay_state.first
    if first is None:
        raise StepFailed("the log does not say what was to be done")
    return first


def _failure(ended: SessionEnded) -> RunFailed | None:
    """How it ended, as an error again."""
    if ended.status == "completed":
        return None
    error = ended.error or RunError(code=AgentFailed.code, message="the agent did not end well")
    kind = error_class(error.code)
    retry_after = error.retry_after if isinstance(error.retry_after, float | int) else None
    if not issubclass(kind, RunFailed):
        kind = AgentFailed
    return kind(error.message, hint=error.hint or None, retry_after=retry_after)
