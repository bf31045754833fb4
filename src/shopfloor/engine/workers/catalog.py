"""The catalog of workers: in folders, in modules, and in installed packages."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import msgspec

from shopfloor.engine.workers.definition import (
    PROMPTS_FOLDER,
    WORKER_FILE,
    Agent,
    Definition,
    StartThread,
    definition_hash,
    is_slug,
)
from shopfloor.engine.workers.imports import load_file, load_module
from shopfloor.engine.workers.plugin_workers import plugin_definition, plugin_problems
from shopfloor.engine.workers.problems import Problem, closest, invalid_worker, walk_steps
from shopfloor.engine.workers.provider_workers import DEFAULT_MODELS
from shopfloor.engine.workers.python import PythonWorker
from shopfloor.engine.workers.templating import placeholders
from shopfloor.error_factories import missing_working_directory
from shopfloor.errors import AmbiguousWorker, InvalidWorker, PluginUnavailable, ShopfloorError, WorkerNotFound
from shopfloor.limits import MTIME_SETTLE_SECONDS
from shopfloor.ports import PluginInfo, Project

PYTHON_FILE = "worker.py"
WORKERS_FOLDER = "workers"
"""The subfolder of a project that contains its workers."""
ENTRY_POINTS = "shopfloor.workers"
EXAMPLE_WORKERS = Path(__file__).parents[2] / "examples" / "workers"
"""Workers that are packaged with Shopfloor."""

BUILTIN = "builtin"
PLUGIN = "plugin"
Fingerprint = tuple[tuple[str, int, int], ...]
"""Path, modification time and size of a worker's folder, of the files in it, and of its folder of prompts."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker in the catalog, valid or not."""

    definition: Definition
    """If the worker has problems: as much as could be read, at least the slug."""
    function: Callable[..., Any] | None = None
    """The function of a worker in Python."""
    folder: Path | None = None
    origin: str
    """Where the worker comes from, for display."""
    problems: tuple[Problem, ...] = ()
    worker_type: str = BUILTIN
    """`builtin`, `plugin`, or the name of the provider for a provider worker."""
    project: Project | None = None
    """The project of the worker; None if the worker is not from a project."""
    reference: str = ""
    """The name for callers: the slug, or `<project>/<slug>` if the slug is ambiguous."""
    as_data: Any = None
    """The definition as recorded in a run's log."""
    hash: str = ""
    """Hash of the definition."""
    providers: tuple[str, ...] = ()
    """The providers that the worker uses, as far as its definition names them."""

    @property
    def absolute_origin(self) -> str:
        """The origin, as an absolute path for a Python file: the same in every working directory."""
        return str(Path(self.origin).expanduser().absolute()) if self.origin.endswith(".py") else self.origin

    @property
    def is_plugin(self) -> bool:
        """Whether a plugin does the work."""
        return self.worker_type == PLUGIN

    def __post_init__(self) -> None:
        # Computed once here, not for every run.
        msgspec.structs.force_setattr(self, "as_data", msgspec.to_builtins(self.definition))
        msgspec.structs.force_setattr(self, "hash", definition_hash(self.definition))
        msgspec.structs.force_setattr(self, "providers", tuple(_used_providers(self)))
        if not self.reference:
            msgspec.structs.force_setattr(self, "reference", self.definition.slug)


def _used_providers(worker: Worker) -> list[str]:
    """Return the providers of agents, models and a provider worker. One that an input names is not known yet."""
    found = {worker.worker_type} & DEFAULT_MODELS.keys()
    for _, step in walk_steps(worker.definition.steps):
        if isinstance(step, Agent):
            found |= set() if placeholders(step.provider) else {step.provider}
        elif isinstance(step, StartThread):
            found |= {step.model.partition("/")[0]} & DEFAULT_MODELS.keys()
    return sorted(found)


def default_folders(storage_root: Path, extra: Sequence[Path] = ()) -> list[Path]:
    """Return the folders to search for workers; the first folder that has a slug wins."""
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise missing_working_directory() from error
    return [*extra, here / WORKERS_FOLDER, storage_root.parent / WORKERS_FOLDER, EXAMPLE_WORKERS]


