"""`shopfloor mcp install` and `uninstall`: add the MCP server to the configuration of an agent, or remove it."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from pathlib import Path

from shopfloor.cli.agent_configs import Change, FileEdit, find_agent, install_edits, uninstall_edits
from shopfloor.cli.arguments import resolve_folder
from shopfloor.cli.json_output import print_json
from shopfloor.cli.style import escape_controls
from shopfloor.mcp import require_sdk, skill_text


def install(args: Namespace) -> int:
    """Add the server to the configuration of an agent, or show what would be written."""
    agent = find_agent(args.agent)
    if not args.print:
        require_sdk()
    edits = install_edits(agent, _server_command(args), os.environ, skill_text)
    is_changed = _make(args, edits)
    if args.json:
        return 0
    if not is_changed:
        print(f"{agent.title} has the MCP server `shopfloor` already")
    elif not args.print:
        print(f"{agent.title} has the MCP server `shopfloor` from its next start on")
    return 0


def uninstall(args: Namespace) -> int:
    """Remove the server from the configuration of an agent, or show what would be removed."""
    agent = find_agent(args.agent)
    if not _make(args, uninstall_edits(agent, os.environ)) and not args.json:
        print(f"{agent.title} does not have the MCP server `shopfloor`")
    return 0


def _make(args: Namespace, edits: list[FileEdit]) -> bool:
    """Make the edits and print what was done, or with `--print` the diffs. Return whether there is anything to do."""
    # All before the first is written, so that a file that cannot be edited leaves the others as they are.
    changes = [edit.preview() for edit in edits]
    needed = [(edit, change) for edit, change in zip(edits, changes, strict=True) if change.after != change.before]
    changed: list[dict[str, str]] = []
    for edit, change in needed:
        change = change if args.print else edit.apply()  # noqa: PLW2901 - a file may have changed since the preview
        changed.append({"path": str(change.path), "change": _kind(change), "diff": change.diff()})
        if not args.json:
            text = change.diff().rstrip("\n") if args.print else f"{_kind(change)} {change.path}"
            print(escape_controls(text))
    if args.json:
        print_json({"agent": args.agent, "written": not args.print, "files": changed})
    return bool(needed)


def _kind(change: Change) -> str:
    if change.after is None:
        return "removed"
    return "created" if change.before is None else "changed"


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
