"""`guild-member.json`: the manifest that makes a folder a plugin."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from shopfloor.adapters.limits import PLUGIN_MANIFEST_BYTES
from shopfloor.decoding import decode_json

MANIFEST_NAME = "guild-member.json"


class InvalidManifest(Exception):
    """Why a folder with a manifest is no usable plugin."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """How a plugin is started. `${PORT}` and `${PYTHON}` are replaced in its words and in `env`."""

    command: str
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}

    def argv(self, port: int, python: str) -> list[str]:
        """Return the words of the command."""
        return [_filled(word, port, python) for word in (self.command, *self.args)]

    def environment(self, port: int, python: str) -> dict[str, str]:
        """Return the variables that the manifest adds."""
        return {name: _filled(value, port, python) for name, value in self.env.items()}


class Manifest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of a manifest. Unknown fields are ignored."""

    name: str
    display_name: str
    description: str
    version: str
    transport: Literal["http"]
    mcp: Command
    capabilities: tuple[str, ...] = ()


def find_manifests(folder: Path) -> Iterator[Path]:
    """Yield the plugin folders of a `plugins/` folder: its folders with a manifest, and those one level below."""
    for path in _folders(folder):
        if _may_have_manifest(path):
            yield path
        else:
            yield from (inner for inner in _folders(path) if _may_have_manifest(inner))


def _may_have_manifest(folder: Path) -> bool:
    """Return whether a folder has a manifest, or cannot be looked into: `read_manifest` says why."""
    try:
        (folder / MANIFEST_NAME).lstat()
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a folder. Raises `InvalidManifest`."""
    raw = _read_file(folder / MANIFEST_NAME)
    try:
        manifest = decode_json(raw, Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidManifest(f"{MANIFEST_NAME}: {error}") from error
    if not is_plugin_name(manifest.name):
        raise InvalidManifest(
            f"{MANIFEST_NAME}: name must be lower-case letters, digits and '-', got {manifest.name!r}"
        )
    if not manifest.mcp.command.strip():
        raise InvalidManifest(f"{MANIFEST_NAME}: mcp.command is empty")
    mcp = manifest.mcp
    if any("\0" in word for word in (mcp.command, *mcp.args, *mcp.env, *mcp.env.values())):
        raise InvalidManifest(f"{MANIFEST_NAME}: mcp has a null byte, which no command can have")
    if any("=" in name or not name for name in mcp.env):
        raise InvalidManifest(f"{MANIFEST_NAME}: mcp.env must have names of variables, got {sorted(mcp.env)}")
    return manifest


def _read_file(path: Path) -> bytes:
    """Read a manifest. A pipe or a device is refused: reading it may never end."""
    try:
        if not path.is_file():
            raise InvalidManifest(f"{MANIFEST_NAME} is not a file")
        with path.open("rb") as file:
            raw = file.read(PLUGIN_MANIFEST_BYTES + 1)
    except OSError as error:
        raise InvalidManifest(f"cannot read {MANIFEST_NAME}: {error.strerror}") from error
    if len(raw) > PLUGIN_MANIFEST_BYTES:
        raise InvalidManifest(f"{MANIFEST_NAME} is larger than {PLUGIN_MANIFEST_BYTES:,} bytes")
    return raw


def access_problem(folder: Path) -> str | None:
    """Return why other users could change a plugin, or None. A plugin is code that we execute."""
    for path in (folder.parent, folder, folder / MANIFEST_NAME):
        status = path.stat()
        # A sticky folder such as /tmp lets others add files, but not replace ours.
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
            return f"{path} can be written by other users; a plugin is code: run `chmod go-w {path}`"
        if status.st_uid not in (os.geteuid(), 0):
            return f"{path} belongs to another user; a plugin is code: copy it to a folder of your own"
    return None


def _folders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []


def is_plugin_name(name: str) -> bool:
    """Return whether a name is lower-case letters, digits and `-`."""
    return bool(name) and all(part.isascii() and part.isalnum() and part == part.lower() for part in name.split("-"))


def _filled(word: str, port: int, python: str) -> str:
    return word.replace("${PORT}", str(port)).replace("${PYTHON}", python)
