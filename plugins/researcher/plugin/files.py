"""Atomic files, and names that are safe as file names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_safe_name(name: object) -> bool:
    """Return whether a name can be a file name: no separators, no leading dot, at most 100 characters."""
    return isinstance(name, str) and _SAFE_NAME.fullmatch(name) is not None


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step: readers see the old or the new content, also after a crash."""
    # Lone surrogates can come from a model's JSON, and UTF-8 has no bytes for them.
    data = text.encode("utf-8", errors="replace")
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_text(path: Path) -> str | None:
    """Return the content of a file, or None if there is no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