class WorkerCatalog:
    """Lookup of workers by slug. A folder that has changed is read again on the next lookup.

    `modules` are names of modules or Python files that the user named: their workers come first, and a module that
    cannot be loaded raises at once. `provider_workers` pass a task directly to a provider: they can be run, and are
    listed separately. Workers of `projects` come after those of the folders and before the packaged ones; a slug that
    several projects have must be written as `<project>/<slug>`. `plugins` lists the plugins without starting any: those
    that accept jobs are workers, too.

    The catalog may be used by several threads at once: two threads that read the same folder get equal workers.
    `load_code` is the only method that determines in which thread the code of workers in Python is executed.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        modules: Sequence[str] = (),
        provider_workers: Sequence[Definition] = (),
        *,
        projects: Callable[[], Sequence[Project]] = tuple,
        plugins: Callable[[], Sequence[PluginInfo]] = tuple,
    ) -> None:
        self._folders = [folder for folder in dict.fromkeys(folders) if folder != EXAMPLE_WORKERS]
        self._packaged_folders = [EXAMPLE_WORKERS] if EXAMPLE_WORKERS in folders else []
        self._projects = projects
        self._plugins = plugins
        self._modules = list(modules)
        self._provider_workers = {
            definition.slug: Worker(
                definition=definition, origin=f"provider {definition.slug}", worker_type=definition.slug
            )
            for definition in provider_workers
        }
        self._cache: dict[str, _CachedWorkers] = {}
        self._by_module = {
            name: _workers_in_module(load_module(name), name) for name in modules if not name.endswith(".py")
        }
        self._by_project: dict[tuple[Project, str], tuple[tuple[Worker, ...], tuple[Worker, ...]]] = {}
        """The workers of projects, with the workers of the folder from which they were made."""
        self._installed: list[Worker] | None = None
        self._last_found: dict[str, Worker] = {}
        """The workers found last, by slug."""
        for name in self._modules:
            self._module_workers(name)

    def get(self, slug: str, *, preferred_folder: str | None = None) -> Worker:
        """Return the worker with this slug, or this project and slug. Among projects, prefer `preferred_folder`.

        Raises `WorkerNotFound`, `AmbiguousWorker`, or `InvalidWorker` if the worker has problems.
        """
        found = self.find(slug, preferred_folder=preferred_folder)
        if found is None:
            slugs = [worker.reference for worker in self.all()]
            close = closest(slug, slugs)
            available = (
                f"available workers: {', '.join(slugs)}"
                if slugs
                else "there are no workers yet; create one with `shopfloor workers new`"
            )
            # Name the folders for users whose worker is in another folder. A misspelled slug has nothing to do with
            # folders.
            searched = [str(folder) for folder in self._folders if folder.is_dir()]
            where = f"; looked in {', '.join(searched)}" if searched else ""
            raise WorkerNotFound(
                f"there is no worker `{slug}`",
                hint=f"did you mean `{close}`? {available}" if close else available + where,
            )
        if found.problems and found.is_plugin:
            raise PluginUnavailable(f"the plugin `{slug}` cannot be used: {found.problems[0].reason}")
        if found.problems:
            raise invalid_worker(list(found.problems), found.folder or Path(found.origin))
        return found

    def get_cached(self, slug: str, definition_hash: str) -> Worker | None:
        """Return the worker that was found last for this slug, if it has this hash. Reads no file."""
        found = self._last_found.get(slug)
        return found if found is not None and found.hash == definition_hash else None

    def find(self, slug: str, *, preferred_folder: str | None = None) -> Worker | None:
        """Return the worker, valid or not, or None. Raises `AmbiguousWorker`."""
        found = self.find_all(slug)
        if len(found) > 1:
            found = [
                worker for worker in found if worker.project and worker.project.folder == preferred_folder
            ] or found
        if len(found) > 1:
            names = ", ".join(f"{worker.project.name}/{slug}" for worker in found if worker.project)
            raise AmbiguousWorker(f"several projects have a worker `{slug}`", hint=f"use one of {names}")
        return found[0] if found else None

    def find_all(self, slug: str) -> list[Worker]:
        """Return the workers that a slug can refer to: more than one if several projects have the slug."""
        found = self._find_all(slug)
        for worker in found:
            if not worker.problems:
                self._last_found[worker.definition.slug] = worker
        return found

    def find_everywhere(self, slug: str) -> list[Worker]:
        """Return all workers with this slug, including those of projects that need `<project>/<slug>`."""
        found = {worker.origin: worker for worker in self.find_all(slug)}
        for project in self._projects() if is_slug(slug) else ():
            for worker in self._project_workers(project, slug):
                found.setdefault(worker.origin, worker)
        return list(found.values())

    def projects(self) -> Sequence[Project]:
        return self._projects()

    def _find_all(self, slug: str) -> list[Worker]:
        project, separator, inner = slug.rpartition("/")
        if separator:
            return [
                worker
                for known in self._projects()
                if known.name == project and is_slug(inner)
                for worker in self._project_workers(known, inner)
            ]
        for name in self._modules:
            for worker in self._module_workers(name):
                if worker.definition.slug == slug:
                    return [worker]
        if is_slug(slug):
            for folder in self._folders:
                if found := self._folder_workers(f"{folder}/{slug}"):
                    return list(found)
            if found := [worker for known in self._projects() for worker in self._project_workers(known, slug)]:
                return found
            for folder in self._packaged_folders:
                if found := self._folder_workers(f"{folder}/{slug}"):
                    return list(found)
        others = [worker for worker in self._installed_workers() if worker.definition.slug == slug]
        others = others or [_plugin_worker(plugin) for plugin in self._worker_plugins() if plugin.name == slug]
        return others[:1] or [worker for worker in (self._provider_workers.get(slug),) if worker]

    def all(self) -> list[Worker]:
        """Return all workers, valid or not, sorted by their references."""
        found: dict[str, Worker] = {}
        for worker in self._all_workers():
            slug = worker.definition.slug
            if worker.project is None or [match.folder for match in self.find_all(slug)] == [worker.folder]:
                found.setdefault(slug, worker)
            else:
                name = f"{worker.project.name}/{slug}"
                found[name] = msgspec.structs.replace(worker, reference=name)
        return [found[name] for name in sorted(found)]

    def provider_workers(self) -> list[Worker]:
        """Return the provider workers that are not hidden by a worker with the same slug."""
        return [worker for slug, worker in self._provider_workers.items() if self.find(slug) is worker]

    def load_code(self) -> None:
        """Load the workers in Python. Objects that their modules create belong to the caller's thread."""
        projects = [Path(project.folder) / WORKERS_FOLDER for project in self._projects()]
        for folder in (*self._folders, *projects, *self._packaged_folders):
            for inside in _subfolders(folder):
                if not (inside / WORKER_FILE).exists():
                    self._folder_workers(str(inside))
        self._installed_workers()

    def _all_workers(self) -> Iterator[Worker]:
        for name in self._modules:
            yield from self._module_workers(name)
        for folder in self._folders:
            for inside in _subfolders(folder):
                yield from self._folder_workers(str(inside))
        for project in self._projects():
            for inside in _subfolders(Path(project.folder) / WORKERS_FOLDER):
                yield from self._project_workers(project, inside.name)
        for folder in self._packaged_folders:
            for inside in _subfolders(folder):
                yield from self._folder_workers(str(inside))
        yield from self._installed_workers()
        # A plugin that the user has not allowed is no worker yet.
        yield from (_plugin_worker(plugin) for plugin in self._worker_plugins() if plugin.status != "not_allowed")

    def _worker_plugins(self) -> list[PluginInfo]:
        """Return the plugins that accept jobs, those that can be used first."""
        return sorted((plugin for plugin in self._plugins() if plugin.is_worker), key=lambda plugin: bool(plugin.error))

    def _module_workers(self, name: str) -> tuple[Worker, ...]:
        if name in self._by_module:
            return self._by_module[name]
        path = Path(name).expanduser().absolute()
        return self._read_if_changed(str(path), lambda: self._file_workers(path, name))

    def _file_workers(self, path: Path, name: str) -> tuple[Worker, ...]:
        try:
            return _workers_in_module(load_file(path), name)
        except InvalidWorker as error:
            if str(path) not in self._cache:
                raise
            # The file could be loaded before and is being edited now. Its errors must not hide the other workers.
            problems = (Problem(path, 1, error.message),)
            return tuple(
                msgspec.structs.replace(worker, problems=problems) for worker in self._cache[str(path)].workers
            )

    def _folder_workers(self, folder: str) -> tuple[Worker, ...]:
        return self._read_if_changed(folder, lambda: _workers_in_folder(Path(folder)))

    def _project_workers(self, project: Project, slug: str) -> tuple[Worker, ...]:
        """Return the worker of a project. A worker in a folder that is searched anyway is named by its slug alone."""
        folder = f"{project.folder}/{WORKERS_FOLDER}/{slug}"
        found = self._folder_workers(folder)
        key = (project, folder)
        if key not in self._by_project or self._by_project[key][0] is not found:
            owned = tuple(msgspec.structs.replace(worker, project=project) for worker in found)
            self._by_project[key] = (found, owned)
        return self._by_project[key][1]

    def _read_if_changed(self, path: str, read: Callable[[], tuple[Worker, ...]]) -> tuple[Worker, ...]:
        """Return the workers at this path; read the files again only if one has changed."""
        cached = self._cache.get(path)
        if cached is not None and cached.is_settled and _is_same(cached.fingerprint):
            return cached.workers
        checked_at = time.time()
        fingerprint = _fingerprint(path)
        workers = cached.workers if cached is not None and cached.fingerprint == fingerprint else read()
        # A change right after this check may leave the folder's time unchanged, because clocks of file systems tick
        # slowly.
        is_settled = (
            bool(fingerprint)
            and max(changed for _, changed, _ in fingerprint) < (checked_at - MTIME_SETTLE_SECONDS) * 1e9
        )
        self._cache[path] = _CachedWorkers(fingerprint, workers, is_settled=is_settled)
        return workers

    def _installed_workers(self) -> list[Worker]:
        if self._installed is None:
            from importlib.metadata import entry_points

            found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
            self._installed = [
                worker for point in found for worker in _workers_in_package(point.name, point.value, point.load)
            ]
        return self._installed


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(
            inside for inside in folder.iterdir() if not inside.name.startswith((".", "_")) and inside.is_dir()
        )
    except OSError:
        # The folder does not exist or is not readable, so it has no workers.
        return []


