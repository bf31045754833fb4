"""`shopfloor up`: the server on this machine."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.from_thread

from shopfloor.cli.arguments import (
    WORKERS_OPTION,
    Parser,
    duration_seconds,
    port_number,
    positive_int,
    storage_from_args,
)
from shopfloor.cli.client_session import is_remote, run_with_client
from shopfloor.cli.main import restore_gc_thresholds
from shopfloor.cli.shutdown import schedule_exit_if_tasks_remain
from shopfloor.client import Client
from shopfloor.engine import Cancellation, CommandRequest, StepCommand, run_command, shell_argv
from shopfloor.errors import UsageError
from shopfloor.limits import HOST_SLOTS, MALLOC_ARENAS, MALLOC_MMAP_BYTES, SERVER_PORT
from shopfloor.log import new_run_id
from shopfloor.record import Storage
from shopfloor.wiring import WorkerSettings, access_control, local_command_ports, open_projects, serve_storage

if TYPE_CHECKING:
    from shopfloor.client import Address
    from shopfloor.engine import WorkerCatalog


_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def return_freed_memory() -> None:
    """Have glibc give the memory of large values back to the system as soon as they are freed.

    By default glibc raises its threshold to the size of the largest value freed so far, up to 32 MB. From then on
    values of that size lie between others in its arenas, one arena per thread, and hardly any of that memory is ever
    given back. Other C libraries have no `mallopt`; there nothing is changed.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, MALLOC_MMAP_BYTES)
        libc.mallopt(_M_ARENA_MAX, MALLOC_ARENAS)


_COMMANDS = (
    "echo 'Hello from the shop floor'; uname -sm",
    "echo 'looking for what is not there' >&2; ls /no/such/folder",
)
_WORKERS: dict[str, dict[str, Any]] = {
    "hello": {"NAME": "Ada"},
    "repo-report": {},
    # Nobody searches the web for it: it waits, and can be answered.
    "research-assistant": {"TOPIC": "the history of tea"},
}


def make_example_runs(args: Namespace) -> None:
    """Records a few, and asks for others that whoever serves next makes; unless the storage has runs already."""
    storage = storage_from_args(args)
    if next(storage.run_ids(), None) is not None:
        return
    _record_commands(storage)
    # They are for the server that is about to start, never for one somewhere else.
    if not is_remote():
        run_with_client(args, _dispatch_workers)


async def _dispatch_workers(client: Client) -> None:
    for worker, given in _WORKERS.items():
        order = {"worker": worker, "input": given, "channel_id": "examples", "cwd": os.fspath(Path.cwd())}
        await client.api.post("/api/runs", order)


def _record_commands(storage: Storage) -> None:
    with local_command_ports(storage) as shop:
        for script in _COMMANDS:
            command = StepCommand(argv=shell_argv(script), cwd=os.fspath(Path.cwd()))
            request = CommandRequest(run_id=new_run_id(), command=command, host=shop.host)

            async def record(request: CommandRequest = request) -> None:
                await run_command(request, logs=shop.logs, processes=shop.processes, cancellation=Cancellation())

            anyio.run(record)


EXAMPLES = """\
  shopfloor up                        serve on 127.0.0.1:7420; the first line is a link to log in
  shopfloor up --detach               the same in the background; `shopfloor down` stops it
  shopfloor up --port 8080            somewhere else
  shopfloor up --workers ~/team       with the workers of that folder too
  shopfloor up --keep 30d             delete what ended more than 30 days ago and is not pinned"""


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="the address to listen on")
    parser.add_argument(
        "--port",
        metavar="N",
        type=port_number,
        help=f"the port to listen on; 0: any free one (default: $SHOPFLOOR_PORT, or {SERVER_PORT})",
    )
    parser.add_argument(
        "--allow-host", metavar="NAME", action="append", default=[], help="a name by which the server may be asked for"
    )
    parser.add_argument(
        "--keep",
        metavar="TIME",
        type=duration_seconds,
        help="how long ended runs are kept, e.g. 30d (default: always); sub-runs go with the run that called them",
    )
    parser.add_argument("--workers", **WORKERS_OPTION)
    parser.add_argument(
        "--slots",
        metavar="N",
        type=positive_int,
        help=f"how many runs are worked on at once (default: $SHOPFLOOR_SLOTS, or {HOST_SLOTS})",
    )
    parser.add_argument(
        "--detach",
        action="store_true",
        help="serve in the background: return when the server answers; it writes to server.log in the storage folder",
    )
    parser.add_argument("--examples", action="store_true", help="make a few runs first, where there are none yet")
    return parser


