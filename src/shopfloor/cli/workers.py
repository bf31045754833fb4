"""`shopfloor workers`: list, show, check and create workers."""

from __future__ import annotations

import argparse
import asyncio
import json
import keyword
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from shopfloor.cli.arguments import (
    WORKERS_OPTION,
    Parser,
    add_color_option,
    resolve_folder,
    storage_from_args,
)
from shopfloor.cli.client_session import is_remote
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.style import Style, escape_controls, one_line
from shopfloor.client import Address, Api, find_storage_server
from shopfloor.engine import (
    EXAMPLE_WORKERS,
    Definition,
    InputField,
    Problem,
    ToolDefinition,
    Worker,
    WorkerCatalog,
    check_worker,
    default_folders,
    input_schema,
    is_required,
    is_slug,
)
from shopfloor.errors import ConflictError, FileMissing, ShopfloorError, UsageError
from shopfloor.limits import PREVIEW_CHARS
from shopfloor.record import Storage
from shopfloor.wiring import list_plugins, local_validation_context, open_projects

EXAMPLES = """\
  shopfloor workers list                   list all workers
  shopfloor workers show hello             show its inputs and steps
  shopfloor workers check                  check all workers
  shopfloor workers check ./workers/mine   check the worker in a folder
  shopfloor workers new mine               create ./workers/mine"""
_LIST = """\
  shopfloor workers list                                list all workers
  shopfloor workers list --workers my_package.my_module
                                                        also a Python module
  shopfloor workers list --json | jq '.[].slug'         for programs"""
_SHOW = """\
  shopfloor workers show hello          inputs, tools and steps
  shopfloor workers show hello --json   the complete definition"""
_CHECK = """\
  shopfloor workers check                  all workers
  shopfloor workers check hello            one worker
  shopfloor workers check ./workers/mine   the worker in a folder"""
_NEW = """\
  shopfloor workers new mine               ./workers/mine/worker.yaml, a prompt
  shopfloor workers new mine --python      ./workers/mine/worker.py
  shopfloor workers new mine --in ~/team   in another folder"""


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    listing = parser.add_command("list", "List all workers", examples=_LIST)
    listing.add_argument("--workers", **WORKERS_OPTION)
    add_json_option(listing, "print JSON, with the input schemas")
    add_color_option(listing)

    show = parser.add_command("show", "Show the inputs, tools and steps of a worker", examples=_SHOW)
    show.add_argument("slug", metavar="WORKER", help="name of the worker")
    show.add_argument("--workers", **WORKERS_OPTION)
    add_json_option(show, "print the definition as JSON")
    add_color_option(show)

    check = parser.add_command("check", "Check workers, and report each problem with its line", examples=_CHECK)
    check.add_argument("targets", metavar="WORKER", nargs="*", help="name or folder of a worker (default: all)")
    check.add_argument("--workers", **WORKERS_OPTION)
    add_json_option(check, "print the problems as JSON")

    new = parser.add_command("new", "Create a worker that runs as it is", examples=_NEW)
    new.add_argument("slug", metavar="NAME", help="name of the worker: lower-case letters, digits and `-`")
    new.add_argument("--python", action="store_true", help="create a Python function instead of YAML")
    new.add_argument("--in", dest="into", metavar="DIR", default="workers", help="folder (default: ./workers)")
    add_json_option(new, "print the files as JSON")
    return parser


def catalog_from_args(args: argparse.Namespace) -> WorkerCatalog:
    """Return the workers that are visible from the current folder, and those of `--workers`."""
    sources: list[str] = args.workers
    folders = [resolve_folder(source) for source in sources if _is_folder(source)]
    modules = [source for source in sources if not _is_folder(source)]
    storage = storage_from_args(args)
    projects, plugins = open_projects(storage).all, partial(list_plugins, storage)
    return WorkerCatalog(default_folders(storage.root, folders), modules, projects=projects, plugins=plugins)


