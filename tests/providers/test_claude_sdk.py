"""Start a session of the Agent SDK, report why it cannot start, and normalize its stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.providers.streams import FIXTURES

from shopfloor.adapters.providers import PROVIDER_NAMES, provider
from shopfloor.adapters.providers.jsonl import final_report
from shopfloor.errors import UnsupportedOption
from shopfloor.log import ToolResult
from shopfloor.ports import AgentExit, AgentReport, AgentRequest, Launch, OwnTool, SessionEnded, TranscriptItem

SDK = provider("claude-sdk")
CLI = provider("claude-code")
OURS = "0d9f3c1e-6d0b-4c55-9a6e-2f8d1b7c4e10"
ADD = OwnTool(name="add", description="Adds.", parameters={"type": "object"}, handler="their_tools:add")
NOT_THERE = "raise ModuleNotFoundError(\"No module named 'claude_agent_sdk'\", name='claude_agent_sdk')"


def launched(env: dict[str, str] | None = None, **options: Any) -> Launch:
    request = AgentRequest(**{"prompt": "Do it.", "cwd": "/srv/demo", "session_id": OURS, **options})
    return SDK.launch(request, {"HOME": "/srv/nobody", **(env or {})})


def session_request(launch: Launch) -> dict[str, Any]:
    return json.loads(launch.stdin)


def allowed(env: dict[str, str] | None = None, **options: Any) -> dict[str, str | None]:
    return session_request(launched(env, **options))["permissions"]


def run(launch: Launch, folder: Path, modules: Path) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(modules), "HOME": str(folder), "PATH": "/usr/bin:/bin", **launch.env}
    process = subprocess.run(launch.argv, input=launch.stdin, env=env, cwd=folder, capture_output=True, timeout=60)
    return subprocess.CompletedProcess(
        process.args, process.returncode, process.stdout.decode(), process.stderr.decode()
    )


def reports_of(scenario: str, code: int = 0) -> list[AgentReport]:
    normalizer = SDK.normalizer()
    data = (FIXTURES / "claude-sdk" / f"{scenario}.jsonl").read_bytes()
    return [*normalizer.feed(data), *normalizer.finish(AgentExit(code=code))]


def ended_by(code: int, stderr: str, *, cancelled: bool = False) -> SessionEnded:
    return final_report(SDK.normalizer().finish(AgentExit(code=code, stderr=stderr, cancelled=cancelled)))


# The launcher.


def test_the_whole_request_goes_to_stdin() -> None:
    launch = launched(prompt="Say ☃ \ud800.", model="opus", own_tools=[ADD], sandbox=True)
    assert launch.argv == [sys.executable, "-P", "-m", "shopfloor.adapters.providers.claude_sdk.session"]
    request = session_request(launch)["request"]
    assert (request["prompt"], request["model"], request["sandbox"]) == ("Say ☃ ?.", "opus", True)
    assert request["own_tools"] == [
        {"name": "add", "description": "Adds.", "parameters": {"type": "object"}, "handler": "their_tools:add"}
    ]


def test_a_session_has_our_id_or_the_one_that_it_had() -> None:
    assert launched().session_id == OURS
    assert launched(resume="5c9d357b-4c04-4d89-b91e-64e9d40cba38").session_id == "5c9d357b-4c04-4d89-b91e-64e9d40cba38"


def test_it_logs_in_as_claude_code_does(tmp_path: Path) -> None:
    assert SDK.login({}, tmp_path) is None
    assert SDK.login({"ANTHROPIC_API_KEY": "x"}, tmp_path) == "ANTHROPIC_API_KEY"
    assert launched({"CLAUDE_CODE_OAUTH_TOKEN": "x"}).access_mode == "subscription"
    assert launched({"ANTHROPIC_API_KEY": "x"}).access_mode == "api"


@pytest.mark.parametrize("env", [{}, {"IS_SANDBOX": "1"}])
@pytest.mark.parametrize("options", [{}, {"tools": ["Read", "Bash"]}, {"tools": []}, {"read_only": True}])
def test_it_may_do_what_claude_code_may(env: dict[str, str], options: dict[str, Any]) -> None:
    request = AgentRequest(prompt="Do it.", cwd="/srv/demo", session_id=OURS, **options)
    flags = {f"--{name}" if value is None else f"--{name}={value}" for name, value in allowed(env, **options).items()}
    cli = set(CLI.launch(request, env).argv)
    assert flags <= cli
    assert {flag for flag in cli if "ermission" in flag or "ools" in flag} <= flags


def test_own_tools_are_allowed_with_the_others() -> None:
    assert allowed(own_tools=[ADD])["allowedTools"] == "Bash,WebFetch,WebSearch,mcp__shopfloor__add"
    assert allowed(own_tools=[ADD], read_only=True) == {
        "tools": "Read,Glob,Grep",
        "strict-mcp-config": None,
        "permission-mode": "default",
        "allowedTools": "mcp__shopfloor__add",
    }


def test_in_a_sandbox_the_permission_rules_always_apply() -> None:
    assert "dangerously-skip-permissions" in allowed({"IS_SANDBOX": "1"})
    assert allowed({"IS_SANDBOX": "1"}, sandbox=True) == allowed()


@pytest.mark.parametrize("name", ["", "a,b", "a b", "Bash(x)", "x" * 49])
def test_an_own_tool_that_no_model_can_name_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedOption, match="invalid name of an own tool"):
        launched(own_tools=[OwnTool(name=name, description="", parameters={}, handler="a:b")])


def test_a_system_prompt_that_no_argument_can_hold_is_refused() -> None:
    with pytest.raises(UnsupportedOption, match="too long"):
        launched(system_prompt="☃" * 50_000)


def test_it_can_do_what_claude_code_can_but_for_forks_and_more() -> None:
    own, cli = SDK.capabilities, CLI.capabilities
    more = {name for name in own.__struct_fields__ if getattr(own, name) and not getattr(cli, name)}
    less = {name for name in own.__struct_fields__ if getattr(cli, name) and not getattr(own, name)}
    assert (more, less) == ({"own_tools", "sandbox"}, {"fork_session"})


@pytest.mark.parametrize("name", PROVIDER_NAMES)
def test_a_provider_has_a_reason_exactly_if_it_cannot_ask_for_approvals(name: str) -> None:
    one = provider(name)
    assert (one.no_approvals_reason is None) is one.capabilities.approvals


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [("*", "*"), ("mc*", "mcp__*"), ("mcp_?x*", "mcp__*"), ("mcp__a__*", "mcp__a__*"), ("New[TU]ool", "New*")],
)
def test_a_wildcard_also_covers_tools_that_are_not_known_here(pattern: str, rule: str) -> None:
    assert session_request(launched(approve=[f"{pattern}(rm *)"]))["prompted_tools"][0] == rule
    request = AgentRequest(prompt="Do it.", cwd="/srv/demo", session_id=OURS, approve=[pattern])
    (settings,) = [word for word in CLI.launch(request, {}).argv if word.startswith("--settings=")]
    assert rule in json.loads(settings.partition("=")[2])["permissions"]["ask"]


def test_with_approvals_the_permission_rules_apply_and_own_tools_are_prompted_by_both_names() -> None:
    launch = launched({"IS_SANDBOX": "1"}, own_tools=[ADD], approve=["Bash(git push*)", "a*", "mcp__other__*"])
    session = session_request(launch)
    assert session["prompted_tools"] == ["Bash", "a*", "mcp__other__*", "mcp__shopfloor__add"]
    assert "dangerously-skip-permissions" not in session["permissions"]
    assert launch.answer_permission is not None
    assert launched().answer_permission is None


# Sessions that cannot start.


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path) -> None:
    (tmp_path / "claude_agent_sdk.py").write_text(NOT_THERE)
    ran = run(launched(), tmp_path, tmp_path)
    message = "claude-agent-sdk is not installed: install Shopfloor with its extra `claude`"
    assert (ran.returncode, ran.stdout, ran.stderr) == (69, "", f"{message}\n")
    ended = ended_by(ran.returncode, ran.stderr)
    assert ended.error is not None
    assert (ended.status, ended.error.code, ended.error.message) == ("failed", "agent_not_installed", message)


def test_a_package_that_has_changed_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "claude_agent_sdk.py").write_text("")
    ran = run(launched(), tmp_path, tmp_path)
    assert (ran.returncode, ran.stdout) == (69, "")
    assert ran.stderr.startswith("claude-agent-sdk cannot be used (")
    assert ran.stderr.endswith("): install Shopfloor with its extra `claude`\n")


@pytest.mark.parametrize("handler", ["their_tools:gone", "no_such_module:add", "their_tools", "their_tools:NUMBER"])
def test_an_own_tool_that_is_not_there_ends_it_before_anything_happens(tmp_path: Path, handler: str) -> None:
    (tmp_path / "their_tools.py").write_text("NUMBER = 1")
    tool = OwnTool(name="add", description="", parameters={}, handler=handler)
    ran = run(launched(own_tools=[tool]), tmp_path, tmp_path)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("cannot load the tool 'add': ")
    assert "Traceback" not in ran.stderr
    ended = ended_by(ran.returncode, ran.stderr)
    assert ended.error is not None
    assert ended.error.code == "agent_error"
    assert "cannot load the tool 'add'" in ended.error.message


def test_its_program_loads_no_room_that_it_does_not_need() -> None:
    found = "import sys; from shopfloor.adapters.providers.claude_sdk import session, conversation; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", found], capture_output=True, text=True, check=True).stdout.split()
    rooms = {name.split(".")[1] for name in loaded if name.startswith("shopfloor.")}
    assert not rooms & {"cli", "client", "engine", "facade", "server", "wiring"}
    assert not {"sqlite3", "httpx"} & set(loaded)


# The stream.


def test_its_stream_is_that_of_claude_code() -> None:
    for scenario in ("text", "bash", "tools_restricted"):
        ended = final_report(reports_of(scenario))
        assert (ended.status, ended.unparsed) == ("completed", 0)
        assert ended.cost_usd


def test_own_tools_and_their_results_are_reported() -> None:
    reports = reports_of("sdkmcp")
    results = [
        one.payload for one in reports if isinstance(one, TranscriptItem) and isinstance(one.payload, ToolResult)
    ]
    assert [result.name for result in results] == ["mcp__calc__add", "mcp__calc__boom"]
    assert [result.error is None for result in results] == [True, False]
    assert final_report(reports).text == "2+3=5; the other tool failed."


def test_a_spent_budget_has_its_own_error_code() -> None:
    ended = final_report(reports_of("max_budget", code=1))
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "budget_exceeded")


def test_a_sandbox_that_cannot_start_is_a_failure_that_says_so() -> None:
    (ended,) = [one for one in reports_of("sandbox_failif", code=1) if isinstance(one, SessionEnded)]
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "agent_error")
    assert ended.error.message.startswith("Sandbox required but unavailable")


def test_a_stopped_session_is_not_mistaken_for_a_missing_package() -> None:
    assert ended_by(69, "", cancelled=True).status == "cancelled"