class _CachedWorkers(NamedTuple):
    """The workers read from a path, and the fingerprint of its files at that time."""

    fingerprint: Fingerprint
    workers: tuple[Worker, ...]
    is_settled: bool
    """Whether a file that is added or removed is certain to change the time of its folder."""


def _fingerprint(name: str) -> Fingerprint:
    found = [(name, *_stat(name))]
    if found[0][2] < 0:
        return ()
    if found[0][2] == _FOLDER:
        prompts = f"{name}/{PROMPTS_FOLDER}"
        files = [f"{name}/{WORKER_FILE}", f"{name}/{PYTHON_FILE}", prompts, *_prompts_in(prompts)]
        # A missing file shows in the time of its folder, except for a link whose target is created later.
        found += [(file, *state) for file in files if (state := _stat(file)) != _MISSING or Path(file).is_symlink()]
    return tuple(found)


def _is_same(before: Fingerprint) -> bool:
    """Return whether no file has changed. Called for every run, so it checks known files and lists no folder."""
    return all(_stat(file) == (changed, size) for file, changed, size in before)


_FOLDER = 0
"""Used as the size of a folder, since the real size depends on the file system. No worker is in an empty file."""
_MISSING = (0, -1)


def _stat(file: str) -> tuple[int, int]:
    """Return modification time and size.

    Takes a plain string: creating a `Path` would cost more than the call of `stat`.
    """
    try:
        state = os.stat(file)  # noqa: PTH116 - see above
    except OSError:
        return _MISSING
    return state.st_mtime_ns, _FOLDER if stat.S_ISDIR(state.st_mode) else state.st_size


