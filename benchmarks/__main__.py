"""`python -m benchmarks [name…] [--quick]`: runs them, each in a process of its own, and prints one table."""

from __future__ import annotations

import argparse
import importlib
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


def names() -> list[str]:
    """The modules of this package that can `run`."""
    found = (info.name for info in pkgutil.iter_modules(benchmarks.__path__) if not info.name.startswith("_"))
    return sorted(name for name in found if hasattr(importlib.import_module(f"benchmarks.{name}"), "run"))


def measure(name: str, *, quick: bool) -> list[Result]:
    """Runs one benchmark in a fresh process, so that none finds what another left behind."""
    print(f"==> {name}", file=sys.stderr, flush=True)
    begin = perf_counter()
    command = [sys.executable, "-m", "benchmarks", "--inside", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"{name} broke off: exit code {done.returncode}")
    print(f"    {perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return msgspec.json.decode(done.stdout, type=list[Result])


def row(name: str, result: Result) -> Row:
    floor = "" if result.floor is None else f"{result.floor:.2f}"
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    verdict = "" if result.floor is None else "ok" if result.ok else "BELOW"
    return name, result.measure, result.ours, result.against, ratio, floor, verdict


def table(rows: list[Row]) -> str:
    widths = [max(map(len, column)) for column in zip(HEAD, *rows, strict=True)]
    lines = [HEAD, tuple("-" * width for width in widths), *rows]
    numbers = (HEAD.index("ratio"), HEAD.index("floor"))
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place in numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def arguments() -> argparse.Namespace:
    known = names()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure us against the limit or a peer.")
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(known)} (all, unless named)")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that they work, not how fast we are")
    parser.add_argument("--inside", choices=known, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - set(known)):
        parser.error(f"no benchmark is named {', '.join(unknown)}; there are {', '.join(known)}")
    given.names = given.names or known
    return given


def main() -> int:
    given = arguments()
    if given.inside:
        results = importlib.import_module(f"benchmarks.{given.inside}").run(quick=given.quick)
        sys.stdout.buffer.write(msgspec.json.encode(results))
        return 0
    measured = {name: measure(name, quick=given.quick) for name in given.names}
    print(table([row(name, result) for name, results in measured.items() for result in results]))
    below = sum(not result.ok for results in measured.values() for result in results)
    if below:
        print(f"{below} below the floor")
    return 1 if below else 0


if __name__ == "__main__":
    raise SystemExit(main())
