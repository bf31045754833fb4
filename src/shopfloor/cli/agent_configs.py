"""The configuration of other agents: where each keeps its MCP servers, and edits of these files that keep the rest."""

from __future__ import annotations

import difflib
import os
import stat
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from shopfloor.cli import jsonc_text, toml_text
from shopfloor.cli.limits import CONFIG_ATTEMPTS, CONFIG_BYTES
from shopfloor.error_factories import storage_error
from shopfloor.errors import ConfigInvalid, UsageError

SERVER_NAME: Final = "shopfloor"
_MARK: Final = "<!-- `shopfloor mcp install claude-code` wrote this file, and the next install overwrites it. -->"

Edit = Callable[[str | None], str | None]
"""A function from the text of a file to the new text; None means that there is no file."""


class Change(msgspec.Struct, frozen=True):
    """A change of one file. None means that there is no file."""

    path: Path
    before: str | None
    after: str | None

    def diff(self) -> str:
        """Return the change as a unified diff."""
        before, after = (
            [] if text is None else [f"{line}\n" for line in text.splitlines()] for text in (self.before, self.after)
        )
        old, new = ("/dev/null" if text is None else str(self.path) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, old, new))


class FileEdit(msgspec.Struct, frozen=True):
    """An edit of one file."""

    path: Path
    edit: Edit

    def preview(self) -> Change:
        """Return the change without writing it. Raises `ConfigInvalid` if the file cannot be edited."""
        before = _read(self.path)
        try:
            return Change(self.path, before, self.edit(before))
        except (jsonc_text.JsonTextError, toml_text.TomlTextError) as error:
            raise ConfigInvalid(f"cannot edit {self.path}: {error}", hint="correct the file, then try again") from error

    def apply(self) -> Change:
        """Write the change and return it. The file keeps its mode, and a symbolic link stays one."""
        for _ in range(CONFIG_ATTEMPTS):
            change = self.preview()
            if change.after == change.before or _write(change):
                return change
        raise ConfigInvalid(
            f"cannot edit {self.path}: another program changes it all the time", hint="end the agent, then try again"
        )


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can use the MCP server."""

    name: str
    title: str
    find_file: Callable[[Mapping[str, str]], Path]
    """Returns the configuration file, by the environment."""
    section: str
    """The part of the file with the MCP servers."""
    build_entry: Callable[[Sequence[str]], dict[str, Any]]
    """Returns the entry of the server that this command starts."""
    is_toml: bool = False
    has_skills: bool = False


def _home(environment: Mapping[str, str], variable: str, default: str) -> Path:
    """Return the folder that a variable names, or a folder of the user's home."""
    named = environment.get(variable)
    return Path(named).expanduser().absolute() if named else Path.home() / default


def _claude_file(environment: Mapping[str, str]) -> Path:
    return _home(environment, "CLAUDE_CONFIG_DIR", "") / ".claude.json"


def _opencode_file(environment: Mapping[str, str]) -> Path:
    folder = _home(environment, "XDG_CONFIG_HOME", ".config") / "opencode"
    return next(
        (path for path in (folder / "opencode.json", folder / "opencode.jsonc") if path.exists()),
        folder / "opencode.json",
    )


def _command_and_args(command: Sequence[str]) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


_ADDRESS_FIELDS: Final = frozenset({"url", "httpUrl", "serverUrl"})

AGENTS: Final[Mapping[str, Agent]] = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude-code",
            title="Claude Code",
            find_file=_claude_file,
            section="mcpServers",
            # Otherwise it starts without waiting for the tools, and its model gets only their names.
            build_entry=lambda command: {"type": "stdio", **_command_and_args(command), "alwaysLoad": True},
            has_skills=True,
        ),
        Agent(
            name="codex",
            title="Codex",
            find_file=lambda environment: _home(environment, "CODEX_HOME", ".codex") / "config.toml",
            section="mcp_servers",
            # Otherwise Codex sends its first request without waiting for the tools.
            build_entry=lambda command: {**_command_and_args(command), "required": True, "startup_timeout_sec": 30},
            is_toml=True,
        ),
        Agent(
            name="gemini",
            title="Gemini CLI",
            find_file=lambda environment: _home(environment, "GEMINI_CLI_HOME", "") / ".gemini" / "settings.json",
            section="mcpServers",
            build_entry=_command_and_args,
        ),
        Agent(
            name="copilot",
            title="Copilot CLI",
            find_file=lambda environment: _home(environment, "COPILOT_HOME", ".copilot") / "mcp-config.json",
            section="mcpServers",
            build_entry=lambda command: {"type": "local", **_command_and_args(command), "tools": ["*"]},
        ),
        Agent(
            name="opencode",
            title="OpenCode",
            find_file=_opencode_file,
            section="mcp",
            build_entry=lambda command: {"type": "local", "command": list(command), "enabled": True},
        ),
        Agent(
            name="cursor",
            title="Cursor",
            find_file=lambda environment: Path.home() / ".cursor" / "mcp.json",
            section="mcpServers",
            build_entry=_command_and_args,
        ),
    )
}


