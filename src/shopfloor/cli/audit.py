"""`shopfloor audit`: show who did what, from where and when."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.style import escape_controls
from shopfloor.wiring import open_audit

EXAMPLES = """\
  shopfloor audit                    all entries, oldest first
  shopfloor audit --run 5f3a         the entries about one run
  shopfloor audit --json | jq -c .   for programs

The entries are stored in `audit.jsonl` in the storage folder; older ones in
`audit.1.jsonl`."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--run", metavar="RUN", help="only entries of runs whose id begins with RUN")
    add_json_option(parser, "print one JSON object per line")
    return parser


def run(args: Namespace) -> int:
    """Print the audit log of the storage."""
    for entry in open_audit(storage_from_args(args)).read():
        if args.run and not str(entry.get("run_id", "")).startswith(args.run):
            continue
        if args.json:
            print_json(entry)
            continue
        words = [entry.get(name) for name in ("at", "action", "run_id", "by", "address", "detail")]
        print(escape_controls("  ".join(str(word) for word in words if word)))
    return 0
