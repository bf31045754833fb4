"""The process of one plugin: started on a free port, ready after the handshake, restarted after a crash."""

from __future__ import annotations

import random
import secrets
import socket
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import anyio
import httpx

from shopfloor.adapters.limits import (
    PLUGIN_LEASE_SECONDS,
    PLUGIN_OUTPUT_LINES,
    PLUGIN_POLL_SECONDS,
    PLUGIN_PORT_TRIES,
    PLUGIN_PORTS,
    PLUGIN_RESTART_MAX_SECONDS,
    PLUGIN_RESTART_SECONDS,
)
from shopfloor.adapters.plugins.client import DEFAULT_LIMITS, CallLimits, JsonRpcClient
from shopfloor.adapters.plugins.lease import PluginAddress, PluginLease
from shopfloor.adapters.plugins.manifest import Manifest
from shopfloor.errors import PluginFailed, PluginUnavailable, ShopfloorError, sole_error
from shopfloor.limits import PLUGIN_RESTART_WAIT_SECONDS
from shopfloor.ports import Child, Command, Exit, PluginInfo, PluginStatus, PluginTool, Processes

SECRET_VARIABLE = "SHOPFLOOR_PLUGIN_SECRET"  # noqa: S105 - the name of a variable
PORT_TAKEN = 2
"""The exit code of a plugin whose port is in use."""


class _PortTaken(Exception):
    """Another process has the port."""


