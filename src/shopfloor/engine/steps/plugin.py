"""Plugin steps: a job of a plugin, dispatched, polled until its end, and recorded from what the plugin reports."""

from __future__ import annotations

import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.cancellation import Cancellation
from shopfloor.engine.plugin_jobs import FindJobClaims
from shopfloor.engine.replay_state import PLUGIN_JOB, StepKey
from shopfloor.engine.steps.shell_process import graceful_stop
from shopfloor.errors import OutcomeUnknown, PluginFailed, PluginUnavailable, ShopfloorError, StepFailed
from shopfloor.limits import (
    PLUGIN_CANCEL_SECONDS,
    PLUGIN_NOTE_CHARS,
    PLUGIN_NOTES,
    PLUGIN_RESTART_WAIT_SECONDS,
    PLUGIN_SILENCE_SECONDS,
    PLUGIN_STATUS_MAX_SECONDS,
    PLUGIN_STATUS_SECONDS,
)
from shopfloor.log import AssistantMessage, Cost, Note, Session, TextBlock, ToolCall, ToolResult, UserMessage
from shopfloor.ports import JobState, Plugins, WorkerHandle
from shopfloor.views import LOG_QUESTION, RECORD_DECISION, SUBMIT_RESULT, UPDATE_SUMMARY, valid_fraction

T = TypeVar("T")
RUN_ID = "run_id"
"""The field of `config` with our run id. A plugin may adopt the id as its job id."""
_BACKOFF = 1.5
_RUNNING = "running"


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The job that a plugin is to do."""

    plugin: str
    task: str
    description: str
    config: dict[str, Any]


class PluginResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job."""

    text: str
    artifacts: list[str]
    """Names of files that the job created. The plugin has the files."""
    job_id: str


