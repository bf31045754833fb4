"""The plugins of this machine's folders, each with a process that is started on first use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from shopfloor.adapters.limits import PLUGIN_CONNECTIONS
from shopfloor.adapters.plugins.lease import PluginLease
from shopfloor.adapters.plugins.manifest import (
    MANIFEST_NAME,
    InvalidManifest,
    Manifest,
    access_problem,
    find_manifests,
    read_manifest,
)
from shopfloor.errors import PluginFailed, PluginNotFound, PluginUnavailable
from shopfloor.ports import (
    WORKER,
    JobItem,
    JobResult,
    JobState,
    JobStatus,
    PluginInfo,
    PluginStatus,
    PluginTool,
    Processes,
    ToolCallResult,
    ToolServerHandle,
    WorkerHandle,
)

if TYPE_CHECKING:
    import httpx

    from shopfloor.adapters.plugins.client import CallLimits, JsonRpcClient
    from shopfloor.adapters.plugins.supervisor import Supervisor

_log = logging.getLogger("shopfloor.plugins")
IsAllowed = Callable[[Path], bool]


def scan_plugins(folders: Iterable[Path], is_allowed: IsAllowed) -> list[tuple[PluginInfo, Manifest | None]]:
    """List the plugins of some `plugins/` folders. An unusable one has no manifest, and its reason in `error`."""
    found: dict[str, tuple[PluginInfo, Manifest | None]] = {}
    for folder in folders:
        for path in find_manifests(folder):
            info, manifest = scan_plugin(path, is_allowed)
            if manifest is not None and info.name in found:
                error = f"another plugin is named {info.name!r}: {found[info.name][0].folder}"
                info, manifest = PluginInfo(name=path.name, folder=str(path), status="error", error=error), None
            found.setdefault(info.name if manifest is not None else str(path), (info, manifest))
    return list(found.values())


def scan_plugin(path: Path, is_allowed: IsAllowed) -> tuple[PluginInfo, Manifest | None]:
    """Read one plugin. Without a manifest it cannot be used, and `error` says why."""
    try:
        manifest = read_manifest(path)
    except InvalidManifest as error:
        return PluginInfo(name=path.name, folder=str(path), status="error", error=str(error)), None
    info = PluginInfo(
        name=manifest.name,
        folder=str(path),
        status="stopped",
        display_name=manifest.display_name,
        description=manifest.description,
        version=manifest.version,
        capabilities=manifest.capabilities,
    )
    if (problem := access_problem(path)) is not None:
        return _refused(info, "error", problem), None
    if not is_allowed(path):
        return _refused(info, "not_allowed", f"run `shopfloor plugins allow {path}` once to allow it"), None
    return info, manifest


def _refused(info: PluginInfo, status: PluginStatus, error: str) -> PluginInfo:
    return msgspec.structs.replace(info, status=status, error=error)


class LocalPlugins:
    """Implements `Plugins` with a process for each plugin. Use `open_plugins`.

    `lease_folder` has the locks on the plugins. With `is_shared`, other processes use the plugins of this one.
    """

    def __init__(
        self,
        processes: Processes,
        folders: Callable[[], Iterable[Path]],
        is_allowed: IsAllowed,
        lease_folder: Path,
        *,
        is_shared: bool = False,
        limits: CallLimits | None = None,
    ) -> None:
        self._limits = limits
        self._processes = processes
        self._folders = folders
        self._is_allowed = is_allowed
        self._lease_folder = lease_folder
        self._is_shared = is_shared
        self._http: httpx.AsyncClient | None = None
        self._supervisors: dict[str, Supervisor] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def all(self) -> Sequence[PluginInfo]:
        """List the plugins, with the state of those that were started."""
        scanned = [info for info, _ in scan_plugins(self._folders(), self._is_allowed)]
        started = {supervisor.info.folder: supervisor.info for supervisor in list(self._supervisors.values())}
        return [started.get(info.folder, info) for info in scanned]

    def start_all(self) -> None:
        """Start every usable plugin in the background."""
        for info, manifest in scan_plugins(self._folders(), self._is_allowed):
            if manifest is not None:
                self._supervisor(info, manifest)

    async def worker(self, name: str) -> WorkerHandle:
        """Return the worker handle of a plugin. A plugin without the capability never receives `worker/*`."""
        info, manifest = self._find(name)
        if WORKER not in manifest.capabilities:
            raise PluginFailed(
                f"plugin {name} accepts no jobs", hint=f'its {MANIFEST_NAME} has no "capabilities": ["{WORKER}"]'
            )
        return _LocalWorkerHandle(self._supervisor(info, manifest))

    async def tool_server(self, name: str) -> ToolServerHandle:
        """Return the tools of a plugin."""
        return _LocalToolServerHandle(self._supervisor(*self._find(name)))

    def _find(self, name: str) -> tuple[PluginInfo, Manifest]:
        scanned = scan_plugins(self._folders(), self._is_allowed)
        named = [(info, manifest) for info, manifest in scanned if info.name == name]
        for info, manifest in named:
            if manifest is not None:
                return info, manifest
        if named:
            raise PluginUnavailable(f"plugin {name} cannot be used: {named[0][0].error}")
        names = ", ".join(sorted(info.name for info, _ in scanned)) or "none"
        raise PluginNotFound(f"there is no plugin {name!r}", hint=f"the plugins are: {names}")

    def _supervisor(self, info: PluginInfo, manifest: Manifest) -> Supervisor:
        supervisor = self._supervisors.get(manifest.name)
        if supervisor is None:
            # Imported here: a process that uses no plugin does not load an HTTP client.
            import httpx

            from shopfloor.adapters.plugins.client import DEFAULT_LIMITS
            from shopfloor.adapters.plugins.supervisor import Supervisor

            self._http = self._http or httpx.AsyncClient(
                trust_env=False, limits=httpx.Limits(max_connections=PLUGIN_CONNECTIONS)
            )
            folder = Path(info.folder)
            lease = PluginLease(self._lease_folder, folder, is_shared=self._is_shared)
            limits = self._limits or DEFAULT_LIMITS
            supervisor = Supervisor(folder, manifest, self._processes, self._http, lease, limits=limits)
            self._supervisors[manifest.name] = supervisor
            self._tasks.append(asyncio.create_task(_supervise(supervisor)))
        return supervisor

    async def close(self) -> None:
        """End the processes of the plugins."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()


