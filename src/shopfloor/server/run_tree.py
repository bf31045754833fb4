"""The spans of runs, kept so that those of a run that goes on are carried on and not made anew."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import cast

import anyio.to_thread
import msgspec
from starlette.requests import Request

from shopfloor.errors import InvalidEvent
from shopfloor.limits import OPEN_BRANCHES, SHARED_CHUNKS
from shopfloor.log import CallStarted, Delta, Entry, Event, Reset, decode
from shopfloor.ports import LogReader, RunFilter, RunItem, Store
from shopfloor.server.limits import MTIME_SETTLE_SECONDS, SHARED_EVENTS, SPAN_CACHE_RUNS, SUB_RUN_POLL_SECONDS
from shopfloor.server.pending_calls import find_own_pending_calls
from shopfloor.server.sse import closing
from shopfloor.views import CLIENT_TOOL, SPAN_EVENTS, RequestedCall, Spans, SubRunCalls, join_call_id, spans_fold


class _Kept(msgspec.Struct, frozen=True):
    """Spans, and what the line was like that they were folded up to."""

    state: Spans = Spans()
    line: int = 0


class SpanCache:
    """The spans of the runs that were asked for last."""

    def __init__(self, logs: LogReader, max_runs: int = SPAN_CACHE_RUNS) -> None:
        self._logs = logs
        self._most = max_runs
        self.kept: OrderedDict[str, _Kept] = OrderedDict()

    async def state(self, run_id: str) -> Spans:
        """As the log is now. Raises `RunNotFound`."""
        known = self.kept.pop(run_id, None)
        kept = await self._carried_on(run_id, known) if known else None
        kept = kept or await self._folded(_Kept(), self._logs.batches(run_id))
        self.kept[run_id] = kept
        while len(self.kept) > self._most:
            self.kept.popitem(last=False)
        return kept.state

    async def _carried_on(self, run_id: str, kept: _Kept) -> _Kept | None:
        """With what came since; None where the line that it was folded up to stands there no more."""
        last = kept.state.last_seq
        found = await self._logs.page(run_id, after=last - 1, limit=1)
        # The log may have lost its end since then, and got another one.
        if not found or found[0].seq != last or hash(found[0].raw) != kept.line:
            return None
        return await self._folded(kept, self._logs.batches(run_id, after=last))

    async def _folded(self, kept: _Kept, batches: AsyncIterator[list[Entry]]) -> _Kept:
        async with closing(batches) as some:
            async for batch in some:
                kept = await anyio.to_thread.run_sync(_fold, kept, batch)
        return kept


def _fold(kept: _Kept, entries: list[Entry]) -> _Kept:
    state = spans_fold(kept.state, _events(entries))
    return _Kept(msgspec.structs.replace(state, last_seq=entries[-1].seq), hash(entries[-1].raw))


def _events(entries: list[Entry]) -> Iterator[Event]:
    for entry in entries:
        if entry.type in SPAN_EVENTS:
            try:
                yield decode(entry.raw, entry.type)
            except InvalidEvent:
                continue


def get_span_cache(request: Request) -> SpanCache:
    return request.app.state.spans


_OPEN = ("queued", "running", "waiting")
TreeUpdate = Entry | Reset | Delta | SubRunCalls


async def follow_tree(
    store: Store, logs: LogReader, run_id: str, *, after: int = 0, wait_for_writer: bool
) -> AsyncGenerator[list[TreeUpdate]]:
    """Follow a run's log with its deltas; give the `SubRunCalls` whenever they have changed and the log is silent."""
    seq, told, next_check = after, SubRunCalls([]), 0.0
    has_children = bool(after) and await _may_have_children(store, run_id, after)
    silent_since, is_checked = time.monotonic(), False
    followed: AsyncIterator[list[Entry | Reset | Delta]] = logs.follow(
        run_id, after=after, deltas=True, wait_for_writer=wait_for_writer
    )
    async with closing(followed) as batches:
        async for batch in batches:
            # The same list, not a copy: whoever frames it knows by that what is framed already.
            yield cast("list[TreeUpdate]", batch)
            last, has_calls = _summary(batch)
            seq, has_children = last or seq, has_children or has_calls
            now = time.monotonic()
            if batch:
                # Whatever was told before may have been of an event that came only now.
                silent_since, is_checked, told = now, False, SubRunCalls([])
                continue
            is_settled = now - silent_since >= MTIME_SETTLE_SECONDS
            # A run without sub-runs does nothing without its log: one check in each silence is enough.
            if now < next_check or not (has_children or (is_settled and not is_checked)):
                continue
            next_check = now + SUB_RUN_POLL_SECONDS
            below = await calls_below(store, logs, run_id, seq)
            if below is not None:
                is_checked = is_settled
                below = below if is_settled else msgspec.structs.replace(below, waits=False)
            if below is not None and below != told:
                told = below
                yield [below]