class PluginStepRunner:
    """Runner of one plugin step.

    The run holds no slot while the plugin works, and is not suspended. The running step does not see a cancellation:
    the job is cancelled in the plugin, and the step waits for its end.
    """

    def __init__(self, attempt: Attempt, plugins: Plugins, find_job_claims: FindJobClaims, request: JobRequest) -> None:
        self._attempt = attempt
        self._plugins = plugins
        self._find_job_claims = find_job_claims
        self._request = request

    async def run(self, step_key: StepKey, *, name: str) -> PluginResult:
        """Run the job to its end, or continue with the job that the log has."""
        value = await self._attempt.step(
            step_key, self._execute, name=name, kind=PLUGIN_JOB, repeatable=True, starts_itself=True
        )
        return PluginResult(**value)

    async def _execute(self, step_try: StepTry) -> StepResult:
        cancellation = Cancellation()
        outcome: StepResult | ShopfloorError | None = None
        if not step_try.resumed:
            session = Session(provider=self._request.plugin, session_id=self._attempt.run_id)
            await self._attempt.begin(step_try, session=session)
            prompt = TextBlock(fidelity="router", text=self._request.task)
            await self._attempt.append(UserMessage(blocks=[prompt]), step_try.step_key)
        async with graceful_stop(self._attempt, cancellation):
            outcome = await self._work_until(cancellation.requested.wait, step_try)
            if outcome is None and self._attempt.interruption not in ("stopped", "suspended"):
                await self._cancel_job(step_try)
        await anyio.lowlevel.checkpoint()
        if outcome is None:
            raise StepFailed(cancellation.reason or "cancelled")
        if isinstance(outcome, ShopfloorError):
            raise outcome
        return outcome

    async def _work_until(
        self, stop: Callable[[], Awaitable[Any]], step_try: StepTry
    ) -> StepResult | ShopfloorError | None:
        """Follow the job to its end. Return its result or error; None if the stop came first."""
        outcome: StepResult | ShopfloorError | None = None
        async with anyio.create_task_group() as tasks:

            async def cancel_on_stop() -> None:
                await stop()
                tasks.cancel_scope.cancel()

            tasks.start_soon(cancel_on_stop)
            try:
                async with self._attempt.release_slot():
                    outcome = await self._work(step_try)
            except ShopfloorError as error:
                outcome = error
            tasks.cancel_scope.cancel()
        return outcome

    async def _work(self, step_try: StepTry) -> StepResult:
        handle = await self._plugins.worker(self._request.plugin)
        job_id = await (self._recorded_job(handle, step_try) if step_try.resumed else self._dispatch(handle, step_try))
        state = await self._follow(handle, job_id, step_try)
        step_try.result = self._step_result(state, None)
        if state.status != "completed":
            reason = _cut(state.error or "") or f"the plugin reports the job as {state.status}"
            raise PluginFailed(f"plugin {self._request.plugin}: {reason}")
        result = await _tolerate_silence(lambda: handle.result(job_id))
        artifacts = list(result.artifacts or ())
        if artifacts:
            await self._append_note(step_try, SUBMIT_RESULT, {"artifacts": [{"name": name} for name in artifacts]})
        text = TextBlock(fidelity="agent_emitted", text=result.output)
        await self._attempt.append(AssistantMessage(blocks=[text], session_id=job_id), step_try.step_key)
        return self._step_result(state, {"text": result.output, "artifacts": artifacts, "job_id": job_id})

    def _step_result(self, state: JobState, value: Any) -> StepResult:
        # A plugin may report anything; a negative cost would lower the total of the run.
        is_cost = state.cost_usd is not None and state.cost_usd >= 0
        cost = Cost(usd=state.cost_usd, source="agent") if is_cost else None
        session = Session(provider=self._request.plugin, session_id=state.job_id)
        return StepResult(value, cost=cost, session=session)

    # The job.

    async def _dispatch(self, handle: WorkerHandle, step_try: StepTry) -> str:
        """Start the job and record its id."""
        request = self._request
        # The intent is durable before the plugin starts anything.
        await self._attempt.make_durable()
        config = {**request.config, RUN_ID: self._attempt.run_id}
        try:
            job_id = await _retry_while_stopped(lambda: handle.dispatch(request.description, request.task, config))
        except PluginUnavailable as error:
            if not error.is_sent:
                raise
            job_id = await self._find_job(handle)
        return await self._record_job(job_id, step_try)

    async def _recorded_job(self, handle: WorkerHandle, step_try: StepTry) -> str:
        """Return the job that an earlier attempt dispatched."""
        record = self._attempt.replay_state.steps[step_try.step_key]
        job_id = record.session.session_id if record.session is not None else None
        if record.has_reported and job_id is not None:
            return job_id
        return await self._record_job(await self._find_job(handle), step_try)

    async def _find_job(self, handle: WorkerHandle) -> str:
        """Return the job of a dispatch whose answer is lost.

        A plugin that adopts our run id knows the job by it. Of another plugin, only a single job with the description
        of this run is adopted that no other run has or may have. Raises `OutcomeUnknown` otherwise.
        """
        run_id, request = self._attempt.run_id, self._request
        try:
            return (await self._status(handle, run_id)).job_id
        except PluginFailed as error:
            if error.rpc_code is None:
                raise
        jobs = await _tolerate_silence(handle.list)
        claims = await self._find_job_claims(request.plugin)
        candidates = [
            job.job_id for job in jobs if job.description == request.description and job.job_id not in claims.job_ids
        ]
        rivals = [other for other, description in claims.lost.items() if description == request.description]
        is_shared = not claims.is_complete or any(other != run_id for other in rivals)
        if len(candidates) != 1 or is_shared:
            found = "no job" if not candidates else f"{len(candidates)} job{'s' * (len(candidates) > 1)}"
            owner = "this run or to another" if is_shared else "this run"
            raise OutcomeUnknown(
                f"the dispatch to plugin {request.plugin} was interrupted, and {found} may belong to {owner}",
                hint="check what the plugin did, then start a new run",
            )
        return candidates[0]

    async def _record_job(self, job_id: str, step_try: StepTry) -> str:
        """Record the id of the job before anything depends on it."""
        ready = Note(kind="ready", message=f"plugin {self._request.plugin} accepted the job {job_id}")
        await self._attempt.append(AssistantMessage(blocks=[], session_id=job_id, note=ready), step_try.step_key)
        return job_id

    async def _follow(self, handle: WorkerHandle, job_id: str, step_try: StepTry) -> JobState:
        """Poll the job until it ends, and record each change."""
        pause = PLUGIN_STATUS_SECONDS
        while True:
            state = await self._status(handle, job_id)
            has_changed = await self._record_changes(state, step_try)
            if state.status != _RUNNING:
                return state
            pause = PLUGIN_STATUS_SECONDS if has_changed else min(pause * _BACKOFF, PLUGIN_STATUS_MAX_SECONDS)
            await anyio.sleep(pause)

    async def _status(self, handle: WorkerHandle, job_id: str) -> JobState:
        state = await _tolerate_silence(lambda: handle.status(job_id))
        if state.job_id != job_id:
            raise PluginFailed(
                f"plugin {self._request.plugin} reports the job {_cut(state.job_id)} instead of {job_id}"
            )
        return state

    async def _cancel_job(self, step_try: StepTry) -> None:
        """Cancel the job and wait for its end, up to a limit. Errors do not prevent the end of the run."""
        failure: str | None = f"no end within {PLUGIN_CANCEL_SECONDS:g} s"
        with anyio.move_on_after(PLUGIN_CANCEL_SECONDS):
            try:
                handle = await self._plugins.worker(self._request.plugin)
                job_id = await self._recorded_job(handle, step_try)
                await _tolerate_silence(lambda: handle.cancel(job_id))
                state = await self._follow(handle, job_id, step_try)
            except ShopfloorError as error:
                failure = error.message
            else:
                failure = None
                step_try.result = self._step_result(state, None)
        if failure is not None:
            warning = Note(kind="warning", message=f"the job could not be cancelled, and may go on: {failure}")
            await self._attempt.append(AssistantMessage(blocks=[], note=warning), step_try.step_key)

    # The notes.

    async def _record_changes(self, state: JobState, step_try: StepTry) -> bool:
        """Record what the job has reported since the last poll, even by an earlier attempt."""
        calls = [event for event in self._attempt.conversation(step_try.step_key) if isinstance(event, ToolCall)]
        summaries, questions, decisions = (
            [call.input for call in calls if call.name == name]
            for name in (UPDATE_SUMMARY, LOG_QUESTION, RECORD_DECISION)
        )
        notes: list[tuple[str, dict[str, Any]]] = []
        summary: dict[str, Any] = {"summary": _cut(state.summary or "")}
        if (progress := valid_fraction(state.progress)) is not None:
            # Whole percents, so that a job that reports often does not fill the log.
            summary["progress"] = round(progress, 2)
        if (state.summary or progress is not None) and summaries[-1:] != [summary]:
            notes.append((UPDATE_SUMMARY, summary))
        notes += [
            (LOG_QUESTION, {"question": _cut(question)}) for question in (state.questions or ())[len(questions) :]
        ]
        for decision in (state.decisions or ())[len(decisions) :]:
            fields = {"question": decision.question, "decision": decision.decision, "reasoning": decision.reasoning}
            notes.append((RECORD_DECISION, {name: _cut(text) for name, text in fields.items()}))
        notes = notes[: max(0, PLUGIN_NOTES - len(calls))]
        for name, note in notes:
            await self._append_note(step_try, name, note)
        return bool(notes)

    async def _append_note(self, step_try: StepTry, name: str, note: dict[str, Any]) -> None:
        call_id = f"note_{uuid.uuid4().hex}"
        for payload in (
            ToolCall(name=name, call_id=call_id, input=note, output=None, fidelity="agent_emitted"),
            ToolResult(name=name, call_id=call_id, input=None, output=None, fidelity="agent_emitted"),
        ):
            await self._attempt.append(payload, step_try.step_key)


