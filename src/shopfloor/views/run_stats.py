"""The statistics of a run: what started, ended, failed and was spent in it, per quarter of an hour.

The fold yields changes that a store adds up. `views/spending.py` decides how much a run has spent; this fold decides
which model, provider and time each difference belongs to. Time zones differ by multiples of a quarter of an hour, so
the quarters of a day add up to that day in every time zone. Money is counted in billionths of a dollar: integers can be
added and subtracted again without rounding.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from math import isfinite
from typing import Final

import msgspec
from msgspec.structs import replace

from shopfloor.limits import PREVIEW_CHARS, STATS_CELLS
from shopfloor.log import (
    AssistantMessage,
    Cost,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    Usage,
)
from shopfloor.views.row import provider_of_type
from shopfloor.views.spending import SESSION_KINDS, Spending, spending_step
from shopfloor.views.wait_state import ENGINE_CALLS, keep_newest, step_key_of

QUARTER_SECONDS: Final = 900
NANO: Final = 1_000_000_000
STARTED: Final = "started"
ENDED: Final = "ended"
"""The label is the status."""
FAILURE: Final = "failure"
"""The label is the error code, the detail the message without times, ids and long numbers."""
TOOL: Final = "tool"
TOOL_FAILED: Final = "tool_failed"
SPENDING: Final = "spending"
"""The label is the model, the detail the provider, the amount billionths of a dollar."""
_LARGEST: Final = 2**50
_NUMBERS: Final = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z?|\b[0-9a-f]{8}[0-9a-f-]*\b|\d{4,}")
"""Times, ids and long numbers. Short numbers are often the error itself, such as an exit code."""


class StatChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An amount that an event adds to a metric in a quarter of an hour. May be negative: it corrects an earlier one."""

    seq: int
    quarter: int
    """Quarters of an hour since 1970."""
    metric: str
    label: str = ""
    detail: str = ""
    amount: int = 0
    tokens: int = 0
    unpriced: int = 0
    """The tokens that have no price."""


class _Amount(msgspec.Struct, frozen=True, array_like=True, gc=False):
    nano_usd: int = 0
    tokens: int = 0
    unpriced: int = 0

    def __add__(self, other: _Amount) -> _Amount:
        return _Amount(self.nano_usd + other.nano_usd, self.tokens + other.tokens, self.unpriced + other.unpriced)

    def __sub__(self, other: _Amount) -> _Amount:
        return _Amount(self.nano_usd - other.nano_usd, self.tokens - other.tokens, self.unpriced - other.unpriced)


_NOTHING: Final = _Amount()


class _Cell(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a model spent in a quarter of an hour."""

    quarter: int
    model: str
    provider: str
    spent: _Amount


class _OpenStep(msgspec.Struct, frozen=True, omit_defaults=True):
    provider: str = ""
    model: str = ""
    cells: tuple[_Cell, ...] = ()
    """What the messages of the current session reported, oldest first: the newest `STATS_CELLS`."""


_NO_STEP: Final = _OpenStep()


class StatsState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold. Bounded by the number of open steps."""

    has_started: bool = False
    quarter: int = 0
    """The quarter of the newest event that had a valid time."""
    provider: str = ""
    """The provider that the run was handed to, or of its newest session."""
    model: str = ""
    spending: Spending = Spending()
    booked: _Amount = _NOTHING
    """The part of the run's own spending that the changes so far add up to; without the tokens that have no price."""
    steps: dict[str, _OpenStep] = {}


def stats_fold(state: StatsState, events: Sequence[Event]) -> tuple[StatsState, list[StatChange]]:
    """Return the state after the next events of a run, and the changes that they cause."""
    fold = _Fold(state)
    for event in events:
        fold.feed(event)
    return fold.state(), fold.changes


def quarter_of(timestamp: str) -> int | None:
    """Return the quarter of an hour of a timestamp; None if it is no time."""
    return _minute_quarter(timestamp[:16]) if timestamp[-1:] == "Z" else _parse_quarter(timestamp)


@lru_cache(maxsize=1_024)
def _minute_quarter(minute: str) -> int | None:
    return _parse_quarter(f"{minute}Z")


def _parse_quarter(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text)
        return max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()) // QUARTER_SECONDS)
    except (ValueError, OverflowError):
        return None


def failure_key(message: str) -> str:
    """Return what similar failures share of their message: its first line without times, ids and long numbers."""
    line = next((line for line in message.splitlines() if line.strip()), "")
    return _NUMBERS.sub("#", " ".join(line[: 4 * PREVIEW_CHARS].split()))[:PREVIEW_CHARS]


