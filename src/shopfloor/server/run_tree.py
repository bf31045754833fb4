"""Views of a run and its sub-runs: cached spans, and the stream of a log with the client tools of sub-runs.

`SpanCache` continues the spans of a growing log instead of rebuilding them. `follow_tree` reports on the stream of a
run which client tools its sub-runs wait for.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Final, cast

import anyio.to_thread
import msgspec
from starlette.requests import Request

from shopfloor.errors import InvalidEvent
from shopfloor.limits import OPEN_BRANCHES, SHARED_CHUNKS
from shopfloor.log import AssistantMessage, CallStarted, Delta, Entry, Event, Reset, decode
from shopfloor.ports import LogReader, RunFilter, RunItem, Store
from shopfloor.server.limits import LOG_SETTLE_SECONDS, SHARED_EVENTS, SPAN_CACHE_RUNS, SUB_RUN_POLL_SECONDS
from shopfloor.server.pending_calls import find_own_pending_calls
from shopfloor.server.sse import closing
from shopfloor.views import CLIENT_TOOL, SPAN_EVENTS, RequestedCall, Spans, SubRunCalls, join_call_id, spans_fold


class _CachedSpans(msgspec.Struct, frozen=True):
    """Spans, and the hash of the log line up to which they were folded."""

    state: Spans = Spans()
    line_hash: int = 0


class SpanCache:
    """The spans of the runs that were requested last."""

    def __init__(self, logs: LogReader, max_runs: int = SPAN_CACHE_RUNS) -> None:
        self._logs = logs
        self._max_runs = max_runs
        self.cached: OrderedDict[str, _CachedSpans] = OrderedDict()

    async def state(self, run_id: str) -> Spans:
        """Return the spans of a run up to the end of its log. Raises `RunNotFound`."""
        known = self.cached.pop(run_id, None)
        spans = await self._extend(run_id, known) if known else None
        spans = spans or await self._fold_all(_CachedSpans(), self._logs.batches(run_id))
        self.cached[run_id] = spans
        while len(self.cached) > self._max_runs:
            self.cached.popitem(last=False)
        return spans.state

    async def _extend(self, run_id: str, spans: _CachedSpans) -> _CachedSpans | None:
        """Add the events since the last folded line. Return None if the log no longer contains that line."""
        last = spans.state.last_seq
        found = await self._logs.page(run_id, after=last - 1, limit=1)
        # The end of the log may have been lost since then, and replaced.
        if not found or found[0].seq != last or hash(found[0].raw) != spans.line_hash:
            return None
        return await self._fold_all(spans, self._logs.batches(run_id, after=last))

    async def _fold_all(self, spans: _CachedSpans, log: AsyncIterator[list[Entry]]) -> _CachedSpans:
        async with closing(log) as batches:
            async for batch in batches:
                spans = await anyio.to_thread.run_sync(_fold, spans, batch)
        return spans


def _fold(spans: _CachedSpans, entries: list[Entry]) -> _CachedSpans:
    state = spans_fold(spans.state, _span_events(entries))
    return _CachedSpans(msgspec.structs.replace(state, last_seq=entries[-1].seq), hash(entries[-1].raw))


_MESSAGE: Final = AssistantMessage.event_type


def _span_events(entries: list[Entry]) -> Iterator[Event]:
    for entry in entries:
        # Most messages have no usage; decoding them all would take as long as all other events together.
        if entry.type in SPAN_EVENTS or (entry.type == _MESSAGE and b'"usage":{' in entry.raw):
            try:
                yield decode(entry.raw, entry.type)
            except InvalidEvent:
                continue


def get_span_cache(request: Request) -> SpanCache:
    """Return the span cache of the app that handles the request."""
    return request.app.state.spans


_OPEN = ("queued", "running", "waiting")
TreeUpdate = Entry | Reset | Delta | SubRunCalls


async def follow_tree(
    store: Store, logs: LogReader, run_id: str, *, after: int = 0, wait_for_writer: bool
) -> AsyncGenerator[list[TreeUpdate]]:
    """Follow a run's log and deltas, and yield the `SubRunCalls` when they change while the log is silent."""
    seq, reported, next_check = after, SubRunCalls([]), 0.0
    has_children = bool(after) and await _may_have_children(store, run_id, after)
    silent_since, is_checked = time.monotonic(), False
    followed: AsyncIterator[list[Entry | Reset | Delta]] = logs.follow(
        run_id, after=after, deltas=True, wait_for_writer=wait_for_writer
    )
    async with closing(followed) as batches:
        async for batch in batches:
            # Yield the same list and no copy: the encoder recognizes by identity what it has already encoded.
            yield cast("list[TreeUpdate]", batch)
            last, has_calls = _summary(batch)
            seq, has_children = last or seq, has_children or has_calls
            now = time.monotonic()
            if batch:
                # The last report may have been based on an event that is only now yielded: report again.
                silent_since, is_checked, reported = now, False, SubRunCalls([])
                continue
            is_settled = now - silent_since >= LOG_SETTLE_SECONDS
            # A run without sub-runs does nothing without logging it: one check per silence is enough.
            if now < next_check or not (has_children or (is_settled and not is_checked)):
                continue
            next_check = now + SUB_RUN_POLL_SECONDS
            calls = await find_sub_run_calls(store, logs, run_id, seq)
            if calls is not None:
                is_checked = is_settled
                calls = calls if is_settled else msgspec.structs.replace(calls, waits=False)
            if calls is not None and calls != reported:
                reported = calls
                yield [calls]