def run(args: Namespace) -> int:
    logging.basicConfig(level=logging.WARNING, format="shopfloor: %(message)s", stream=sys.stderr)
    return_freed_memory()
    storage = storage_from_args(args)
    workers = WorkerSettings.from_names(args.workers, slots=args.slots or _slots())
    port = _port() if args.port is None else args.port
    if args.detach:
        from shopfloor.cli.server_process import start_server
        from shopfloor.engine import WorkerCatalog, default_folders

        # Counted first: a worker that cannot be loaded is reported before a server is started.
        folders = default_folders(storage.root, workers.folders)
        found = _count(WorkerCatalog(folders, workers.modules, projects=open_projects(storage).all))
        words = [word for word in sys.argv[1:] if word != "--detach"]
        url = start_server(storage, words).url
        anyio.run(_print_link, storage, url)
        _print_rest(url, found, "`shopfloor down` stops it")
        return 0
    if args.examples:
        from shopfloor.cli.up import make_example_runs

        make_example_runs(args)

    def started(address: Address, catalogue: WorkerCatalog) -> None:
        # The server goes on where nobody reads its output, as in `shopfloor up | head -1`.
        with contextlib.suppress(OSError):
            anyio.from_thread.run(_print_link, storage, address.url)
            _print_rest(address.url, _count(catalogue), "Ctrl-C stops")
        # What is loaded stays as long as the server: the garbage collector need not look through it time and again.
        restore_gc_thresholds()

    async def serve() -> None:
        await serve_storage(
            storage,
            host=args.host,
            port=port,
            workers=workers,
            allowed_hosts=tuple(args.allow_host),
            retention_seconds=args.keep,
            on_started=started,
        )
        schedule_exit_if_tasks_remain(0)

    anyio.run(serve, backend_options={"use_uvloop": True})
    return 0


async def _print_link(storage: Storage, url: str) -> None:
    code = await access_control(storage).make_login_code()
    print(f"Shopfloor is up: {url}/login?code={code}")
    print("  the link works once, within 15 minutes; `shopfloor login` prints another")
    print(f"  runs are kept in {storage.root}", flush=True)


def _print_rest(url: str, found: str, how_to_stop: str) -> None:
    print(f"  {found}")
    print(f"  the API is described at {url}/api/docs; {how_to_stop}", flush=True)


def _slots() -> int:
    said = os.environ.get("SHOPFLOOR_SLOTS") or str(HOST_SLOTS)
    try:
        return positive_int(said)
    except (ValueError, ArgumentTypeError):
        raise UsageError(f"SHOPFLOOR_SLOTS is {said!r}, not a number of runs", hint="unset it, or say e.g. 8") from None


def _port() -> int:
    text = os.environ.get("SHOPFLOOR_PORT") or str(SERVER_PORT)
    try:
        return port_number(text)
    except ArgumentTypeError:
        hint = f"unset it, or set e.g. {SERVER_PORT}"
        raise UsageError(f"SHOPFLOOR_PORT is {text!r}, not a port", hint=hint) from None


def _count(catalogue: WorkerCatalog) -> str:
    """Say how many workers there are. Reads all of them."""
    found = catalogue.all()
    broken = sum(1 for worker in found if worker.problems)
    sound = len(found) - broken
    said = f"{sound:,} workers can be run" if sound != 1 else "1 worker can be run"
    return f"{said}; {broken:,} cannot: `shopfloor workers check` says why" if broken else said