def _is_folder(source: str) -> bool:
    if source.endswith(".py"):
        return False
    if resolve_folder(source).is_dir():
        return True
    if "/" in source:
        raise FileMissing(f"folder {source} does not exist", hint="--workers takes a folder, a Python file or a module")
    return False


def run(args: argparse.Namespace) -> int:
    """Execute the inner command."""
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
        print_json([_as_json(worker) for worker in workers])
        return 0
    style = Style.from_choice(args.color)
    width = shutil.get_terminal_size((120, 24)).columns
    for line in table(workers, style, width):
        print(line)
    broken = sum(1 for worker in workers if worker.problems)
    count = f"{len(workers):,} workers" if len(workers) != 1 else "1 worker"
    more = f"; {broken:,} with errors: `shopfloor workers check` lists them" if broken else ""
    print(style.paint(count + more, "dim"))
    return 0


def table(workers: Sequence[Worker], style: Style, width: int) -> Iterator[str]:
    """Yield one line per worker: name, type, origin, description."""
    slugs = max([len(worker.reference) for worker in workers], default=0)
    origins = max([len(_origin(worker)) for worker in workers], default=0)
    for worker in workers:
        slug = style.paint(escape_controls(worker.reference).ljust(slugs), "bold")
        kind = _kind(worker).ljust(6)
        origin = style.paint(escape_controls(_origin(worker)).ljust(origins), "dim")
        problem = f"broken: {worker.problems[0].reason}" if worker.problems else ""
        text = one_line(problem or worker.definition.description or "", max(20, width - slugs - origins - 12))
        yield f"{slug}  {kind}  {origin}  {style.paint(text, 'red') if problem else text}".rstrip()


def _kind(worker: Worker) -> str:
    if worker.is_plugin:
        return worker.worker_type
    return "python" if worker.function is not None or _is_python(worker) else "yaml"


def _is_python(worker: Worker) -> bool:
    return worker.folder is None or not (worker.folder / "worker.yaml").exists()


def _origin(worker: Worker) -> str:
    if worker.folder is None:
        return worker.origin
    if worker.folder.parent == EXAMPLE_WORKERS:
        return "packaged"
    return _display_path(worker.folder)


def _display_path(path: Path) -> str:
    """Return the path, relative to the current folder if it is inside."""
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
        print_json(worker.definition)
        return 0
    style = Style.from_choice(args.color)
    for line in definition_lines(worker.definition, style, origin=f"{_kind(worker)}, {_origin(worker)}"):
        print(line)
    return 0


_SHOWN_FIELDS = ("model", "thread", "prompt", "tool", "worker", "kind", "command", "each", "output")
"""The fields of a step that are shown beside its name."""


def definition_lines(definition: Definition, style: Style, *, origin: str) -> Iterator[str]:
    """Yield the lines about a worker: its description, inputs, tools, steps and output."""
    title = f" · {escape_controls(definition.name)}" if definition.name else ""
    slug, source = escape_controls(definition.slug), f"({escape_controls(origin)})"
    yield f"{style.paint(slug, 'bold')}{title} {style.paint(source, 'dim')}"
    if definition.description:
        yield f"  {one_line(definition.description, PREVIEW_CHARS)}"
    yield from _section("input", [_input_line(name, field) for name, field in definition.input.items()], style)
    yield from _section("tools", [_tool_line(name, tool) for name, tool in definition.tools.items()], style)
    if definition.function is not None:
        yield from _section("runs", [definition.function], style)
    if definition.steps:
        yield ""
        yield style.paint("steps", "bold")
        yield from _step_lines(definition.steps, style, "  ")
    if definition.output is not None:
        yield from _section("output", [one_line(_format_value(definition.output), PREVIEW_CHARS)], style)


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _section(title: str, lines: list[str], style: Style) -> Iterator[str]:
    if lines:
        yield ""
        yield style.paint(title, "bold")
        yield from (f"  {line}" for line in lines)


