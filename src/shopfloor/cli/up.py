"""`shopfloor up`: start the server of this machine."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread

from shopfloor.cli.arguments import (
    PLUGINS_OPTION,
    WORKERS_OPTION,
    Parser,
    duration_seconds,
    label,
    port_number,
    slot_count,
    storage_from_args,
)
from shopfloor.cli.client_session import is_remote, run_with_client
from shopfloor.cli.limits import MALLOC_ARENAS, MALLOC_MMAP_BYTES
from shopfloor.cli.main import restore_gc_thresholds
from shopfloor.cli.outcome_notice import desktop_min_seconds
from shopfloor.cli.shutdown import schedule_exit_if_tasks_remain
from shopfloor.client import Client
from shopfloor.engine import Cancellation, CommandRequest, StepCommand, run_command, shell_argv
from shopfloor.errors import UsageError
from shopfloor.limits import HOST_SLOTS, SERVER_PORT
from shopfloor.log import new_run_id
from shopfloor.record import Storage
from shopfloor.wiring import (
    WorkerSettings,
    access_control,
    list_plugins,
    local_command_ports,
    open_projects,
    serve_storage,
)

if TYPE_CHECKING:
    from shopfloor.client import Address
    from shopfloor.engine import WorkerCatalog


_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def return_freed_memory() -> None:
    """Make glibc return the memory of large values to the system as soon as they are freed.

    By default glibc raises its threshold to the size of the largest value freed so far, up to 32 MB. From then on it
    places values of that size between others in its arenas, one arena per thread, and returns hardly any of that
    memory. Other C libraries have no `mallopt`; nothing is changed there.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, MALLOC_MMAP_BYTES)
        libc.mallopt(_M_ARENA_MAX, MALLOC_ARENAS)


EXAMPLES = """\
  shopfloor up                    on 127.0.0.1:7420; prints a link to log in
  shopfloor up --detach           in the background; `shopfloor down` stops it
  shopfloor up --port 8080        on another port
  shopfloor up --workers ~/team   also with the workers of that folder
  shopfloor up --keep 30d         delete unpinned runs 30 days after their end"""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument(
        "--host", metavar="ADDRESS", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=port_number,
        help=f"port to listen on, 0 for any free one (default: $SHOPFLOOR_PORT or {SERVER_PORT})",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="accept requests for this host name (repeatable); links for other machines have the first one",
    )
    parser.add_argument(
        "--keep",
        metavar="TIME",
        type=duration_seconds,
        help="delete runs this long after their end, with their sub-runs, e.g. 30d (default: never)",
    )
    parser.add_argument("--workers", **WORKERS_OPTION)
    parser.add_argument("--plugins", **PLUGINS_OPTION)
    parser.add_argument(
        "--slots",
        metavar="N",
        type=slot_count,
        help=f"execute at most N runs at once (default: $SHOPFLOOR_SLOTS or {HOST_SLOTS})",
    )
    parser.add_argument(
        "--label",
        metavar="NAME=VALUE",
        type=label,
        action="append",
        default=[],
        help="label of this host, for runs that require it, e.g. gpu=yes (repeatable)",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="run in the background, with its log in server.log of the storage",
    )
    parser.add_argument("--no-notify", action="store_true", help="show no desktop notifications on this terminal")
    parser.add_argument("--examples", action="store_true", help="create a few example runs in an empty storage")
    return parser


def run(args: Namespace) -> int:
    """Serve until a signal stops the server, or start it in the background with `--detach`."""
    logging.basicConfig(level=logging.WARNING, format="shopfloor: %(message)s", stream=sys.stderr)
    return_freed_memory()
    storage = storage_from_args(args)
    workers = WorkerSettings.from_names(
        args.workers, plugins=args.plugins, slots=args.slots or slots_setting(), labels=dict(args.label)
    )
    if not args.host.strip():
        # The operating system would take an empty address for all addresses.
        raise UsageError("--host is empty", hint="name an address, e.g. 127.0.0.1; 0.0.0.0 is every address")
    port = _port() if args.port is None else args.port
    if args.detach:
        from shopfloor.cli.server_process import start_server
        from shopfloor.engine import WorkerCatalog, default_folders

        # Count first, so that a worker that cannot be loaded is reported before the server starts.
        folders = default_folders(storage.root, workers.folders)
        projects, plugins = open_projects(storage).all, partial(list_plugins, storage, workers.plugins)
        found = _count(WorkerCatalog(folders, workers.modules, projects=projects, plugins=plugins))
        arguments = [word for word in sys.argv[1:] if word != "--detach"]
        url = start_server(storage, arguments).link_url
        anyio.run(_print_link, storage, url)
        _print_rest(url, found, "`shopfloor down` stops the server")
        return 0
    if args.examples:
        make_example_runs(args)

    def on_started(address: Address, catalog: WorkerCatalog) -> None:
        # The server continues if its output is closed, as in `shopfloor up | head -1`.
        with contextlib.suppress(OSError):
            anyio.from_thread.run(_print_link, storage, address.link_url)
            _print_rest(address.url, _count(catalog), "Ctrl-C stops the server")
        # The loaded modules stay alive: freeze them, so that the garbage collector does not scan them again and again.
        restore_gc_thresholds()

    async def serve() -> None:
        await serve_storage(
            storage,
            host=args.host,
            port=port,
            workers=workers,
            allowed_hosts=tuple(args.allow_host),
            retention_seconds=args.keep,
            notify_seconds=None if args.no_notify or not sys.stdout.isatty() else desktop_min_seconds(),
            on_started=on_started,
        )
        schedule_exit_if_tasks_remain(0)

    anyio.run(serve, backend_options={"use_uvloop": True})
    return 0


