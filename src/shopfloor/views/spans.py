"""The spans of a run: when its steps, its tool calls and its sub-runs began and ended."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import pairwise
from typing import Final, Literal

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
from shopfloor.views.truncation import ms_between

_NEVER: Final = float("inf")


def merge_neighbors(spans: list[Span], most: int) -> list[Span]:
    """Merge until there are at most `most` spans, or one of each kind. Short spans that are close go first.

    Spans of one step that ended alike are merged before those of different steps.
    """
    merged = sorted(spans, key=lambda span: span.seq)
    for group_of in (_alike, _of_outer_step, _of_kind):
        while len(merged) > most and (pairs := _cheapest_pairs(merged, len(merged) - most, group_of)):
            second_of = {first.seq: second for first, second in pairs}
            gone = {second.seq for _, second in pairs}
            merged = [
                merge(span, second_of[span.seq]) if span.seq in second_of else span
                for span in merged
                if span.seq not in gone
            ]
    return merged


def merge(first: Span, second: Span) -> Span:
    """One span for two. Open if one of them is; failed if one of them is."""
    is_open = first.ended_at is None or second.ended_at is None
    ends = [span for span in (first, second) if span.ended_at is not None]
    last = max(ends, key=lambda span: span.ended_at or "") if ends and not is_open else None
    return replace(
        first,
        end_seq=max(first.end_seq or 0, second.end_seq or 0) if last else None,
        name=first.name if first.name == second.name else "",
        path=_common(first.path, second.path),
        started_at=min(first.started_at, second.started_at),
        ended_at=last.ended_at if last else None,
        duration_ms=(first.duration_ms or 0) + (second.duration_ms or 0) if last else None,
        error=first.error or second.error,
        child_run_id=None,
        waits=first.waits and second.waits,
        count=first.count + second.count,
    )


def _alike(span: Span) -> Hashable:
    return span.kind, span.path, span.waits, span.error


def _of_outer_step(span: Span) -> Hashable:
    return span.kind, span.path.rpartition(".")[0]


def _of_kind(span: Span) -> Hashable:
    return span.kind


def _cheapest_pairs(spans: list[Span], wanted: int, group_of: Callable[[Span], Hashable]) -> list[tuple[Span, Span]]:
    """The neighbours that together take the least time, a few at a time; no span is in two pairs.

    All at once, long spans would be merged only because their short neighbours are taken.
    """
    wanted = min(wanted, max(1, len(spans) // 4))
    taken: set[int] = set()
    found: list[tuple[Span, Span]] = []
    for first, second in sorted(_neighbours(spans, group_of), key=lambda pair: (_extent_ms(*pair), pair[0].seq)):
        if len(found) == wanted:
            break
        if not {first.seq, second.seq} & taken:
            taken |= {first.seq, second.seq}
            found.append((first, second))
    return found


def _neighbours(spans: list[Span], group_of: Callable[[Span], Hashable]) -> Iterator[tuple[Span, Span]]:
    groups: dict[Hashable, list[Span]] = {}
    for span in spans:
        groups.setdefault(group_of(span), []).append(span)
    for group in groups.values():
        yield from pairwise(group)


def _extent_ms(first: Span, second: Span) -> float:
    if first.ended_at is None or second.ended_at is None:
        return _NEVER
    return ms_between(first.started_at, max(first.ended_at, second.ended_at)) or 0


def _common(first: str, second: str) -> str:
    """The innermost step around both paths."""
    shared: list[str] = []
    for one, other in zip(first.split("."), second.split("."), strict=False):
        if one != other:
            break
        shared.append(one)
    return ".".join(shared)


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
        fold.feed(event)
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

    def feed(self, event: Event) -> None:
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
            self._ended = merge_neighbors(self._ended, SPANS_ENDED)


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
