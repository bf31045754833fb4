"""The spans of runs, kept so that those of a run that goes on are carried on and not made anew."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator

import anyio.to_thread
import msgspec
from starlette.requests import Request

from shopfloor.errors import InvalidEvent
from shopfloor.log import Entry, Event, decode
from shopfloor.ports import LogReader
from shopfloor.server.limits import SPAN_RUNS
from shopfloor.server.sse import closing
from shopfloor.views import SPAN_EVENTS, Spans, spans_fold


class _Kept(msgspec.Struct, frozen=True):
    """Spans, and what the line was like that they were folded up to."""

    state: Spans = Spans()
    line: int = 0


class SpanStates:
    """The spans of the runs that were asked for last."""

    def __init__(self, logs: LogReader, most: int = SPAN_RUNS) -> None:
        self._logs = logs
        self._most = most
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


def spans_of(request: Request) -> SpanStates:
    return request.app.state.spans