def _input_line(name: str, field: InputField) -> str:
    if is_required(field):
        presence = "required"
    else:
        default = json.dumps(field.default, ensure_ascii=False)
        presence = "optional" if field.default is None else f"default {one_line(default, 60)}"
    description = f"  {one_line(field.description, PREVIEW_CHARS)}" if field.description else ""
    return f"{escape_controls(name)}  {field.type}, {presence}{description}"


def _tool_line(name: str, tool: ToolDefinition) -> str:
    executor = f"executed by {tool.handler}" if tool.handler else "executed by the client"
    return f"{escape_controls(name)}  {one_line(tool.description, PREVIEW_CHARS)} ({escape_controls(executor)})"


def _step_lines(steps: Mapping[str, Any], style: Style, indent: str) -> Iterator[str]:
    for number, (name, step) in enumerate(steps.items(), start=1):
        last = number == len(steps)
        kind = str(step.__struct_config__.tag)
        values = {key: value for key in _SHOWN_FIELDS if (value := getattr(step, key, None))}
        fields = [f"{key} {one_line(_format_value(value), 60)}" for key, value in values.items()]
        detail = style.paint(f"[{kind}] {' · '.join(fields)}".rstrip(), "dim")
        yield f"{indent}{'└─' if last else '├─'} {one_line(name, PREVIEW_CHARS)} {detail}"
        inner_indent = indent + ("   " if last else "│  ")
        branches: Mapping[str, Mapping[str, Any]] = getattr(step, "branches", {})
        for index, (branch, inside) in enumerate(branches.items(), start=1):
            is_last = index == len(branches)
            yield f"{inner_indent}{'└─' if is_last else '├─'} {one_line(branch, PREVIEW_CHARS)}"
            yield from _step_lines(inside, style, inner_indent + ("   " if is_last else "│  "))
        yield from _step_lines(getattr(step, "steps", {}), style, inner_indent)


def _check(args: argparse.Namespace) -> int:
    catalog = catalog_from_args(args)
    known = catalog.all()
    targets: list[str] = args.targets
    problems: list[Problem] = []
    if targets:
        for target in targets:
            problems += _find_problems(
                _folder_from_target(target) or catalog.find(target) or catalog.get(target), known
            )
    else:
        for worker in known:
            problems += _find_problems(worker, known)
    count = len(targets) if targets else len(known)
    if args.json:
        items = [{"file": str(item.file), "line": item.line, "reason": item.reason} for item in problems]
        print_json({"workers": count, "problems": items})
        return 1 if problems else 0
    for problem in problems:
        file = _display_path(problem.file.absolute()) if os.path.lexists(problem.file) else str(problem.file)
        print(escape_controls(f"{file}:{problem.line}: {problem.reason}"))
    if problems:
        return 1
    print("1 worker is fine" if count == 1 else f"{count:,} workers are fine")
    return 0


def _folder_from_target(target: str) -> Path | None:
    """Return the folder that a path or a worker file names; None for the name of a worker."""
    path = Path(target)
    if path.name in ("worker.yaml", "worker.py") and path.is_file():
        return resolve_folder(target).parent
    if "/" in target or target == ".":
        if not path.is_dir():
            raise FileMissing(
                f"folder {target} does not exist", hint="`shopfloor workers list` shows the folders of workers"
            )
        return resolve_folder(target).resolve()
    return resolve_folder(target) if (path / "worker.yaml").exists() or (path / "worker.py").exists() else None


def _find_problems(target: Worker | Path, known: Sequence[Worker]) -> Sequence[Problem]:
    folder = target if isinstance(target, Path) else target.folder
    if folder is None:
        return target.problems if isinstance(target, Worker) else ()
    if not (folder / "worker.yaml").exists():
        worker = WorkerCatalog([folder.parent]).find(folder.name)
        return worker.problems if worker else ()
    # A worker may call the workers in the folders beside its own.
    return check_worker(folder, local_validation_context([*WorkerCatalog([folder.parent]).all(), *known]))


