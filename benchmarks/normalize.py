"""Normalizing the output of agents: against only parsing the same lines, and memory over very long streams."""

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
"""The bytes by which a normalizer may grow over a gigabyte of output."""
WARM_UP_FRACTION = 0.02
"""The fraction of the stream after which memory is measured first."""

_ID = re.compile(rb'"(?!model)\w*(?:id|Id|ID)": ?"([^"\\]{8,})"')


def recorded_streams(name: str) -> list[bytes]:
    """Return all recorded streams of an agent."""
    found = [path.read_bytes() for path in sorted((STREAMS / name).glob("*.jsonl"))]
    return [data for data in found if data]


def feed(normalizer: Normalizer, data: bytes) -> None:
    for at in range(0, len(data), READ_CHUNK_BYTES):
        normalizer.feed(data[at : at + READ_CHUNK_BYTES])


def ours(streams: list[tuple[str, bytes]]) -> float:
    started_at = perf_counter()
    for name, data in streams:
        normalizer = provider(name).normalizer()
        feed(normalizer, data)
        normalizer.finish(None)
    return perf_counter() - started_at


def parse_only(streams: list[tuple[str, bytes]]) -> float:
    started_at = perf_counter()
    for _, data in streams:
        for line in data.split(b"\n"):
            if line:
                orjson.loads(line)
    return perf_counter() - started_at


def against_parsing(what: str, streams: list[tuple[str, bytes]], rounds: int, floor: float | None) -> Result:
    size = sum(len(data) for _, data in streams)
    lines = sum(data.count(b"\n") for _, data in streams)
    found = interleave(lambda: ours(streams), lambda: parse_only(streams), rounds)
    return Result(
        measure=f"{what}, {size // lines:,} bytes a line: from bytes to reports",
        ours=f"{size / found.ours / 1e6:.0f} MB/s",
        against=f"orjson.loads of the same lines: {size / found.theirs / 1e6:.0f} MB/s",
        ratio=found.ratio,
        floor=floor,
    )


def long_stream(name: str, size: int) -> Iterator[bytes]:
    """Yield about `size` bytes: all recorded streams of an agent, repeated with new ids each time."""
    data = b"".join(stream.rstrip(b"\n") + b"\n" for stream in recorded_streams(name))
    ids = sorted(set(_ID.findall(data)), key=len, reverse=True)
    between = re.split(b"(?=%b)" % b"|".join(map(re.escape, ids)), data)
    fed_bytes = 0
    for turn in itertools.count():
        repeated = (b"%d." % turn).join(between)
        fed_bytes += len(repeated)
        if fed_bytes > size:
            return
        yield repeated


def growth(name: str, size: int) -> Result:
    normalizer = provider(name).normalizer()
    fed_bytes, before = 0, None
    for data in long_stream(name, size):
        feed(normalizer, data)
        fed_bytes += len(data)
        if before is None and fed_bytes > size * WARM_UP_FRACTION:
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
    streams_by_provider = {
        name: [(name, data) for data in recorded_streams(name)] * repeats
        for name in PROVIDER_NAMES
        if name != "claude-sdk"
    }
    log_progress("all recorded streams")
    together = [stream for streams in streams_by_provider.values() for stream in streams]
    results = [against_parsing("all agents", together, rounds, 0.2)]
    for name, streams in streams_by_provider.items():
        log_progress(f"the streams of {name}")
        results.append(against_parsing(name, streams, rounds, None))
    for name in streams_by_provider:
        log_progress(f"a very long stream of {name}")
        results.append(growth(name, size))
    return results
