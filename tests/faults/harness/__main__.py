"""`python -m tests.faults.harness --seed 7`: run the campaign of a seed; with `--minutes`, of further seeds too."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.harness import campaign
from tests.faults.harness.faults import FAULTS
from tests.faults.harness.load import KINDS

ROOT = Path(__file__).parents[3]
INSIDE = "--inside-namespace"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.harness", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--minutes", type=float, default=0, help="go on with the next seeds for so long")
    parser.add_argument("--seconds", type=float, default=15, help="how long each campaign has faults")
    parser.add_argument("--only", help=f"only these faults, by commas, of: {', '.join(FAULTS)}")
    parser.add_argument("--workers", help=f"only these workers, by commas, of: {', '.join(KINDS)}")
    parser.add_argument("--keep", type=Path, help="where the folders of campaigns go that found something")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _print_line(line: str) -> None:
    print(line, flush=True)


def _one(seed: int, args: argparse.Namespace, faults: list[str]) -> bool:
    """Run the campaigns and return True if every invariant held."""
    started_at = time.monotonic()
    _print_line(f"seed {seed}: python -m tests.faults.harness --seed {seed} --seconds {args.seconds:g}" + _only(args))
    if args.keep is not None:
        Path(args.keep).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"faults-{seed}-", dir=args.keep))
    workers = args.workers.split(",") if args.workers else list(KINDS)
    found = campaign.run(seed, folder, seconds=args.seconds, faults=faults, workers=workers, report=_print_line)
    for line in found:
        _print_line(f"  VIOLATION {line}")
    _print_line(f"seed {seed}: {len(found)} violations in {time.monotonic() - started_at:.0f} s")
    if found:
        stderr = folder / "stderr"
        tail = stderr.read_text(errors="replace")[-6000:] if stderr.exists() else ""
        _print_line(f"  kept in {folder}; the end of the server's stderr:\n{tail}")
    else:
        shutil.rmtree(folder)
    return not found


def _only(args: argparse.Namespace) -> str:
    only = f" --only {args.only}" if args.only else ""
    return f"{only} --workers {args.workers}" if args.workers else only


def main() -> int:
    args = _arguments()
    if not args.inside_namespace:
        # The disk that is filled is a private mount, invisible to other processes.
        words = [sys.executable, "-m", "tests.faults.harness", INSIDE, *sys.argv[1:]]
        return subprocess.run(["unshare", "-rm", *words], cwd=ROOT).returncode
    faults = args.only.split(",") if args.only else list(FAULTS)
    deadline = time.monotonic() + args.minutes * 60
    seed, failed = args.seed, list[int]()
    while True:
        if not _one(seed, args, faults):
            failed.append(seed)
        seed += 1
        if time.monotonic() >= deadline:
            break
    _print_line(
        f"{seed - args.seed} campaigns; violations with the seeds {failed}"
        if failed
        else f"{seed - args.seed} campaigns: everything held"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
