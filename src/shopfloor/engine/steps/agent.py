"""Agent steps: a program that works by itself, heard live, and stopped when that is asked for."""

from __future__ import annotations

from typing import Any

import msgspec

from shopfloor.engine.agents.asking import AgentDesk, AgentOrder, request_of, session_of
from shopfloor.engine.agents.sitting import Sitting
from shopfloor.engine.attempt import Attempt, StepResult, Trying
from shopfloor.engine.awaited_calls import rest_for, rest_on
from shopfloor.engine.journal import AGENT, Place
from shopfloor.engine.workers.definition import Retry
from shopfloor.errors import AgentFailed, BudgetExceeded, OutcomeUnknown, RateLimited
from shopfloor.limits import RATE_LIMIT_WAIT_SECONDS, RATE_LIMIT_WAITS
from shopfloor.log import is_run_id
from shopfloor.ports import AgentRequest
from shopfloor.views import RATE_LIMIT

GO_ON = "Go on with what you were doing."
"""What a session is told that was cut off in the middle."""


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent gave."""

    text: str
    data: Any = None
    """Its answer as data, where it gives that."""
    session_id: str | None = None


class AgentWork:
    """The work of one agent step. While it goes on it does not see a cancellation: it is stopped in stages."""

    def __init__(self, attempt: Attempt, desk: AgentDesk, order: AgentOrder) -> None:
        self._attempt = attempt
        self._desk = desk
        self._provider = desk.provider(order.provider)
        self._order = order

    async def run(self, place: Place, *, name: str, retry: Retry | None = None) -> AgentResult:
        ended = await self._attempt.step(
            place,
            self._work,
            name=name,
            kind=AGENT,
            retry=retry,
            repeatable=self._provider.capabilities.resume,
            starts_itself=True,
        )
        record = self._attempt.journal.steps[place]
        session_id = record.session.session_id if record.session else None
        return AgentResult(text=ended.get("text") or "", data=ended.get("data"), session_id=session_id)

    async def _work(self, trying: Trying) -> StepResult:
        await rest_on(self._attempt, trying.place, RATE_LIMIT)
        request = self._again(trying) if trying.resumed else await self._fresh()
        for waits in range(RATE_LIMIT_WAITS + 1):
            sitting = Sitting(self._attempt, self._desk, self._provider, self._held(request, trying), trying)
            async with self._attempt.working():
                result, failure = await sitting.sit()
            trying.resumed = True
            if failure is None:
                return result
            wait = failure.retry_after
            last = waits == RATE_LIMIT_WAITS or wait is None or wait > RATE_LIMIT_WAIT_SECONDS
            if failure.code != RateLimited.code or wait is None or last:
                trying.result = result
                raise failure
            await sitting.leave(result)
            await rest_for(self._attempt, trying.place, RATE_LIMIT, wait)
            request = self._again(trying)
        raise AgentFailed(f"{self._provider.name} still limits our rate")

    async def _fresh(self) -> AgentRequest:
        """A session of its own for every try: a provider takes the id of a session once."""
        order = self._order
        session_id, cwd = order.resume, order.cwd
        if order.resume is not None and is_run_id(order.resume):
            session_id, cwd = await session_of(self._desk, self._provider, order.resume)
        return request_of(order, session_id, cwd)

    def _held(self, request: AgentRequest, trying: Trying) -> AgentRequest:
        """What earlier sittings of this step spent is taken off its budget."""
        record = self._attempt.journal.steps.get(trying.place)
        budget = request.max_budget_usd
        if budget is None or record is None or not trying.resumed:
            return request
        spent = self._attempt.journal.spent_before(trying.place).cost_usd or 0.0
        if spent >= budget:
            raise BudgetExceeded(f"it has spent ${spent:.4f} of the ${budget:g} that it was allowed")
        return msgspec.structs.replace(request, max_budget_usd=budget - spent)

    def _again(self, trying: Trying) -> AgentRequest:
        """The same session, told to go on; where it cannot be, nobody knows what it has done."""
        record = self._attempt.journal.steps.get(trying.place)
        session = record.session if record is not None else None
        cwd = session.process.cwd if session is not None and session.process is not None else self._order.cwd
        if record is not None and not record.spoke and session is not None and not session.resumed:
            # It never said that it had begun: there is no session yet, and nothing that it did.
            return request_of(self._order, None, cwd)
        session_id = session.session_id if session is not None else None
        if session_id is None or not self._provider.capabilities.resume:
            raise OutcomeUnknown(
                f"{self._provider.name} was cut off, and in which session it worked is not known",
                hint="look at what it did; `retry: {always: true}` lets such a step be done again",
            )
        # What a session that is this step's own has spent is all on record, or is for this sitting to tell.
        before = None
        if session is not None and not session.resumed:
            before = self._attempt.journal.spent_before(trying.place).usage
        return msgspec.structs.replace(request_of(self._order, session_id, cwd), prompt=GO_ON, spent_before=before)
