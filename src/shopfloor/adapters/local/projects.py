"""The registry of projects: `projects.json` in the storage folder, read again after each change."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.error_factories import storage_error
from shopfloor.errors import ConflictError, ProjectNotFound, StorageFailed, UsageError
from shopfloor.ports import Project
from shopfloor.record import Storage, lock_file, make_folder, write_private

_is_name = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII).fullmatch


class _File(msgspec.Struct, frozen=True):
    projects: tuple[Project, ...] = ()


class LocalProjects:
    """Implements `Projects` with a file."""

    def __init__(self, storage: Storage) -> None:
        self._path = storage.projects
        self._cached: tuple[tuple[int, int, int] | None, _File] = (None, _File())

    def all(self) -> list[Project]:
        """Return all projects, sorted by name."""
        return sorted(self._load().projects, key=lambda project: project.name)

    def add(self, folder: str, name: str | None = None) -> Project:
        """Register a folder, or rename its project. Raises `ConflictError` if another project has the name."""
        if name is not None and not _is_name(name):
            raise UsageError(f"{name!r} is not a project name", hint="use lower-case letters, digits and `-`")
        make_folder(self._path.parent)
        with lock_file(self._path.with_suffix(".lock")):
            projects = self._load().projects
            current = next((project for project in projects if project.folder == folder), None)
            if current is not None and name in (None, current.name):
                return current
            others = [project for project in projects if project is not current]
            names = {project.name for project in others}
            if name in names:
                raise ConflictError(
                    f"another project is named {name!r}", hint="run `shopfloor projects list` to see it"
                )
            project = Project(name=name or _unused_name(folder, names), folder=folder)
            self._write((*others, project))
        return project

    def remove(self, name: str) -> Project:
        """Remove the project with this name or folder. Raises `ProjectNotFound`."""
        make_folder(self._path.parent)
        with lock_file(self._path.with_suffix(".lock")):
            projects = self._load().projects
            found = next((project for project in projects if name in (project.name, project.folder)), None)
            if found is None:
                names = ", ".join(sorted(project.name for project in projects)) or "none"
                raise ProjectNotFound(f"there is no project {name!r}", hint=f"the projects are: {names}")
            self._write(tuple(project for project in projects if project is not found))
        return found

    def _load(self) -> _File:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp != self._cached[0]:
                self._cached = (stamp, decode_json(self._path.read_bytes(), _File))
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}") from error
        except msgspec.MsgspecError as error:
            raise StorageFailed(
                f"{self._path} is not a list of projects: {error}",
                hint="remove the file, then add the projects again with `shopfloor projects add`",
            ) from error
        return self._cached[1]

    def _write(self, projects: tuple[Project, ...]) -> None:
        write_private(self._path, msgspec.json.format(msgspec.json.encode(_File(projects)), indent=2) + b"\n")


def _unused_name(folder: str, taken: set[str]) -> str:
    """Derive an unused project name from the folder's name, with a number if the name is taken."""
    base = "-".join(re.findall(r"[a-z0-9]+", Path(folder).name.lower())) or "project"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name