def _cut(text: str) -> str:
    return text if len(text) <= PLUGIN_NOTE_CHARS else f"{text[: PLUGIN_NOTE_CHARS - 1]}…"


async def _retry_while_stopped(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call while the plugin is not running and gets no request. It may be restarting after a crash.

    Raises the last error after `PLUGIN_RESTART_WAIT_SECONDS`.
    """
    deadline = time.monotonic() + PLUGIN_RESTART_WAIT_SECONDS
    while True:
        try:
            return await call()
        except PluginUnavailable as error:
            if error.is_sent or time.monotonic() > deadline:
                raise
        await anyio.sleep(PLUGIN_STATUS_SECONDS)


async def _tolerate_silence(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call without further effect while the plugin does not answer, or not as the protocol says.

    The plugin may be restarting. Raises the last error after `PLUGIN_SILENCE_SECONDS`, or after
    `PLUGIN_RESTART_WAIT_SECONDS` if the plugin gives malformed answers; raises an error that it answers at once.
    """
    started = time.monotonic()
    pause = PLUGIN_STATUS_SECONDS
    while True:
        try:
            return await call()
        except (PluginUnavailable, PluginFailed) as error:
            is_answer = isinstance(error, PluginFailed)
            limit_seconds = PLUGIN_RESTART_WAIT_SECONDS if is_answer else PLUGIN_SILENCE_SECONDS
            if (is_answer and error.rpc_code is not None) or time.monotonic() + pause > started + limit_seconds:
                raise
        await anyio.sleep(pause)
        pause = min(pause * _BACKOFF, PLUGIN_STATUS_MAX_SECONDS)
