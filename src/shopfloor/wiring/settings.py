"""Settings of a process: where its workers are, and limits from the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from shopfloor.decoding import convert
from shopfloor.errors import UsageError
from shopfloor.limits import (
    DISK_LOW_WATER_BYTES,
    HOST_HEARTBEAT_MIN_SECONDS,
    HOST_HEARTBEAT_SECONDS,
    HOST_SLOTS,
    LONGEST_SPAN_SECONDS,
    SETTINGS_BYTES,
)
from shopfloor.views import DEFAULT_NOTIFICATION_KINDS, NotificationKind


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


class NotifyCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command that is notified of runs, in the settings file."""

    command: Annotated[str, msgspec.Meta(min_length=1)]
    on: tuple[NotificationKind, ...] = DEFAULT_NOTIFICATION_KINDS
    min_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0


class FileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings file of a storage, `settings.yaml`."""

    notify: tuple[NotifyCommand, ...] = ()


def load_settings(path: Path) -> FileSettings:
    """Read the settings file; without one, return the defaults. Raises UsageError if it is not valid."""
    try:
        text = path.read_bytes()[: SETTINGS_BYTES + 1]
    except FileNotFoundError:
        return FileSettings()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="make it readable, or remove it") from error
    from shopfloor.yaml_document import parse_yaml

    hint = "docs/how-to/notifications.md has an example"
    if len(text) > SETTINGS_BYTES:
        raise UsageError(f"{path} is larger than {SETTINGS_BYTES:,} bytes", hint=hint)
    document = parse_yaml(text.decode(errors="replace"))
    if document.problems:
        line, problem = document.problems[0]
        raise UsageError(f"{path}, line {line}: {problem}", hint=hint)
    try:
        return convert(document.value or {}, FileSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}", hint=hint) from error


def seconds_setting(name: str, text: str | None, default: float) -> float:
    """Parse a number of seconds from the environment variable `name`. Raises UsageError for any other text."""
    try:
        seconds = float(text or default)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_SPAN_SECONDS:
        raise UsageError(f"{name} must be a number of seconds, got {text!r}", hint=f"unset it, or set e.g. {default:g}")
    return seconds


def heartbeat_seconds() -> float:
    """Return how often this host sends a heartbeat, from the environment. Raises UsageError."""
    name = "SHOPFLOOR_HEARTBEAT"
    seconds = seconds_setting(name, os.environ.get(name), HOST_HEARTBEAT_SECONDS)
    if seconds < HOST_HEARTBEAT_MIN_SECONDS:
        hint = f"unset it, or set e.g. {HOST_HEARTBEAT_SECONDS:g}"
        raise UsageError(f"{name} must be at least {HOST_HEARTBEAT_MIN_SECONDS:g}", hint=hint)
    return seconds


def low_water_bytes() -> int:
    """Return the free disk space below which logs stop growing, from the environment. Raises UsageError."""
    name, example = "SHOPFLOOR_DISK_LOW_WATER", str(DISK_LOW_WATER_BYTES)
    size = os.environ.get(name) or example
    if not size.isdecimal():
        raise UsageError(f"{name} must be a number of bytes, got {size!r}", hint=f"unset it, or set e.g. {example}")
    return int(size)
