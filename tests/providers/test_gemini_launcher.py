"""Start Gemini CLI: options and login."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shopfloor.adapters.providers import provider
from shopfloor.adapters.providers.gemini import launcher
from shopfloor.errors import UnsupportedOption
from shopfloor.ports import AgentRequest, Launch


def launched(env: dict[str, str] | None = None, **options: Any) -> Launch:
    request = AgentRequest(**{"prompt": "Do it.", "cwd": "/srv/demo", "session_id": "new-id", **options})
    return provider("gemini").launch(request, env or {})


def policies(launch: Launch) -> list[str]:
    return [arg.removeprefix("--policy=") for arg in launch.argv if arg.startswith("--policy=")]


def test_the_prompt_goes_to_stdin_only() -> None:
    launch = launched(prompt='Say "ä".\nNow.', system_prompt="Be brief.", model="gemini-2.5-pro")
    assert launch.stdin == 'Be brief.\n\nSay "ä".\nNow.'.encode()
    assert launch.argv[:3] == ["gemini", "--output-format", "stream-json"]
    assert launch.argv[-2:] == ["--model=gemini-2.5-pro", "--session-id=new-id"]
    assert not any("brief" in arg or "Now" in arg for arg in launch.argv)
    assert launch.env == {"GEMINI_CLI_TRUST_WORKSPACE": "true"}


def test_a_session_has_the_id_that_we_chose_or_the_one_it_is_resumed_by() -> None:
    assert launched().session_id == "new-id"
    resumed = launched(resume="old-id")
    assert (resumed.session_id, resumed.argv[-1]) == ("old-id", "--resume=old-id")


def test_by_default_it_may_edit_and_cannot_use_plan_mode() -> None:
    launch = launched()
    assert launch.argv[3:5] == ["--approval-mode", "auto_edit"]
    ours, users = policies(launch)
    assert users == "~/.gemini/policies"
    (rule,) = tomllib.loads(Path(ours).read_text())["rule"]
    assert rule == {"toolName": ["enter_plan_mode", "exit_plan_mode"], "decision": "deny", "priority": 999}


def test_it_is_unrestricted_only_by_request_of_the_user() -> None:
    assert "yolo" not in launched({"SHOPFLOOR_AGENT_UNRESTRICTED": "0"}).argv
    assert launched({"SHOPFLOOR_AGENT_UNRESTRICTED": "1"}).argv[3:5] == ["--approval-mode", "yolo"]


@pytest.mark.parametrize("env", [{}, {"SHOPFLOOR_AGENT_UNRESTRICTED": "1"}])
@pytest.mark.parametrize(
    ("options", "mode", "allowed"),
    [
        ({"tools": ["run_shell_command", "read_file"]}, "auto_edit", "run_shell_command,read_file"),
        ({"tools": ["invoke_agent"]}, "auto_edit", "invoke_agent,complete_task"),
        ({"tools": []}, "auto_edit", "none"),
        ({"read_only": True}, "default", ",".join([*launcher.READ_ONLY_TOOLS, "complete_task"])),
        ({"read_only": True, "tools": ["run_shell_command", "read_file"]}, "default", "read_file"),
        ({"read_only": True, "tools": ["run_shell_command"]}, "default", "none"),
    ],
)
def test_limits_are_enforced_by_a_policy_that_denies_all_other_tools(
    options: dict[str, Any], mode: str, allowed: str, env: dict[str, str]
) -> None:
    launch = launched(env, **options)
    assert launch.argv[3:5] == ["--approval-mode", mode]
    assert f"--allowed-tools={allowed}" in launch.argv
    (policy,) = policies(launch)
    (rule,) = tomllib.loads(Path(policy).read_text())["rule"]
    assert rule == {"toolName": "*", "decision": "deny", "priority": 299}


def test_no_tool_that_changes_something_is_one_for_reading() -> None:
    assert {"write_file", "replace", "run_shell_command", "exit_plan_mode"}.isdisjoint(launcher.READ_ONLY_TOOLS)


@pytest.mark.parametrize("folder", ["a,b", "missing"])
def test_a_policy_that_would_be_passed_over_is_an_error(folder: str, tmp_path: Path) -> None:
    (tmp_path / "a,b").mkdir()
    (tmp_path / "a,b" / "only_named.toml").touch()
    options = AgentRequest(prompt="Look.", cwd="/srv/demo", read_only=True, session_id="s")
    with pytest.raises(UnsupportedOption, match="policy"):
        launcher.Gemini(tmp_path / folder).launch(options, {})


def test_unsupported_options_are_errors() -> None:
    with pytest.raises(UnsupportedOption, match="turns") as refused:
        launched(max_turns=3)
    assert refused.value.hint
    with pytest.raises(UnsupportedOption, match="8 MiB"):
        launched(prompt="x" * (8 * 1024 * 1024 + 1))
    assert launched(max_budget_usd=1.0).argv


def test_it_logs_in_by_a_key_or_by_its_file(tmp_path: Path) -> None:
    gemini = provider("gemini")
    assert gemini.login({}, tmp_path) is None
    file = tmp_path / ".gemini" / "oauth_creds.json"
    file.parent.mkdir()
    file.touch()
    assert gemini.login({"GEMINI_API_KEY": " "}, tmp_path) == str(file)
    assert gemini.login({"GEMINI_CLI_HOME": str(tmp_path)}, tmp_path / "elsewhere") == str(file)
    assert gemini.login({"GOOGLE_API_KEY": "k"}, tmp_path) == "GOOGLE_API_KEY"
    assert gemini.login({"GEMINI_API_KEY": "k", "GOOGLE_API_KEY": "k"}, tmp_path) == "GEMINI_API_KEY"
    assert (launched({"GEMINI_API_KEY": "k"}).access_mode, launched().access_mode) == ("api", "subscription")


def test_its_description() -> None:
    gemini = provider("gemini")
    assert (gemini.name, gemini.program, gemini.install) == ("gemini", "gemini", "npm install -g @google/gemini-cli")
    able = {name for name, can in msgspec.structs.asdict(gemini.capabilities).items() if can}
    assert able == {
        *("resume", "tool_limits", "read_only", "deltas", "usage", "sub_agents", "web_search", "code_generation"),
    }