class _Fold:
    """The state during a fold, and the changes so far."""

    def __init__(self, state: StatsState) -> None:
        self.changes: list[StatChange] = []
        self._seq = 0
        self._has_started = state.has_started
        self._quarter = state.quarter
        self._provider = state.provider
        self._model = state.model
        self._spending = state.spending
        self._booked = state.booked
        self._steps = dict(state.steps)

    def state(self) -> StatsState:
        return StatsState(
            has_started=self._has_started,
            quarter=self._quarter,
            provider=self._provider,
            model=self._model,
            spending=self._spending,
            booked=self._booked,
            steps=self._steps,
        )

    def feed(self, event: Event) -> None:
        payload = event.payload
        match payload:
            case ToolCall():
                if payload.name not in ENGINE_CALLS:
                    self._enter(event)
                    self._add(TOOL, payload.name[:PREVIEW_CHARS])
            case ToolResult():
                if payload.is_failure and payload.name not in ENGINE_CALLS:
                    self._enter(event)
                    self._add(TOOL_FAILED, payload.name[:PREVIEW_CHARS])
            case AssistantMessage():
                self._feed_message(event, payload)
            case StepStarted():
                self._feed_step_started(event, payload)
            case StepCompleted():
                self._feed_step_completed(event, payload)
            case RunStarted():
                self._feed_run_started(event, payload)
            case RunCompleted():
                self._feed_outcome(event, payload)
            case _:
                pass

    def _feed_message(self, event: Event, message: AssistantMessage) -> None:
        has_spent = message.usage is not None or message.cost is not None
        has_model = message.model is not None and not message.synthetic
        if not has_spent and not has_model:
            return
        self._enter(event)
        key = step_key_of(event)
        step = self._steps.get(key, _NO_STEP)
        if has_model and (message.model != step.model or message.model != self._model):
            self._model = (message.model or "")[:PREVIEW_CHARS]
            step = replace(step, model=self._model)
            self._keep_step(key, step)
        if message.provider is not None and message.provider != step.provider:
            step = replace(step, provider=message.provider[:PREVIEW_CHARS])
            self._keep_step(key, step)
        if not has_spent:
            return
        unpriced = _unpriced_tokens(message.usage, message.cost)
        difference = self._difference(event)
        if message.note is not None and message.note.kind == "left":
            # The message has the total of a session that was left open.
            self._settle(key, difference, unpriced)
        else:
            self._spend(key, replace(difference, unpriced=unpriced) if unpriced else difference)

    def _feed_run_started(self, event: Event, started: RunStarted) -> None:
        self._enter(event)
        if not self._has_started:
            self._add(STARTED)
            self._provider = provider_of_type(started.worker_type) or ""
        self._has_started = True
        self._spending = spending_step(self._spending, event)
        self._steps.clear()

    def _feed_step_started(self, event: Event, started: StepStarted) -> None:
        key, session = step_key_of(event), started.session
        # Another try: the log may not have the end of the one before.
        self._spending = spending_step(self._spending, event)
        self._steps.pop(key, None)
        # The session of a plugin is its job: a plugin is no provider.
        if session is not None and started.kind != "plugin":
            self._provider = session.provider[:PREVIEW_CHARS]
            self._keep_step(key, _OpenStep(provider=self._provider))

    def _feed_step_completed(self, event: Event, ended: StepCompleted) -> None:
        key = step_key_of(event)
        has_total = ended.kind in SESSION_KINDS and (ended.usage is not None or ended.cost is not None)
        has_sub_agents = ended.sub_usage is not None or ended.sub_cost is not None
        if has_total or has_sub_agents:
            self._enter(event)
        if has_total:
            self._settle(key, self._difference(event), _unpriced_tokens(ended.usage, ended.cost))
        else:
            self._spending = spending_step(self._spending, event)
        if has_sub_agents:
            # These sub-agents have no log of their own.
            spent = _amount(ended.sub_usage, ended.sub_cost)
            self._book(self._cell(key, replace(spent, unpriced=_unpriced_tokens(ended.sub_usage, ended.sub_cost))))
        self._steps.pop(key, None)

    def _feed_outcome(self, event: Event, ended: RunCompleted) -> None:
        self._enter(event)
        # The total of the run may have a part that no event before had.
        rest = self._difference(event)
        is_priced = ended.cost is not None and ended.cost.usd is not None
        self._book(self._cell("", replace(rest, unpriced=0 if is_priced else max(rest.tokens, 0))))
        self._add(ENDED, ended.status)
        if ended.status == "failed":
            error = ended.error
            code, message = ("", "") if error is None else (error.code[:PREVIEW_CHARS], failure_key(error.message))
            self._add(FAILURE, code, message)
        self._steps.clear()

    def _difference(self, event: Event) -> _Amount:
        """Apply an event to the spending of the run. Return what its own spending has that is not booked yet."""
        self._spending = spending_step(self._spending, event)
        own, booked = self._spending.own, self._booked
        self._booked = _amount(own.usage, own.cost)
        return self._booked - booked

    def _enter(self, event: Event) -> None:
        """Make the event the one that the next changes belong to."""
        self._seq = event.seq
        quarter = quarter_of(event.timestamp)
        if quarter is not None:
            self._quarter = quarter

    def _add(self, metric: str, label: str = "", detail: str = "") -> None:
        self.changes.append(StatChange(self._seq, self._quarter, metric, label, detail, 1))

    def _cell(self, key: str, spent: _Amount) -> _Cell:
        step = self._steps.get(key, _NO_STEP)
        return _Cell(self._quarter, step.model or self._model, step.provider or self._provider, spent)

    def _book(self, cell: _Cell) -> None:
        spent = cell.spent
        if spent != _NOTHING:
            self.changes.append(
                StatChange(
                    self._seq,
                    cell.quarter,
                    SPENDING,
                    cell.model,
                    cell.provider,
                    spent.nano_usd,
                    spent.tokens,
                    spent.unpriced,
                )
            )

    def _spend(self, key: str, spent: _Amount) -> None:
        """Book what a message reports, and keep it in case that a total replaces it."""
        step, cell = self._steps.get(key, _NO_STEP), self._cell(key, spent)
        self._book(cell)
        last = step.cells[-1] if step.cells else None
        if last is not None and (last.quarter, last.model, last.provider) == (cell.quarter, cell.model, cell.provider):
            cells = (*step.cells[:-1], replace(last, spent=last.spent + spent))
        else:
            cells = (*step.cells, cell)
        self._keep_step(key, replace(step, cells=cells[-STATS_CELLS:]))

    def _settle(self, key: str, difference: _Amount, unpriced: int) -> None:
        """Replace what the messages of a session reported by the session's total, in the same proportions.

        `difference` is the total without what the messages reported, `unpriced` the tokens of the total without price.
        """
        step = self._steps.get(key, _NO_STEP)
        cells = step.cells or (self._cell(key, _NOTHING),)
        before = [cell.spent for cell in cells]
        total = replace(sum(before, difference), unpriced=unpriced)
        for cell, old, new in zip(cells, before, _divide(total, before), strict=True):
            self._book(replace(cell, spent=new - old))
        self._keep_step(key, replace(step, cells=()))

    def _keep_step(self, key: str, step: _OpenStep) -> None:
        self._steps[key] = step
        self._steps = keep_newest(self._steps)


