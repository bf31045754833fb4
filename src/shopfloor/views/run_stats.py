"""The statistics of a run: what started, ended, failed and was spent in it, per quarter of an hour.

The fold yields changes that a store adds up. Time zones differ by multiples of a quarter of an hour, so the quarters of
a day add up to that day in every time zone. Money is counted in billionths of a dollar: integers can be added and
subtracted again without rounding.
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
    CallCompleted,
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
from shopfloor.views.spending import SESSION_KINDS
from shopfloor.views.wait_state import keep_newest, step_key_of

QUARTER_SECONDS: Final = 900
NANO: Final = 1_000_000_000
STARTED: Final = "started"
ENDED: Final = "ended"
"""The label is the status."""
FAILURE: Final = "failure"
"""The label is the error code, the detail the message without ids and long numbers."""
TOOL: Final = "tool"
TOOL_FAILED: Final = "tool_failed"
SPENDING: Final = "spending"
"""The label is the model, the detail the provider, the amount billionths of a dollar."""
_LARGEST: Final = 2**50
_LEAST_DIFFERENCE: Final = 1_000
"""A millionth of a dollar: smaller differences between two sums come from rounding."""
_NUMBERS: Final = re.compile(r"\b[0-9a-f]{8}[0-9a-f-]*\b|\d{4,}")
"""Ids and long numbers. Short numbers are often the error itself, such as an exit code."""


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
    """What the messages of the current session reported, oldest first."""
    fixed: _Amount = _NOTHING
    """The sum of cells that are no longer kept."""


_NO_STEP: Final = _OpenStep()


class StatsState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of the fold. Bounded by the number of open steps."""

    has_started: bool = False
    quarter: int = 0
    """The quarter of the newest event that had a valid time."""
    provider: str = ""
    """The provider that the run was handed to, or of its newest session."""
    model: str = ""
    own: _Amount = _NOTHING
    """What the run has spent, as far as known."""
    sub_agents: _Amount = _NOTHING
    """What sub-agents with a log of their own have spent since an agent's last total."""
    steps: dict[str, _OpenStep] = {}


def stats_fold(state: StatsState, events: Sequence[Event]) -> tuple[StatsState, list[StatChange]]:
    """Return the state after the next events of a run, and the changes that they cause."""
    fold = _Fold(state)
    for event in events:
        fold.feed(event)
    return fold.state, fold.changes


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
    """Return the part of an error message that similar failures share: its first line without ids and long numbers."""
    line = next((line for line in message.splitlines() if line.strip()), "")
    return _NUMBERS.sub("#", " ".join(line[: 4 * PREVIEW_CHARS].split()))[:PREVIEW_CHARS]


