"""`shopfloor workers`: what can be run here, and writing more of it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from shopfloor.cli.arguments import (
    WORKERS_OPTION,
    CommandParser,
    Parser,
    add_color_option,
    resolve_folder,
    storage_from_args,
)
from shopfloor.cli.client_session import is_remote
from shopfloor.cli.style import Style, escape_controls, escape_json_for_terminal, one_line
from shopfloor.cli.tree import definition_lines
from shopfloor.cli.workers_new import find_server_and_worker, new_worker
from shopfloor.engine import (
    EXAMPLE_WORKERS,
    Problem,
    Worker,
    WorkerCatalog,
    check_worker,
    default_folders,
    input_schema,
)
from shopfloor.errors import FileMissing
from shopfloor.wiring import local_validation_context, open_projects

EXAMPLES = """\
  shopfloor workers list                   what can be run here
  shopfloor workers show hello             what it takes and does
  shopfloor workers check                  whether all of them can be run
  shopfloor workers check ./workers/mine   what is wrong with one, line by line
  shopfloor workers new mine               a worker to begin with, in ./workers/mine"""
_LIST = """\
  shopfloor workers list                                 what can be run here
  shopfloor workers list --workers my_package.my_module  with those of a Python module
  shopfloor workers list --json | jq '.[].slug'          for programs"""
_SHOW = """\
  shopfloor workers show hello          what it takes and does
  shopfloor workers show hello --json   its whole definition"""
_CHECK = """\
  shopfloor workers check                  all that there are
  shopfloor workers check hello            one of them
  shopfloor workers check ./workers/mine   a folder"""
_NEW = """\
  shopfloor workers new mine              ./workers/mine/worker.yaml with a prompt
  shopfloor workers new mine --python     ./workers/mine/worker.py
  shopfloor workers new mine --in ~/team  in another folder"""


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parts = parser.add_subparsers(dest="part", metavar="COMMAND", required=True, parser_class=CommandParser)

    def part(name: str, summary: str, examples: str) -> argparse.ArgumentParser:
        return parts.add_parser(name, help=summary, summary=summary, examples=examples)

    listing = part("list", "List the workers that there are", _LIST)
    _add_workers(listing)
    listing.add_argument("--json", action="store_true", help="for programs, with the schemas of their input")
    add_color_option(listing)

    show = part("show", "Show what a worker takes and does", _SHOW)
    show.add_argument("slug", metavar="SLUG", help="its name")
    _add_workers(show)
    show.add_argument("--json", action="store_true", help="its definition as JSON")
    add_color_option(show)

    check = part("check", "Say what is wrong with workers, line by line", _CHECK)
    check.add_argument("named", metavar="FOLDER|SLUG", nargs="*", help="which (default: all that there are)")
    _add_workers(check)

    new = part("new", "Make a worker to begin with", _NEW)
    new.add_argument("slug", metavar="SLUG", help="its name: lower-case letters, digits and `-`")
    new.add_argument("--python", action="store_true", help="a Python function instead of YAML")
    new.add_argument("--in", dest="into", metavar="DIR", default="workers", help="where (default: ./workers)")
    return parser


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", **WORKERS_OPTION)


def catalog_from_args(args: argparse.Namespace) -> WorkerCatalog:
    """The workers that somebody sees from here."""
    named: list[str] = args.workers
    folders = [resolve_folder(where) for where in named if _is_folder(where)]
    modules = [where for where in named if not _is_folder(where)]
    storage = storage_from_args(args)
    return WorkerCatalog(default_folders(storage.root, folders), modules, projects=open_projects(storage).all)


def _is_folder(where: str) -> bool:
    if where.endswith(".py"):
        return False
    if resolve_folder(where).is_dir():
        return True
    if "/" in where:
        raise FileMissing(f"there is no folder {where}", hint="--workers takes a folder, a Python file or a module")
    return False


def run(args: argparse.Namespace) -> int:
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "show": _show,
        "check": _check,
        "new": _new,
    }
    return commands[args.part](args)


def _list(args: argparse.Namespace) -> int:
    workers = catalog_from_args(args).all()
    if args.json:
        print(escape_json_for_terminal(json.dumps([_as_json(worker) for worker in workers], ensure_ascii=False)))
        return 0
    style = Style.from_choice(args.color)
    width = shutil.get_terminal_size((120, 24)).columns
    for line in table(workers, style, width):
        print(line)
    broken = sum(1 for worker in workers if worker.problems)
    count = f"{len(workers):,} workers" if len(workers) != 1 else "1 worker"
    more = f"; {broken:,} cannot be run: `shopfloor workers check` says why" if broken else ""
    print(style.paint(count + more, "dim"))
    return 0


def table(workers: Sequence[Worker], style: Style, width: int) -> Iterator[str]:
    """One line each: slug, type, where from, description."""
    slugs = max([len(worker.reference) for worker in workers], default=0)
    origins = max([len(_origin(worker)) for worker in workers], default=0)
    for worker in workers:
        slug = style.paint(escape_controls(worker.reference).ljust(slugs), "bold")
        kind = _kind(worker).ljust(6)
        origin = style.paint(escape_controls(_origin(worker)).ljust(origins), "dim")
        said = worker.definition.description or ""
        look = ()
        if worker.problems:
            said, look = f"broken: {worker.problems[0].reason}", ("red",)
        text = one_line(said, max(20, width - slugs - origins - 12))
        yield f"{slug}  {kind}  {origin}  {style.paint(text, *look) if look else text}".rstrip()


def _kind(worker: Worker) -> str:
    return "python" if worker.function is not None or _is_python(worker) else "yaml"


def _is_python(worker: Worker) -> bool:
    return worker.folder is None or not (worker.folder / "worker.yaml").exists()


def _origin(worker: Worker) -> str:
    if worker.folder is None:
        return worker.origin
    if worker.folder.parent == EXAMPLE_WORKERS:
        return "packaged"
    return _from_here(worker.folder)


def _from_here(path: Path) -> str:
    """A path as short as it can be said."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else str(path)