_summaries: OrderedDict[int, tuple[list[Entry | Reset | Delta], int, bool]] = OrderedDict()


def _summary(batch: list[Entry | Reset | Delta]) -> tuple[int, bool]:
    """Return the last `seq` of a batch, or 0 if it has no event, and whether it starts a sub-run.

    Many streams often get a long batch at the same time, as the same list. Such a batch is read once.
    """
    if len(batch) == 1:
        (item,) = batch
        return (item.seq, item.type == CallStarted.event_type) if isinstance(item, Entry) else (0, False)
    known = _summaries.get(id(batch))
    if known is not None and known[0] is batch:
        return known[1], known[2]
    seq = next((item.seq for item in reversed(batch) if isinstance(item, Entry)), 0)
    has_calls = any(isinstance(item, Entry) and item.type == CallStarted.event_type for item in batch)
    if len(batch) >= SHARED_EVENTS:
        # The cache keeps the list alive, so that no other list can get its id.
        _summaries[id(batch)] = (batch, seq, has_calls)
        if len(_summaries) > SHARED_CHUNKS:
            _summaries.popitem(last=False)
    return seq, has_calls


async def _may_have_children(store: Store, run_id: str, seq: int) -> bool:
    """Return False if the run surely has no open sub-runs at this event: its row includes the event and has none."""
    run = await store.get_run(run_id)
    return run is None or run.row.last_seq < seq or bool(run.row.waits.runs)


async def find_sub_run_calls(store: Store, logs: LogReader, run_id: str, seq: int) -> SubRunCalls | None:
    """Return the client tools that the sub-runs wait for: none while anything in the tree can still continue.

    `seq` is the last event of the run's log that the caller knows. Return None if the run's row is older than that.
    """
    no_calls = SubRunCalls([])
    run = await store.get_run(run_id)
    if run is None or run.row.last_seq < seq:
        return None
    tree = await _waiting_tree(store, run)
    if not tree or any(call in item.answered for item in tree for call in item.row.awaits):
        return no_calls
    if not any(CLIENT_TOOL in item.row.waits.kinds.values() for item in tree[1:]):
        return SubRunCalls([], waits=True)
    found: list[RequestedCall] = []
    for item in tree:
        if not item.row.awaits:
            continue
        current = await store.get_run(item.row.id)
        calls = await find_own_pending_calls(logs, current) if current is not None else []
        if len(calls) < len(item.row.awaits) or any(call.answered for call in calls):
            # The run has a result that its row does not show yet: the run is about to continue.
            return no_calls
        found += [
            RequestedCall(tool_call_id=join_call_id(call.run_id, call.call_id), tool_name=call.name, args=call.input)
            for call in calls
            if call.kind == CLIENT_TOOL and call.run_id != run_id
        ]
    return SubRunCalls(found)


async def _waiting_tree(store: Store, root: RunItem) -> list[RunItem]:
    """Return the open runs of a tree, callers first, if all of them wait; otherwise an empty list."""
    tree = [root]
    for item in tree:
        if item.row.status != "waiting":
            return []
        called = set(item.row.waits.runs.values())
        if not called:
            continue
        run_filter = RunFilter(parent_run_id=item.row.id, statuses=_OPEN)
        page = await store.list_runs(run_filter, limit=OPEN_BRANCHES)
        children = [child for child in reversed(page.items) if child.row.id in called]
        if len(children) < len(called):
            # A sub-run has no row yet, or has ended: its caller is about to continue.
            return []
        tree += children
    return tree
