"""The workers that there are: in folders, in modules, and in packages that are installed."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, cast

import msgspec

from shopfloor.engine.workers.definition import PROMPTS_FOLDER, WORKER_FILE, Definition, definition_hash, is_slug
from shopfloor.engine.workers.imports import load_file, load_module
from shopfloor.engine.workers.problems import Problem, closest, invalid_worker
from shopfloor.engine.workers.python import PythonWorker
from shopfloor.errors import AmbiguousWorker, InvalidWorker, ShopfloorError, WorkerNotFound, missing_working_directory
from shopfloor.limits import MTIME_SETTLE_SECONDS
from shopfloor.ports import Project

PYTHON_FILE = "worker.py"
WORKERS_FOLDER = "workers"
"""The folder of a project that has its workers."""
ENTRY_POINTS = "shopfloor.workers"
EXAMPLE_WORKERS = Path(__file__).parents[2] / "examples" / "workers"
"""Workers that are packaged with Shopfloor."""

BUILTIN = "builtin"
Fingerprint = tuple[tuple[str, int, int], ...]
"""Path, time and size of a worker's folder, of the files in it, and of the folder with its prompts."""


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    definition: Definition
    """Where it has problems: as much of it as could be read, at least the slug."""
    function: Callable[..., Any] | None = None
    """For a worker in Python."""
    folder: Path | None = None
    origin: str
    """Where it is from, for people."""
    problems: tuple[Problem, ...] = ()
    worker_type: str = BUILTIN
    """Or the provider, where it is nothing but that."""
    project: Project | None = None
    """The project that it belongs to; None for a worker from anywhere else."""
    reference: str = ""
    """What callers name it by: its slug, or `<project>/<slug>` where the slug is ambiguous."""
    as_data: Any = None
    """The definition as a run's log keeps it."""
    hash: str = ""
    """Of the definition."""

    def __post_init__(self) -> None:
        # Once, and not for every run.
        msgspec.structs.force_setattr(self, "as_data", msgspec.to_builtins(self.definition))
        msgspec.structs.force_setattr(self, "hash", definition_hash(self.definition))
        if not self.reference:
            msgspec.structs.force_setattr(self, "reference", self.definition.slug)


def default_folders(storage_root: Path, named: Sequence[Path] = ()) -> list[Path]:
    """Where workers are looked for; the first that has one of a name wins."""
    try:
        here = Path.cwd()
    except FileNotFoundError as error:
        raise missing_working_directory() from error
    return [*named, here / WORKERS_FOLDER, storage_root.parent / WORKERS_FOLDER, EXAMPLE_WORKERS]


