"""Settings of a process: where its workers are, and limits from the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shopfloor.errors import UsageError
from shopfloor.limits import DISK_LOW_WATER_BYTES, HOST_HEARTBEAT_SECONDS, HOST_SLOTS


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where to find workers, how many runs to execute at once, and which labels the host has."""

    folders: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    plugins: tuple[Path, ...] = ()
    """Folders of plugins, besides those of the projects and of the user."""
    slots: int = HOST_SLOTS
    labels: dict[str, str] = {}
    """The labels of the host, by which runs are placed."""

    @classmethod
    def from_names(
        cls,
        names: Sequence[str],
        *,
        plugins: Sequence[str] = (),
        slots: int = HOST_SLOTS,
        labels: dict[str, str] | None = None,
    ) -> WorkerSettings:
        """Create settings from names of folders of workers, Python files or modules, and of folders of plugins.

        Raises UsageError if a folder of plugins does not exist.
        """
        folders = [Path(name).expanduser().absolute() for name in names if Path(name).expanduser().is_dir()]
        modules = [name for name in names if not Path(name).expanduser().is_dir()]
        return cls(
            folders=tuple(folders),
            modules=tuple(modules),
            plugins=_plugin_folders(plugins),
            slots=slots,
            labels=labels or {},
        )


def _plugin_folders(names: Sequence[str]) -> tuple[Path, ...]:
    folders = [Path(name).expanduser().absolute() for name in names]
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"folder {folder} does not exist", hint="--plugins takes a folder with plugins in it")
    return tuple(folders)


def seconds_setting(name: str, text: str | None, default: float) -> float:
    """Parse a number of seconds from the environment variable `name`. Raises UsageError for any other text."""
    try:
        seconds = float(text or default)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{name} must be a number of seconds, got {text!r}", hint=f"unset it, or set e.g. {default:g}")
    return seconds


def heartbeat_seconds() -> float:
    """Return how often this host sends a heartbeat, from the environment. Raises UsageError."""
    name = "SHOPFLOOR_HEARTBEAT"
    seconds = seconds_setting(name, os.environ.get(name), HOST_HEARTBEAT_SECONDS)
    if not seconds:
        raise UsageError(f"{name} must be above 0", hint=f"unset it, or set e.g. {HOST_HEARTBEAT_SECONDS:g}")
    return seconds


def low_water_bytes() -> int:
    """Return the free disk space below which logs stop growing, from the environment. Raises UsageError."""
    name, example = "SHOPFLOOR_DISK_LOW_WATER", str(DISK_LOW_WATER_BYTES)
    size = os.environ.get(name) or example
    if not size.isdecimal():
        raise UsageError(f"{name} must be a number of bytes, got {size!r}", hint=f"unset it, or set e.g. {example}")
    return int(size)