async def _print_link(storage: Storage, url: str) -> None:
    code = await access_control(storage).make_login_code()
    print(f"Shopfloor is up: {url}/login?code={code}")
    print("  the link works once, within 15 minutes; `shopfloor login` prints another")
    print(f"  runs are stored in {storage.root}", flush=True)


def _print_rest(url: str, found: str, how_to_stop: str) -> None:
    print(f"  {found}")
    print(f"  the API is described at {url}/api/docs; {how_to_stop}", flush=True)


def slots_setting() -> int:
    """Return how many runs to execute at once, from the environment. Raises UsageError."""
    text = os.environ.get("SHOPFLOOR_SLOTS") or str(HOST_SLOTS)
    try:
        return slot_count(text)
    except ArgumentTypeError as error:
        raise UsageError(f"SHOPFLOOR_SLOTS {error}", hint=f"unset it, or set it to e.g. {HOST_SLOTS}") from None


def _port() -> int:
    text = os.environ.get("SHOPFLOOR_PORT") or str(SERVER_PORT)
    try:
        return port_number(text)
    except ArgumentTypeError as error:
        raise UsageError(f"SHOPFLOOR_PORT {error}", hint=f"unset it, or set it to e.g. {SERVER_PORT}") from None


def _count(catalog: WorkerCatalog) -> str:
    """Return the number of workers as text. Loads all of them."""
    workers = catalog.all()
    broken = sum(1 for worker in workers if worker.problems)
    usable = len(workers) - broken
    text = "1 worker found" if usable == 1 else f"{usable:,} workers found"
    return f"{text}; {broken:,} with errors: `shopfloor workers check` lists them" if broken else text


# The runs of `--examples`.

_COMMANDS = (
    "echo 'Hello from the shop floor'; uname -sm",
    "echo 'looking for what is not there' >&2; ls /no/such/folder",
)
_WORKERS: dict[str, dict[str, Any]] = {
    "hello": {"NAME": "Ada"},
    "repo-report": {},
    # No client executes its web search, so the run waits and can be answered.
    "research-assistant": {"TOPIC": "the history of tea"},
    # A plugin, if the server is started in a folder that has it.
    "word-count": {"task": "Tea was first drunk as a medicine, and became a drink much later."},
}


def make_example_runs(args: Namespace) -> None:
    """Record two commands, and dispatch workers for the server that is about to start. Do nothing if there are runs."""
    storage = storage_from_args(args)
    if next(storage.run_ids(), None) is not None:
        return
    _record_commands(storage)
    # They must not be dispatched to a server elsewhere.
    if not is_remote():
        run_with_client(args, _dispatch_workers)


async def _dispatch_workers(client: Client) -> None:
    known = {worker["slug"] for worker in (await client.api.get("/api/workers"))["workers"]}
    for worker, worker_input in _WORKERS.items():
        if worker not in known:
            continue
        body = {"worker": worker, "input": worker_input, "channel_id": "examples", "cwd": os.fspath(Path.cwd())}
        await client.api.post("/api/runs", body)


def _record_commands(storage: Storage) -> None:
    with local_command_ports(storage) as ports:
        for script in _COMMANDS:
            command = StepCommand(argv=shell_argv(script), cwd=os.fspath(Path.cwd()))
            request = CommandRequest(run_id=new_run_id(), command=command, host=ports.host)

            async def record(request: CommandRequest = request) -> None:
                await run_command(request, logs=ports.logs, processes=ports.processes, cancellation=Cancellation())

            anyio.run(record)
