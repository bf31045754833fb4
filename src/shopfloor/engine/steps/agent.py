"""Agent steps: a program that works by itself, heard live, and stopped when that is asked for."""

from __future__ import annotations

from typing import Any

import msgspec

from shopfloor.engine.agents.agent_process import AgentProcess
from shopfloor.engine.agents.request import AgentOptions, AgentRuntime, build_agent_request, find_session
from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.awaited_calls import durable_sleep, finish_durable_sleeps
from shopfloor.engine.replay_state import AGENT, StepKey
from shopfloor.engine.workers.definition import Retry
from shopfloor.errors import AgentFailed, BudgetExceeded, OutcomeUnknown, RateLimited
from shopfloor.limits import RATE_LIMIT_WAIT_SECONDS, RATE_LIMIT_WAITS
from shopfloor.log import is_run_id
from shopfloor.ports import AgentRequest
from shopfloor.views import RATE_LIMIT

CONTINUE_PROMPT = "Go on with what you were doing."
"""What a session is told that was cut off in the middle."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent gave."""

    text: str
    data: Any = None
    """Its answer as data, where it gives that."""
    session_id: str | None = None


class AgentStepRunner:
    """The work of one agent step. While it goes on it does not see a cancellation: it is stopped in stages."""

    def __init__(self, attempt: Attempt, runtime: AgentRuntime, order: AgentOptions) -> None:
        self._attempt = attempt
        self._desk = runtime
        self._provider = runtime.provider(order.provider)
        self._order = order

    async def run(self, step_key: StepKey, *, name: str, retry: Retry | None = None) -> AgentResult:
        ended = await self._attempt.step(
            step_key,
            self._work,
            name=name,
            kind=AGENT,
            retry=retry,
            repeatable=self._provider.capabilities.resume,
            starts_itself=True,
        )
        record = self._attempt.replay_state.steps[step_key]
        session_id = record.session.session_id if record.session else None
        return AgentResult(text=ended.get("text") or "", data=ended.get("data"), session_id=session_id)

    async def _work(self, step_try: StepTry) -> StepResult:
        await finish_durable_sleeps(self._attempt, step_try.step_key, RATE_LIMIT)
        request = self._again(step_try) if step_try.resumed else await self._fresh()
        for waits in range(RATE_LIMIT_WAITS + 1):
            sitting = AgentProcess(self._attempt, self._desk, self._provider, self._held(request, step_try), step_try)
            async with self._attempt.hold_slot():
                result, failure = await sitting.run()
            step_try.resumed = True
            if failure is None:
                return result
            wait = failure.retry_after
            last = waits == RATE_LIMIT_WAITS or wait is None or wait > RATE_LIMIT_WAIT_SECONDS
            if failure.code != RateLimited.code or wait is None or last:
                step_try.result = result
                raise failure
            await sitting.record_interruption(result)
            await durable_sleep(self._attempt, step_try.step_key, RATE_LIMIT, wait)
            request = self._again(step_try)
        raise AgentFailed(f"{self._provider.name} still limits our rate")

    async def _fresh(self) -> AgentRequest:
        """A session of its own for every try: a provider takes the id of a session once."""
        order = self._order
        session_id, cwd = order.resume, order.cwd
        if order.resume is not None and is_run_id(order.resume):
            session_id, cwd = await find_session(self._desk, self._provider, order.resume)
        return build_agent_request(order, session_id, cwd)

    def _held(self, request: AgentRequest, step_try: StepTry) -> AgentRequest:
        """What earlier sittings of this step spent is taken off its budget."""
        record = self._attempt.replay_state.steps.get(step_try.step_key)
        budget = request.max_budget_usd
        if budget is None or record is None or not step_try.resumed:
            return request
        spent = self._attempt.replay_state.prior_usage(step_try.step_key).cost_usd or 0.0
        if spent >= budget:
            raise BudgetExceeded(f"it has spent ${spent:.4f} of the ${budget:g} that it was allowed")
        return msgspec.structs.replace(request, max_budget_usd=budget - spent)

    def _again(self, step_try: StepTry) -> AgentRequest:
        """The same session, told to go on; where it cannot be, nobody knows what it has done."""
        record = self._attempt.replay_state.steps.get(step_try.step_key)
        session = record.session if record is not None else None
        cwd = session.process.cwd if session is not None and session.process is not None else self._order.cwd
        if record is not None and not record.has_reported and session is not None and not session.resumed:
            # It never said that it had begun: there is no session yet, and nothing that it did.
            return build_agent_request(self._order, None, cwd)
        session_id = session.session_id if session is not None else None
        if session_id is None or not self._provider.capabilities.resume:
            raise OutcomeUnknown(
                f"{self._provider.name} was cut off, and in which session it worked is not known",
                hint="look at what it did; `retry: {always: true}` lets such a step be done again",
            )
        # What a session that is this step's own has spent is all on record, or is for this sitting to tell.
        before = None
        if session is not None and not session.resumed:
            before = self._attempt.replay_state.prior_usage(step_try.step_key).usage
        return msgspec.structs.replace(
            build_agent_request(self._order, session_id, cwd), prompt=CONTINUE_PROMPT, prior_usage=before
        )
