"""`shopfloor projects`: list, add and remove the folders whose workers the server runs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from shopfloor.cli.arguments import Parser, resolve_folder, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.style import escape_controls
from shopfloor.errors import FileMissing
from shopfloor.wiring import open_projects

EXAMPLES = """\
  shopfloor projects                       list the projects
  shopfloor projects add                   add the current folder
  shopfloor projects add ~/team --name a   its workers are called a/<worker>
  shopfloor projects remove a              forget it; no file is deleted"""

_ADD = """\
  shopfloor projects add                      the current folder
  shopfloor projects add ~/team --name team   another folder"""


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    listing = parser.add_command("list", "List the projects", examples="  shopfloor projects list --json")
    add_json_option(listing)

    add = parser.add_command("add", "Add a folder whose workers the server runs", examples=_ADD)
    add.add_argument("folder", metavar="FOLDER", nargs="?", default=".", help="folder (default: the current one)")
    add.add_argument("--name", metavar="NAME", help="name of the project (default: the name of the folder)")
    add_json_option(add, "print the project as JSON")

    remove = parser.add_command("remove", "Remove a project", examples="  shopfloor projects remove team")
    remove.add_argument("project", metavar="PROJECT", help="name or folder of the project")
    add_json_option(remove, "print the project as JSON")
    add_json_option(parser)
    parser.set_default_command("list")
    return parser


def run(args: argparse.Namespace) -> int:
    """Execute the inner command."""
    commands: dict[str, Callable[[argparse.Namespace], int]] = {"list": _list, "add": _add, "remove": _remove}
    return commands[args.part](args)


def _list(args: argparse.Namespace) -> int:
    projects = open_projects(storage_from_args(args)).all()
    if args.json:
        print_json(projects)
        return 0
    width = max([len(project.name) for project in projects], default=0)
    for project in projects:
        note = "" if Path(project.folder).is_dir() else "  (missing)"
        print(escape_controls(f"{project.name.ljust(width)}  {project.folder}{note}"))
    if not projects:
        print("no projects; `shopfloor projects add` or `shopfloor up` adds the current folder")
    return 0


def _add(args: argparse.Namespace) -> int:
    folder = resolve_folder(args.folder).resolve()
    if not folder.is_dir():
        raise FileMissing(f"folder {args.folder} does not exist", hint="name a folder that contains a folder `workers`")
    project = open_projects(storage_from_args(args)).add(str(folder), args.name)
    if args.json:
        print_json(project)
        return 0
    print(escape_controls(f"{project.name}: {project.folder}"))
    return 0


def _remove(args: argparse.Namespace) -> int:
    projects = open_projects(storage_from_args(args))
    name: str = args.project
    if "/" in name and name not in {project.name for project in projects.all()}:
        name = str(resolve_folder(name).resolve())
    removed = projects.remove(name)
    if args.json:
        print_json(removed)
        return 0
    print(escape_controls(f"removed {removed.name}: {removed.folder}"))
    return 0