_summaries: OrderedDict[int, tuple[list[Entry | Reset | Delta], int, bool]] = OrderedDict()


def _summary(batch: list[Entry | Reset | Delta]) -> tuple[int, bool]:
    """Give the last `seq` of a batch, 0 where it has no event, and whether it starts a sub-run.

    A long batch is often read by many at once, as the same list: then it is looked through once.
    """
    if len(batch) == 1:
        (one,) = batch
        return (one.seq, one.type == CallStarted.event_type) if isinstance(one, Entry) else (0, False)
    known = _summaries.get(id(batch))
    if known is not None and known[0] is batch:
        return known[1], known[2]
    seq = next((one.seq for one in reversed(batch) if isinstance(one, Entry)), 0)
    has_calls = any(isinstance(one, Entry) and one.type == CallStarted.event_type for one in batch)
    if len(batch) >= SHARED_EVENTS:
        # The list is kept, so that no other list can get its identity meanwhile.
        _summaries[id(batch)] = (batch, seq, has_calls)
        if len(_summaries) > SHARED_CHUNKS:
            _summaries.popitem(last=False)
    return seq, has_calls


async def _may_have_children(store: Store, run_id: str, seq: int) -> bool:
    """Whether a run has open sub-runs at this event. A row that is behind the event does not tell."""
    run = await store.get_run(run_id)
    return run is None or run.row.last_seq < seq or bool(run.row.waits.runs)


async def calls_below(store: Store, logs: LogReader, run_id: str, seq: int) -> SubRunCalls | None:
    """The client tools that the runs below this one wait for; none while anything in the tree can still go on.

    `seq` is how far the caller knows the log of the run: None where the row is behind it and says nothing yet.
    """
    nothing = SubRunCalls([])
    run = await store.get_run(run_id)
    if run is None or run.row.last_seq < seq:
        return None
    tree = await _waiting_tree(store, run)
    if not tree or any(call in item.answered for item in tree for call in item.row.awaits):
        return nothing
    if not any(CLIENT_TOOL in item.row.waits.kinds.values() for item in tree[1:]):
        return SubRunCalls([], waits=True)
    found: list[RequestedCall] = []
    for item in tree:
        if not item.row.awaits:
            continue
        whole = await store.get_run(item.row.id)
        calls = await find_own_pending_calls(logs, whole) if whole is not None else []
        if len(calls) < len(item.row.awaits) or any(call.answered for call in calls):
            # The run has a result that its row does not show yet: it is about to go on.
            return nothing
        found += [
            RequestedCall(tool_call_id=join_call_id(call.run_id, call.call_id), tool_name=call.name, args=call.input)
            for call in calls
            if call.kind == CLIENT_TOOL and call.run_id != run_id
        ]
    return SubRunCalls(found)


async def _waiting_tree(store: Store, root: RunItem) -> list[RunItem]:
    """The open runs of a tree, callers first, if every one of them waits; else none."""
    tree = [root]
    for item in tree:
        if item.row.status != "waiting":
            return []
        called = set(item.row.waits.runs.values())
        if not called:
            continue
        wanted = RunFilter(parent_run_id=item.row.id, statuses=_OPEN)
        page = await store.list_runs(wanted, limit=OPEN_BRANCHES)
        children = [child for child in reversed(page.items) if child.row.id in called]
        if len(children) < len(called):
            # One of them has no row yet, or has ended: its caller is about to go on.
            return []
        tree += children
    return tree
