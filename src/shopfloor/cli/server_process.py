"""The server of a storage as a background process: start it, offer to start it, stop it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shopfloor.cli import pending_calls
from shopfloor.cli.arguments import storage_from_args
from shopfloor.cli.limits import SERVER_DOWN_SECONDS, SERVER_POLL_SECONDS, SERVER_START_SECONDS
from shopfloor.client import Address, find_storage_server, server_from_environment
from shopfloor.error_factories import storage_error
from shopfloor.errors import ConflictError, ServerRunning, ServerUnreachable
from shopfloor.record import Storage, is_locked, make_folder, open_for_append

UP_COMMAND = "shopfloor up --detach"


def start_server(storage: Storage, words: Sequence[str], env: Mapping[str, str] | None = None) -> Address:
    """Start `shopfloor` with these arguments in a new process session; return its address when it listens.

    Its standard error goes to `server.log`. Raises `ServerUnreachable`, with the reason, if the process ends before it
    listens or does not listen in time.
    """
    running = find_storage_server(storage)
    if running is not None:
        raise ServerRunning(
            f"a server is already running on {storage.root}",
            hint=f"its address is {running.url}; `shopfloor login` prints a link to log in",
        )
    log = _open_log(storage)
    try:
        process = subprocess.Popen(
            # Without -P, a folder `shopfloor` in the current folder would be imported as the program.
            [sys.executable, "-P", "-m", "shopfloor", *words],
            stdin=subprocess.DEVNULL,
            # The first lines have a login link, which must not be written to a file.
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            env=env,
        )
    finally:
        os.close(log)
    try:
        _wait_until(lambda: process.poll() is not None or _address(storage, process.pid), SERVER_START_SECONDS)
        address = _address(storage, process.pid)
    except BaseException:
        process.terminate()
        raise
    if address is None:
        process.terminate()
        raise _not_started(storage)
    return address


def ensure_server(storage: Storage, words: Sequence[str], env: Mapping[str, str]) -> Address:
    """Return the address of the server to use; start one in the background if none is running.

    If the default port is taken, the server gets a free one. Raises `ServerUnreachable`, with the reason, if the server
    does not start.
    """
    address = _wait_for_starting(storage)
    if address is not None:
        return address
    for arguments in (words, [*words, "--port", "0"]):
        try:
            return start_server(storage, arguments, env)
        except (ServerRunning, ServerUnreachable) as error:
            # Another process may have started one at the same time.
            address, failure = _wait_for_starting(storage), error
            if address is not None:
                return address
    raise failure


def _wait_for_starting(storage: Storage) -> Address | None:
    """Return the address of the server; wait for it if the server is starting."""
    if (address := server_from_environment()) is not None:
        return address
    _wait_until(lambda: find_storage_server(storage) or not is_locked(storage.server_lock), SERVER_START_SECONDS)
    return find_storage_server(storage)


def offer_server(args: Namespace) -> bool:
    """Ask the user whether to start a server; return True if it was started. Without a terminal, return False."""
    if args.quiet or not pending_calls.is_interactive():
        return False
    print("shopfloor: no server is running; start one now? [Y/n] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("", "y", "yes"):
        return False
    storage = storage_from_args(args)
    options = [word for source in args.workers for word in ("--workers", source)]
    options += [word for folder in args.plugins for word in ("--plugins", folder)]
    address = start_server(storage, ["up", "--storage", str(storage.root), *options])
    print(f"shopfloor: started a server at {address.url}; `shopfloor down` stops it", file=sys.stderr)
    return True


def stop_server(storage: Storage) -> str | None:
    """Stop the server of a storage and wait for its end; return its URL, or None if no server is running."""
    address = find_storage_server(storage)
    if address is None:
        if is_locked(storage.server_lock):
            raise ConflictError("a server is starting", hint="try again in a moment")
        return None
    if address.pid is None or not _has_open(address.pid, storage.server_lock):
        raise ConflictError(
            f"cannot stop the server at {address.url}: it is part of another program or on another machine",
            hint="stop that program",
        )
    os.kill(address.pid, signal.SIGTERM)
    if not _wait_until(lambda: not is_locked(storage.server_lock), SERVER_DOWN_SECONDS):
        raise ServerRunning(
            f"the server at {address.url} was asked to stop and is still running (process {address.pid})",
            hint=f"see {storage.server_log}",
        )
    return address.url


def _open_log(storage: Storage) -> int:
    make_folder(storage.root)
    try:
        log = open_for_append(storage.server_log)
        if not is_locked(storage.server_lock):
            # The log has only the output of the newest server.
            os.ftruncate(log, 0)
    except OSError as error:
        raise storage_error(error, f"cannot write {storage.server_log}") from error
    return log


def _address(storage: Storage, pid: int) -> Address | None:
    """Return the address of the server with this process id, not of a server that started at the same time."""
    address = find_storage_server(storage)
    return address if address is not None and address.pid == pid else None


def _not_started(storage: Storage) -> ServerUnreachable:
    lines = storage.server_log.read_text(errors="replace").splitlines()
    errors = [line.partition(": ")[2] for line in lines if line.startswith("error[")]
    hints = [line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")]
    reason = errors[-1] if errors else f"it was not ready within {SERVER_START_SECONDS:g} s"
    return ServerUnreachable(
        f"the server did not start: {reason}", hint=hints[-1] if errors and hints else f"see {storage.server_log}"
    )


def _has_open(pid: int, path: Path) -> bool:
    """Return whether the process has the file open. The process id alone may belong to another process by now."""
    if not Path("/proc/self/fd").exists():
        return True
    try:
        links = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    return any(_target(link) == path.resolve() for link in links)


def _target(link: Path) -> Path | None:
    """Return the target of a link; None if the file was closed meanwhile."""
    try:
        return link.readlink()
    except OSError:
        return None


def _wait_until(condition: Callable[[], object], timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(SERVER_POLL_SECONDS)
    return True
