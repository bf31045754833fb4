"""Settings of a process: where its workers are, and what the environment says."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shopfloor.errors import UsageError
from shopfloor.limits import DISK_LOW_WATER_BYTES, HOST_SLOTS


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where workers are found, and how many runs may be worked on at once."""

    folders: tuple[Path, ...] = ()
    modules: tuple[str, ...] = ()
    slots: int = HOST_SLOTS

    @classmethod
    def named(cls, names: Sequence[str], *, slots: int = HOST_SLOTS) -> WorkerSettings:
        """What somebody named: folders of workers, Python files, or modules."""
        folders = [Path(name).expanduser().absolute() for name in names if Path(name).expanduser().is_dir()]
        modules = [name for name in names if not Path(name).expanduser().is_dir()]
        return cls(folders=tuple(folders), modules=tuple(modules), slots=slots)


def seconds_setting(name: str, text: str | None, default: float) -> float:
    """A number of seconds that the environment sets under a name."""
    try:
        seconds = float(text or default)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{name} is {text!r}, not a number of seconds", hint=f"unset it, or set e.g. {default:g}")
    return seconds


def low_water_bytes() -> int:
    name, example = "SHOPFLOOR_DISK_LOW_WATER", str(DISK_LOW_WATER_BYTES)
    size = os.environ.get(name) or example
    if not size.isdecimal():
        raise UsageError(f"{name} is {size!r}, not a number of bytes", hint=f"unset it, or set e.g. {example}")
    return int(size)
