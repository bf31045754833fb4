"""Shared by the benchmarks: results, and fair measurements on a noisy machine."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import msgspec

_SLOW_NEW_FILE_MICROS = 100.0

Side = Callable[[], float]
"""Runs one round of one side of a comparison and returns its seconds.

A side measures the time itself, so that its preparation and clean-up do not count.
"""


class Comparison(msgspec.Struct, frozen=True):
    """Medians over the rounds, in seconds. `ratio` is the median of the rounds' ratios, theirs divided by ours."""

    ours: float
    theirs: float
    ratio: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. A higher ratio is always better; without a floor the row is for information."""

    measure: str
    ours: str
    against: str
    ratio: float | None
    """None if the peer is not available; `against` has the reason."""
    floor: float | None = None

    @property
    def ok(self) -> bool:
        return self.floor is None or (self.ratio is not None and self.ratio >= self.floor)


def interleave(ours: Side, theirs: Side, rounds: int) -> Comparison:
    """Measure both sides in turns, so that other load on the machine affects both equally.

    The side that goes first alternates. A warm-up round before them does not count.
    """
    ours()
    theirs()
    pairs: list[tuple[float, float]] = []
    for number in range(rounds):
        if number % 2:
            late = theirs()
            pairs.append((ours(), late))
        else:
            early = ours()
            pairs.append((early, theirs()))
    return Comparison(
        ours=statistics.median(pair[0] for pair in pairs),
        theirs=statistics.median(pair[1] for pair in pairs),
        ratio=statistics.median(pair[1] / pair[0] for pair in pairs),
    )


def seconds_of(action: Callable[[], object]) -> float:
    start = perf_counter()
    action()
    return perf_counter() - start


def rate(count: int, seconds: float, unit: str) -> str:
    """Return `count` per second to three digits; more would only be noise."""
    per_second = float(f"{count / seconds:.3g}")
    return f"{per_second:,.0f} {unit}/s"


def log_progress(text: str) -> None:
    """Print progress to stderr, apart from the results."""
    print(f"    {text}", file=sys.stderr, flush=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder for large files in `$TMPDIR` that is deleted afterwards."""
    with TemporaryDirectory(prefix="shopfloor-bench-") as folder:
        if (micros := _micros_of_a_new_file(Path(folder))) > _SLOW_NEW_FILE_MICROS:
            log_progress(f"creating a file takes {micros:.0f} µs here, so benchmarks that create logs look too slow;")
            log_progress("if many files were deleted just now, wait five minutes or set another TMPDIR")
        yield Path(folder)


def _micros_of_a_new_file(folder: Path) -> float:
    """Return the time to create a file: for each, ext4 skips the inodes of recently deleted files one by one."""
    seconds = [seconds_of((folder / f"new-{number}").touch) for number in range(50)]
    return statistics.median(seconds) * 1e6


def warm_memory(folder: Path, size: int) -> None:
    """Let the system allocate as much memory as the following files will need, and free it again.

    A virtual machine has to request memory from its host on first use: each write then costs two to three times as
    much, and every ratio to plain writing looks better than it is.
    """
    path = folder / "warm"
    chunk = bytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(size // len(chunk) + 1):
            file.write(chunk)
    path.unlink()


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmRSS: cannot measure memory")
