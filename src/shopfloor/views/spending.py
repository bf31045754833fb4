"""The spending of a run: one fold of tokens and cost, for its row, its replay state and its fleet events.

Each message reports its own usage. When a session of an agent ends, its total replaces the sum of its messages; for
any other step the messages count. An interrupted session has spent what its messages reported.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from shopfloor.log import (
    AssistantMessage,
    CallCompleted,
    Cost,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    Usage,
)
from shopfloor.views.wait_state import keep_newest, step_key_of


class UsageTotal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens and their cost, as far as it is known."""

    usage: Usage = Usage()
    cost: Cost | None = None
    is_priced: bool = True
    """False if some of the tokens have no price."""

    @property
    def cost_usd(self) -> float | None:
        """The cost in US dollars; None if unknown."""
        return None if self.cost is None else self.cost.usd

    def plus(self, usage: Usage | None, cost: Cost | None) -> UsageTotal:
        """Return the total with `usage` and `cost` added."""
        if usage is None and cost is None:
            return self
        is_priced = self.is_priced and (usage is None or (cost is not None and cost.usd is not None))
        return UsageTotal(add_usage(self.usage, usage), add_costs(self.cost, cost), is_priced)

    def __add__(self, other: UsageTotal) -> UsageTotal:
        # Most sums have one summand.
        if other is NO_USAGE or self is NO_USAGE:
            return self if other is NO_USAGE else other
        is_priced = self.is_priced and other.is_priced
        return UsageTotal(add_usage(self.usage, other.usage), add_costs(self.cost, other.cost), is_priced)


NO_USAGE = UsageTotal()
SESSION_KINDS = ("agent", "plugin")
"""The kinds of steps whose end has the total of the step."""


class StepSpending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The spending of an open step."""

    before: UsageTotal = NO_USAGE
    """The spending in earlier sessions, which the run's `settled` includes."""
    reported: UsageTotal = msgspec.field(default=NO_USAGE, name="told")
    """The spending that the messages of the current session reported."""


class Spending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold. Bounded by the number of open steps."""

    settled: UsageTotal = NO_USAGE
    """The spending of ended steps and sessions."""
    steps: dict[str, StepSpending] = {}
    """The open steps that have spent something, by step key."""
    sub: UsageTotal = NO_USAGE
    """The spending of all runs below this run."""

    @property
    def own(self) -> UsageTotal:
        """The spending of the run itself, as far as known."""
        return sum((step.reported for step in self.steps.values()), self.settled)

    @property
    def tree(self) -> UsageTotal:
        """The spending of the run and its sub-runs."""
        return self.own + self.sub

    def of_step(self, step_key: str) -> StepSpending:
        """Return the spending of an open step."""
        return self.steps.get(step_key, _NO_STEP)


_NO_STEP = StepSpending()


def spending_step(state: Spending, event: Event) -> Spending:
    """Return the state after the next event of its run."""
    match event.payload:
        case AssistantMessage(usage=usage, cost=cost) as message:
            if usage is None and cost is None:
                return state
            step_key = step_key_of(event)
            if message.note is not None and message.note.kind == "left":
                # The message has the total of a session that was left open.
                return _settle(state, step_key, usage, cost)
            step = state.of_step(step_key)
            step = StepSpending(step.before, step.reported.plus(usage, cost))
            return Spending(state.settled, keep_newest({**state.steps, step_key: step}), state.sub)
        case StepStarted():
            # Another try: the log may not have the end of the one before.
            return _end_step(state, step_key_of(event))
        case StepCompleted() as step:
            total = (step.usage, step.cost) if step.kind in SESSION_KINDS else (None, None)
            state = _end_step(state, step_key_of(event), *total)
            return replace(state, sub=state.sub.plus(step.sub_usage, step.sub_cost))
        case CallCompleted() as step:
            return replace(state, sub=state.sub.plus(step.usage, step.cost))
        case RunStarted():
            for step_key in state.steps:
                state = _settle(state, step_key, None, None)
            return state
        case RunCompleted() as run:
            return Spending(
                _prefer_total(state.own, run.usage, run.cost), sub=_prefer_total(state.sub, run.sub_usage, run.sub_cost)
            )
        case _:
            return state


def _settle(state: Spending, step_key: str, usage: Usage | None, cost: Cost | None) -> Spending:
    """End a session. Its own total counts; without a total, what its messages reported."""
    step = state.of_step(step_key)
    total = step.reported if usage is None and cost is None else NO_USAGE.plus(usage, cost)
    settled = StepSpending(before=step.before + total)
    return replace(state, settled=state.settled + total, steps=keep_newest({**state.steps, step_key: settled}))


def _end_step(state: Spending, step_key: str, usage: Usage | None = None, cost: Cost | None = None) -> Spending:
    if usage is None and cost is None and step_key not in state.steps:
        return state
    state = _settle(state, step_key, usage, cost)
    return replace(state, steps={key: step for key, step in state.steps.items() if key != step_key})


def _prefer_total(known: UsageTotal, usage: Usage | None, cost: Cost | None) -> UsageTotal:
    """Return the totals that the run's outcome has, or else the known totals."""
    return UsageTotal(usage or known.usage, cost or known.cost, known.is_priced)


def add_usage(left: Usage, right: Usage | None) -> Usage:
    """Return the sum of two usages."""
    if right is None:
        return left
    return Usage(
        input=left.input + right.input,
        output=left.output + right.output,
        cache_read=left.cache_read + right.cache_read,
        cache_write=left.cache_write + right.cache_write,
        reasoning=left.reasoning + right.reasoning,
    )


def add_costs(left: Cost | None, right: Cost | None) -> Cost | None:
    """Return the sum of two costs, as far as they are known."""
    if left is None or right is None:
        return left or right
    if left.usd is None or right.usd is None:
        return left if right.usd is None else right
    return replace(right, usd=left.usd + right.usd)
