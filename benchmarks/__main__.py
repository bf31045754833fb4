"""`python -m benchmarks [name…] [--quick]`: run benchmarks, each in a separate process, and print one table."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import msgspec

import benchmarks
from benchmarks.harness import Result

Row = tuple[str, str, str, str, str, str, str]
HEAD: Row = ("benchmark", "measured", "ours", "against", "ratio", "floor", "")


def benchmark_names() -> list[str]:
    """Return the modules of this package that have a function `run`."""
    found = (info.name for info in pkgutil.iter_modules(benchmarks.__path__) if not info.name.startswith("_"))
    return sorted(name for name in found if hasattr(importlib.import_module(f"benchmarks.{name}"), "run"))


def measure(name: str, *, quick: bool) -> list[Result]:
    """Run one benchmark in a fresh process, so that it is not affected by what another left behind."""
    print(f"==> {name}", file=sys.stderr, flush=True)
    started_at = perf_counter()
    command = [sys.executable, "-m", "benchmarks", "--inside", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed with exit code {done.returncode}")
    print(f"    {perf_counter() - started_at:.0f} s", file=sys.stderr, flush=True)
    return msgspec.json.decode(done.stdout, type=list[Result])


def format_row(name: str, result: Result) -> Row:
    floor = "" if result.floor is None else f"{result.floor:.2f}"
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    verdict = "" if result.floor is None else "ok" if result.ok else "BELOW"
    return name, result.measure, result.ours, result.against, ratio, floor, verdict


def format_table(rows: list[Row]) -> str:
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    lines = [HEAD, tuple("-" * width for width in widths), *rows]
    numbers = (HEAD.index("ratio"), HEAD.index("floor"))
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def parse_options() -> argparse.Namespace:
    names = benchmark_names()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure Shopfloor against a limit or a peer."
    )
    parser.add_argument(
        "benchmark_names", nargs="*", metavar="name", help=f"one of: {', '.join(names)} (all, unless named)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="use small sizes: shows that the benchmarks work, not how fast Shopfloor is",
    )
    parser.add_argument("--inside", choices=names, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := sorted(set(options.benchmark_names) - set(names)):
        parser.error(f"unknown benchmark {', '.join(unknown)}; choose from {', '.join(names)}")
    options.benchmark_names = options.benchmark_names or names
    return options


def main() -> int:
    options = parse_options()
    if options.inside:
        # Only the results go to stdout: programs that a benchmark starts, such as npm, print to stderr.
        with os.fdopen(os.dup(1), "wb") as output:
            os.dup2(2, 1)
            results = importlib.import_module(f"benchmarks.{options.inside}").run(quick=options.quick)
            output.write(msgspec.json.encode(results))
        return 0
    measured = {name: measure(name, quick=options.quick) for name in options.benchmark_names}
    print(format_table([format_row(name, result) for name, results in measured.items() for result in results]))
    below = sum(not result.ok for results in measured.values() for result in results)
    if below:
        print(f"{below} below the floor")
    return 1 if below else 0


if __name__ == "__main__":
    raise SystemExit(main())
