"""The spans of a run: when its steps, its tool calls and its sub-runs began and ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from shopfloor.limits import PREVIEW_CHARS, SPANS_ENDED, SPANS_OPEN
from shopfloor.log import (
    CallCompleted,
    CallStarted,
    Event,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
)
from shopfloor.views.span_merging import merge, merge_neighbours
from shopfloor.views.times import ms_between

SPAN_EVENTS = frozenset(
    one.event_type
    for one in (
        *(RunStarted, RunCompleted, StepStarted, StepCompleted),
        *(CallStarted, CallCompleted, ToolCall, ToolResult),
    )
)
"""The types of event that have a say in it."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Something that took time. `end_seq`, `ended_at` and `duration_ms` are null until it has ended."""

    seq: int
    end_seq: int | None
    kind: Literal["step", "tool", "run"]
    name: str
    path: str
    started_at: str
    ended_at: str | None
    duration_ms: int | None
    error: bool
    child_run_id: str | None
    waits: bool = False
    """It does nothing but wait: for somebody's answer, or for a time."""
    count: int = 1
    """How many were merged into it, where they were many: then `duration_ms` is the sum of theirs, and `name` is empty
    where they had several."""


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the fold. Bounded: where there are many, neighbours are merged; none is dropped."""

    open: dict[str, Span] = {}
    """By what tells them apart from others that are open."""
    ended: list[Span] = []
    """Those that have ended, and the oldest of very many open ones."""
    last_seq: int = 0
    started_at: str | None = None
    ended_at: str | None = None

    @property
    def spans(self) -> list[Span]:
        """In the order in which they began."""
        return sorted([*self.open.values(), *self.ended], key=lambda span: span.seq)


def spans_fold(state: Spans, events: Iterable[Event]) -> Spans:
    """The state after the events, the next of its run."""
    fold = _Fold(state)
    for event in events:
        fold.take(event)
    return fold.state()


class _Fold:
    """The state while events are taken: copied once, not for each of them."""

    def __init__(self, before: Spans) -> None:
        self._open = dict(before.open)
        self._ended = list(before.ended)
        self._seq = before.last_seq
        self._started_at = before.started_at
        self._ended_at = before.ended_at

    def state(self) -> Spans:
        return Spans(
            open=self._open,
            ended=self._ended,
            last_seq=self._seq,
            started_at=self._started_at,
            ended_at=self._ended_at,
        )

    def take(self, event: Event) -> None:
        self._seq = event.seq
        match event.payload:
            case StepStarted() as step:
                self._begin(_step(event, step.try_), _span(event, "step", step.name))
            case CallStarted() as call:
                self._begin(_step(event, call.try_), _span(event, "run", call.worker or call.name))
            case ToolCall() as call:
                span = _span(event, "tool", call.name)
                self._begin(f"call {call.call_id}", replace(span, waits=True) if call.awaits else span)
            case StepCompleted() | CallCompleted() as step:
                self._end(_step(event, step.try_), event, step.duration_ms, failed=step.error is not None)
            case ToolResult() as result:
                self._end(f"call {result.call_id}", event, result.duration_ms, failed=result.error is not None)
            case RunStarted():
                self._started_at = self._started_at or event.timestamp
            case RunCompleted():
                self._ended_at = event.timestamp
            case _:
                pass

    def _begin(self, key: str, span: Span) -> None:
        # Two under one key: the end of the first cannot be told from that of the second.
        before = self._open.pop(key, None)
        self._open[key] = merge(before, span) if before else span
        if len(self._open) > SPANS_OPEN:
            self._keep(self._open.pop(next(iter(self._open))))

    def _end(self, key: str, event: Event, took: int | None, *, failed: bool) -> None:
        span = self._open.pop(key, None)
        if span is None:
            return
        took = ms_between(span.started_at, event.timestamp) if took is None else took
        self._keep(replace(span, end_seq=event.seq, ended_at=event.timestamp, duration_ms=took, error=failed))

    def _keep(self, span: Span) -> None:
        self._ended.append(span)
        # Half of them at once: to look for neighbours at each end would take too long.
        if len(self._ended) >= 2 * SPANS_ENDED:
            self._ended = merge_neighbours(self._ended, SPANS_ENDED)


def _step(event: Event, number: int) -> str:
    return f"step {event.path}#{event.iteration}#{number}"


def _span(event: Event, kind: Literal["step", "tool", "run"], name: str) -> Span:
    return Span(
        seq=event.seq,
        end_seq=None,
        kind=kind,
        name=name[:PREVIEW_CHARS],
        path=event.path,
        started_at=event.timestamp,
        ended_at=None,
        duration_ms=None,
        error=False,
        child_run_id=event.child_run_id,
    )