class WorkerCatalog:
    """Finds workers by their slugs. A folder that changed is read again the next time it is asked for.

    `modules` are names of modules or Python files that somebody named: theirs come first, and one that cannot be
    loaded is an error at once. `provider_workers` stand for a provider: they can be run, and are listed separately.
    Workers of `projects` come after those of the folders and before the packaged ones; a slug that several projects
    have is named as `<project>/<slug>`.

    Several threads may use it at once: two that read the same folder get the same from it. Only `load_code` says in
    which thread the code of workers in Python is executed.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        modules: Sequence[str] = (),
        provider_workers: Sequence[Definition] = (),
        *,
        projects: Callable[[], Sequence[Project]] = tuple,
    ) -> None:
        self._folders = [folder for folder in dict.fromkeys(folders) if folder != EXAMPLE_WORKERS]
        self._packaged = [EXAMPLE_WORKERS] if EXAMPLE_WORKERS in folders else []
        self._projects = projects
        self._modules = list(modules)
        self._bare = {
            one.slug: Worker(definition=one, origin=f"provider {one.slug}", worker_type=one.slug)
            for one in provider_workers
        }
        self._read: dict[str, _Seen] = {}
        self._named = {name: _in_module(load_module(name), name) for name in modules if not name.endswith(".py")}
        self._in_projects: dict[tuple[Project, str], tuple[tuple[Worker, ...], tuple[Worker, ...]]] = {}
        """The workers of projects, with those of the folder that they were made from."""
        self._installed: list[Worker] | None = None
        self._found: dict[str, Worker] = {}
        """What was found last, by slug."""
        for name in self._modules:
            self._of_module(name)

    def get(self, slug: str, *, preferred_folder: str | None = None) -> Worker:
        """Return the worker with this slug, or this project and slug. Among projects, prefer `preferred_folder`.

        Raises `WorkerNotFound`, `AmbiguousWorker`, or `InvalidWorker` where there is one that cannot be run.
        """
        found = self.find(slug, preferred_folder=preferred_folder)
        if found is None:
            slugs = [worker.reference for worker in self.all()]
            close = closest(slug, slugs)
            there = (
                f"there are: {', '.join(slugs)}" if slugs else "there are none yet: `shopfloor workers new` makes one"
            )
            # For who has it in a folder that is not among them; a slip of the pen has nothing to do with folders.
            looked = [str(folder) for folder in self._folders if folder.is_dir()]
            where = f"; looked in {', '.join(looked)}" if looked else ""
            raise WorkerNotFound(
                f"there is no worker `{slug}`", hint=f"did you mean `{close}`? {there}" if close else there + where
            )
        if found.problems:
            raise invalid_worker(list(found.problems), found.folder or Path(found.origin))
        return found

    def get_cached(self, slug: str, definition_hash: str) -> Worker | None:
        """The one that a run was ordered from a moment ago, where that is at hand: no file is looked at again."""
        found = self._found.get(slug)
        return found if found is not None and found.hash == definition_hash else None

    def find(self, slug: str, *, preferred_folder: str | None = None) -> Worker | None:
        """Return the worker, whatever is wrong with it. Raises `AmbiguousWorker`."""
        found = self.find_all(slug)
        if len(found) > 1:
            found = [
                worker for worker in found if worker.project and worker.project.folder == preferred_folder
            ] or found
        if len(found) > 1:
            names = ", ".join(f"{worker.project.name}/{slug}" for worker in found if worker.project)
            raise AmbiguousWorker(f"several projects have a worker `{slug}`", hint=f"name one of {names}")
        return found[0] if found else None

    def find_all(self, slug: str) -> list[Worker]:
        """Return the workers that a slug can mean: more than one where several projects have it."""
        found = self._find_all(slug)
        for worker in found:
            if not worker.problems:
                self._found[worker.definition.slug] = worker
        return found

    def find_everywhere(self, slug: str) -> list[Worker]:
        """Return the workers of this slug, also those of projects that are only found by their project."""
        found = {worker.origin: worker for worker in self.find_all(slug)}
        for project in self._projects() if is_slug(slug) else ():
            for worker in self._of_project(project, slug):
                found.setdefault(worker.origin, worker)
        return list(found.values())

    def projects(self) -> Sequence[Project]:
        return self._projects()

    def _find_all(self, slug: str) -> list[Worker]:
        project, separator, inner = slug.rpartition("/")
        if separator:
            return [
                worker
                for one in self._projects()
                if one.name == project and is_slug(inner)
                for worker in self._of_project(one, inner)
            ]
        for name in self._modules:
            for worker in self._of_module(name):
                if worker.definition.slug == slug:
                    return [worker]
        if is_slug(slug):
            for folder in self._folders:
                if found := self._of_folder(f"{folder}/{slug}"):
                    return list(found)
            if found := [worker for one in self._projects() for worker in self._of_project(one, slug)]:
                return found
            for folder in self._packaged:
                if found := self._of_folder(f"{folder}/{slug}"):
                    return list(found)
        installed = [worker for worker in self._of_packages() if worker.definition.slug == slug]
        return installed[:1] or [worker for worker in (self._bare.get(slug),) if worker]

    def all(self) -> list[Worker]:
        """Return every worker by what it is named by, also those that cannot be run."""
        found: dict[str, Worker] = {}
        for worker in self._every():
            slug = worker.definition.slug
            if worker.project is None or [one.folder for one in self.find_all(slug)] == [worker.folder]:
                found.setdefault(slug, worker)
            else:
                name = f"{worker.project.name}/{slug}"
                found[name] = msgspec.structs.replace(worker, reference=name)
        return [found[name] for name in sorted(found)]

    def provider_workers(self) -> list[Worker]:
        """Those that stand for a provider, and for which no worker of the same slug stands."""
        return [worker for slug, worker in self._bare.items() if self.find(slug) is worker]

    def load_code(self) -> None:
        """Load the workers that are written in Python. What their modules make belongs to the caller's thread."""
        projects = [Path(project.folder) / WORKERS_FOLDER for project in self._projects()]
        for folder in (*self._folders, *projects, *self._packaged):
            for inside in _folders_in(folder):
                if not (inside / WORKER_FILE).exists():
                    self._of_folder(str(inside))
        self._of_packages()

    def _every(self) -> Iterator[Worker]:
        for name in self._modules:
            yield from self._of_module(name)
        for folder in self._folders:
            for inside in _folders_in(folder):
                yield from self._of_folder(str(inside))
        for project in self._projects():
            for inside in _folders_in(Path(project.folder) / WORKERS_FOLDER):
                yield from self._of_project(project, inside.name)
        for folder in self._packaged:
            for inside in _folders_in(folder):
                yield from self._of_folder(str(inside))
        yield from self._of_packages()

    def _of_module(self, name: str) -> tuple[Worker, ...]:
        if name in self._named:
            return self._named[name]
        path = Path(name).expanduser().absolute()
        return self._kept(str(path), lambda: self._of_file(path, name))

    def _of_file(self, path: Path, name: str) -> tuple[Worker, ...]:
        try:
            return _in_module(load_file(path), name)
        except InvalidWorker as error:
            if str(path) not in self._read:
                raise
            # It could be loaded before, and somebody is at work on it: that must not hide the other workers.
            problems = (Problem(path, 1, error.message),)
            return tuple(msgspec.structs.replace(worker, problems=problems) for worker in self._read[str(path)].workers)

    def _of_folder(self, folder: str) -> tuple[Worker, ...]:
        return self._kept(folder, lambda: _in_folder(Path(folder)))

    def _of_project(self, project: Project, slug: str) -> tuple[Worker, ...]:
        """Return the worker of a project; one in a folder that is searched anyway is named by its slug alone."""
        folder = f"{project.folder}/{WORKERS_FOLDER}/{slug}"
        found = self._of_folder(folder)
        key = (project, folder)
        if key not in self._in_projects or self._in_projects[key][0] is not found:
            owned = tuple(msgspec.structs.replace(worker, project=project) for worker in found)
            self._in_projects[key] = (found, owned)
        return self._in_projects[key][1]

    def _kept(self, path: str, read: Callable[[], tuple[Worker, ...]]) -> tuple[Worker, ...]:
        """What was read there, read again only where a file changed."""
        seen = self._read.get(path)
        if seen is not None and seen.is_settled and _is_same(seen.fingerprint):
            return seen.workers
        at = time.time()
        now = _fingerprint(path)
        workers = seen.workers if seen is not None and seen.fingerprint == now else read()
        # A change right after this look may leave a folder's time as it is: clocks of file systems tick slowly.
        settled = bool(now) and max(changed for _, changed, _ in now) < (at - MTIME_SETTLE_SECONDS) * 1e9
        self._read[path] = _Seen(now, workers, is_settled=settled)
        return workers

    def _of_packages(self) -> list[Worker]:
        if self._installed is None:
            from importlib.metadata import entry_points

            found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
            self._installed = [worker for point in found for worker in _in_package(point.name, point.value, point.load)]
        return self._installed


