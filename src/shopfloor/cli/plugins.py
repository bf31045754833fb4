"""`shopfloor plugins`: list, create, check and allow plugins."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from shlex import quote

import anyio

from shopfloor.cli.arguments import PLUGINS_OPTION, Parser, resolve_folder, storage_from_args
from shopfloor.cli.client_session import is_remote
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.style import Style, escape_controls, one_line
from shopfloor.client import Address, Api, find_server
from shopfloor.decoding import convert
from shopfloor.errors import ConflictError, PluginNotFound, UsageError
from shopfloor.ports import PluginInfo, PluginStatus
from shopfloor.record import Storage
from shopfloor.wiring import (
    allow_plugin,
    check_plugin,
    create_plugin,
    list_plugins,
    open_projects,
    plugin_templates,
)

EXAMPLES = """\
  shopfloor plugins                      list the plugins and their state
  shopfloor plugins new reviewer         copy the researcher as plugins/reviewer
  shopfloor plugins check reviewer       start it and try the whole protocol
  shopfloor plugins allow plugins/other  let a plugin of this project be started"""

_NEW = """\
  shopfloor plugins new reviewer                           an agent, copied from the researcher
  shopfloor plugins new counter --template word-count      one file of Python, without an agent
  shopfloor plugins new titles --template node-example     one file of JavaScript"""
_CHECK = """\
  shopfloor plugins check reviewer                         a plugin by its name
  shopfloor plugins check ./plugins/reviewer --json        a folder; the results as JSON"""
_ALLOW = "  shopfloor plugins allow plugins/reviewer"
_TASK = "This is a conformance check: answer with the word OK."


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    listing = parser.add_command("list", "List the plugins", examples="  shopfloor plugins list --json")
    listing.add_argument("--plugins", **PLUGINS_OPTION)
    add_json_option(listing)

    new = parser.add_command("new", "Create a plugin from a template", examples=_NEW)
    new.add_argument("name", metavar="NAME", help="name of the new plugin")
    new.add_argument("--template", metavar="NAME", default="researcher", help="template (default: researcher)")
    new.add_argument("--into", metavar="FOLDER", default="plugins", help="folder for it (default: plugins)")
    add_json_option(new, "print the name and the folder as JSON")

    check = parser.add_command("check", "Start a plugin and try the whole protocol", examples=_CHECK)
    check.add_argument("plugin", metavar="PLUGIN", help="name or folder of the plugin")
    check.add_argument("--task", metavar="TEXT", default=_TASK, help="task of the job that the check dispatches")
    check.add_argument("--plugins", **PLUGINS_OPTION)
    add_json_option(check, "print a line of JSON per check")

    allow = parser.add_command("allow", "Allow a plugin of a project to be started", examples=_ALLOW)
    allow.add_argument("folder", metavar="FOLDER", help="folder of the plugin")
    add_json_option(allow, "print the name and the folder as JSON")
    add_json_option(parser)
    parser.set_default_command("list", plugins=[])
    return parser


def run(args: argparse.Namespace) -> int:
    """Execute the inner command."""
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "list": _list,
        "new": _new,
        "check": _check,
        "allow": _allow,
    }
    return commands[args.part](args)


def _list(args: argparse.Namespace) -> int:
    address = find_server(storage_from_args(args))
    infos = _all_plugins(args, address)
    if args.json:
        print_json(infos)
        return 0
    for line in _table(infos, Style.from_choice("auto"), shutil.get_terminal_size((120, 24)).columns):
        print(line)
    if not infos:
        print("no plugins; `shopfloor plugins new NAME` creates one in plugins/")
    elif address is None:
        print("no server is running: a plugin is started when a run needs it", file=sys.stderr)
    return 0


def _all_plugins(args: argparse.Namespace, address: Address | None) -> list[PluginInfo]:
    """List the plugins of this folder and of the server, each once. The server knows the state of its own."""
    served = asyncio.run(_fetch_plugins(address)) if address is not None else []
    found = [] if is_remote() else list_plugins(storage_from_args(args), _named_folders(args))
    folders = {info.folder for info in served}
    return sorted([*served, *(info for info in found if info.folder not in folders)], key=lambda info: info.name)


async def _fetch_plugins(address: Address) -> list[PluginInfo]:
    api = Api(address.url, address.token)
    try:
        return convert((await api.get("/api/plugins"))["plugins"], list[PluginInfo])
    finally:
        await api.close()


_COLORS: dict[PluginStatus, str] = {"ready": "green", "error": "red", "not_allowed": "yellow"}


def _table(infos: Sequence[PluginInfo], style: Style, width: int) -> Iterator[str]:
    """Yield a line per plugin: name, state, kind, description; below it why the plugin cannot be used."""
    names = max([len(info.name) for info in infos], default=0)
    for info in infos:
        name = style.paint(escape_controls(info.name).ljust(names), "bold")
        state = style.paint(info.status.replace("_", " ").ljust(11), _COLORS.get(info.status, "dim"))
        # Without a manifest nothing is known of the plugin.
        kind = "worker" if info.is_worker else "tools" if info.version else ""
        description = one_line(info.description, max(20, width - names - 24))
        yield f"{name}  {state}  {kind:<6}  {description}".rstrip()
        if info.error:
            yield from (f"    {line}" for line in escape_controls(info.error).splitlines())


def _new(args: argparse.Namespace) -> int:
    templates = plugin_templates()
    if args.template not in templates:
        raise UsageError(f"no template {args.template!r}", hint=f"the templates are: {', '.join(templates)}")
    _reject_name_of_worker(args)
    folder = create_plugin(resolve_folder(args.into), args.name, templates[args.template])
    allow_plugin(storage_from_args(args), folder)
    if args.json:
        print_json({"name": args.name, "folder": str(folder)})
        return 0
    print(escape_controls(f"created {folder}"))
    readable = [name for name in ("prompt.md", "server.py", "server.mjs") if (folder / name).exists()]
    print(f"change {readable[0]} and guild-member.json, then:")
    named = "" if folder.parent == Path.cwd() / "plugins" else f" --plugins {quote(args.into)}"
    print(escape_controls(f"  shopfloor plugins check {args.name}{named}   try the whole protocol"))
    print(escape_controls(f"  shopfloor run {args.name} 'your task'{named}"))
    return 0


def _reject_name_of_worker(args: argparse.Namespace) -> None:
    """Raise `ConflictError` if `shopfloor run NAME` would run another worker instead of the plugin."""
    from shopfloor.engine import WorkerCatalog, default_folders

    storage = storage_from_args(args)
    worker = WorkerCatalog(default_folders(storage.root), projects=open_projects(storage).all).find(args.name)
    if worker is not None:
        raise ConflictError(
            f"there is a worker {args.name!r} already ({worker.origin}), and it would run instead of the plugin",
            hint="choose another name",
        )


def _check(args: argparse.Namespace) -> int:
    storage = storage_from_args(args)
    folder = _find_folder(storage, args)
    return anyio.run(_run_checks, storage, folder, args)


async def _run_checks(storage: Storage, folder: Path, args: argparse.Namespace) -> int:
    style = Style.from_choice("auto")
    failures = count = 0
    async with aclosing(check_plugin(storage, folder, args.task)) as results:
        async for result in results:
            count += 1
            failures += not result.passed
            if args.json:
                print_json(result)
                continue
            sign = style.paint("✓", "green") if result.passed else style.paint("✗", "red")
            print(f"{sign} {escape_controls(result.name)}", flush=True)
            if result.detail:
                print(escape_controls(f"  {result.detail}"), flush=True)
    if not args.json:
        print(f"{failures} of {count} checks failed" if failures else f"all {count} checks passed")
    return 1 if failures else 0


def _allow(args: argparse.Namespace) -> int:
    info = allow_plugin(storage_from_args(args), resolve_folder(args.folder).resolve())
    if args.json:
        print_json({"name": info.name, "folder": info.folder})
        return 0
    print(escape_controls(f"{info.name} may be started: {info.folder}"))
    return 0


def _find_folder(storage: Storage, args: argparse.Namespace) -> Path:
    """Return the folder of the plugin that the user named by name or folder."""
    if "/" in args.plugin or args.plugin in {".", ".."}:
        return resolve_folder(args.plugin).resolve()
    infos = list_plugins(storage, _named_folders(args))
    named = sorted((info for info in infos if info.name == args.plugin), key=lambda info: bool(info.error))
    found: PluginInfo | None = next(iter(named), None)
    if found is None:
        names = ", ".join(info.name for info in infos) or "none"
        raise PluginNotFound(f"there is no plugin {args.plugin!r}", hint=f"the plugins are: {names}")
    if found.status == "not_allowed":
        raise UsageError(f"plugin {found.name} is not allowed yet", hint=found.error)
    return Path(found.folder)


def _named_folders(args: argparse.Namespace) -> list[Path]:
    return [resolve_folder(folder) for folder in args.plugins]
