"""Merging neighbouring spans, so that however many there were, few are drawn and none is lost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from shopfloor.views.times import ms_between

if TYPE_CHECKING:
    from shopfloor.views.spans import Span

_NEVER: Final = float("inf")


def merge_neighbours(spans: list[Span], most: int) -> list[Span]:
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
