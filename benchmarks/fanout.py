"""Live events to 100 subscribers in one process, against an `asyncio.Queue` for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter

from benchmarks.harness import Result, interleave, log_progress, rate
from benchmarks.sample import event, line
from shopfloor.log import Entry, new_run_id
from shopfloor.record import FanOut, Subscription

SUBSCRIBERS = 100
BURST = 64
"""Events between two turns of the event loop. Two bursts fit into a subscriber's buffer, so nothing is dropped."""

Reader = Callable[[Subscription], Awaitable[int]]


async def _by_batch(subscription: Subscription) -> int:
    count = 0
    while items := await subscription.batch():
        for item in items:
            count += isinstance(item, Entry)
    return count


async def _by_event(subscription: Subscription) -> int:
    count = 0
    async for item in subscription:
        count += isinstance(item, Entry)
    return count


async def _from_queue(queue: asyncio.Queue[Entry | None]) -> int:
    count = 0
    while (item := await queue.get()) is not None:
        count += isinstance(item, Entry)
    return count


async def _timed(
    tasks: list[asyncio.Task[int]], publish: Callable[[Entry], None], end: Callable[[], None], bursts: list[list[Entry]]
) -> float:
    """Publish in bursts, the same for both sides, and return the seconds until every subscriber has every event."""
    await asyncio.sleep(0)
    started_at = perf_counter()
    for burst in bursts:
        for entry in burst:
            publish(entry)
        await asyncio.sleep(0)
    end()
    counts = await asyncio.gather(*tasks)
    seconds = perf_counter() - started_at
    if set(counts) != {sum(map(len, bursts))}:
        raise RuntimeError(f"not everything was delivered: {min(counts)} to {max(counts)} events")
    return seconds


async def _ours(reader: Reader, bursts: list[list[Entry]]) -> float:
    fanout = FanOut()
    subscriptions = [fanout.subscribe() for _ in range(SUBSCRIBERS)]
    tasks = [asyncio.ensure_future(reader(subscription)) for subscription in subscriptions]
    return await _timed(tasks, fanout.publish, fanout.close, bursts)


async def _queues(bursts: list[list[Entry]]) -> float:
    queues = [asyncio.Queue[Entry | None]() for _ in range(SUBSCRIBERS)]
    tasks = [asyncio.create_task(_from_queue(queue)) for queue in queues]

    def publish(entry: Entry | None) -> None:
        for queue in queues:
            queue.put_nowait(entry)

    return await _timed(tasks, publish, lambda: publish(None), bursts)


def _bursts(events: int, size: int) -> list[list[Entry]]:
    payload = event()
    raw = line(new_run_id(), payload).removesuffix(b"\n")
    entries = [Entry(seq, payload.event_type, raw) for seq in range(1, events + 1)]
    return [entries[first : first + size] for first in range(0, events, size)]


def against_queues(reader: Reader, how: str, events: int, rounds: int, *, burst: int, floor: float | None) -> Result:
    bursts = _bursts(events, burst)
    found = interleave(lambda: asyncio.run(_ours(reader, bursts)), lambda: asyncio.run(_queues(bursts)), rounds)
    deliveries = events * SUBSCRIBERS
    return Result(
        measure=f"fan-out to {SUBSCRIBERS}, {how}, bursts of {burst}",
        ours=rate(deliveries, found.ours, "deliveries"),
        against=f"asyncio.Queue each: {rate(deliveries, found.theirs, 'deliveries')}",
        ratio=found.ratio,
        floor=floor,
    )


def run(*, quick: bool) -> list[Result]:
    events, rounds = (256, 4) if quick else (3_200, 21)
    log_progress("fan-out by batch()")
    batch = against_queues(_by_batch, "batch()", events, rounds, burst=BURST, floor=5.0)
    log_progress("fan-out by async for")
    single = against_queues(_by_event, "async for", events, rounds, burst=BURST, floor=None)
    log_progress("fan-out by batch(), one event at a time")
    slow = against_queues(_by_batch, "batch()", events // 2, rounds, burst=1, floor=None)
    return [batch, single, slow]