def _folders_in(folder: Path) -> list[Path]:
    try:
        return sorted(
            inside for inside in folder.iterdir() if not inside.name.startswith((".", "_")) and inside.is_dir()
        )
    except OSError:
        # Not there, or not ours to read: then there are no workers for us.
        return []


class _Seen(NamedTuple):
    """What was read of a worker, and what its files were like then."""

    fingerprint: Fingerprint
    workers: tuple[Worker, ...]
    is_settled: bool
    """Whether a file that appears or goes is bound to change the time of its folder."""


def _fingerprint(name: str) -> Fingerprint:
    found = [(name, *_look(name))]
    if found[0][2] < 0:
        return ()
    if found[0][2] == _FOLDER:
        prompts = f"{name}/{PROMPTS_FOLDER}"
        files = [f"{name}/{WORKER_FILE}", f"{name}/{PYTHON_FILE}", prompts, *_prompts_in(prompts)]
        # One that is not there shows in the time of its folder, but for a link whose file comes later.
        found += [(file, *seen) for file in files if (seen := _look(file)) != _MISSING or Path(file).is_symlink()]
    return tuple(found)


def _is_same(before: Fingerprint) -> bool:
    """Whether all is as it was. It is asked for every run, so it looks at what there was, and lists nothing."""
    return all(_look(file) == (changed, size) for file, changed, size in before)


