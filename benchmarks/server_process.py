"""A real server for the benchmarks: `shopfloor up` in a separate process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from urllib.parse import urlsplit

import msgspec

from shopfloor.client import Address
from shopfloor.record import Storage

_TIMEOUT_SECONDS = 60.0


@contextmanager
def running_server(storage: Storage, *words: str) -> Iterator[Address]:
    """Run the server of a storage on a free port, with these options, until the block ends."""
    command = [sys.executable, "-m", "shopfloor", "up", "--port", "0", "--storage", str(storage.root), *words]
    with terminate_on_exit(subprocess.Popen(command, stdout=subprocess.DEVNULL)) as process:
        deadline = monotonic() + _TIMEOUT_SECONDS
        # Read the address from the storage: the environment may name another server.
        while not storage.server_address.exists() or not (address_json := storage.server_address.read_bytes()):
            if process.poll() is not None or monotonic() > deadline:
                raise RuntimeError(f"the server did not start: exit code {process.poll()}")
            sleep(0.05)
        yield msgspec.json.decode(address_json, type=Address)


@contextmanager
def terminate_on_exit(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """End the process when the block ends, also after an exception."""
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def port_of(address: Address) -> int:
    port = urlsplit(address.url).port
    if port is None:
        raise RuntimeError(f"{address.url} names no port")
    return port
