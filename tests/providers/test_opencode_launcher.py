"""Start OpenCode: options and login."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shopfloor.adapters.providers import provider
from shopfloor.adapters.providers.opencode import launcher
from shopfloor.errors import UnsupportedOption
from shopfloor.ports import AgentRequest, Launch

CONFIG_VARIABLE = "OPENCODE_CONFIG_CONTENT"
READ = {"*": "allow", "*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"}


def launched(env: dict[str, str] | None = None, **options: Any) -> Launch:
    session = "0f0e0d0c-0000-4000-8000-000000000000"
    request = AgentRequest(**{"prompt": "Do it.", "cwd": "/srv/demo", "session_id": session, **options})
    return provider("opencode").launch(request, env or {})


def config(launch: Launch) -> dict[str, Any]:
    return json.loads(launch.env[CONFIG_VARIABLE])


def test_the_prompt_goes_to_stdin_only() -> None:
    launch = launched(prompt='Say "ä".\nNow.', system_prompt="Be brief.", model="anthropic/claude-sonnet-4-6")
    assert launch.stdin == 'Be brief.\n\nSay "ä".\nNow.'.encode()
    assert launch.argv == [
        *["opencode", "run", "--format", "json", "--thinking", "--dir=/srv/demo"],
        *["--model=anthropic/claude-sonnet-4-6", "--title=shopfloor 0f0e0d0c"],
    ]
    assert launch.session_id is None


def test_a_session_that_is_resumed_keeps_its_title() -> None:
    launch = launched(resume="ses_1")
    assert (launch.argv[-1], launch.session_id) == ("--session=ses_1", "ses_1")
    assert not any(arg.startswith("--title") for arg in launch.argv)


def test_by_default_the_users_configuration_decides_and_a_denial_does_not_end_the_session() -> None:
    launch = launched()
    assert config(launch) == {"experimental": {"continue_loop_on_deny": True}}
    assert "--agent" not in launch.argv
    assert "--auto" not in launch.argv


def test_permissions_are_approved_only_by_request_of_the_user() -> None:
    assert "--auto" in launched({"SHOPFLOOR_AGENT_UNRESTRICTED": "1"}).argv
    assert "--auto" not in launched({"SHOPFLOOR_AGENT_UNRESTRICTED": "yes"}).argv


@pytest.mark.parametrize("env", [{}, {"SHOPFLOOR_AGENT_UNRESTRICTED": "1"}])
@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({"tools": ["bash", "read"]}, {"bash": "allow", "read": READ}),
        ({"tools": ["edit", "write", "apply_patch"]}, {"edit": "allow"}),
        ({"tools": []}, {}),
        ({"read_only": True}, {**dict.fromkeys(launcher.READ_ONLY_TOOLS, "allow"), "read": READ}),
        ({"read_only": True, "tools": ["bash", "grep", "write"]}, {"grep": "allow"}),
    ],
)
def test_limits_are_enforced_by_an_agent_that_denies_all_other_tools(
    options: dict[str, Any], rules: dict[str, Any], env: dict[str, str]
) -> None:
    launch = launched(env, **options)
    assert launch.argv[launch.argv.index("--agent") + 1] == launcher.LIMITED_AGENT
    agent = config(launch)["agent"][launcher.LIMITED_AGENT]
    assert agent == {"mode": "primary", "permission": {"*": "deny", **rules}}
    assert next(iter(agent["permission"])) == "*"


def test_the_existing_configuration_is_kept() -> None:
    user_config = {
        "model": "stub/m",
        "agent": {"build": {"steps": 3}},
        "experimental": {"continue_loop_on_deny": False, "openTelemetry": True},
    }
    launch = launched({CONFIG_VARIABLE: json.dumps(user_config)}, read_only=True)
    merged = config(launch)
    assert (merged["model"], merged["experimental"]) == ("stub/m", user_config["experimental"])
    assert merged["agent"]["build"] == {"steps": 3}
    assert launcher.LIMITED_AGENT in merged["agent"]


def test_a_configuration_that_we_cannot_read_is_left_alone_unless_it_has_to_hold_limits() -> None:
    env = {CONFIG_VARIABLE: '// mine\n{"model": "stub/m"}'}
    assert launched(env).env == {}
    with pytest.raises(UnsupportedOption, match="not valid JSON"):
        launched(env, read_only=True)


def test_no_tool_that_changes_something_is_one_for_reading() -> None:
    assert {"bash", "edit", "write", "apply_patch", "task"}.isdisjoint(launcher.READ_ONLY_TOOLS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_turns": 3}, "turns"),
        ({"model": "gpt-5"}, "has no provider"),
        ({"model": "openai/"}, "has no provider"),
        ({"tools": ["task", "read"]}, "sub-agents"),
        ({"tools": ["write"]}, "one permission"),
    ],
)
def test_unsupported_options_are_errors_with_hints(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedOption, match=message) as refused:
        launched(**options)
    assert refused.value.hint


def test_a_budget_does_not_change_the_command() -> None:
    assert launched(max_budget_usd=1.0).argv == launched().argv


def test_it_logs_in_by_a_key_by_its_file_or_by_its_configuration(tmp_path: Path) -> None:
    opencode = provider("opencode")
    assert opencode.login({}, tmp_path) is None
    file = tmp_path / ".local" / "share" / "opencode" / "auth.json"
    file.parent.mkdir(parents=True)
    file.touch()
    assert opencode.login({"OPENAI_API_KEY": ""}, tmp_path) == str(file)
    assert opencode.login({"XDG_DATA_HOME": str(tmp_path)}, tmp_path) is None
    assert opencode.login({"OPENROUTER_API_KEY": "k"}, tmp_path) == "OPENROUTER_API_KEY"
    keyed = {"provider": {"stub": {"options": {"apiKey": "k"}}, "odd": 7}}
    assert opencode.login({CONFIG_VARIABLE: json.dumps(keyed), "OPENAI_API_KEY": "k"}, tmp_path) == CONFIG_VARIABLE
    assert opencode.login({CONFIG_VARIABLE: "{}"}, tmp_path) == str(file)


def test_its_description() -> None:
    opencode = provider("opencode")
    assert (opencode.name, opencode.program, opencode.install) == (
        "opencode",
        "opencode",
        "npm install -g opencode-ai",
    )
    able = {name for name, can in msgspec.structs.asdict(opencode.capabilities).items() if can}
    assert able == {
        *("resume", "tool_limits", "read_only", "thinking", "cost", "usage", "sub_agents", "code_generation"),
    }
