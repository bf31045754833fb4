"""What a run has spent: the one fold of tokens and cost, for its row, its replay state and the events of its agents.

Messages tell what they cost as they come. When a session of an agent ends, its own total takes the place of what its
messages told; of any other step its messages count. A session that was cut off has spent what it told.
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
    """Tokens, and their cost as far as it is known."""

    usage: Usage = Usage()
    cost: Cost | None = None
    is_priced: bool = True
    """False where some of the tokens have no price."""

    @property
    def cost_usd(self) -> float | None:
        return None if self.cost is None else self.cost.usd

    def plus(self, usage: Usage | None, cost: Cost | None) -> UsageTotal:
        is_priced = usage is None or (cost is not None and cost.usd is not None)
        return self + UsageTotal(usage or Usage(), cost, is_priced)

    def __add__(self, other: UsageTotal) -> UsageTotal:
        if other == NO_USAGE:
            return self
        is_priced = self.is_priced and other.is_priced
        return UsageTotal(add_usage(self.usage, other.usage), add_costs(self.cost, other.cost), is_priced)


NO_USAGE = UsageTotal()


class StepSpending(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step that goes on has spent."""

    before: UsageTotal = NO_USAGE
    """In sessions that are over: part of the run's `settled`."""
    told: UsageTotal = NO_USAGE
    """By the messages of the session that goes on."""


class Spending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold. Bounded, as the open steps are."""

    settled: UsageTotal = NO_USAGE
    """In steps and sessions that are over."""
    steps: dict[str, StepSpending] = {}
    """The steps that go on and have spent something, by their places."""
    sub: UsageTotal = NO_USAGE
    """By the runs that it called, with those that they called."""

    @property
    def own(self) -> UsageTotal:
        """What the run has spent itself, as far as it is known by now."""
        return sum((step.told for step in self.steps.values()), self.settled)

    @property
    def tree(self) -> UsageTotal:
        """With what its sub-runs spent."""
        return self.own + self.sub

    def of_step(self, place: str) -> StepSpending:
        return self.steps.get(place, _NO_STEP)


_NO_STEP = StepSpending()


def spending_step(state: Spending, event: Event) -> Spending:
    """The state after the event, the next of its run."""
    match event.payload:
        case AssistantMessage(usage=usage, cost=cost) as message:
            if usage is None and cost is None:
                return state
            place = step_key_of(event)
            if message.note is not None and message.note.kind == "left":
                # The whole of what the session has spent until it was left.
                return _settle(state, place, usage, cost)
            step = state.of_step(place)
            told = replace(step, told=step.told.plus(usage, cost))
            return replace(state, steps=keep_newest({**state.steps, place: told}))
        case StepStarted():
            # A further try, though nobody may have written how the one before ended.
            return _end_step(state, step_key_of(event))
        case StepCompleted() as step:
            total = (step.usage, step.cost) if step.kind == "agent" else (None, None)
            state = _end_step(state, step_key_of(event), *total)
            return replace(state, sub=state.sub.plus(step.sub_usage, step.sub_cost))
        case CallCompleted() as step:
            return replace(state, sub=state.sub.plus(step.usage, step.cost))
        case RunStarted():
            for place in state.steps:
                state = _settle(state, place, None, None)
            return state
        case RunCompleted() as run:
            return Spending(_total(state.own, run.usage, run.cost), sub=_total(state.sub, run.sub_usage, run.sub_cost))
        case _:
            return state


def _settle(state: Spending, place: str, usage: Usage | None, cost: Cost | None) -> Spending:
    """End a session: its own total counts, or else what its messages told."""
    step = state.of_step(place)
    over = step.told if usage is None and cost is None else NO_USAGE.plus(usage, cost)
    settled = StepSpending(before=step.before + over)
    return replace(state, settled=state.settled + over, steps=keep_newest({**state.steps, place: settled}))


def _end_step(state: Spending, place: str, usage: Usage | None = None, cost: Cost | None = None) -> Spending:
    if usage is None and cost is None and place not in state.steps:
        return state
    state = _settle(state, place, usage, cost)
    return replace(state, steps={one: step for one, step in state.steps.items() if one != place})


def _total(known: UsageTotal, usage: Usage | None, cost: Cost | None) -> UsageTotal:
    """The run's own totals at its outcome, where it has them."""
    return UsageTotal(usage or known.usage, cost or known.cost, known.is_priced)


def add_usage(one: Usage, other: Usage | None) -> Usage:
    """Tokens of both."""
    if other is None:
        return one
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
        reasoning=one.reasoning + other.reasoning,
    )


def add_costs(one: Cost | None, other: Cost | None) -> Cost | None:
    """Both together, as far as they are known."""
    if one is None or other is None:
        return one or other
    if one.usd is None or other.usd is None:
        return one if other.usd is None else other
    return replace(other, usd=one.usd + other.usd)
