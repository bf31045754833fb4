"""`shopfloor schema`: print the JSON Schema of a transcript line."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import Parser
from shopfloor.log import event_schema

EXAMPLES = "  shopfloor schema > transcript.schema.json"


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    return Parser(name, summary, examples=EXAMPLES)


def run(args: Namespace) -> int:
    """Print the schema."""
    print(json.dumps(event_schema(), indent=2, ensure_ascii=False))
    return 0
