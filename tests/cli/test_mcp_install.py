"""`shopfloor mcp install` and `uninstall`: the configuration files of agents, edited by the installed command."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import SHOPFLOOR, Cli

pytestmark = pytest.mark.req("SF-47")

FILES = {
    "claude-code": ".claude.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "copilot": ".copilot/mcp-config.json",
    "opencode": ".config/opencode/opencode.json",
    "cursor": ".cursor/mcp.json",
}
COMMAND = {"command": SHOPFLOOR, "args": ["mcp"]}
ENTRIES: dict[str, tuple[str, dict[str, Any]]] = {
    "claude-code": ("mcpServers", {"type": "stdio", **COMMAND, "alwaysLoad": True}),
    "codex": ("mcp_servers", {**COMMAND, "required": True, "startup_timeout_sec": 30}),
    "gemini": ("mcpServers", COMMAND),
    "copilot": ("mcpServers", {"type": "local", **COMMAND, "tools": ["*"]}),
    "opencode": ("mcp", {"type": "local", "command": [SHOPFLOOR, "mcp"], "enabled": True}),
    "cursor": ("mcpServers", COMMAND),
}
HOMES = {
    "claude-code": ("CLAUDE_CONFIG_DIR", ".claude.json"),
    "codex": ("CODEX_HOME", "config.toml"),
    "gemini": ("GEMINI_CLI_HOME", ".gemini/settings.json"),
    "copilot": ("COPILOT_HOME", "mcp-config.json"),
    "opencode": ("XDG_CONFIG_HOME", "opencode/opencode.json"),
}
COMMENTED = '// mine\r\n{\r\n\t"theme": "dark", // keep\r\n\t"mcpServers": {\r\n\t\t/* none */\r\n\t},\r\n}'


@pytest.fixture
def home(tmp_path: Path, env: dict[str, str]) -> Path:
    """An empty home."""
    for variable, _ in HOMES.values():
        env.pop(variable, None)
    env["HOME"] = str(tmp_path / "home")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text()) if path.suffix == ".toml" else json.loads(path.read_text())


@pytest.mark.parametrize("agent", FILES)
def test_an_empty_home_gets_the_server_and_is_empty_again_afterwards(shopfloor: Cli, home: Path, agent: str) -> None:
    done = shopfloor("mcp", "install", agent)
    assert done.returncode == 0, done.stderr
    path = home / FILES[agent]
    section, entry = ENTRIES[agent]
    assert read(path) == {section: {"shopfloor": entry}}
    assert f"created {path}\n" in done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = files_of(home)
    again = shopfloor("mcp", "install", agent)
    assert (again.returncode, files_of(home)) == (0, before)
    assert again.stdout.endswith(" has the MCP server `shopfloor` already\n")
    assert shopfloor("mcp", "uninstall", agent).returncode == 0
    assert files_of(home) == {}
    nothing = shopfloor("mcp", "uninstall", agent)
    assert nothing.returncode == 0
    assert nothing.stdout.endswith(" does not have the MCP server `shopfloor`\n")


@pytest.mark.parametrize("agent", HOMES)
def test_the_home_that_an_agent_uses_is_used_here_too(
    shopfloor: Cli, home: Path, env: dict[str, str], tmp_path: Path, agent: str
) -> None:
    variable, name = HOMES[agent]
    env[variable] = str(tmp_path / "elsewhere")
    assert shopfloor("mcp", "install", agent).returncode == 0
    assert (tmp_path / "elsewhere" / name).is_file()
    assert files_of(home) == {}
    assert shopfloor("mcp", "uninstall", agent).returncode == 0
    assert files_of(tmp_path / "elsewhere") == {}


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("claude-code", '{\n  "numStartups": 3,\n  "mcpServers": {\n    "a": {"command": "x"}\n  }\n}'),
        ("claude-code", "{}"),
        ("gemini", COMMENTED),
        ("gemini", '{"security": {"auth": {}}}\r\n'),
        ("copilot", '{\n    "mcpServers": {}\n}\n'),
        ("opencode", '{\n\t"$schema": "https://opencode.ai/config.json",\n\t"mcp": { }, // mine\n}\n'),
        ("cursor", "\ufeff{ }\n\n"),
        ("codex", 'model = "x" # why\r\n\r\n[mcp_servers.a]\r\ncommand = "x"'),
        ("codex", ""),
        ("codex", "\n"),
    ],
)
def test_foreign_settings_keep_every_byte(shopfloor: Cli, home: Path, agent: str, text: str) -> None:
    path = home / FILES[agent]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(0o640)
    assert shopfloor("mcp", "install", agent).returncode == 0
    changed = path.read_bytes()
    assert SHOPFLOOR.encode() in changed
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert shopfloor("mcp", "install", agent).returncode == 0
    assert path.read_bytes() == changed
    assert shopfloor("mcp", "uninstall", agent).returncode == 0
    assert path.read_bytes() == text.encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_opencode_with_a_file_with_comments_keeps_to_it(shopfloor: Cli, home: Path) -> None:
    path = home / ".config" / "opencode" / "opencode.jsonc"
    path.parent.mkdir(parents=True)
    path.write_text('{\n  // mine\n  "autoupdate": false\n}\n')
    assert shopfloor("mcp", "install", "opencode").returncode == 0
    assert set(files_of(home)) == {".config/opencode/opencode.jsonc"}
    assert "// mine" in path.read_text()


def test_a_symbolic_link_stays_one(shopfloor: Cli, home: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "claude.json"
    target.parent.mkdir()
    target.write_text('{"numStartups": 3}\n')
    (home / ".claude.json").symlink_to(target)
    assert shopfloor("mcp", "install", "claude-code").returncode == 0
    assert (home / ".claude.json").readlink() == target
    assert read(target)["mcpServers"]["shopfloor"]["command"] == SHOPFLOOR
    assert shopfloor("mcp", "uninstall", "claude-code").returncode == 0
    assert (home / ".claude.json").readlink() == target
    assert target.read_text() == '{"numStartups": 3}\n'
    assert [path.name for path in target.parent.iterdir()] == ["claude.json"]


@pytest.mark.parametrize(
    ("agent", "text", "problem"),
    [
        ("claude-code", "", "line 1: expected a value"),
        ("claude-code", '{\n  "a": 1\n  "b": 2\n}', "line 3: expected a comma or `}`"),
        ("claude-code", "[]", "`the document` is not an object"),
        ("claude-code", '{"mcpServers": []}', "`mcpServers` is not an object"),
        ("claude-code", '{"mcpServers": {"shopfloor": 7}}', "`mcpServers.shopfloor` is not an object"),
        ("claude-code", "[" * 5_000, "nested too deep"),
        ("codex", "a = 1\nb = =", "(at line 2, column"),
        ("codex", 'mcp_servers = "x"', "`mcp_servers` is not a table"),
        ("codex", "mcp_servers = {}", "cannot be edited here: it is not written as a table of its own"),
        ("codex", '[mcp_servers]\nshopfloor = {command = "x"}', "cannot be edited here"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_and_left_alone(
    shopfloor: Cli, home: Path, agent: str, text: str, problem: str
) -> None:
    path = home / FILES[agent]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    refused = shopfloor("mcp", "install", agent)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error[config_invalid]: cannot edit {path}: ")
    assert problem in refused.stderr
    assert files_of(home) == {FILES[agent]: text.encode()}


def test_bytes_that_are_no_text_are_refused(shopfloor: Cli, home: Path) -> None:
    (home / ".claude.json").write_bytes(b'{"a": "\xff"}')
    refused = shopfloor("mcp", "install", "claude-code")
    assert "it is not UTF-8 text" in refused.stderr
    assert (home / ".claude.json").read_bytes() == b'{"a": "\xff"}'


def test_an_unknown_agent_is_refused_with_the_known_ones(shopfloor: Cli, home: Path) -> None:
    refused = shopfloor("mcp", "install", "emacs")
    assert refused.returncode == 2
    assert "hint: the agents are claude-code, codex, gemini, copilot, opencode, cursor" in refused.stderr


@pytest.mark.parametrize("agent", FILES)
def test_print_shows_the_changes_and_writes_nothing(shopfloor: Cli, home: Path, agent: str) -> None:
    shown = shopfloor("mcp", "install", agent, "--print").stdout
    assert f"--- /dev/null\n+++ {home / FILES[agent]}\n" in shown
    assert SHOPFLOOR in shown
    assert files_of(home) == {}
    shopfloor("mcp", "install", agent)
    before = files_of(home)
    removed = shopfloor("mcp", "uninstall", agent, "--print").stdout
    assert f"--- {home / FILES[agent]}\n+++ /dev/null\n" in removed
    assert files_of(home) == before


def test_the_storage_of_the_option_becomes_part_of_the_command(shopfloor: Cli, home: Path, tmp_path: Path) -> None:
    assert shopfloor("mcp", "install", "codex", "--storage", "runs", cwd=tmp_path).returncode == 0
    args = read(home / ".codex/config.toml")["mcp_servers"]["shopfloor"]["args"]
    assert args == ["mcp", "--storage", str(tmp_path / "runs")]
    # Another install changes the command, and nothing else.
    with (home / ".codex/config.toml").open("a") as file:
        file.write("tool_timeout_sec = 600\n")
    assert shopfloor("mcp", "install", "codex").returncode == 0
    assert read(home / ".codex/config.toml")["mcp_servers"]["shopfloor"] == {
        **ENTRIES["codex"][1],
        "tool_timeout_sec": 600,
    }


def test_claude_code_gets_a_skill_too_and_a_skill_of_the_user_is_left_alone(shopfloor: Cli, home: Path) -> None:
    skill = home / ".claude" / "skills" / "shopfloor" / "SKILL.md"
    assert shopfloor("mcp", "install", "claude-code").returncode == 0
    assert skill.read_text().startswith("---\nname: shopfloor\ndescription: ")
    assert shopfloor("mcp", "uninstall", "claude-code").returncode == 0
    assert not skill.parent.exists()
    skill.parent.mkdir()
    skill.write_text("my own")
    for command in ("install", "uninstall"):
        assert shopfloor("mcp", command, "claude-code").returncode == 0
        assert skill.read_text() == "my own"


def test_a_folder_that_cannot_be_written_is_a_clear_error(shopfloor: Cli, home: Path) -> None:
    (home / ".codex").write_text("a file, not a folder")
    refused = shopfloor("mcp", "install", "codex")
    assert refused.returncode != 0
    assert refused.stderr.startswith("error[")
    assert str(home / ".codex") in refused.stderr
    assert os.listdir(home) == [".codex"]


@pytest.mark.parametrize(
    ("agent", "content"),
    [
        ("cursor", '{"mcpServers": {"shopfloor": {"url": "https://example.com/mcp"}}}'),
        ("codex", '[mcp_servers.shopfloor]\nurl="https://example.com/mcp" # mine\n'),
    ],
)
def test_an_entry_of_the_user_for_a_remote_server_is_kept(shopfloor: Cli, home: Path, agent: str, content: str) -> None:
    path = home / FILES[agent]
    path.parent.mkdir(parents=True)
    path.write_text(content)
    refused = shopfloor("mcp", "install", agent)
    assert refused.returncode != 0
    assert "has a remote server named 'shopfloor' already" in refused.stderr
    shopfloor("mcp", "uninstall", agent)
    assert path.read_text() == content


def test_a_configuration_file_that_is_a_pipe_is_refused(shopfloor: Cli, home: Path) -> None:
    (home / ".cursor").mkdir()
    os.mkfifo(home / ".cursor" / "mcp.json")
    refused = shopfloor("mcp", "install", "cursor")
    assert refused.returncode != 0
    assert "mcp.json: it is not a file" in refused.stderr
