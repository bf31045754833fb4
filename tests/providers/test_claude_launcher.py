"""Start Claude Code: options, permissions and login."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shopfloor.adapters.providers import provider
from shopfloor.errors import UnsupportedOption
from shopfloor.ports import AgentRequest, Launch

CLAUDE = provider("claude-code")
OURS = "0d9f3c1e-6d0b-4c55-9a6e-2f8d1b7c4e10"
PRINT = ["claude", "-p", "--output-format=stream-json", "--verbose", "--include-partial-messages"]
DEFAULT = ["--permission-mode=acceptEdits", "--allowedTools=Bash,WebFetch,WebSearch"]
SKIP_PERMISSIONS = "--dangerously-skip-permissions"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def launched(home: Path, env: dict[str, str] | None = None, **options: Any) -> Launch:
    request = AgentRequest(**{"prompt": "Do it.", "cwd": "/srv/demo", "session_id": OURS, **options})
    return CLAUDE.launch(request, {"HOME": str(home), **(env or {})})


def allowed(home: Path, env: dict[str, str] | None = None, **options: Any) -> list[str]:
    """Return the flags after those of every run."""
    return launched(home, env, **options).argv[len(PRINT) + 1 :]


def logged_in(folder: Path) -> Path:
    file = folder / ".credentials.json"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")
    return file


# Options.


def test_a_plain_request_starts_a_session_with_our_id(home: Path) -> None:
    launch = launched(home)
    assert launch.argv == [*PRINT, f"--session-id={OURS}", *DEFAULT]
    assert (launch.session_id, launch.stdin) == (OURS, b"Do it.")


def test_the_prompt_goes_to_stdin_only(home: Path) -> None:
    launch = launched(home, prompt="--help ☃ \ud800")
    assert launch.stdin == "--help ☃ ?".encode()
    assert not [part for part in launch.argv if "☃" in part]


def test_a_session_is_resumed_under_its_own_id(home: Path) -> None:
    launch = launched(home, resume="5c9d357b-4c04-4d89-b91e-64e9d40cba38")
    assert launch.argv[len(PRINT)] == "--resume=5c9d357b-4c04-4d89-b91e-64e9d40cba38"
    assert launch.session_id == "5c9d357b-4c04-4d89-b91e-64e9d40cba38"
    assert not [part for part in launch.argv if OURS in part]


def test_options_are_passed_as_one_argument_each(home: Path) -> None:
    options = {"model": "opus", "max_turns": 3, "max_budget_usd": 0.5, "system_prompt": "--be brief,\nplease"}
    assert allowed(home, **options)[len(DEFAULT) :] == [
        "--model=opus",
        "--max-turns=3",
        "--max-budget-usd=0.5",
        "--append-system-prompt=--be brief,\nplease",
    ]


def test_a_system_prompt_that_no_argument_can_hold_is_refused(home: Path) -> None:
    launched(home, system_prompt="x" * 131_000)
    with pytest.raises(UnsupportedOption, match="too long"):
        launched(home, system_prompt="☃" * 50_000)


def test_it_does_not_update_itself_and_prints_messages_of_sub_agents(home: Path) -> None:
    assert launched(home).env == {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_FORWARD_SUBAGENT_TEXT": "1"}


# Permissions.


def test_a_run_may_edit_its_folder_and_run_commands(home: Path) -> None:
    assert allowed(home) == DEFAULT


@pytest.mark.parametrize("name", ["IS_SANDBOX", "SHOPFLOOR_AGENT_UNRESTRICTED"])
def test_permission_checks_are_off_only_by_request(home: Path, name: str) -> None:
    assert allowed(home, {name: "1"}) == [SKIP_PERMISSIONS]
    assert allowed(home, {name: "0"}) == allowed(home, {name: "yes"}) == DEFAULT


def test_only_the_listed_tools_exist_and_those_that_would_need_approval_are_allowed(home: Path) -> None:
    assert allowed(home, tools=["Read", "Edit", "Bash"]) == [
        "--tools=Read,Edit,Bash",
        "--strict-mcp-config",
        "--permission-mode=acceptEdits",
        "--allowedTools=Bash",
    ]


def test_file_tools_are_not_allowed_everywhere_by_being_named(home: Path) -> None:
    assert allowed(home, tools=["Read", "Write"]) == [
        "--tools=Read,Write",
        "--strict-mcp-config",
        "--permission-mode=acceptEdits",
    ]


def test_no_tools_are_no_tools(home: Path) -> None:
    assert allowed(home, tools=[]) == ["--tools=", "--strict-mcp-config", "--permission-mode=acceptEdits"]


def test_only_the_listed_tools_exist_without_permission_checks(home: Path) -> None:
    assert allowed(home, {"IS_SANDBOX": "1"}, tools=["Bash"]) == [
        "--tools=Bash",
        "--strict-mcp-config",
        SKIP_PERMISSIONS,
    ]


@pytest.mark.parametrize("env", [{}, {"IS_SANDBOX": "1"}])
def test_a_servers_tool_that_is_named_is_allowed_and_its_others_are_not(home: Path, env: dict[str, str]) -> None:
    assert allowed(home, env, tools=["Read", "mcp__calc__add"]) == [
        "--tools=Read",
        "--permission-mode=acceptEdits",
        "--allowedTools=mcp__calc__add",
    ]


@pytest.mark.parametrize("tool", ["Read,Bash", "Read Bash", "Bash(git *)", "", "-x y"])
def test_an_invalid_tool_name_is_refused(home: Path, tool: str) -> None:
    with pytest.raises(UnsupportedOption, match="invalid tool name"):
        launched(home, tools=[tool])


@pytest.mark.parametrize("env", [{}, {"IS_SANDBOX": "1"}, {"SHOPFLOOR_AGENT_UNRESTRICTED": "1"}])
def test_a_read_only_run_has_no_other_tools_whatever_else_is_allowed(home: Path, env: dict[str, str]) -> None:
    assert allowed(home, env, read_only=True) == [
        "--tools=Read,Glob,Grep",
        "--strict-mcp-config",
        "--permission-mode=default",
    ]


def test_a_read_only_run_has_only_the_listed_tools_that_read(home: Path) -> None:
    tools = ["Read", "Write", "Bash", "mcp__calc__add", "WebSearch"]
    assert allowed(home, read_only=True, tools=tools) == [
        "--tools=Read,WebSearch",
        "--strict-mcp-config",
        "--permission-mode=default",
        "--allowedTools=WebSearch",
    ]
    assert allowed(home, read_only=True, tools=["Bash"])[0] == "--tools="


# Login.


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("ANTHROPIC_API_KEY", "api"),
        ("ANTHROPIC_AUTH_TOKEN", "api"),
        ("CLAUDE_CODE_USE_BEDROCK", "api"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "subscription"),
    ],
)
def test_a_variable_is_a_login(home: Path, name: str, mode: str) -> None:
    assert CLAUDE.login({name: "x"}, home) == name
    assert CLAUDE.login({name: " "}, home) is None
    assert launched(home, {name: "x"}).access_mode == mode


def test_a_file_of_credentials_is_a_login_with_a_subscription(home: Path) -> None:
    assert CLAUDE.login({}, home) is None
    assert launched(home).access_mode == "api"
    file = logged_in(home / ".claude")
    assert CLAUDE.login({}, home) == str(file)
    assert launched(home).access_mode == "subscription"


def test_credentials_are_in_the_folder_of_the_settings(home: Path) -> None:
    file = logged_in(home / "elsewhere")
    env = {"CLAUDE_CONFIG_DIR": str(home / "elsewhere")}
    assert CLAUDE.login(env, home) == str(file)
    assert launched(home, env).access_mode == "subscription"


def test_a_key_takes_precedence_over_a_subscription(home: Path) -> None:
    logged_in(home / ".claude")
    env = {"ANTHROPIC_API_KEY": "x", "CLAUDE_CODE_OAUTH_TOKEN": "y"}
    assert CLAUDE.login(env, home) == "ANTHROPIC_API_KEY"
    assert launched(home, env).access_mode == "api"


# Capabilities.


def test_it_is_found_and_installed_by_its_names() -> None:
    assert (CLAUDE.name, CLAUDE.program) == ("claude-code", "claude")
    assert CLAUDE.install == "npm install -g @anthropic-ai/claude-code"


def test_it_has_the_capabilities_of_an_agent() -> None:
    capabilities = CLAUDE.capabilities
    cannot = {name for name in capabilities.__struct_fields__ if not getattr(capabilities, name)}
    # Only the SDK has these.
    assert cannot == {"own_tools", "sandbox"}