_FOLDER = 0
"""The size of a folder, whose own is up to the file system. No worker is in an empty file."""
_MISSING = (0, -1)


def _look(file: str) -> tuple[int, int]:
    """By plain names: a Path for each would cost more than the look."""
    try:
        seen = os.stat(file)  # noqa: PTH116 - see above
    except OSError:
        return _MISSING
    return seen.st_mtime_ns, _FOLDER if stat.S_ISDIR(seen.st_mode) else seen.st_size


def _prompts_in(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in sorted(os.listdir(folder)) if name.endswith(".md")]
    except OSError:
        return []


def _in_folder(folder: Path) -> tuple[Worker, ...]:
    """The worker of a folder; none where it is a folder of something else."""
    if (folder / WORKER_FILE).exists():
        # YAML is loaded with the first worker that is written in it.
        from shopfloor.engine.workers.parsing import parse_worker

        definition, problems = parse_worker(folder)
        kept = definition or Definition(slug=folder.name)
        return (Worker(definition=kept, folder=folder, origin=str(folder), problems=tuple(problems)),)
    if (folder / PYTHON_FILE).exists():
        return (_in_python_file(folder),)
    for file in (folder / WORKER_FILE, folder / PYTHON_FILE):
        if file.is_symlink():
            return (_broken(folder.name, file, f"it is a link to {file.readlink()}, which is not there", folder),)
    return ()


def _in_python_file(folder: Path) -> Worker:
    file = folder / PYTHON_FILE
    try:
        found = _workers_of(load_file(file))
    except InvalidWorker as error:
        return _broken(folder.name, file, error.message, folder)
    own = [made for made in found if made.definition.slug == folder.name] or found
    if len(own) != 1:
        reason = "there is no function with @worker" if not own else "there are several functions with @worker"
        return _broken(folder.name, file, f"{reason}; one of them is to be `{folder.name}`", folder)
    definition = own[0].definition
    if definition.slug != folder.name:
        reason = f"its worker is `{definition.slug}`, its folder `{folder.name}`: they are to be the same"
        return _broken(folder.name, file, reason, folder)
    return Worker(definition=definition, function=own[0].function, folder=folder, origin=str(folder))


def _broken(slug: str, file: Path, reason: str, folder: Path | None = None) -> Worker:
    problems = (Problem(file, 1, reason),)
    return Worker(definition=Definition(slug=slug), folder=folder, origin=str(folder or file), problems=problems)


def _in_module(module: ModuleType, name: str) -> tuple[Worker, ...]:
    found = _workers_of(module)
    if not found:
        raise InvalidWorker(f"`{name}` has no function with @worker", hint="`from shopfloor import worker`")
    return tuple(Worker(definition=made.definition, function=made.function, origin=name) for made in found)


def _workers_of(module: ModuleType) -> list[PythonWorker[Any, Any]]:
    found: list[PythonWorker[Any, Any]] = [value for value in vars(module).values() if isinstance(value, PythonWorker)]
    # The same worker under two names is one.
    return list({id(made): made for made in found}.values())


def _in_package(name: str, value: str, load: Callable[[], Any]) -> list[Worker]:
    origin = f"package {value}"
    try:
        loaded = load()
        if isinstance(loaded, ModuleType):
            return [msgspec.structs.replace(worker, origin=origin) for worker in _in_module(loaded, value)]
        if not isinstance(loaded, PythonWorker):
            raise InvalidWorker(f"`{value}` is no function with @worker")
    except ShopfloorError as error:
        return [_broken(name, Path(value), error.message)]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - somebody else's package must not hide the other workers
        return [_broken(name, Path(value), f"it cannot be loaded: {type(error).__name__}: {error}")]
    made = cast("PythonWorker[Any, Any]", loaded)
    return [Worker(definition=made.definition, function=made.function, origin=origin)]