def _amount(usage: Usage | None, cost: Cost | None) -> _Amount:
    usd = None if cost is None else cost.usd
    nano_usd = round(max(-1.0, min(usd * NANO / _LARGEST, 1.0)) * _LARGEST) if usd is not None and isfinite(usd) else 0
    return _Amount(nano_usd, _count_tokens(usage))


def _unpriced_tokens(usage: Usage | None, cost: Cost | None) -> int:
    return _count_tokens(usage) if cost is None or cost.usd is None else 0


def _count_tokens(usage: Usage | None) -> int:
    tokens = 0 if usage is None else usage.input + usage.output + usage.cache_read + usage.cache_write
    return max(0, min(tokens, _LARGEST))


def _divide(total: _Amount, parts: list[_Amount]) -> list[_Amount]:
    """Divide a total in the proportions of the parts: the cost by their costs, or by tokens if a price is missing."""
    tokens = [part.tokens for part in parts]
    is_priced = not any(part.unpriced for part in parts)
    costs = [part.nano_usd for part in parts] if is_priced and any(part.nano_usd for part in parts) else tokens
    divided = zip(_shares(total.nano_usd, costs), _shares(total.tokens, tokens), strict=True)
    return [_Amount(nano, count, count if total.unpriced else 0) for nano, count in divided]


def _shares(total: int, weights: list[int]) -> list[int]:
    """Return integers in the proportions of the weights, whose sum is the total; without weights the last has all."""
    weights = [max(weight, 0) for weight in weights]
    whole = sum(weights)
    if not whole:
        return [0] * (len(weights) - 1) + [total]
    ends = [total * weight // whole for weight in accumulate(weights)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
