"""Projects: the folders whose workers a server serves."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A folder with a `workers` folder in it. Its workers are executed in the folder."""

    name: str
    """Unique; a worker is `<name>/<slug>` where the slug alone is ambiguous."""
    folder: str
    """An absolute path."""


class Projects(Protocol):
    """The registered projects."""

    def all(self) -> list[Project]:
        """Return the registered projects, by name."""
        ...

    def add(self, folder: str, name: str | None = None) -> Project:
        """Register a folder, once. Raises `ConflictError` where another folder has the name."""
        ...

    def remove(self, name: str) -> Project:
        """Remove a project by its name or folder. Raises `ProjectNotFound`."""
        ...
