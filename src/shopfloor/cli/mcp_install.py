"""`shopfloor mcp install` and `uninstall`: add the MCP server to the configuration of an agent, or remove it."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from pathlib import Path

from shopfloor.cli.agent_configs import Change, FileEdit, find_agent, install_edits, uninstall_edits
from shopfloor.cli.arguments import resolve_folder
from shopfloor.cli.style import escape_controls
from shopfloor.mcp import require_sdk, skill_text


def install(args: Namespace) -> int:
    """Add the server to the configuration of an agent, or show what would be written."""
    agent = find_agent(args.agent)
    if not args.print:
        require_sdk()
    if not _make(install_edits(agent, _server_command(args), os.environ, skill_text), dry_run=args.print):
        print(f"{agent.title} has the MCP server `shopfloor` already")
    elif not args.print:
        print(f"{agent.title} has the MCP server `shopfloor` from its next start on")
    return 0


def uninstall(args: Namespace) -> int:
    """Remove the server from the configuration of an agent, or show what would be removed."""
    agent = find_agent(args.agent)
    if not _make(uninstall_edits(agent, os.environ), dry_run=args.print):
        print(f"{agent.title} does not have the MCP server `shopfloor`")
    return 0


def _make(edits: list[FileEdit], *, dry_run: bool) -> bool:
    """Make the edits and print what was done, or with `dry_run` the diffs. Return whether there is anything to do."""
    # All before the first is written, so that a file that cannot be edited leaves the others as they are.
    changes = [edit.preview() for edit in edits]
    needed = [(edit, change) for edit, change in zip(edits, changes, strict=True) if change.after != change.before]
    for edit, change in needed:
        print(escape_controls(change.diff()).rstrip("\n") if dry_run else _describe(edit.apply()))
    return bool(needed)


def _describe(change: Change) -> str:
    if change.after is None:
        return f"removed {change.path}"
    return f"created {change.path}" if change.before is None else f"changed {change.path}"


def _server_command(args: Namespace) -> list[str]:
    """Return the command that starts the server, with the program that runs now."""
    storage = ["--storage", str(resolve_folder(args.storage))] if args.storage else []
    return [*_program(), "mcp", *storage]


def _program() -> list[str]:
    # Not resolved: a link such as the one of pipx stays valid after an update.
    found = shutil.which(sys.argv[0])
    if found is None or Path(found).name == "__main__.py":
        return [sys.executable, "-m", "shopfloor"]
    return [str(Path(found).absolute())]