_YAML = """\
# Run it:   shopfloor run {slug} -i NAME=Ada
# Check it: shopfloor workers check {slug}
description: Greets a person by name.

# The inputs. An input is required unless it is `optional` or has a `default`.
input:
  NAME:
    description: Whom to greet
  LANGUAGE:
    description: Language of the greeting
    default: English

steps:
  Start a thread:
    block: start-thread
    model: script/hello # provider/name; this one is a script and needs no account
    system: system # prompts/system.md
    input: [LANGUAGE]

  Ask:
    block: add-message
    text: Say hello to {{{{NAME}}}}.

  Answer:
    block: next-message
    output: GREETING

output: GREETING
"""
_PROMPT = """\
You greet people. You are friendly and brief, and you speak {{LANGUAGE}}.
"""
_PYTHON = '''\
"""Run it: shopfloor run {slug} -i NAME=Ada"""

from shopfloor import worker


@worker(slug="{slug}")
async def {function}(run, NAME: str, TIMES: int = 1) -> str:
    """Greet a person by name."""
    # `run` is the handle for models, tools, commands and sub-runs. Everything done through it is recorded.
    return "\\n".join(f"Hello, {{NAME}}!" for _ in range(TIMES))
'''


def _new(args: argparse.Namespace) -> int:
    into = resolve_folder(args.into)
    files = create_worker(args.slug, into, python=args.python)
    if args.json:
        print_json({"worker": args.slug, "files": [str(path) for path in files]})
        return 0
    for path in files:
        print(f"created {_display_path(path)}")
    if (EXAMPLE_WORKERS / args.slug).exists():
        print(f"note: in this folder, {args.slug} now means this worker; it hides the packaged worker of the same name")
    server, is_known = find_server_and_worker(storage_from_args(args), args.slug)
    # A server that SHOPFLOOR_URL names executes the run itself and does not accept --workers.
    option = "" if is_remote() or into == Path.cwd() / "workers" else f" --workers {quote(_display_path(into))}"
    if server and not is_known:
        add = f"shopfloor projects add {quote(_display_path(into.parent))}"
        advice = f"`{add}` adds it" if into.name == "workers" else f"restart it with `--workers {quote(str(into))}`"
        print(f"`shopfloor run` finds it; the server at {server.url} does not know this folder: {advice}")
    print(f"try it: shopfloor run {args.slug} -i NAME=Ada{option}")
    return 0


def create_worker(slug: str, into: Path, *, python: bool) -> list[Path]:
    """Create the files of a worker that runs as it is, and return their paths. No existing file is overwritten."""
    if not is_slug(slug):
        raise UsageError(
            f"invalid worker name {slug!r}: use lower-case letters, digits and `-`", hint="e.g. find-sources"
        )
    folder = into / slug
    if folder.exists():
        raise ConflictError(f"{folder} exists already", hint="choose another name, or remove the folder")
    function = slug.replace("-", "_")
    if not function.isidentifier() or keyword.iskeyword(function) or function in ("worker", "run"):
        function = f"make_{function}"
    files = (
        {"worker.py": _PYTHON.format(slug=slug, function=function)}
        if python
        else {"worker.yaml": _YAML.format(slug=slug), "prompts/system.md": _PROMPT}
    )
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def find_server_and_worker(storage: Storage, slug: str) -> tuple[Address | None, bool]:
    """Return the server of this storage, and whether it knows the worker.

    (None, False) if SHOPFLOOR_URL names another server, or the server does not answer.
    """
    address = None if is_remote() else find_storage_server(storage)
    if address is None:
        return None, False
    try:
        return address, slug in asyncio.run(_fetch_slugs(address))
    except ShopfloorError:
        # The worker is created anyway; only the advice is missing.
        return None, False


async def _fetch_slugs(address: Address) -> set[str]:
    api = Api(address.url, address.token)
    try:
        return {worker["slug"] for worker in (await api.get("/api/workers"))["workers"]}
    finally:
        await api.close()