def _as_json(worker: Worker) -> dict[str, Any]:
    definition = worker.definition
    return {
        "slug": worker.reference,
        "project": worker.project.name if worker.project else None,
        "name": definition.name,
        "description": definition.description,
        "type": _kind(worker),
        "from": worker.origin,
        "input_schema": input_schema(definition),
        "tools": sorted(definition.tools),
        "problems": [str(problem) for problem in worker.problems],
    }


def _show(args: argparse.Namespace) -> int:
    worker = catalog_from_args(args).get(args.slug)
    if args.json:
        import msgspec

        print(escape_json_for_terminal(msgspec.json.encode(worker.definition).decode()))
        return 0
    style = Style.from_choice(args.color)
    for line in definition_lines(worker.definition, style, origin=f"{_kind(worker)}, {_origin(worker)}"):
        print(line)
    return 0


def _check(args: argparse.Namespace) -> int:
    catalogue = catalog_from_args(args)
    known = catalogue.all()
    named: list[str] = args.named
    problems: list[Problem] = []
    if named:
        for word in named:
            problems += _problems_of(_folder_named(word) or catalogue.find(word) or catalogue.get(word), known)
    else:
        for worker in known:
            problems += _problems_of(worker, known)
    for problem in problems:
        file = _from_here(problem.file.absolute()) if os.path.lexists(problem.file) else str(problem.file)
        print(escape_controls(f"{file}:{problem.line}: {problem.reason}"))
    if problems:
        return 1
    count = len(named) if named else len(known)
    print("1 worker is fine" if count == 1 else f"{count:,} workers are fine")
    return 0


def _folder_named(word: str) -> Path | None:
    """The folder that a word means, also by the file in it; a bare slug means no folder."""
    path = Path(word)
    if path.name in ("worker.yaml", "worker.py") and path.is_file():
        return resolve_folder(word).parent
    if "/" in word or word == ".":
        if not path.is_dir():
            raise FileMissing(f"there is no folder {word}", hint="`shopfloor workers list` says where workers are")
        return resolve_folder(word).resolve()
    return resolve_folder(word) if (path / "worker.yaml").exists() or (path / "worker.py").exists() else None


def _problems_of(found: Worker | Path, known: Sequence[Worker]) -> Sequence[Problem]:
    folder = found if isinstance(found, Path) else found.folder
    if folder is None:
        return found.problems if isinstance(found, Worker) else ()
    if not (folder / "worker.yaml").exists():
        read = WorkerCatalog([folder.parent]).find(folder.name)
        return read.problems if read else ()
    # Workers beside it can be called too, wherever they are.
    return check_worker(folder, local_validation_context([*WorkerCatalog([folder.parent]).all(), *known]))


def _new(args: argparse.Namespace) -> int:
    into = resolve_folder(args.into)
    made = new_worker(args.slug, into, python=args.python)
    for path in made:
        print(f"made {_from_here(path)}")
    server, known = find_server_and_worker(storage_from_args(args), args.slug)
    # A server that SHOPFLOOR_URL names executes the run itself, and takes no --workers.
    where = "" if is_remote() or into == Path.cwd() / "workers" else f" --workers {quote(_from_here(into))}"
    if server and not known:
        add = f"shopfloor projects add {quote(_from_here(into.parent))}"
        again = f"`{add}` adds it" if into.name == "workers" else f"start it again with `--workers {quote(str(into))}`"
        print(f"`shopfloor run` finds it; the server at {server.url} does not look in this folder: {again}")
    print(f"try it: shopfloor run {args.slug} -i NAME=Ada{where}")
    return 0
