"""A long log: the cost of appending does not grow, and its end is read quickly."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from itertools import count
from pathlib import Path

from benchmarks.harness import Result, interleave, log_progress, scratch, seconds_of, warm_memory
from benchmarks.sample import LINE_BYTES, STEP, event, write_log
from shopfloor.log import new_run_id
from shopfloor.record import Recorder, last_entry, read

EARLY = 1_000
LIMIT_SECONDS = 0.050
TAIL_EVENTS = 50


def _append_round(recorder: Recorder, events: int) -> float:
    append, payload = recorder.append, event()

    def work() -> None:
        for _ in range(events):
            append(payload, path=STEP)

    seconds = seconds_of(work)
    # Finish the group commit now, so that it does not slow down the other side's round.
    recorder.sync_pending()
    return seconds


def cost_of_append(late: int, rounds: int, events: int) -> Result:
    with scratch() as folder:
        warm_memory(folder, (late + 2 * (rounds + 1) * (EARLY + events)) * LINE_BYTES)
        run_id = new_run_id()
        write_log(folder / "late.jsonl", run_id, late)
        numbers = count()

        def early_round() -> float:
            path, fresh_id = folder / f"early-{next(numbers)}.jsonl", new_run_id()
            write_log(path, fresh_id, EARLY)
            with Recorder(path, fresh_id) as recorder:
                return _append_round(recorder, events)

        with Recorder(folder / "late.jsonl", run_id) as recorder:
            found = interleave(lambda: _append_round(recorder, events), early_round, rounds)
    return Result(
        measure=f"append from event {late:,} on",
        ours=_micros(found.ours / events),
        against=f"from event {EARLY:,} on: {_micros(found.theirs / events)}",
        ratio=found.ratio,
        floor=0.90,
    )


def _micros(seconds: float) -> str:
    return f"{seconds * 1e6:.2f} µs"


def _drop_from_cache(path: Path) -> None:
    """Drop the file from the system's cache, so that it is read from the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _read_tail(path: Path, last: int) -> None:
    entry = last_entry(path)
    if entry is None or entry.seq != last:
        raise RuntimeError(f"the log ends at {last:,}, not at {entry and entry.seq}")
    if len(list(read(path, after=last - TAIL_EVENTS))) != TAIL_EVENTS:
        raise RuntimeError(f"the tail has less than {TAIL_EVENTS} events")


def _read_middle(path: Path, last: int) -> None:
    entry = next(read(path, after=last // 2, limit=1))
    if entry.seq != last // 2 + 1:
        raise RuntimeError(f"expected event {last // 2 + 1:,}, got {entry.seq:,}")


def _cold(path: Path, action: Callable[[], None], rounds: int) -> float:
    found: list[float] = []
    for _ in range(rounds):
        _drop_from_cache(path)
        found.append(seconds_of(action))
    return statistics.median(found)


def read_results(size: int, rounds: int) -> list[Result]:
    with scratch() as folder:
        path, last = folder / "large.jsonl", size // LINE_BYTES + 1
        write_log(path, new_run_id(), last)
        human = f"{path.stat().st_size / 1e9:.1f} GB" if size >= 1e9 else f"{path.stat().st_size / 1e6:.0f} MB"
        tail = _cold(path, lambda: _read_tail(path, last), rounds)
        middle = _cold(path, lambda: _read_middle(path, last), rounds)
    return [
        _against_limit(f"last {TAIL_EVENTS} events of {human}, cold", tail, 1.0),
        _against_limit(f"an event in the middle of {human}, cold", middle, None),
    ]


def _against_limit(measure: str, seconds: float, floor: float | None) -> Result:
    return Result(
        measure=measure,
        ours=f"{seconds * 1e3:.2f} ms",
        against=f"the limit: {LIMIT_SECONDS * 1e3:.0f} ms",
        ratio=LIMIT_SECONDS / seconds,
        floor=floor,
    )


def run(*, quick: bool) -> list[Result]:
    late = 20_000 if quick else 1_000_000
    log_progress(f"cost of appending at event {late:,}")
    cost = cost_of_append(late, 6, 2_000) if quick else cost_of_append(late, 41, 20_000)
    log_progress("reading a large file")
    return [cost, *(read_results(20_000_000, 5) if quick else read_results(1_000_000_000, 21))]
