"""Agent steps: an autonomous program, recorded live and stopped in stages."""

from __future__ import annotations

from typing import Any

import msgspec

from shopfloor.engine.agents.agent_process import AgentProcess
from shopfloor.engine.agents.request import AgentOptions, AgentRuntime, build_agent_request, find_session
from shopfloor.engine.approvals import ApprovalGate
from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.awaited_calls import durable_sleep, finish_durable_sleeps
from shopfloor.engine.replay_state import AGENT, StepKey
from shopfloor.engine.workers.definition import Retry
from shopfloor.errors import AgentFailed, BudgetExceeded, OutcomeUnknown, RateLimited
from shopfloor.limits import RATE_LIMIT_WAIT_SECONDS, RATE_LIMIT_WAITS
from shopfloor.log import is_run_id
from shopfloor.ports import AgentRequest, require_enabled
from shopfloor.views import RATE_LIMIT

CONTINUE_PROMPT = "Go on with what you were doing."
"""The prompt for resuming a session that was interrupted."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of an agent."""

    text: str
    data: Any = None
    """The answer as data, if the provider supports structured output."""
    session_id: str | None = None


class AgentStepRunner:
    """Runner of one agent step. The running step does not see a cancellation: it is stopped in stages."""

    def __init__(
        self, attempt: Attempt, runtime: AgentRuntime, options: AgentOptions, *, gate: ApprovalGate | None = None
    ) -> None:
        self._attempt = attempt
        self._runtime = runtime
        self._provider = runtime.provider(options.provider)
        self._options = options
        self._gate = gate

    async def run(
        self, step_key: StepKey, *, name: str, retry: Retry | None = None, timeout_seconds: float | None = None
    ) -> AgentResult:
        ended = await self._attempt.step(
            step_key,
            self._execute,
            name=name,
            kind=AGENT,
            retry=retry,
            timeout_seconds=timeout_seconds,
            repeatable=self._provider.capabilities.resume,
            starts_itself=True,
        )
        record = self._attempt.replay_state.steps[step_key]
        session_id = record.session.session_id if record.session else None
        return AgentResult(text=ended.get("text") or "", data=ended.get("data"), session_id=session_id)

    async def _execute(self, step_try: StepTry) -> StepResult:
        await finish_durable_sleeps(self._attempt, step_try.step_key, RATE_LIMIT)
        request = self._resume_request(step_try) if step_try.resumed else await self._new_request()
        for waits in range(RATE_LIMIT_WAITS + 1):
            process = AgentProcess(
                self._attempt,
                self._runtime,
                self._provider,
                self._with_remaining_budget(request, step_try),
                step_try,
                gate=self._gate,
            )
            async with self._attempt.hold_slot():
                result, failure = await process.run()
            step_try.resumed = True
            if failure is None:
                return result
            wait = failure.retry_after
            is_last = waits == RATE_LIMIT_WAITS or wait is None or wait > RATE_LIMIT_WAIT_SECONDS
            if failure.code != RateLimited.code or wait is None or is_last:
                step_try.result = result
                raise failure
            await process.record_interruption(result)
            await durable_sleep(self._attempt, step_try.step_key, RATE_LIMIT, wait)
            request = self._resume_request(step_try)
        raise AgentFailed(f"{self._provider.name} is still rate-limited after waiting {RATE_LIMIT_WAITS} times")

    async def _new_request(self) -> AgentRequest:
        """Build a request for a new session. Raises `ProviderDisabled`.

        Every try needs a new one: a provider accepts each session id only once.
        """
        options, first = self._options, self._attempt.replay_state.first
        await require_enabled(self._runtime.provider_health, [options.provider])
        session_id, cwd = options.resume, options.cwd
        is_reply = first is not None and first.based_on is not None and first.based_on.kind == "reply"
        # A reply to a run leaves the session of that run as it is, if the provider can do that.
        fork_session = is_reply and session_id is not None and self._provider.capabilities.fork_session
        if options.resume is not None and is_run_id(options.resume):
            session_id, cwd = await find_session(self._runtime, self._provider, options.resume, is_copied=fork_session)
        return msgspec.structs.replace(build_agent_request(options, session_id, cwd), fork_session=fork_session)

    def _with_remaining_budget(self, request: AgentRequest, step_try: StepTry) -> AgentRequest:
        """Subtract the cost of earlier processes of this step from the budget."""
        record = self._attempt.replay_state.steps.get(step_try.step_key)
        budget = request.max_budget_usd
        if budget is None or record is None or not step_try.resumed:
            return request
        spent = self._attempt.replay_state.prior_usage(step_try.step_key).cost_usd or 0.0
        if spent >= budget:
            raise BudgetExceeded(f"the agent has spent ${spent:.4f} of its budget of ${budget:g}")
        return msgspec.structs.replace(request, max_budget_usd=budget - spent)

    def _resume_request(self, step_try: StepTry) -> AgentRequest:
        """Build a request that resumes the session of this step.

        Raises `OutcomeUnknown` if there is no session to resume.
        """
        record = self._attempt.replay_state.steps.get(step_try.step_key)
        session = record.session if record is not None else None
        cwd = session.process.cwd if session is not None and session.process is not None else self._options.cwd
        if record is not None and not record.has_reported and session is not None and not session.resumed:
            # The agent never reported that it had begun, so there is no session yet and it has done nothing.
            return build_agent_request(self._options, None, cwd)
        session_id = session.session_id if session is not None else None
        if session_id is None or not self._provider.capabilities.resume:
            raise OutcomeUnknown(
                f"{self._provider.name} was interrupted, and its session id is unknown",
                hint="check what it did; `retry: {always: true}` repeats such a step",
            )
        # The usage of this step's own session is either on record, or will be reported by the next process.
        prior_usage = None
        if session is not None and not session.resumed:
            prior_usage = self._attempt.replay_state.prior_usage(step_try.step_key).usage
        return msgspec.structs.replace(
            build_agent_request(self._options, session_id, cwd), prompt=CONTINUE_PROMPT, prior_usage=prior_usage
        )