class _Fold:
    """The state during a fold, and the changes so far."""

    def __init__(self, state: StatsState) -> None:
        self.state = state
        self.changes: list[StatChange] = []
        self._seq = 0
        self._quarter: int = state.quarter

    def feed(self, event: Event) -> None:
        payload = event.payload
        match payload:
            case ToolCall():
                self._enter(event)
                self._add(TOOL, payload.name[:PREVIEW_CHARS])
            case ToolResult():
                if payload.error is not None:
                    self._enter(event)
                    self._add(TOOL_FAILED, payload.name[:PREVIEW_CHARS])
            case AssistantMessage():
                self._feed_message(event, payload)
            case StepStarted():
                self._feed_step_started(event, payload)
            case StepCompleted():
                self._feed_step_completed(event, payload)
            case CallCompleted(kind="agent"):
                spent = self.state.sub_agents + _amount(payload.usage, payload.cost)
                self.state = replace(self.state, sub_agents=spent)
            case RunStarted():
                self._enter(event)
                if not self.state.has_started:
                    self._add(STARTED)
                    self.state = replace(self.state, provider=provider_of_type(payload.worker_type) or "")
                self.state = replace(self.state, has_started=True, steps={})
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
        step = self.state.steps.get(key, _NO_STEP)
        if has_model and (message.model != step.model or message.model != self.state.model):
            step = replace(step, model=(message.model or "")[:PREVIEW_CHARS])
            self.state = replace(self.state, model=step.model)
            self._keep_step(key, step)
        if message.provider is not None and message.provider != step.provider:
            step = replace(step, provider=message.provider[:PREVIEW_CHARS])
            self._keep_step(key, step)
        if not has_spent:
            return
        spent = _amount(message.usage, message.cost)
        if message.note is not None and message.note.kind == "left":
            # The message has the total of a session that was left open.
            self._settle(key, spent)
        else:
            self._spend(key, spent)

    def _feed_step_started(self, event: Event, started: StepStarted) -> None:
        key, session = step_key_of(event), started.session
        # Another try: the log may not have the end of the one before.
        self._drop_step(key)
        # The session of a plugin is its job: a plugin is no provider.
        if session is not None and started.kind != "plugin":
            provider = session.provider[:PREVIEW_CHARS]
            self.state = replace(self.state, provider=provider)
            self._keep_step(key, _OpenStep(provider=provider))

    def _feed_step_completed(self, event: Event, ended: StepCompleted) -> None:
        key = step_key_of(event)
        is_session = ended.kind in SESSION_KINDS
        has_total = is_session and (ended.usage is not None or ended.cost is not None)
        has_sub_agents = ended.sub_usage is not None or ended.sub_cost is not None
        if has_total or has_sub_agents:
            self._enter(event)
        if has_total:
            total = _amount(ended.usage, ended.cost)
            if ended.covers == "own_and_sub_agents":
                # The logs of the sub-agents have their part already.
                total = _not_negative(total - self.state.sub_agents)
            self._settle(key, total)
        if has_sub_agents:
            # These sub-agents have no log of their own.
            self._book(self._cell(key, _amount(ended.sub_usage, ended.sub_cost)))
        self._drop_step(key)
        if is_session and self.state.sub_agents != _NOTHING:
            self.state = replace(self.state, sub_agents=_NOTHING)

    def _feed_outcome(self, event: Event, ended: RunCompleted) -> None:
        self._enter(event)
        rest = self._missing(ended)
        if rest != _NOTHING:
            self._spend("", rest)
        self._add(ENDED, ended.status)
        if ended.status == "failed":
            error = ended.error
            code, message = ("", "") if error is None else (error.code[:PREVIEW_CHARS], failure_key(error.message))
            self._add(FAILURE, code, message)
        self.state = replace(self.state, steps={})

    def _missing(self, ended: RunCompleted) -> _Amount:
        """Return the part of the run's total that no event before its outcome had."""
        own, total = self.state.own, _amount(ended.usage, ended.cost)
        if ended.covers == "own_and_sub_agents" and own != _NOTHING:
            return _NOTHING
        has_price = ended.cost is not None and ended.cost.usd is not None
        tokens = total.tokens - own.tokens if ended.usage is not None else 0
        nano_usd = total.nano_usd - own.nano_usd if has_price else 0
        nano_usd = nano_usd if abs(nano_usd) >= _LEAST_DIFFERENCE else 0
        return _Amount(nano_usd, tokens, tokens if tokens > 0 and not has_price else 0)

    def _enter(self, event: Event) -> None:
        """Make the event the one that the next changes belong to."""
        self._seq = event.seq
        quarter = quarter_of(event.timestamp)
        if quarter is not None and quarter != self._quarter:
            self._quarter = quarter
            self.state = replace(self.state, quarter=quarter)

    def _add(self, metric: str, label: str = "", detail: str = "") -> None:
        self.changes.append(StatChange(self._seq, self._quarter, metric, label, detail, 1))

    def _cell(self, key: str, spent: _Amount) -> _Cell:
        step = self.state.steps.get(key, _NO_STEP)
        provider = step.provider or self.state.provider
        return _Cell(self._quarter, step.model or self.state.model, provider, spent)

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
        step, cell = self.state.steps.get(key, _NO_STEP), self._cell(key, spent)
        self._book(cell)
        last = step.cells[-1] if step.cells else None
        if last is not None and (last.quarter, last.model, last.provider) == (cell.quarter, cell.model, cell.provider):
            cells = (*step.cells[:-1], replace(last, spent=last.spent + spent))
        else:
            cells = (*step.cells, cell)
        fixed = step.fixed
        if len(cells) > STATS_CELLS:
            fixed, cells = fixed + cells[0].spent, cells[1:]
        self.state = replace(self.state, own=self.state.own + spent)
        self._keep_step(key, replace(step, cells=cells, fixed=fixed))

    def _settle(self, key: str, total: _Amount) -> None:
        """Replace what the messages of a session reported by the session's total, in the same proportions."""
        step = self.state.steps.get(key, _NO_STEP)
        cells = step.cells or (self._cell(key, _NOTHING),)
        before = [cell.spent for cell in cells]
        for cell, old, new in zip(cells, before, _divide(total - step.fixed, before), strict=True):
            self._book(replace(cell, spent=new - old))
        reported = sum(before, step.fixed)
        self.state = replace(self.state, own=self.state.own - reported + total)
        self._keep_step(key, replace(step, cells=(), fixed=_NOTHING))

    def _keep_step(self, key: str, step: _OpenStep) -> None:
        self.state = replace(self.state, steps=keep_newest({**self.state.steps, key: step}))

    def _drop_step(self, key: str) -> None:
        if key in self.state.steps:
            self.state = replace(
                self.state, steps={name: step for name, step in self.state.steps.items() if name != key}
            )


def _amount(usage: Usage | None, cost: Cost | None) -> _Amount:
    tokens = 0 if usage is None else usage.input + usage.output + usage.cache_read + usage.cache_write
    tokens = max(0, min(tokens, _LARGEST))
    usd = None if cost is None else cost.usd
    if usd is None:
        return _Amount(0, tokens, tokens)
    return _Amount(round(max(-1.0, min(usd * NANO / _LARGEST, 1.0)) * _LARGEST) if isfinite(usd) else 0, tokens)


def _not_negative(amount: _Amount) -> _Amount:
    return _Amount(max(amount.nano_usd, 0), max(amount.tokens, 0), max(amount.unpriced, 0))


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
