"""`shopfloor schema`: the JSON Schema of a transcript's lines."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace

from shopfloor.cli.arguments import Parser
from shopfloor.log import event_schema

EXAMPLES = "  shopfloor schema > transcript.schema.json"


def parser(name: str, summary: str) -> ArgumentParser:
    return Parser(name, summary, examples=EXAMPLES)


def run(args: Namespace) -> int:
    print(json.dumps(event_schema(), indent=2, ensure_ascii=False))
    return 0
