"""`python -m plugin --port 50000`: serve this plugin on 127.0.0.1. Exit code 2 means that the port is taken."""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
from importlib.util import find_spec
from typing import Any, cast

import uvicorn

from plugin.jobs import Job, JobStore
from plugin.memory import Memory
from plugin.server import create_app
from plugin.service import Params, Work, WorkerService
from plugin.settings import JOBS, MEMORY, ROOT

PORT_TAKEN = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="plugin", description="Serve this worker plugin on 127.0.0.1.")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    if find_spec("claude_agent_sdk") is None:
        sys.stderr.write("claude-agent-sdk is not installed: run `pip install claude-agent-sdk`\n")
        return 1
    # With the protocol named, asyncio sets TCP_NODELAY; without it each answer takes 40 ms longer.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(("127.0.0.1", port))
        # At once: until then another process can bind the same port.
        listening.listen()
    except OSError as error:
        sys.stderr.write(f"cannot listen on port {port}: {error.strerror}\n")
        return PORT_TAKEN
    asyncio.run(_serve(listening))
    return 0


async def _serve(listening: socket.socket) -> None:
    manifest = cast("dict[str, Any]", json.loads((ROOT / "guild-member.json").read_bytes()))
    jobs, memory = JobStore(JOBS), Memory(MEMORY)
    jobs.load()

    def session(job: Job, config: Params) -> Work:
        # Imported for the first job: loading the SDK takes a second or more, and the host waits five for this plugin.
        from plugin.agent import Session

        return Session(jobs, job, memory, config)

    def is_stopping() -> bool:
        return server.should_exit

    service = WorkerService(jobs, session, is_stopping)
    config = uvicorn.Config(
        create_app(service, manifest["name"], manifest["version"]),
        log_level="warning",
        access_log=False,
        lifespan="off",
    )
    server = uvicorn.Server(config)
    try:
        await server.serve(sockets=[listening])
    finally:
        await service.close()


if __name__ == "__main__":
    sys.exit(main())
