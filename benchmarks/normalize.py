"""What agents print, made into reports: against nothing but parsing the same lines, and over very long streams."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import orjson

from benchmarks.harness import Result, interleave, log_progress, resident_bytes
from shopfloor.adapters.providers import PROVIDER_NAMES, provider
from shopfloor.limits import READ_CHUNK_BYTES
from shopfloor.ports import Normalizer

STREAMS = Path(__file__).parent.parent / "tests" / "providers" / "fixtures"
ALLOWED_GROWTH = 32 * 1024 * 1024
"""How much a normaliser may have grown after a gigabyte."""
WARM = 0.02
"""The part of it after which memory is looked at first."""

_ID = re.compile(rb'"(?!model)\w*(?:id|Id|ID)": ?"([^"\\]{8,})"')


def recorded(name: str) -> list[bytes]:
    """Everything that is kept of an agent, each stream by itself."""
    found = [path.read_bytes() for path in sorted((STREAMS / name).glob("*.jsonl"))]
    return [data for data in found if data]


def feed(normalizer: Normalizer, data: bytes) -> None:
    for at in range(0, len(data), READ_CHUNK_BYTES):
        normalizer.feed(data[at : at + READ_CHUNK_BYTES])


def ours(streams: list[tuple[str, bytes]]) -> float:
    begin = perf_counter()
    for name, data in streams:
        normalizer = provider(name).normalizer()
        feed(normalizer, data)
        normalizer.finish(None)
    return perf_counter() - begin


def parsed(streams: list[tuple[str, bytes]]) -> float:
    begin = perf_counter()
    for _, data in streams:
        for line in data.split(b"\n"):
            if line:
                orjson.loads(line)
    return perf_counter() - begin


def against_parsing(what: str, streams: list[tuple[str, bytes]], rounds: int, floor: float | None) -> Result:
    size = sum(len(data) for _, data in streams)
    lines = sum(data.count(b"\n") for _, data in streams)
    found = interleave(lambda: ours(streams), lambda: parsed(streams), rounds)
    return Result(
        measure=f"{what}, {size // lines:,} bytes a line: from bytes to reports",
        ours=f"{size / found.ours / 1e6:.0f} MB/s",
        against=f"orjson.loads of the same lines: {size / found.theirs / 1e6:.0f} MB/s",
        ratio=found.ratio,
        floor=floor,
    )


def long_stream(name: str, size: int) -> Iterator[bytes]:
    """So many bytes of a process that does all that was recorded again and again, each time under other ids."""
    data = b"".join(stream.rstrip(b"\n") + b"\n" for stream in recorded(name))
    ids = sorted(set(_ID.findall(data)), key=len, reverse=True)
    between = re.split(b"(?=%b)" % b"|".join(map(re.escape, ids)), data)
    given = 0
    for turn in itertools.count():
        again = (b"%d." % turn).join(between)
        given += len(again)
        if given > size:
            return
        yield again


def growth(name: str, size: int) -> Result:
    normalizer = provider(name).normalizer()
    given, before = 0, None
    for data in long_stream(name, size):
        feed(normalizer, data)
        given += len(data)
        if before is None and given > size * WARM:
            before = resident_bytes()
    grown = max(resident_bytes() - (before or 0), 4096)
    return Result(
        measure=f"{name}: growth over a stream of {size / 1e9:g} GB",
        ours=f"{grown / 1e6:.1f} MB",
        against=f"{ALLOWED_GROWTH / 1e6:.0f} MB",
        ratio=ALLOWED_GROWTH / grown,
        floor=1.0,
    )


def run(*, quick: bool) -> list[Result]:
    rounds, repeats, size = (3, 1, 5_000_000) if quick else (15, 10, 1_000_000_000)
    kept = {
        name: [(name, data) for data in recorded(name)] * repeats for name in PROVIDER_NAMES if name != "claude-sdk"
    }
    log_progress("all recorded streams")
    together = [stream for streams in kept.values() for stream in streams]
    results = [against_parsing("all agents", together, rounds, 0.2)]
    for name, streams in kept.items():
        log_progress(f"those of {name}")
        results.append(against_parsing(name, streams, rounds, None))
    for name in kept:
        log_progress(f"a very long stream of {name}")
        results.append(growth(name, size))
    return results
