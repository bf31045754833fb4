"""Run the server: `python -m tests.model_server --port 0 --script file.json --port-file port`."""

from __future__ import annotations

import argparse
import logging
import socket
from pathlib import Path

import msgspec
import uvicorn
from tests.model_server.script import Script
from tests.model_server.server import configuration


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.model_server")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--port-file", type=Path)
    args = parser.parse_args()
    script = msgspec.json.decode(args.script.read_bytes(), type=Script) if args.script else Script()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", args.port))
    listener.listen()
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    if args.port_file:
        # Renamed into place, so that a reader never sees half of the file.
        draft = args.port_file.with_suffix(".draft")
        draft.write_text(str(listener.getsockname()[1]))
        draft.rename(args.port_file)
    uvicorn.Server(configuration(script)).run(sockets=[listener])


if __name__ == "__main__":
    main()
