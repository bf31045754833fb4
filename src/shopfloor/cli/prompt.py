"""`shopfloor prompt`: print what an agent must know to hand work to the workers."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any, cast

from shopfloor.cli.arguments import WORKERS_OPTION, Parser
from shopfloor.cli.client_session import run_with_client
from shopfloor.client import Client
from shopfloor.mcp import server_instructions
from shopfloor.wiring import WorkerSettings

EXAMPLES = """\
  shopfloor prompt                the text, with the workers that are there
  shopfloor prompt >> AGENTS.md   for an agent that does not read it by itself"""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--workers", **WORKERS_OPTION)
    return parser


def run(args: Namespace) -> int:
    """Print the instructions of the MCP server."""

    async def fetch(client: Client) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", (await client.api.get("/api/workers"))["workers"])

    print(server_instructions(run_with_client(args, fetch, workers=WorkerSettings.from_names(args.workers))))
    return 0
