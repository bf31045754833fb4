"""`shopfloor schema`: print the JSON Schema of a transcript line, or of a fleet event."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import Parser
from shopfloor.log import event_schema
from shopfloor.views import fleet_event_schema

EXAMPLES = """\
  shopfloor schema > transcript.schema.json
  shopfloor schema --events > events.schema.json"""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--events", action="store_true", help="the schema of a fleet event, as subscribers get it")
    return parser


def run(args: Namespace) -> int:
    """Print the schema."""
    schema = fleet_event_schema() if args.events else event_schema()
    print(json.dumps(schema, indent=2, ensure_ascii=False))
    return 0