def find_agent(name: str) -> Agent:
    """Return the agent of this name. Raises `UsageError`."""
    if name not in AGENTS:
        raise UsageError(f"unknown agent {name!r}", hint=f"the agents are {', '.join(AGENTS)}")
    return AGENTS[name]


def install_edits(
    agent: Agent, command: Sequence[str], environment: Mapping[str, str], skill: Callable[[], str]
) -> list[FileEdit]:
    """Return the edits that add the server, and for Claude Code the skill whose text `skill` returns."""
    entry, path = agent.build_entry(command), (agent.section, SERVER_NAME)

    def add(text: str | None) -> str:
        if text is not None and _is_remote(agent, text):
            raise ConfigInvalid(
                f"{agent.title} has a remote server named {SERVER_NAME!r} already",
                hint=f"rename or remove that entry in {agent.find_file(environment)}, then try again",
            )
        if agent.is_toml:
            return toml_text.new_document(path, entry) if text is None else toml_text.set_table(text, path, entry)
        return jsonc_text.new_document(path, entry) if text is None else jsonc_text.set_fields(text, path, entry)

    def write_skill(text: str | None) -> str:
        return f"{skill()}\n{_MARK}\n" if text is None or _MARK in text else text

    edits = [FileEdit(agent.find_file(environment), add)]
    return [*edits, FileEdit(_skill_file(environment), write_skill)] if agent.has_skills else edits


def uninstall_edits(agent: Agent, environment: Mapping[str, str]) -> list[FileEdit]:
    """Return the edits that remove what `install_edits` adds."""
    path = (agent.section, SERVER_NAME)

    def remove(text: str | None) -> str | None:
        if text is None or _is_remote(agent, text):
            return text
        return toml_text.remove_table(text, path) if agent.is_toml else jsonc_text.remove_value(text, path)

    edits = [FileEdit(agent.find_file(environment), remove)]
    skill = FileEdit(_skill_file(environment), lambda text: None if text is not None and _MARK in text else text)
    return [*edits, skill] if agent.has_skills else edits


def _is_remote(agent: Agent, text: str) -> bool:
    """Return whether the file has an entry of our name that the user wrote for a server at an address."""
    document: Any = toml_text.parse(text) if agent.is_toml else jsonc_text.parse(text).value
    for key in (agent.section, SERVER_NAME):
        document = cast("dict[str, Any]", document).get(key) if isinstance(document, dict) else None
    return isinstance(document, dict) and not _ADDRESS_FIELDS.isdisjoint(cast("dict[str, Any]", document))


def _skill_file(environment: Mapping[str, str]) -> Path:
    return _home(environment, "CLAUDE_CONFIG_DIR", ".claude") / "skills" / SERVER_NAME / "SKILL.md"


def _read(path: Path) -> str | None:
    try:
        if path.exists() and not path.is_file():
            raise ConfigInvalid(f"cannot edit {path}: it is not a file")
        with path.open("rb") as file:
            content = file.read(CONFIG_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error(error, f"cannot read {path}", reading=True) from error
    if len(content) > CONFIG_BYTES:
        raise ConfigInvalid(f"cannot edit {path}: it is larger than {CONFIG_BYTES:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigInvalid(f"cannot edit {path}: it is not UTF-8 text") from error


def _write(change: Change) -> bool:
    """Write the change at once, as a whole. Return False if the file has changed since it was read."""
    # The file that a symbolic link leads to is replaced, not the link.
    target = Path(os.path.realpath(change.path))
    try:
        if change.after is None:
            if _read(change.path) != change.before:
                return False
            target.unlink()
            _remove_empty_folder(target.parent)
            return True
        target.parent.mkdir(parents=True, exist_ok=True)
        return _replace(target, change)
    except OSError as error:
        raise storage_error(error, f"cannot write {change.path}") from error


def _replace(target: Path, change: Change) -> bool:
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    written = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write((change.after or "").encode())
            file.flush()
            os.fsync(file.fileno())
        _copy_owner_and_mode(target, written)
        if _read(change.path) != change.before:
            return False
        written.replace(target)
        return True
    finally:
        written.unlink(missing_ok=True)


def _copy_owner_and_mode(target: Path, written: Path) -> None:
    """Give the new file the owner and mode of the old one. A new file of `mkstemp` is readable by its owner only."""
    try:
        known = target.stat()
    except FileNotFoundError:
        return
    with suppress(PermissionError):
        os.chown(written, known.st_uid, known.st_gid)
    written.chmod(stat.S_IMODE(known.st_mode))


def _remove_empty_folder(folder: Path) -> None:
    """Remove the folder of the skill, which has no other file."""
    if folder.name == SERVER_NAME:
        with suppress(OSError):
            folder.rmdir()
