"""The plugins of this machine: their folders, and the conformance test."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from shopfloor.errors import ConflictError, PluginUnavailable, UsageError
from shopfloor.record import Storage
from shopfloor.wiring.storage import open_projects

if TYPE_CHECKING:
    from shopfloor.adapters.plugins import CheckResult
    from shopfloor.ports import PluginInfo, Plugins, Processes

PLUGINS = "plugins"
_NOT_COPIED = ("jobs", "memory", "__pycache__", ".pytest_cache")


def plugin_folders(storage: Storage, named: Sequence[Path] = ()) -> list[Path]:
    """List the folders of plugins: the named ones, the user's own, those of this folder and of the projects."""
    projects = [Path(project.folder) / PLUGINS for project in open_projects(storage).all()]
    folders = [*named, _user_folder(), Path.cwd() / PLUGINS, *projects]
    return list(dict.fromkeys(folder.resolve() for folder in folders))


def list_plugins(storage: Storage, named: Sequence[Path] = ()) -> list[PluginInfo]:
    """List the plugins. None is started."""
    from shopfloor.adapters.plugins import scan_plugins

    return [info for info, _ in scan_plugins(plugin_folders(storage, named), _is_allowed(storage, named))]


@asynccontextmanager
async def local_plugins(
    storage: Storage, processes: Processes, named: Sequence[Path] = (), *, is_shared: bool = False
) -> AsyncGenerator[Plugins]:
    """Yield the plugins of this machine. With `is_shared`, other processes of the storage use those of this one."""
    from shopfloor.adapters.plugins import open_plugins

    folders, leases = partial(plugin_folders, storage, named), _lease_folder(storage)
    async with open_plugins(processes, folders, _is_allowed(storage, named), leases, is_shared=is_shared) as plugins:
        yield plugins


@asynccontextmanager
async def own_plugins(storage: Storage) -> AsyncGenerator[Plugins]:
    """Yield the plugins of this machine, for a process without an engine."""
    from shopfloor.adapters.local import LocalHost, LocalProcesses

    with LocalHost(storage, dedicated=True) as host:
        async with local_plugins(storage, LocalProcesses(host)) as plugins:
            yield plugins


def _is_allowed(storage: Storage, named: Sequence[Path]) -> Callable[[Path], bool]:
    from shopfloor.adapters.plugins import Allowances

    allowances, own = Allowances(storage), [folder.resolve() for folder in (*named, _user_folder())]

    def is_allowed(folder: Path) -> bool:
        return any(folder.resolve().is_relative_to(each) for each in own) or allowances.contains(folder)

    return is_allowed


def _lease_folder(storage: Storage) -> Path:
    return storage.root / PLUGINS


def allow_plugin(storage: Storage, folder: Path) -> PluginInfo:
    """Allow a plugin to be started, and return it. Raises `UsageError` for a folder that is no usable plugin."""
    from shopfloor.adapters.plugins import MANIFEST_NAME, Allowances, scan_plugin

    if not (folder / MANIFEST_NAME).is_file():
        raise UsageError(f"{folder} is not a plugin: it has no {MANIFEST_NAME}", hint="name the folder of the plugin")
    info, manifest = scan_plugin(folder, lambda _: True)
    if manifest is None:
        raise UsageError(f"plugin {info.name} cannot be used: {info.error}")
    Allowances(storage).add(folder)
    return info


def plugin_templates() -> dict[str, Path]:
    """Return the plugins that come with Shopfloor, by name."""
    installed = Path(__file__).parents[1] / "plugin_templates"
    root = installed if installed.is_dir() else Path(__file__).parents[3] / PLUGINS
    return {path.name: path for path in sorted(root.iterdir()) if (path / "guild-member.json").is_file()}


def create_plugin(folder: Path, name: str, template: Path) -> Path:
    """Copy a template under another name, and return the new folder."""
    from shopfloor.adapters.plugins import MANIFEST_NAME, is_plugin_name

    if not is_plugin_name(name):
        raise UsageError(f"{name!r} is not a plugin name", hint="use lower-case letters, digits and `-`")
    created = folder / name
    if created.exists():
        raise ConflictError(f"{created} exists already", hint="choose another name, or delete it")
    folder.mkdir(parents=True, exist_ok=True, mode=0o755)
    shutil.copytree(template, created, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    for path in (folder, created):
        path.chmod(path.stat().st_mode & ~0o022)
    manifest = created / MANIFEST_NAME
    title = name.replace("-", " ").capitalize()
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(
        text.replace(f'"name": "{template.name}"', f'"name": "{name}"', 1).replace(
            f'"displayName": "{_display_name(text)}"', f'"displayName": "{title}"', 1
        ),
        encoding="utf-8",
    )
    return created


async def check_plugin(storage: Storage, folder: Path, task: str) -> AsyncGenerator[CheckResult]:
    """Start the plugin of a folder and yield the result of each check of the protocol."""
    from shopfloor.adapters.local import LocalHost, LocalProcesses
    from shopfloor.adapters.plugins import CheckResult, InvalidManifest, PluginLease, open_conformance, read_manifest

    try:
        manifest = read_manifest(folder)
    except InvalidManifest as error:
        yield CheckResult(name="the manifest is valid", passed=False, detail=str(error))
        return
    yield CheckResult(name="the manifest is valid", passed=True)
    host = LocalHost(storage)
    lease = PluginLease(_lease_folder(storage), folder, is_shared=False)
    try:
        async with open_conformance(LocalProcesses(host), folder, manifest, lease, task=task) as conformance:
            try:
                await conformance.start()
            except PluginUnavailable as error:
                yield CheckResult(name="the plugin starts and answers initialize", passed=False, detail=error.message)
                return
            yield CheckResult(name="the plugin starts and answers initialize", passed=True)
            async with aclosing(conformance.run()) as results:
                async for result in results:
                    yield result
    finally:
        host.close()


def _user_folder() -> Path:
    import platformdirs

    return Path(platformdirs.user_data_dir("shopfloor", appauthor=False)) / PLUGINS


def _display_name(manifest: str) -> str:
    return manifest.partition('"displayName": "')[2].partition('"')[0]