async def _supervise(supervisor: Supervisor) -> None:
    try:
        await supervisor.run()
    except Exception:
        _log.exception("the supervisor of plugin %s failed", supervisor.info.name)
        raise


@asynccontextmanager
async def open_plugins(
    processes: Processes,
    folders: Callable[[], Iterable[Path]],
    is_allowed: IsAllowed,
    lease_folder: Path,
    *,
    is_shared: bool = False,
    limits: CallLimits | None = None,
) -> AsyncGenerator[LocalPlugins]:
    """Open the plugins of some folders. Leaving the context ends their processes."""
    plugins = LocalPlugins(processes, folders, is_allowed, lease_folder, is_shared=is_shared, limits=limits)
    try:
        yield plugins
    finally:
        with anyio.CancelScope(shield=True):
            await plugins.close()


class _LocalWorkerHandle:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def dispatch(self, description: str, task: str, config: dict[str, Any]) -> str:
        return await (await self._client()).dispatch_worker(description, task, config)

    async def list(self, *, pattern: str | None = None) -> Sequence[JobItem]:
        return await (await self._client()).list_workers(pattern)

    async def status(self, job_id: str) -> JobState:
        return await (await self._client()).worker_status(job_id)

    async def result(self, job_id: str) -> JobResult:
        return await (await self._client()).worker_result(job_id)

    async def cancel(self, job_id: str) -> JobStatus:
        return await (await self._client()).cancel_worker(job_id)

    async def delete(self, job_id: str) -> None:
        await (await self._client()).delete_worker(job_id)

    async def _client(self) -> JsonRpcClient:
        return await self._supervisor.client()


class _LocalToolServerHandle:
    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    async def list_tools(self) -> Sequence[PluginTool]:
        await self._supervisor.client()
        return self._supervisor.info.tools

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolCallResult:
        return await (await self._supervisor.client()).invoke_tool(name, arguments)
