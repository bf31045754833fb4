"""Scripts: what `script/<name>` says, read from `<name>.yaml`. See `scripted.py` for what their fields mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec

from shopfloor.errors import UnknownModel


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ScriptedCall(_Part, frozen=True, kw_only=True):
    name: str
    input: dict[str, Any] = {}


class ScriptedError(_Part, frozen=True, kw_only=True):
    code: str
    message: str = "the script says so"
    retry_after: float | None = None
    times: int | None = None
    """How often before the turn goes well; always where it is left out."""


class Turn(_Part, frozen=True, kw_only=True):
    text: str | None = None
    thinking: str | None = None
    tool_calls: list[ScriptedCall] = []
    answer: Any = None
    """What is said where the answer has to be of a schema."""
    delay_ms: float | None = None
    error: ScriptedError | None = None


class Capture(_Part, frozen=True, kw_only=True):
    find: str
    """A regular expression; its first group is the value."""
    default: str = ""


class Script(_Part, frozen=True, kw_only=True):
    captures: dict[str, Capture] = {}
    delay_ms: float | None = None
    turns: list[Turn]


class Scripts:
    """Those of the folders given, and those that come with Shopfloor. A folder given earlier wins."""

    def __init__(self, folders: Sequence[Path]) -> None:
        packaged = files(__package__ or "") / "scripts"
        self._folders: list[Traversable] = [*folders, packaged]

    def names(self) -> list[str]:
        found = {
            file.name.removesuffix(".yaml")
            for folder in self._folders
            if folder.is_dir()
            for file in folder.iterdir()
            if file.name.endswith(".yaml")
        }
        return sorted(found)

    def get(self, name: str) -> Script:
        # A name that cannot be a file's is never joined to a folder.
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
            for folder in self._folders:
                file = folder / f"{name}.yaml"
                if file.is_file():
                    return _read(name, file.read_text(encoding="utf-8"))
        raise UnknownModel(f"there is no script {name!r}", hint=f"scripts are {', '.join(self.names())}")


def _read(name: str, text: str) -> Script:
    try:
        script = msgspec.yaml.decode(text, type=Script)
        for capture in script.captures.values():
            re.compile(capture.find)
    except (msgspec.MsgspecError, re.error) as error:
        raise UnknownModel(f"the script {name!r} cannot be read: {error}", hint="correct its file") from error
    if not script.turns:
        raise UnknownModel(f"the script {name!r} has no turns", hint="give it at least one")
    return script
