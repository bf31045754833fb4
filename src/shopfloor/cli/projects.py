"""`shopfloor projects`: the folders whose workers a server serves."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import msgspec

from shopfloor.cli.arguments import CommandParser, Parser, resolve_folder, storage_from_args
from shopfloor.cli.style import escape_controls
from shopfloor.errors import FileMissing
from shopfloor.wiring import open_projects

EXAMPLES = """\
  shopfloor projects                      the folders that a server serves
  shopfloor projects add                  also serve the workers of this folder
  shopfloor projects add ~/team --name a  those of another folder, as a/<worker>
  shopfloor projects remove a             serve it no longer; no file is touched"""


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parts = parser.add_subparsers(dest="part", metavar="COMMAND", parser_class=CommandParser)
    parser.set_defaults(part="list", json=False)

    listing = parts.add_parser(
        "list", help="List the projects", summary="List the projects", examples="  shopfloor projects list --json"
    )
    listing.add_argument("--json", action="store_true", help="for programs")

    add = parts.add_parser(
        "add",
        help="Serve the workers of a folder",
        summary="Serve the workers of a folder",
        examples="  shopfloor projects add\n  shopfloor projects add ~/team --name team",
    )
    add.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="the folder (default: this one)")
    add.add_argument("--name", metavar="NAME", help="what to call it (default: the folder's name)")

    remove = parts.add_parser(
        "remove",
        help="Stop serving the workers of a folder",
        summary="Stop serving the workers of a folder",
        examples="  shopfloor projects remove team",
    )
    remove.add_argument("project", metavar="NAME|FOLDER", help="the project")
    return parser


def run(args: argparse.Namespace) -> int:
    parts: dict[str, Callable[[argparse.Namespace], int]] = {"list": _list, "add": _add, "remove": _remove}
    return parts[args.part](args)


def _list(args: argparse.Namespace) -> int:
    projects = open_projects(storage_from_args(args)).all()
    if args.json:
        print(json.dumps(msgspec.to_builtins(projects), ensure_ascii=False))
        return 0
    width = max([len(project.name) for project in projects], default=0)
    for project in projects:
        gone = "" if Path(project.folder).is_dir() else "  (not there)"
        print(escape_controls(f"{project.name.ljust(width)}  {project.folder}{gone}"))
    if not projects:
        print("no projects: `shopfloor projects add` adds this folder, and so does `shopfloor up`")
    return 0


def _add(args: argparse.Namespace) -> int:
    folder = resolve_folder(args.folder).resolve()
    if not folder.is_dir():
        raise FileMissing(f"there is no folder {args.folder}", hint="name a folder that has a `workers` folder")
    project = open_projects(storage_from_args(args)).add(str(folder), args.name)
    print(escape_controls(f"{project.name}: {project.folder}"))
    return 0


def _remove(args: argparse.Namespace) -> int:
    projects = open_projects(storage_from_args(args))
    named: str = args.project
    known = {project.name for project in projects.all()}
    removed = projects.remove(
        named if named in known else str(resolve_folder(named).resolve()) if "/" in named else named
    )
    print(escape_controls(f"removed {removed.name}: {removed.folder}"))
    return 0
