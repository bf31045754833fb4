"""The spans of a run: start and end of its steps, tool calls and sub-runs, and the figures that come with them.

If there are many spans, neighbors are merged, so that few are drawn and none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import pairwise
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from shopfloor.limits import FIGURE_FILES, PREVIEW_CHARS, SPANS_ENDED, SPANS_OPEN
from shopfloor.log import (
    AssistantMessage,
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


SPAN_EVENTS = frozenset(
    payload.event_type
    for payload in (
        *(RunStarted, RunCompleted, StepStarted, StepCompleted),
        *(CallStarted, CallCompleted, ToolCall, ToolResult),
    )
)
"""The types of event that affect spans."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """A step, tool call or sub-run. `end_seq`, `ended_at` and `duration_ms` are null until it has ended."""

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
    """True if it only waits: for an answer, or for a time."""
    count: int = 1
    """The number of spans merged into this one. Then `duration_ms` is their sum, and `name` is empty if their names
    differ."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did, as numbers."""

    files: frozenset[str] = frozenset()
    """The files that its tools changed; at most `FIGURE_FILES`."""
    lines_added: int = 0
    lines_removed: int = 0
    calls_failed: int = 0
    context_tokens: int | None = None
    """The tokens that the newest message of the agent was given; None if the agent does not report them."""


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the fold. Bounded: if there are many spans, neighbors are merged; none is dropped."""

    open: dict[str, Span] = {}
    """The open spans, by step or call."""
    ended: list[Span] = []
    """The spans that have ended, and the oldest open spans if more than `SPANS_OPEN` are open."""
    last_seq: int = 0
    started_at: str | None = None
    ended_at: str | None = None
    figures: Figures = Figures()

    @property
    def spans(self) -> list[Span]:
        """All spans in the order of their start."""
        return sorted([*self.open.values(), *self.ended], key=lambda span: span.seq)


def spans_fold(state: Spans, events: Iterable[Event]) -> Spans:
    """Return the state after the next events of its run."""
    fold = _Fold(state)
    for event in events:
        fold.feed(event)
    return fold.state()


class _Fold:
    """The mutable state during a fold: copied once, not for each event."""

    def __init__(self, before: Spans) -> None:
        self._open = dict(before.open)
        self._ended = list(before.ended)
        self._seq = before.last_seq
        self._started_at = before.started_at
        self._ended_at = before.ended_at
        self._figures = before.figures

    def state(self) -> Spans:
        return Spans(
            open=self._open,
            ended=self._ended,
            last_seq=self._seq,
            started_at=self._started_at,
            ended_at=self._ended_at,
            figures=self._figures,
        )

    def feed(self, event: Event) -> None:
        self._seq = event.seq
        match event.payload:
            case StepStarted() as step:
                self._open_span(_step_key(event, step.try_), _new_span(event, "step", step.name))
            case CallStarted() as call:
                self._open_span(_step_key(event, call.try_), _new_span(event, "run", call.worker or call.name))
            case ToolCall() as call:
                span = _new_span(event, "tool", call.name)
                self._open_span(f"call {call.call_id}", replace(span, waits=True) if call.awaits else span)
            case StepCompleted() | CallCompleted() as step:
                self._close_span(_step_key(event, step.try_), event, step.duration_ms, failed=step.error is not None)
            case ToolResult() as result:
                self._figures = _count_result(self._figures, result)
                self._close_span(f"call {result.call_id}", event, result.duration_ms, failed=result.is_failure)
            case AssistantMessage(usage=usage) if usage is not None:
                tokens = usage.input + usage.cache_read + usage.cache_write
                self._figures = replace(self._figures, context_tokens=tokens)
            case RunStarted():
                self._started_at = self._started_at or event.timestamp
            case RunCompleted():
                self._ended_at = event.timestamp
            case _:
                pass

    def _open_span(self, key: str, span: Span) -> None:
        # Two open spans with one key are merged: their end events cannot be told apart.
        before = self._open.pop(key, None)
        self._open[key] = merge(before, span) if before else span
        if len(self._open) > SPANS_OPEN:
            self._add_ended(self._open.pop(next(iter(self._open))))

    def _close_span(self, key: str, event: Event, duration_ms: int | None, *, failed: bool) -> None:
        span = self._open.pop(key, None)
        if span is None:
            return
        duration_ms = ms_between(span.started_at, event.timestamp) if duration_ms is None else duration_ms
        self._add_ended(
            replace(span, end_seq=event.seq, ended_at=event.timestamp, duration_ms=duration_ms, error=failed)
        )

    def _add_ended(self, span: Span) -> None:
        self._ended.append(span)
        # Merge half of the spans at once: searching for neighbors at each end would take too long.
        if len(self._ended) >= 2 * SPANS_ENDED:
            self._ended = merge_neighbors(self._ended, SPANS_ENDED)


def _count_result(figures: Figures, result: ToolResult) -> Figures:
    """Add the files that a call changed, and whether it failed."""
    if not result.is_failure and not result.files:
        return figures
    changes = result.files or []
    files = figures.files | {change.path for change in changes}
    return replace(
        figures,
        files=files if len(files) <= FIGURE_FILES else figures.files,
        lines_added=figures.lines_added + sum(change.lines_added or 0 for change in changes),
        lines_removed=figures.lines_removed + sum(change.lines_removed or 0 for change in changes),
        calls_failed=figures.calls_failed + result.is_failure,
    )


def _step_key(event: Event, number: int) -> str:
    return f"step {event.path}#{event.iteration}#{number}"


def _new_span(event: Event, kind: Literal["step", "tool", "run"], name: str) -> Span:
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


def merge_neighbors(spans: list[Span], limit: int) -> list[Span]:
    """Merge neighbors until there are at most `limit` spans, or one of each kind. Short, close spans are merged first.

    Spans of one step with the same end state are merged before spans of different steps.
    """
    merged = sorted(spans, key=lambda span: span.seq)
    for group_of in (_group_alike, _group_by_outer_step, _group_by_kind):
        while len(merged) > limit and (pairs := _cheapest_pairs(merged, len(merged) - limit, group_of)):
            second_of = {first.seq: second for first, second in pairs}
            merged_seqs = {second.seq for _, second in pairs}
            merged = [
                merge(span, second_of[span.seq]) if span.seq in second_of else span
                for span in merged
                if span.seq not in merged_seqs
            ]
    return merged


def merge(first: Span, second: Span) -> Span:
    """Merge two spans into one, which is open if either is, and failed if either is."""
    is_open = first.ended_at is None or second.ended_at is None
    ends = [span for span in (first, second) if span.ended_at is not None]
    last = max(ends, key=lambda span: span.ended_at or "") if ends and not is_open else None
    return replace(
        first,
        end_seq=max(first.end_seq or 0, second.end_seq or 0) if last else None,
        name=first.name if first.name == second.name else "",
        path=_common_path(first.path, second.path),
        started_at=min(first.started_at, second.started_at),
        ended_at=last.ended_at if last else None,
        duration_ms=(first.duration_ms or 0) + (second.duration_ms or 0) if last else None,
        error=first.error or second.error,
        child_run_id=None,
        waits=first.waits and second.waits,
        count=first.count + second.count,
    )


def _group_alike(span: Span) -> Hashable:
    return span.kind, span.path, span.waits, span.error


def _group_by_outer_step(span: Span) -> Hashable:
    return span.kind, span.path.rpartition(".")[0]


def _group_by_kind(span: Span) -> Hashable:
    return span.kind


def _cheapest_pairs(spans: list[Span], wanted: int, group_of: Callable[[Span], Hashable]) -> list[tuple[Span, Span]]:
    """Return the neighbors that together take the least time, a few at a time; no span is in two pairs.

    With all pairs at once, long spans would be merged only because their short neighbors are already taken.
    """
    wanted = min(wanted, max(1, len(spans) // 4))
    taken: set[int] = set()
    found: list[tuple[Span, Span]] = []
    for first, second in sorted(_neighbors(spans, group_of), key=lambda pair: (_extent_ms(*pair), pair[0].seq)):
        if len(found) == wanted:
            break
        if not {first.seq, second.seq} & taken:
            taken |= {first.seq, second.seq}
            found.append((first, second))
    return found


def _neighbors(spans: list[Span], group_of: Callable[[Span], Hashable]) -> Iterator[tuple[Span, Span]]:
    groups: dict[Hashable, list[Span]] = {}
    for span in spans:
        groups.setdefault(group_of(span), []).append(span)
    for group in groups.values():
        yield from pairwise(group)


def _extent_ms(first: Span, second: Span) -> float:
    if first.ended_at is None or second.ended_at is None:
        return _NEVER
    return ms_between(first.started_at, max(first.ended_at, second.ended_at)) or 0


def _common_path(first: str, second: str) -> str:
    """Return the path of the innermost step around both paths."""
    shared: list[str] = []
    for segment, other in zip(first.split("."), second.split("."), strict=False):
        if segment != other:
            break
        shared.append(segment)
    return ".".join(shared)
