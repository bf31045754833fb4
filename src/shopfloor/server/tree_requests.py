"""Client tools of sub-runs on the stream of a run above them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from typing import cast

import msgspec

from shopfloor.limits import OPEN_BRANCHES, SHARED_CHUNKS
from shopfloor.log import CallStarted, Delta, Entry, Reset
from shopfloor.ports import LogReader, RunFilter, RunItem, Store
from shopfloor.server.awaiting import awaited_by
from shopfloor.server.limits import BELOW_CHECK_SECONDS, SETTLED_SECONDS, SHARED_EVENTS
from shopfloor.server.sse import closing
from shopfloor.views import CLIENT_TOOL, CallsBelow, RequestedCall, join_call_id

_OPEN = ("queued", "running", "waiting")
Followed = Entry | Reset | Delta | CallsBelow


async def follow_tree(
    store: Store, logs: LogReader, run_id: str, *, after: int = 0, patient: bool
) -> AsyncGenerator[list[Followed]]:
    """Follow a run's log with its deltas; give the `CallsBelow` whenever they have changed and the log is silent."""
    seq, told, next_check = after, CallsBelow([]), 0.0
    has_children = bool(after) and await _may_have_children(store, run_id, after)
    silent_since, is_checked = time.monotonic(), False
    followed: AsyncIterator[list[Entry | Reset | Delta]] = logs.follow(
        run_id, after=after, deltas=True, patient=patient
    )
    async with closing(followed) as batches:
        async for batch in batches:
            # The same list, not a copy: whoever frames it knows by that what is framed already.
            yield cast("list[Followed]", batch)
            last, has_calls = _summary(batch)
            seq, has_children = last or seq, has_children or has_calls
            now = time.monotonic()
            if batch:
                # Whatever was told before may have been of an event that came only now.
                silent_since, is_checked, told = now, False, CallsBelow([])
                continue
            is_settled = now - silent_since >= SETTLED_SECONDS
            # A run without sub-runs does nothing without its log: one check in each silence is enough.
            if now < next_check or not (has_children or (is_settled and not is_checked)):
                continue
            next_check = now + BELOW_CHECK_SECONDS
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


async def calls_below(store: Store, logs: LogReader, run_id: str, seq: int) -> CallsBelow | None:
    """The client tools that the runs below this one wait for; none while anything in the tree can still go on.

    `seq` is how far the caller knows the log of the run: None where the row is behind it and says nothing yet.
    """
    nothing = CallsBelow([])
    run = await store.get_run(run_id)
    if run is None or run.row.last_seq < seq:
        return None
    tree = await _waiting_tree(store, run)
    if not tree or any(call in item.answered for item in tree for call in item.row.awaits):
        return nothing
    if not any(CLIENT_TOOL in item.row.waits.kinds.values() for item in tree[1:]):
        return CallsBelow([], waits=True)
    found: list[RequestedCall] = []
    for item in tree:
        if not item.row.awaits:
            continue
        whole = await store.get_run(item.row.id)
        calls = await awaited_by(logs, whole) if whole is not None else []
        if len(calls) < len(item.row.awaits) or any(call.answered for call in calls):
            # The run has a result that its row does not show yet: it is about to go on.
            return nothing
        found += [
            RequestedCall(tool_call_id=join_call_id(call.run_id, call.call_id), tool_name=call.name, args=call.input)
            for call in calls
            if call.kind == CLIENT_TOOL and call.run_id != run_id
        ]
    return CallsBelow(found)


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
