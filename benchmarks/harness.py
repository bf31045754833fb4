"""What the benchmarks share: fair measuring on a noisy machine, and what a result is."""

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
"""Does one round of one of the two things that are compared, and gives the seconds that count.

What a side prepares and tidies up is not to count, so it holds the watch itself.
"""


class Comparison(msgspec.Struct, frozen=True):
    """Medians over the rounds, in seconds. `ratio` is the median of each round's own: theirs by ours."""

    ours: float
    theirs: float
    ratio: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table. A higher ratio is always better; without a floor the row is there to be known."""

    measure: str
    ours: str
    against: str
    ratio: float | None
    """None where there is nothing to measure against here; `against` says why."""
    floor: float | None = None

    @property
    def ok(self) -> bool:
        return self.floor is None or (self.ratio is not None and self.ratio >= self.floor)


def interleave(ours: Side, theirs: Side, rounds: int) -> Comparison:
    """Measures both in turns, so that whatever else the machine does hits both alike.

    Who goes first changes with each round. One round before them all is not counted.
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
    """`count` things in `seconds`, to three digits: the machine does not give more."""
    per_second = float(f"{count / seconds:.3g}")
    return f"{per_second:,.0f} {unit}/s"


def log_progress(text: str) -> None:
    """Progress, apart from the results."""
    print(f"    {text}", file=sys.stderr, flush=True)


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for large files, in `$TMPDIR`, gone afterwards."""
    with TemporaryDirectory(prefix="shopfloor-bench-") as folder:
        if (micros := _micros_of_a_new_file(Path(folder))) > _SLOW_NEW_FILE_MICROS:
            log_progress(f"a new file takes {micros:.0f} µs here, so whatever makes logs looks slower than it is:")
            log_progress("many files were deleted a moment ago? Wait five minutes, or name another TMPDIR")
        yield Path(folder)


def _micros_of_a_new_file(folder: Path) -> float:
    """ext4 passes over the numbers of files that were deleted in the last minutes, one by one, for each new file."""
    seconds = [seconds_of((folder / f"new-{number}").touch) for number in range(50)]
    return statistics.median(seconds) * 1e6


def warm_memory(folder: Path, size: int) -> None:
    """Has the system use as much memory as the files to come will take, and give it back.

    A virtual machine has to ask its host for memory that it never used: for a while each write then costs two to
    three times as much, and any ratio to plain writing looks better than it is.
    """
    path = folder / "warm"
    chunk = bytes(1 << 20)
    with path.open("wb") as file:
        for _ in range(size // len(chunk) + 1):
            file.write(chunk)
    path.unlink()


def resident_bytes() -> int:
    """The memory of this process, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the system does not say how much memory is used")
