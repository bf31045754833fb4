"""`shopfloor mcp`: the MCP server that agents start, over standard input and output."""

from __future__ import annotations

import os
import signal
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from shopfloor.cli.arguments import WORKERS_OPTION, Parser, storage_from_args
from shopfloor.cli.client_session import is_remote
from shopfloor.cli.json_output import add_json_option
from shopfloor.cli.server_process import ensure_server
from shopfloor.cli.shutdown import exit_now, receive_signals
from shopfloor.client import Address, Transport
from shopfloor.mcp import require_sdk

EXAMPLES = """\
  shopfloor mcp install claude-code     add it to Claude Code, with a skill
  shopfloor mcp install codex --print   show what would be written
  shopfloor mcp uninstall codex         remove it again
  shopfloor mcp                         as an agent starts it, on stdio

It uses the running server, or starts one in the background that outlives the
agent; `shopfloor down` stops it. The server also has MCP at /mcp."""
_INSTALL = """\
  shopfloor mcp install claude-code
  shopfloor mcp install codex --storage ~/team   with the runs of this storage
  shopfloor mcp install cursor --print           show what would be written"""
_SESSION_VARIABLE = "CLAUDE_CODE_SESSION_ID"
_AGENT_VARIABLES = frozenset(
    {
        _SESSION_VARIABLE,
        "AI_AGENT",
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_MESSAGING_SOCKET",
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_PROJECT_DIR",
    }
)
"""Variables that describe the session of the agent. The agents of a server that it starts do not belong to it."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--workers", **WORKERS_OPTION)
    serve = parser.add_command("serve", "Serve an agent (the default)", examples="  shopfloor mcp serve")
    serve.add_argument("--workers", **WORKERS_OPTION)
    for inner, what, example in (
        ("install", "Add the server to an agent", _INSTALL),
        ("uninstall", "Remove the server from an agent", "  shopfloor mcp uninstall claude-code"),
    ):
        command = parser.add_command(inner, what, examples=example)
        command.add_argument("agent", metavar="AGENT", help="claude-code, codex, gemini, copilot, opencode or cursor")
        command.add_argument("--print", action="store_true", help="print the changes as a diff, and write nothing")
        add_json_option(command, "print the changed files as JSON")
    parser.set_default_command("serve")
    return parser


def run(args: Namespace) -> int:
    """Serve one agent until it closes standard input, or change the configuration of an agent."""
    if args.part != "serve":
        from shopfloor.cli.mcp_install import install, uninstall

        return install(args) if args.part == "install" else uninstall(args)
    require_sdk()
    anyio.run(_serve, args, backend_options={"use_uvloop": True})
    return 0


def _open_transport(address: Address) -> Transport:
    from shopfloor.client import HttpTransport, PlainTransport

    kind = PlainTransport if address.url.startswith("http://") else HttpTransport
    return kind(address.url, address.token)


async def _serve(args: Namespace) -> None:
    from shopfloor.mcp import serve_stdio

    storage = storage_from_args(args)
    words = ["up", "--storage", str(storage.root), *(word for source in args.workers for word in ("--workers", source))]

    env = {name: value for name, value in os.environ.items() if name not in _AGENT_VARIABLES}

    async def find_server() -> Address:
        # Abandoned when the agent ends meanwhile: the server that is starting goes on.
        return await anyio.to_thread.run_sync(partial(ensure_server, storage, words, env), abandon_on_cancel=True)

    with receive_signals([signal.SIGINT, signal.SIGTERM]) as signals:

        async def exit_on_signal() -> None:
            async for number in signals:
                # At once: reading standard input cannot be interrupted, and nothing is left to be written.
                exit_now(128 + number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exit_on_signal)
            await serve_stdio(
                find_server,
                _open_transport,
                folder=None if is_remote() else os.fspath(Path.cwd()),
                session_id=os.environ.get(_SESSION_VARIABLE),
            )
            tasks.cancel_scope.cancel()
