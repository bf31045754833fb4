"""Statistics equal a sum over the logs, whatever happens to the views of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.view_changes import ViewBuilder

from shopfloor.adapters.memory import MemoryStore
from shopfloor.adapters.sqlite import SqliteStore
from shopfloor.log import (
    AssistantMessage,
    Cost,
    Event,
    Payload,
    RunCompleted,
    RunError,
    RunStarted,
    Session,
    StepCompleted,
    StepStarted,
    ToolCall,
    ToolResult,
    Usage,
    format_timestamp,
    new_run_id,
)
from shopfloor.ports import RunFilter, StatsDays, Store
from shopfloor.views import ENDED, FAILURE, NANO, SPENDING, STARTED, TOOL, TOOL_FAILED, StatLine, StoredStats

DAYS = 12
ZONES = {
    "UTC": date(2026, 10, 31),
    "Asia/Kolkata": date(2026, 10, 31),
    "Asia/Kathmandu": date(2026, 10, 31),
    "Pacific/Tongatapu": date(2026, 10, 31),
    "America/New_York": date(2026, 10, 31),
    "America/St_Johns": date(2026, 10, 31),
    "Pacific/Chatham": date(2026, 9, 26),
    "Australia/Lord_Howe": date(2026, 10, 3),
    "Pacific/Apia": date(2011, 12, 28),
}
"""Time zones, each with the first day of the statistics. Some are no whole hours from UTC, several change their clocks
on the second day, one of them by half an hour; and Samoa skips a day."""
WORKERS = ("hello", "nightly")
MODELS = ("opus", "gpt", None)


class Spent(NamedTuple):
    """What a message or a session reports."""

    tokens: int
    nano_usd: int | None

    @property
    def usage(self) -> Usage:
        return Usage(input=self.tokens // 2, output=self.tokens - self.tokens // 2)

    @property
    def cost(self) -> Cost | None:
        return None if self.nano_usd is None else Cost(usd=self.nano_usd / NANO, source="test")


spent = st.builds(Spent, st.integers(1, 10_000), st.none() | st.integers(0, 50).map(lambda cents: cents * 10_000_000))
messages = st.tuples(st.just("message"), st.sampled_from(MODELS), spent)
tools = st.tuples(st.just("tool"), st.sampled_from(["Bash", "Edit"]), st.booleans())
steps = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["agent", "next-message"]),
        "provider": st.sampled_from(["claude-code", "codex"]),
        "inside": st.lists(messages | tools, max_size=4),
        "ends": st.booleans(),
        "total": st.none() | spent,
    }
)
runs = st.fixed_dictionaries(
    {
        "worker": st.sampled_from(WORKERS),
        "is_root": st.booleans(),
        "steps": st.lists(steps, max_size=3),
        "status": st.sampled_from([None, "completed", "failed", "cancelled"]),
        "minutes": st.lists(st.integers(0, 500), min_size=1, max_size=6),
    }
)
ends = st.sampled_from(["kept", "deleted", "discarded", "truncated", "repeated"])


def payloads_of(run: dict[str, Any]) -> list[tuple[Payload, str]]:
    made: list[tuple[Payload, str]] = [(RunStarted(name=run["worker"], kind="worker", attempt=1, host="h"), "")]
    for number, step in enumerate(run["steps"]):
        path, kind = f"s{number}", step["kind"]
        session = Session(provider=step["provider"]) if kind == "agent" else None
        made.append((StepStarted(name=path, kind=kind, try_=1, session=session), path))
        for place, (what, name, detail) in enumerate(step["inside"]):
            if what == "message":
                made.append((AssistantMessage(model=name, usage=detail.usage, cost=detail.cost, blocks=[]), path))
                continue
            call: dict[str, Any] = {"name": name, "call_id": f"{path}-{place}", "fidelity": "router"}
            made.append((ToolCall(**call, input={}, output=None), path))
            made.append((ToolResult(**call, input=None, output="", error="no" if detail else None), path))
        if step["ends"]:
            total = step["total"]
            fields = {} if total is None else {"usage": total.usage, "cost": total.cost}
            made.append((StepCompleted(name=path, kind=kind, try_=1, **fields), path))
    if run["status"] is not None:
        error = RunError(code="tool_failed", message="exit code 3") if run["status"] == "failed" else None
        made.append((RunCompleted(name=run["worker"], kind="worker", status=run["status"], error=error), ""))
    return made


def events_of(run: dict[str, Any], first: date) -> list[Event]:
    run_id, at = new_run_id(), datetime(first.year, first.month, first.day, 20, tzinfo=UTC)
    made: list[Event] = []
    for seq, (payload, path) in enumerate(payloads_of(run), 1):
        at += timedelta(minutes=run["minutes"][seq % len(run["minutes"])])
        made.append(
            Event(
                seq=seq,
                run_id=run_id,
                parent_run_id=None if run["is_root"] else new_run_id(),
                type=payload.event_type,
                path=path,
                iteration=0,
                timestamp=format_timestamp(int(at.timestamp() * 1000)),
                payload=payload,
            )
        )
    return made


def worker_of(log: Sequence[Event]) -> str:
    started = log[0].payload
    assert isinstance(started, RunStarted)
    return started.name


class Sums:
    """The sums over logs, computed in the simplest way."""

    def __init__(self, logs: Sequence[Sequence[Event]], zone: str) -> None:
        self.started = Counter[int]()
        self.ended = Counter[tuple[int, str]]()
        self.tools = Counter[str]()
        self.tools_failed = Counter[str]()
        self.tokens = Counter[tuple[int, str, str, str]]()
        self.nano_usd = Counter[tuple[int, str, str, str]]()
        self.unpriced = Counter[tuple[int, str, str, str]]()
        self._zone, self._first = ZoneInfo(zone), ZONES[zone]
        for log in logs:
            self._add(log)

    def _day(self, event: Event) -> int:
        return (datetime.fromisoformat(event.timestamp).astimezone(self._zone).date() - self._first).days

    def _add(self, log: Sequence[Event]) -> None:
        worker, provider, model = worker_of(log), "", ""
        for place, event in enumerate(log):
            match event.payload:
                case RunStarted():
                    self.started[self._day(event)] += 1
                case RunCompleted() as ended:
                    self.ended[self._day(event), ended.status] += 1
                case ToolCall(name=name):
                    self.tools[name] += 1
                case ToolResult(name=name, error=str()):
                    self.tools_failed[name] += 1
                case StepStarted() as step:
                    provider = step.session.provider if step.session else provider
                    model = self._add_step(log[place:], worker, provider, model)
                case _:
                    pass

    def _add_step(self, log: Sequence[Event], worker: str, provider: str, model: str) -> str:
        """Add what one step spent, and return the model that it used last."""
        inside = [event for event in log if event.path == log[0].path]
        found: list[tuple[tuple[int, str, str, str], int, int | None]] = []
        for event in inside:
            if isinstance(event.payload, AssistantMessage) and event.payload.usage is not None:
                model = event.payload.model or model
                cost, usage = event.payload.cost, event.payload.usage
                usd = None if cost is None or cost.usd is None else round(cost.usd * NANO)
                found.append(((self._day(event), worker, model, provider), usage.input + usage.output, usd))
        end = inside[-1]
        if isinstance(end.payload, StepCompleted) and end.payload.kind == "agent" and end.payload.usage is not None:
            # The total replaces what the messages reported; here in one place, because only its sum is compared.
            cost, usage = end.payload.cost, end.payload.usage
            usd = None if cost is None or cost.usd is None else round(cost.usd * NANO)
            found = [((self._day(end), worker, model, provider), usage.input + usage.output, usd)]
        for key, tokens, usd in found:
            self.tokens[key] += tokens
            self.nano_usd[key] += usd or 0
            self.unpriced[key] += tokens if usd is None else 0
        return model


def nonzero(lines: Sequence[StatLine], key: Any, amount: str = "amount") -> dict[Any, int]:
    counts: Counter[Any] = Counter()
    for line in lines:
        counts[key(line)] += getattr(line, amount)
    return {name: count for name, count in counts.items() if count}


def plain(counter: Counter[Any]) -> dict[Any, int]:
    return {name: count for name, count in counter.items() if count}


def check(stored: StoredStats, sums: Sums, *, has_totals: bool) -> None:
    lines = stored.lines
    assert nonzero(lines[STARTED], lambda line: line.day) == plain(sums.started)
    assert nonzero(lines[ENDED], lambda line: (line.day, line.label)) == plain(sums.ended)
    failed = sum(count for (_, status), count in sums.ended.items() if status == "failed")
    assert sum(line.amount for line in lines[FAILURE]) == failed
    assert nonzero(lines[TOOL], lambda line: line.label) == plain(sums.tools)
    assert nonzero(lines[TOOL_FAILED], lambda line: line.label) == plain(sums.tools_failed)
    for amount, expected in (("amount", sums.nano_usd), ("tokens", sums.tokens), ("unpriced", sums.unpriced)):
        if has_totals:
            assert sum(getattr(line, amount) for line in lines[SPENDING]) == sum(expected.values()), amount
        else:
            found = nonzero(lines[SPENDING], lambda line: (line.day, line.worker, line.label, line.detail), amount)
            assert found == plain(expected), amount


def days_of(zone: str) -> StatsDays:
    days = [ZONES[zone] + timedelta(days=number) for number in range(DAYS + 1)]
    midnights = [datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)) for day in days]
    starts = tuple(int(midnight.timestamp()) // 900 for midnight in midnights)
    return StatsDays(starts, (starts[0], starts[1]))


async def apply(store: Store, log: Sequence[Event], end: str, size: int) -> None:
    """Apply a log in batches, or in parts that overlap; then the views may be deleted, discarded or truncated."""
    run_id, builder = log[0].run_id, ViewBuilder()
    if end == "repeated":
        # Another process has read the log from its start, too: its change repeats events that are stored.
        await store.apply([ViewBuilder().take(log[: len(log) // 2 + 1])])
        await store.apply([ViewBuilder().take(log)])
        return
    for first in range(0, len(log), size):
        await store.apply([builder.take(log[first : first + size])])
    if end == "deleted":
        await store.add_tombstone(run_id)
        await store.delete(run_id)
    elif end in ("discarded", "truncated"):
        await (store.discard_views(run_id) if end == "discarded" else store.truncate_views(run_id, 0))
        await store.apply([ViewBuilder().take(log)])


@pytest.mark.req("SF-50")
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(runs, ends, st.integers(1, 5)), max_size=5), st.sampled_from(list(ZONES)))
def test_statistics_equal_a_sum_over_the_logs(specs: list[tuple[Any, str, int]], zone: str) -> None:
    logs = [(events_of(run, ZONES[zone]), end, size) for run, end, size in specs]
    kept = [log for log, end, _ in logs if end != "deleted"]
    has_totals = any(step["total"] for run, _, _ in specs for step in run["steps"])

    async def compare(store: Store) -> None:
        for log, end, size in logs:
            await apply(store, log, end, size)
        check(await store.stats(RunFilter(), days_of(zone)), Sums(kept, zone), has_totals=has_totals)
        for worker in WORKERS:
            of_worker = [log for log in kept if worker_of(log) == worker]
            for wanted in (RunFilter(name=worker), RunFilter(agent_id=worker)):
                check(await store.stats(wanted, days_of(zone)), Sums(of_worker, zone), has_totals=has_totals)
        roots = [log for log in kept if log[0].parent_run_id is None]
        check(await store.stats(RunFilter(roots=True), days_of(zone)), Sums(roots, zone), has_totals=has_totals)
        await store.clear_views()
        stored = await store.stats(RunFilter(), days_of(zone))
        assert not any(line.amount or line.tokens for lines in stored.lines.values() for line in lines)

    async def main() -> None:
        await compare(MemoryStore())
        with TemporaryDirectory() as folder:
            store = await SqliteStore.open(Path(folder, "test.db"))
            try:
                await compare(store)
            finally:
                await store.close()

    anyio.run(main)