class Supervisor:
    """Keeps one plugin running. `run` does the work; the other methods are for callers of the plugin."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        processes: Processes,
        http: httpx.AsyncClient,
        lease: PluginLease,
        *,
        limits: CallLimits = DEFAULT_LIMITS,
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._processes = processes
        self._http = http
        self._lease = lease
        self._limits = limits
        self._status: PluginStatus = "stopped"
        self._error: str | None = None
        self._tools: Sequence[PluginTool] = ()
        self._client: JsonRpcClient | None = None
        self._changed = anyio.Event()
        self._output: deque[str] = deque(maxlen=PLUGIN_OUTPUT_LINES)

    @property
    def info(self) -> PluginInfo:
        """The plugin as lists show it."""
        manifest = self._manifest
        return PluginInfo(
            name=manifest.name,
            folder=str(self._folder),
            status=self._status,
            display_name=manifest.display_name,
            description=manifest.description,
            version=manifest.version,
            capabilities=manifest.capabilities,
            error=self._error,
            tools=tuple(self._tools),
        )

    async def client(self) -> JsonRpcClient:
        """Return the client once the plugin is ready. Raises `PluginUnavailable` if it cannot be started in time."""
        with anyio.move_on_after(PLUGIN_RESTART_WAIT_SECONDS):
            while self._client is None and self._status != "error":
                await self._changed.wait()
        if self._client is None:
            raise PluginUnavailable(
                f"plugin {self._manifest.name} is not running: {self._error or 'it is still starting'}",
                hint="`shopfloor plugins` shows its state; it is started again by itself",
            )
        return self._client

    async def run(self) -> None:
        """Start the plugin and keep it running until cancelled. A crash is followed by a restart with backoff.

        While another process runs the plugin, use the plugin of that process.
        """
        try:
            await self._run_forever()
        finally:
            self._lease.release()

    async def _run_forever(self) -> None:
        pause = PLUGIN_RESTART_SECONDS
        while True:
            self._set("starting")
            try:
                await self._use_other_process()
                reason = await self._run_once()
                self._lease.withdraw(reason)
            except Exception as error:  # noqa: BLE001 - for example a full disk: the next start tries again
                failure = sole_error(error)
                reason = (
                    failure.message if isinstance(failure, ShopfloorError) else f"{type(failure).__name__}: {failure}"
                )
            if self._client is not None:
                pause = PLUGIN_RESTART_SECONDS
            self._client = None
            self._set("error", reason)
            await anyio.sleep(pause)
            pause = min(pause * 2, PLUGIN_RESTART_MAX_SECONDS)

    async def _use_other_process(self) -> None:
        """Use the plugin that another process runs, until that process gives it up."""
        address: PluginAddress | None = None
        while not self._lease.try_acquire():
            published = self._lease.published_address()
            if published is None:
                address, self._client = None, None
                self._set("error", "another process runs it, and only a server (`shopfloor up`) shares its plugins")
            elif not published.url:
                address, self._client = None, None
                self._set("starting" if published.error is None else "error", published.error)
            elif published != address:
                client = JsonRpcClient(self._http, self._manifest.name, published.url, published.secret, self._limits)
                try:
                    await self._handshake(client)
                    address = published
                except ShopfloorError as error:
                    address, self._client = None, None
                    self._set("error", error.message)
            await anyio.sleep(PLUGIN_LEASE_SECONDS)
        self._client = None
        self._set("starting")

    async def _handshake(self, client: JsonRpcClient) -> None:
        """Make the client available once the plugin has answered."""
        await client.initialize()
        self._tools = await client.list_tools()
        self._client = client
        self._set("ready")

    async def _run_once(self) -> str:
        """Run the process once, on the first port that is free. Return why it ended."""
        for port in random.sample(PLUGIN_PORTS, PLUGIN_PORT_TRIES):
            if _is_taken(port):
                # Otherwise the handshake could reach the other program, before the plugin finds the port taken.
                continue
            try:
                return await self._run_on(port)
            except _PortTaken:
                continue
        # Exit code 2 has other causes, too, such as a missing script: the output tells.
        return f"no free port in {PLUGIN_PORT_TRIES} tries; {self._describe(Exit(PORT_TAKEN))}"

    async def _run_on(self, port: int) -> str:
        secret = secrets.token_urlsafe(32)
        command = Command(
            argv=self._manifest.mcp.argv(port, sys.executable),
            cwd=str(self._folder),
            env={**self._manifest.mcp.environment(port, sys.executable), SECRET_VARIABLE: secret},
        )
        client = JsonRpcClient(self._http, self._manifest.name, f"http://127.0.0.1:{port}/mcp", secret, self._limits)
        self._output.clear()
        ended = Exit(0)
        async with self._processes.start(command, run_id=None) as child, anyio.create_task_group() as tasks:
            child.release()
            tasks.start_soon(self._read_output, child)
            tasks.start_soon(self._wait_until_ready, client, child)
            ended = await child.wait()
            tasks.cancel_scope.cancel()
        if ended.code == PORT_TAKEN and ended.signal is None and self._client is None:
            raise _PortTaken
        return self._describe(ended)

    async def _wait_until_ready(self, client: JsonRpcClient, child: Child) -> None:
        """Do the handshake, and make the client available. Kill a process that is not ready in time."""
        failure = "no answer"
        with anyio.move_on_after(self._limits.ready_seconds):
            while True:
                try:
                    await self._handshake(client)
                except PluginUnavailable as error:
                    failure = error.message
                    await anyio.sleep(PLUGIN_POLL_SECONDS)
                except PluginFailed as error:
                    failure = error.message
                    break
                else:
                    self._lease.publish(PluginAddress(client.url, client.secret))
                    return
        self._output.append(f"the initialize handshake failed: {failure}")
        await child.kill()

    async def _read_output(self, child: Child) -> None:
        rest = b""
        while (chunk := await child.read()) is not None:
            *lines, rest = (rest + chunk.data[-4096:]).split(b"\n")
            self._output.extend(line.decode(errors="replace").strip()[:500] for line in lines if line.strip())
            rest = rest[-4096:]
        if rest.strip():
            self._output.append(rest.decode(errors="replace").strip()[:500])

    def _describe(self, ended: Exit) -> str:
        how = f"killed by {ended.signal}" if ended.signal is not None else f"ended with exit code {ended.code}"
        return f"{how}: {self._output[-1]}" if self._output else how

    def _set(self, status: PluginStatus, error: str | None = None) -> None:
        self._status, self._error = status, error
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


def _is_taken(port: int) -> bool:
    """Return whether another program listens at this port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