def _prompts_in(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".md")]
    except OSError:
        return []


def _workers_in_folder(folder: Path) -> tuple[Worker, ...]:
    """Return the worker of a folder, or nothing if the folder contains no worker."""
    if (folder / WORKER_FILE).exists():
        # Import YAML only when the first worker in YAML is read.
        from shopfloor.engine.workers.parsing import parse_worker

        definition, problems = parse_worker(folder)
        known = definition or Definition(slug=folder.name)
        return (Worker(definition=known, folder=folder, origin=str(folder), problems=tuple(problems)),)
    if (folder / PYTHON_FILE).exists():
        return (_worker_in_python_file(folder),)
    for file in (folder / WORKER_FILE, folder / PYTHON_FILE):
        if file.is_symlink():
            return (_broken_worker(folder.name, file, f"broken link to {file.readlink()}", folder),)
    return ()


def _worker_in_python_file(folder: Path) -> Worker:
    file = folder / PYTHON_FILE
    try:
        found = _decorated_workers(load_file(file))
    except InvalidWorker as error:
        return _broken_worker(folder.name, file, error.message, folder)
    own = [worker for worker in found if worker.definition.slug == folder.name] or found
    if len(own) != 1:
        reason = "there is no function with @worker" if not own else "there are several functions with @worker"
        return _broken_worker(
            folder.name, file, f"{reason}; expected exactly one with the slug `{folder.name}`", folder
        )
    definition = own[0].definition
    if definition.slug != folder.name:
        reason = f"the slug of the worker is `{definition.slug}`, but its folder is `{folder.name}`; they must be equal"
        return _broken_worker(folder.name, file, reason, folder)
    return Worker(definition=definition, function=own[0].function, folder=folder, origin=str(folder))


