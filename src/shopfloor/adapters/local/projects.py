"""The registry of projects: `projects.json` in the storage folder, read again whenever it has changed."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from shopfloor.decoding import decode_json
from shopfloor.errors import ConflictError, ProjectNotFound, StorageFailed, UsageError, storage_error
from shopfloor.ports import Project
from shopfloor.record import Storage, lock_file, make_folder, write_private

_is_name = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*", re.ASCII).fullmatch


class _File(msgspec.Struct, frozen=True):
    projects: tuple[Project, ...] = ()


class LocalProjects:
    def __init__(self, storage: Storage) -> None:
        self._path = storage.projects
        self._read: tuple[tuple[int, int, int] | None, _File] = (None, _File())

    def all(self) -> list[Project]:
        return sorted(self._load().projects, key=lambda project: project.name)

    def add(self, folder: str, name: str | None = None) -> Project:
        if name is not None and not _is_name(name):
            raise UsageError(f"{name!r} is not a project name", hint="use lower-case letters, digits and `-`")
        make_folder(self._path.parent)
        with lock_file(self._path.with_suffix(".lock")):
            known = self._load().projects
            same = next((project for project in known if project.folder == folder), None)
            if same is not None and name in (None, same.name):
                return same
            others = [project for project in known if project is not same]
            names = {project.name for project in others}
            if name in names:
                raise ConflictError(f"another project is named {name!r}", hint="`shopfloor projects list` shows it")
            project = Project(name=name or _free_name(folder, names), folder=folder)
            self._write((*others, project))
        return project

    def remove(self, name: str) -> Project:
        make_folder(self._path.parent)
        with lock_file(self._path.with_suffix(".lock")):
            known = self._load().projects
            found = next((project for project in known if name in (project.name, project.folder)), None)
            if found is None:
                names = ", ".join(sorted(project.name for project in known)) or "none"
                raise ProjectNotFound(f"there is no project {name!r}", hint=f"the projects are: {names}")
            self._write(tuple(project for project in known if project is not found))
        return found

    def _load(self) -> _File:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp != self._read[0]:
                self._read = (stamp, decode_json(self._path.read_bytes(), _File))
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise storage_error(error, f"cannot read {self._path}") from error
        except msgspec.MsgspecError as error:
            raise StorageFailed(
                f"{self._path} is not a list of projects: {error}",
                hint="remove the file, then add the projects again with `shopfloor projects add`",
            ) from error
        return self._read[1]

    def _write(self, projects: tuple[Project, ...]) -> None:
        write_private(self._path, msgspec.json.format(msgspec.json.encode(_File(projects)), indent=2) + b"\n")


def _free_name(folder: str, taken: set[str]) -> str:
    """Name a project after its folder, with a number where that name is taken."""
    base = "-".join(re.findall(r"[a-z0-9]+", Path(folder).name.lower())) or "project"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name
