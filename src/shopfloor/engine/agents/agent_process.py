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

from shopfloor.engine.agents.permissions import AgentPermissions
from shopfloor.engine.agents.request import AgentRuntime
from shopfloor.engine.agents.transcriber import AgentEnd, PendingEvent, Transcriber, build_agent_result
from shopfloor.engine.approvals import ApprovalGate
from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.cancellation import Cancellation
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
    Initialization,
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
    ContextSize,
    Exit,
    Launch,
    Log,
    MessageDelta,
    Normalizer,
    PermissionRequest,
    PermissionWithdrawn,
    PromptAnswered,
    Provider,
    SessionEnded,
    TranscriptItem,
    UsageDelta,
)
from shopfloor.views import add_costs, add_usage


class AgentProcess:
    """One process of an agent, from its start to its exit."""

    def __init__(
        self,
        attempt: Attempt,
        runtime: AgentRuntime,
        provider: Provider,
        request: AgentRequest,
        step_try: StepTry,
        *,
        gate: ApprovalGate | None = None,
    ) -> None:
        self._attempt = attempt
        self._runtime = runtime
        self._provider = provider
        self._request = request
        self._step_try = step_try
        self._cancellation = Cancellation()
        self._normalizer: Normalizer
        self._transcriber = Transcriber(
            _run_started(attempt),
            run_id=attempt.run_id,
            path=step_try.step_key.path,
            provider=provider.name,
            prices=runtime.prices,
            new_id=lambda key: new_run_id(),
            model=request.model,
            sub_agent_count=len(_sub_agent_calls(attempt, step_try.step_key)),
            mask=attempt.mask,
            open_calls=_open_calls(attempt, step_try.step_key),
        )
        self._partial_writer = PartialMessageWriter(attempt.mask)
        self._logs: dict[str, tuple[Log, AsyncExitStack]] = {}
        self._log_stack = AsyncExitStack()
        self._stderr = ""
        self._spent_usd = 0.0
        self._model = request.model
        self._model_lookups = 0
        self._gate = gate
        self._failure: RunFailed | StorageError | None = None
        """Why the engine stopped the process."""

    async def run(self) -> tuple[StepResult, RunFailed | None]:
        """Run the process to its end. Return the result of the step, and the error if it failed."""
        await self._end_orphaned_calls()
        launch = self._runtime.launch(self._provider, self._request)
        resumed = self._request.resume is not None
        self._normalizer = self._provider.normalizer(resumed=resumed, prior_usage=launch.prior_usage)
        command = Command(
            argv=launch.argv,
            cwd=self._request.cwd,
            env=launch.env,
            stdin=launch.stdin,
            keeps_stdin_open=launch.answer_permission is not None,
        )
        exit_: Exit | None = None
        async with self._log_stack, graceful_stop(self._attempt, self._cancellation):
            try:
                async with self._runtime.processes.start(command, run_id=self._attempt.run_id) as child:
                    exit_ = await self._read_output(child, launch)
            except CommandNotFound as missing:
                self._fail(self._missing_error(missing))
            except ProcessError as error:
                self._fail(StepFailed(error.message, hint=error.hint))
            end = await self._finish(exit_)
        result = StepResult(
            build_agent_result(end.ended, self._agent_exit(exit_)),
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
        failure = self._failure or _session_error(end.ended)
        if self._cancellation.reason == STEP_ABANDONED:
            await self._end_abandoned(result, failure)
        await anyio.lowlevel.checkpoint()
        return result, failure

    async def _end_abandoned(self, result: StepResult, failure: RunFailed | None) -> None:
        """Record the result and its cost after the step was abandoned and no caller waits for it."""
        match self._attempt.interruption:
            case _ if failure is None:
                # The agent finished before it was stopped.
                await self._attempt.end(self._step_try, result)
            case "cancelled":
                reason = self._attempt.cancellation.reason or "cancelled"
                await self._attempt.end(self._step_try, result, ExecutionCancelled(reason))
            case "stopped" | "suspended":
                await self.record_interruption(result)
            case "failed":
                await self._attempt.end(self._step_try, result, self._attempt.failure)
            case None if self._step_try.is_timed_out:
                await self._attempt.end(self._step_try, result, self._step_try.timeout_error(), is_decided=True)
            case None:
                await self._attempt.end(self._step_try, result, self._attempt.stop_error(self._step_try.step_key))

    async def record_interruption(self, result: StepResult) -> None:
        """Record the usage so far in the log. The session is resumed later."""
        total = add_usage(result.usage or Usage(), result.sub_usage)
        session_id = result.session.session_id if result.session else None
        cost = add_costs(result.cost, result.sub_cost)
        usage = None if total == Usage() else total
        message = AssistantMessage(session_id=session_id, usage=usage, cost=cost, note=Note(kind="left"), blocks=[])
        with anyio.CancelScope(shield=True):
            await self._attempt.append(message, self._step_try.step_key)

    async def _end_orphaned_calls(self) -> None:
        """End the calls of sub-agents of an earlier process that was interrupted."""
        for step_key, record in _sub_agent_calls(self._attempt, self._step_try.step_key):
            if record.done is None:
                interrupted = StepTry(step_key, record.name, record.kind, record.try_, None)
                await self._attempt.end(interrupted, error=AgentFailed("the parent agent was interrupted"))

    async def _read_output(self, child: Child, launch: Launch) -> Exit | None:
        permissions = AgentPermissions(
            self._attempt, self._gate, self._step_try.step_key, launch=launch, child=child, fail=self._fail
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_when_cancelled, child)
            tasks.start_soon(self._partial_writer.run)
            try:
                await self._start(child, launch)
                while (chunk := await child.read()) is not None:
                    if chunk.stream == "stderr":
                        self._add_stderr(chunk.data.decode(errors="replace"))
                        continue
                    reports = self._normalizer.feed(chunk.data)
                    await self._process_reports(reports)
                    for report in reports:
                        if isinstance(report, PermissionRequest):
                            permissions.start(report, tasks)
                        elif isinstance(report, PermissionWithdrawn):
                            permissions.withdraw(report.request_id)
                        elif isinstance(report, PromptAnswered):
                            child.close_stdin()
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

    def _add_stderr(self, text: str) -> None:
        output, mask = self._stderr + text, self._attempt.mask
        # Mask before truncating: half a secret would no longer be recognized.
        self._stderr = (mask.text(output) if mask else output)[-AGENT_STDERR_CHARS:]

    async def _start(self, child: Child, launch: Launch) -> None:
        """Record the step, its session and the prompt, then start the agent.

        The start is recorded first, so that a crash cannot hide it.
        """
        process = Process(
            pid=child.pid, command=launch.argv[0], args=_redact_secrets(launch.argv[1:]), cwd=self._request.cwd
        )
        session = msgspec.structs.replace(self._session(launch, None), process=process)
        if not self._step_try.resumed:
            await self._attempt.begin(self._step_try, session=session)
        prompt = TextBlock(fidelity="router", text=self._request.prompt)
        message = UserMessage(
            system_prompt=self._request.system_prompt,
            session=session if self._step_try.resumed else None,
            blocks=[prompt],
        )
        await self._attempt.append(message, self._step_try.step_key)
        child.release()

    def _missing_error(self, error: CommandNotFound) -> RunFailed:
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

    async def _process_reports(self, reports: list[AgentReport]) -> None:
        for report in reports:
            match report:
                case MessageDelta():
                    self._add_delta(report)
                case TranscriptItem(is_prompt=True):
                    # The log has the prompt as the engine sent it.
                    pass
                case TranscriptItem():
                    item = await self._with_model(report)
                    async with self._partial_writer.lock:
                        await self._process_report(item)
                case ContextSize(tokens=tokens):
                    await self._record_context(tokens)
                case UsageDelta():
                    self._transcriber.process_report(report)
                    await self._record_usage(report)
                case _:
                    async with self._partial_writer.lock:
                        await self._process_report(report)

    async def _process_report(self, report: AgentReport) -> None:
        for event in self._transcriber.process_report(report):
            await self._append(event)

    async def _with_model(self, item: TranscriptItem) -> TranscriptItem:
        message = item.payload
        if isinstance(message, AssistantMessage) and message.note is not None and message.note.ready is not None:
            return self._with_context_mark(item, message, message.note, message.note.ready)
        if not isinstance(message, AssistantMessage) or message.model or not message.blocks or item.agent != MAIN_AGENT:
            return item
        if message.synthetic or (model := await self._find_model(message.session_id)) is None:
            return item
        return msgspec.structs.replace(item, payload=msgspec.structs.replace(message, model=model))

    def _with_context_mark(
        self, item: TranscriptItem, message: AssistantMessage, note: Note, ready: Initialization
    ) -> TranscriptItem:
        """Mark the note that the agent is ready if the size of its context will follow."""
        if item.agent != MAIN_AGENT or not self._normalizer.reports_context:
            return item
        note = msgspec.structs.replace(note, ready=msgspec.structs.replace(ready, context_follows=True))
        return msgspec.structs.replace(item, payload=msgspec.structs.replace(message, note=note))

    async def _find_model(self, session_id: str | None) -> str | None:
        """Return the requested model, or else the model in the program's own record of the session."""
        if self._model is None and session_id is not None and self._model_lookups < SESSION_LOOKUPS:
            self._model_lookups += 1
            find = self._provider.session_model
            self._model = await anyio.to_thread.run_sync(find, session_id, self._runtime.env)
            self._transcriber.set_default_model(self._model)
        return self._model

    def _add_delta(self, delta: MessageDelta) -> None:
        """Add a delta to its message.

        Publish it live if it comes from the main agent: a run's followers see only its own text.
        """
        partial, offset = self._transcriber.add_delta(delta)
        self._partial_writer.schedule_write(
            partial, lambda message: self._process_report(TranscriptItem(agent=delta.agent, payload=message))
        )
        if delta.agent != MAIN_AGENT:
            return
        self._attempt.publish_delta(
            self._step_try,
            delta.message_id,
            block=delta.block,
            kind=delta.kind,
            offset=offset,
            text=delta.text,
            tool_name=delta.tool_name,
            tool_id=delta.tool_id,
        )

    async def _append(self, event: PendingEvent) -> None:
        if event.run_id == self._attempt.run_id:
            step_key = StepKey(event.path, self._step_try.step_key.iteration)
            await self._attempt.append(event.payload, step_key, child_run_id=event.child_run_id, at=event.at)
            return
        if event.run_id not in self._logs:
            log_scope = await self._log_stack.enter_async_context(AsyncExitStack())
            opening = self._runtime.logs.open(event.run_id, parent_run_id=event.parent_run_id)
            self._logs[event.run_id] = await log_scope.enter_async_context(opening), log_scope
        log, log_scope = self._logs[event.run_id]
        await log.append(event.payload, path=event.path, child_run_id=event.child_run_id, at=event.at)
        if isinstance(event.payload, RunCompleted):
            # Close the log now: many sub-agents must not keep many files open.
            del self._logs[event.run_id]
            await log_scope.aclose()

    async def _record_context(self, tokens: int) -> None:
        """Record the size of the context, which the note that the agent is ready did not have yet."""
        ready = Initialization(context_tokens=tokens)
        message = AssistantMessage(note=Note(kind="ready", ready=ready), clock="reader", blocks=[])
        async with self._partial_writer.lock:
            await self._attempt.append(message, self._step_try.step_key)

    async def _record_usage(self, delta: UsageDelta) -> None:
        """Record usage at once, because there is no total if this process is killed."""
        record = self._attempt.replay_state.steps.get(self._step_try.step_key)
        session_id = record.session.session_id if record and record.session else None
        model = delta.model or await self._find_model(session_id)
        cost = None if model is None else self._runtime.prices(model, delta.usage)
        if delta.cost_usd is not None:
            cost = Cost(usd=delta.cost_usd, source="agent")
        message = AssistantMessage(
            session_id=session_id,
            model=model,
            usage=delta.usage,
            cost=cost,
            clock="reader",
            blocks=[],
        )
        await self._attempt.append(message, self._step_try.step_key)
        self._check_budget(cost)

    def _check_budget(self, cost: Cost | None) -> None:
        budget = self._request.max_budget_usd
        self._spent_usd += (cost and cost.usd) or 0.0
        if budget is not None and self._spent_usd > budget:
            self._fail(BudgetExceeded(f"the agent has spent ${self._spent_usd:.4f} of its budget of ${budget:g}"))
            stop_once(self._cancellation, "the budget is exceeded")

    async def _stop_when_cancelled(self, child: Child) -> None:
        await self._cancellation.requested.wait()
        await child.stop(STOP_GRACE_SECONDS)

    async def _finish(self, exit_: Exit | None) -> AgentEnd:
        """Record the last reports, also when the run is being abandoned."""
        *reports, last = self._normalizer.finish(self._agent_exit(exit_))
        ended = last if isinstance(last, SessionEnded) else SessionEnded(status="failed")
        try:
            await self._process_reports(reports)
            events, end = self._transcriber.end(ended, self._agent_exit(exit_))
            for event in events:
                await self._append(event)
        except ShopfloorError as error:
            self._fail(error)
            _, end = self._transcriber.end(ended, self._agent_exit(exit_))
        return end

    def _agent_exit(self, exit_: Exit | None) -> AgentExit:
        cancelled = self._cancellation.reason is not None
        if exit_ is None:
            return AgentExit(stderr=self._stderr, cancelled=cancelled)
        code = exit_.code if exit_.signal is None else None
        return AgentExit(code=code, signal=exit_.signal, stderr=self._stderr, cancelled=cancelled)

    def _fail(self, error: ShopfloorError) -> None:
        if self._failure is None:
            is_final = isinstance(error, RunFailed | StorageError)
            self._failure = error if is_final else StepFailed(error.message, hint=error.hint)


_SECRET = re.compile(r"(?i)((?:key|token|secret|password|auth|header)[^=]*=).+", re.DOTALL)


def _redact_secrets(args: list[str]) -> list[str]:
    """Replace what looks like a secret in arguments, because logs have many readers."""
    return [_SECRET.sub(r"\1…", arg) for arg in args]


def _open_calls(attempt: Attempt, step_key: StepKey) -> list[str]:
    """Return the tool calls of earlier processes of this step that have no result."""
    record = attempt.replay_state.steps.get(step_key)
    return list(record.open_calls) if record is not None else []


def _ended_processes(exit_: Exit | None) -> list[EndedProcess]:
    return [
        msgspec.structs.replace(process, args=_redact_secrets(process.args))
        for process in (exit_.ended_processes if exit_ else ())
    ]


def _sub_agent_calls(attempt: Attempt, step_key: StepKey) -> list[tuple[StepKey, StepRecord]]:
    """Return the sub-agents that this step has called, in all its processes."""
    prefix = f"{step_key.path}."
    return [
        (at, record)
        for at, record in attempt.replay_state.steps.items()
        if record.child_run_id is not None and at.path.startswith(prefix) and at.iteration == step_key.iteration
    ]


def _run_started(attempt: Attempt) -> Any:
    first = attempt.replay_state.first
    if first is None:
        raise StepFailed("the log has no first event")
    return first


def _session_error(ended: SessionEnded) -> RunFailed | None:
    """Return the error of a session, or None if it completed."""
    if ended.status == "completed":
        return None
    error = ended.error or RunError(code=AgentFailed.code, message="the agent failed without an error message")
    kind = error_class(error.code)
    retry_after = error.retry_after if isinstance(error.retry_after, float | int) else None
    if not issubclass(kind, RunFailed):
        kind = AgentFailed
    return kind(error.message, hint=error.hint or None, retry_after=retry_after)