def _plugin_worker(plugin: PluginInfo) -> Worker:
    return Worker(
        definition=plugin_definition(plugin),
        folder=Path(plugin.folder),
        origin=f"plugin {plugin.folder}",
        problems=plugin_problems(plugin),
        worker_type=PLUGIN,
    )


def _broken_worker(slug: str, file: Path, reason: str, folder: Path | None = None) -> Worker:
    problems = (Problem(file, 1, reason),)
    return Worker(definition=Definition(slug=slug), folder=folder, origin=str(folder or file), problems=problems)


def _workers_in_module(module: ModuleType, name: str) -> tuple[Worker, ...]:
    found = _decorated_workers(module)
    if not found:
        raise InvalidWorker(
            f"`{name}` has no function with @worker", hint="decorate a function: `from shopfloor import worker`"
        )
    return tuple(Worker(definition=worker.definition, function=worker.function, origin=name) for worker in found)


def _decorated_workers(module: ModuleType) -> list[PythonWorker[Any, Any]]:
    found: list[PythonWorker[Any, Any]] = [value for value in vars(module).values() if isinstance(value, PythonWorker)]
    # The same worker under two names counts once.
    return list({id(worker): worker for worker in found}.values())


def _workers_in_package(name: str, value: str, load: Callable[[], Any]) -> list[Worker]:
    origin = f"package {value}"
    try:
        loaded = load()
        if isinstance(loaded, ModuleType):
            return [msgspec.structs.replace(worker, origin=origin) for worker in _workers_in_module(loaded, value)]
        if not isinstance(loaded, PythonWorker):
            raise InvalidWorker(f"`{value}` is not a function with @worker")
    except ShopfloorError as error:
        return [_broken_worker(name, Path(value), error.message)]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a broken package must not hide the other workers
        return [_broken_worker(name, Path(value), f"cannot be loaded: {type(error).__name__}: {error}")]
    worker = cast("PythonWorker[Any, Any]", loaded)
    return [Worker(definition=worker.definition, function=worker.function, origin=origin)]
