"""Start Codex: options and login."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from shopfloor.adapters.providers import provider
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Launch

CODEX = provider("codex")
THREAD = "01a1dcba-f63f-7e13-a5b0-3ded4b647be5"
OURS = ["-c", "features.plugins=false", "-c", "features.unbounded_connection_retries=false"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def launched(home: Path, env: dict[str, str] | None = None, **options: Any) -> Launch:
    request = AgentRequest(**{"prompt": "Do it.", "cwd": "/srv/demo", "session_id": "s", **options})
    return CODEX.launch(request, {"HOME": str(home), **(env or {})})


def logged_in(home: Path, **auth: Any) -> Path:
    file = home / ".codex" / "auth.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(auth))
    return file


def settings(launch: Launch) -> list[str]:
    return [value for flag, value in zip(launch.argv, launch.argv[1:], strict=False) if flag == "-c"]


# Options.


def test_a_plain_request_may_write_in_its_folder_alone(home: Path) -> None:
    launch = launched(home)
    head = ["codex", "exec", "--json", "--skip-git-repo-check", "-s", "workspace-write"]
    assert launch.argv == [*head, *OURS, "-"]
    assert (launch.session_id, launch.env) == (None, {})


def test_the_prompt_goes_to_stdin_only(home: Path) -> None:
    launch = launched(home, prompt="--help ☃ \ud800")
    assert launch.stdin == "--help ☃ ?".encode()
    assert not [part for part in launch.argv if "☃" in part]


def test_a_model_is_passed_by_name(home: Path) -> None:
    argv = launched(home, model="gpt-5.5").argv
    assert argv[-3:] == ["-m", "gpt-5.5", "-"]


def test_a_session_is_resumed_behind_all_options(home: Path) -> None:
    launch = launched(home, resume=THREAD, model="gpt-5.5", read_only=True)
    assert launch.argv[-4:] == ["gpt-5.5", "resume", THREAD, "-"]
    assert launch.argv.index("-s") < launch.argv.index("resume")
    assert launch.session_id == THREAD


def thread_file(home: Path, *lines: bytes) -> None:
    folder = home / ".codex" / "sessions" / "2026" / "11" / "15"
    folder.mkdir(parents=True)
    (folder / f"rollout-2026-11-15T01-03-22-{THREAD}.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))


def total(tokens: int | None) -> bytes:
    info = None if tokens is None else {"total_token_usage": {"input_tokens": tokens, "cached_input_tokens": 10}}
    return json.dumps({"type": "event_msg", "payload": {"type": "token_count", "info": info}}).encode()


def test_the_prior_usage_of_a_thread_is_the_last_total_in_its_file(home: Path) -> None:
    thread_file(home, total(100), total(250), total(None), b'"token_count" is no record', b'{"type": "torn')
    assert launched(home, resume=THREAD).prior_usage == Usage(input=240, cache_read=10)
    # Usage that the request has takes precedence over the file.
    assert launched(home, resume=THREAD, prior_usage=Usage()).prior_usage == Usage()


def test_a_thread_that_no_model_has_answered_has_spent_nothing(home: Path) -> None:
    thread_file(home, b'{"type": "session_meta"}')
    assert launched(home, resume=THREAD, max_budget_usd=1.0).prior_usage == Usage()


def test_a_budget_is_refused_if_the_prior_usage_is_unknown(home: Path) -> None:
    assert launched(home, resume=THREAD).prior_usage is None
    with pytest.raises(UnsupportedOption, match="cannot enforce a budget"):
        launched(home, resume=THREAD, max_budget_usd=1.0)


@pytest.mark.parametrize("resume", ["--last", "some name", "", "01a1dcbaf63f7e13a5b03ded4b647be5", "-"])
def test_only_an_id_can_be_resumed(home: Path, resume: str) -> None:
    with pytest.raises(UnsupportedOption, match="cannot resume"):
        launched(home, resume=resume)


@pytest.mark.parametrize(
    ("env", "read_only", "flags"),
    [
        ({}, True, ["-s", "read-only"]),
        ({}, False, ["-s", "workspace-write"]),
        ({"SHOPFLOOR_AGENT_UNRESTRICTED": "1"}, False, ["--dangerously-bypass-approvals-and-sandbox"]),
        ({"SHOPFLOOR_AGENT_UNRESTRICTED": "0"}, False, ["-s", "workspace-write"]),
        ({"SHOPFLOOR_AGENT_UNRESTRICTED": "1"}, True, ["-s", "read-only"]),
    ],
)
def test_it_never_gets_more_permissions_than_requested(
    home: Path, env: dict[str, str], read_only: bool, flags: list[str]
) -> None:
    argv = launched(home, env, read_only=read_only).argv
    assert argv[4 : 4 + len(flags)] == flags
    assert ("--dangerously-bypass-approvals-and-sandbox" in argv) == (len(flags) == 1)


@pytest.mark.parametrize(
    "text", ["Be brief.", 'Say "hi" \\ ☃ 😀\nline two\'s\ttab', "\0\x1b\x7f\u2028\ufeff", "", "key=value # no comment"]
)
def test_a_system_prompt_is_a_setting_that_keeps_every_character(home: Path, text: str) -> None:
    (setting,) = [one for one in settings(launched(home, system_prompt=text)) if one.startswith("developer")]
    assert tomllib.loads(setting) == {"developer_instructions": text}


def test_a_system_prompt_that_fits_into_no_argument_is_refused(home: Path) -> None:
    with pytest.raises(UnsupportedOption, match="too long") as refused:
        launched(home, system_prompt="x" * 200_000)
    assert refused.value.hint


def test_unsupported_limits_are_refused_with_a_hint(home: Path) -> None:
    with pytest.raises(UnsupportedOption, match="turns"):
        launched(home, max_turns=3)
    with pytest.raises(UnsupportedOption, match="tools") as refused:
        launched(home, tools=["shell"])
    assert "--read-only" in (refused.value.hint or "")


def test_a_budget_is_not_codexs_business(home: Path) -> None:
    assert launched(home, max_budget_usd=1.5).argv == launched(home).argv


# Config overrides of the environment.


def test_the_environment_adds_settings_line_by_line(home: Path) -> None:
    config = '\n# ours\n  model_provider="acme"\n\nmodel_providers.acme.http_headers={ "a" = "b=c" }\r\n'
    launch = launched(home, {"SHOPFLOOR_CODEX_CONFIG": config}, system_prompt="x")
    assert settings(launch) == [
        *OURS[1::2],
        'model_provider="acme"',
        'model_providers.acme.http_headers={ "a" = "b=c" }',
        'developer_instructions="x"',
    ]


@pytest.mark.parametrize("line", ["model_provider", "=acme"])
def test_a_line_that_is_no_setting_is_refused(home: Path, line: str) -> None:
    with pytest.raises(UnsupportedOption, match="SHOPFLOOR_CODEX_CONFIG"):
        launched(home, {"SHOPFLOOR_CODEX_CONFIG": line})


# Login.


def test_without_a_key_or_a_file_there_is_no_login(home: Path) -> None:
    assert CODEX.login({}, home) is None
    assert CODEX.login({"CODEX_API_KEY": " ", "OPENAI_API_KEY": ""}, home) is None
    assert launched(home).access_mode == "api"


def test_the_file_of_a_subscription_is_a_login(home: Path) -> None:
    file = logged_in(home, OPENAI_API_KEY=None, tokens={"access_token": "scripted"})
    assert CODEX.login({}, home) == str(file)
    assert launched(home).access_mode == "subscription"


def test_the_login_file_is_in_codex_home(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    file = logged_in(elsewhere, tokens={"access_token": "scripted"})
    env = {"CODEX_HOME": str(file.parent)}
    assert CODEX.login(env, home) == str(file)
    assert launched(home, env).access_mode == "subscription"


def test_a_key_in_the_file_is_paid_by_the_token(home: Path) -> None:
    logged_in(home, OPENAI_API_KEY="sk-scripted", tokens=None)
    assert launched(home).access_mode == "api"


def test_a_file_that_cannot_be_read_is_still_a_login(home: Path) -> None:
    file = logged_in(home)
    file.write_bytes(b"\xff not json")
    assert CODEX.login({}, home) == str(file)
    assert launched(home).access_mode == "subscription"


def test_the_key_of_codex_takes_precedence(home: Path) -> None:
    logged_in(home, tokens={"access_token": "scripted"})
    env = {"CODEX_API_KEY": "sk-codex", "OPENAI_API_KEY": "sk-openai"}
    assert CODEX.login(env, home) == "CODEX_API_KEY"
    launch = launched(home, env)
    assert (launch.access_mode, launch.env) == ("api", {})


def test_an_openai_key_is_passed_on_because_codex_ignores_it(home: Path) -> None:
    env = {"OPENAI_API_KEY": "sk-openai"}
    assert CODEX.login(env, home) == "OPENAI_API_KEY"
    launch = launched(home, env)
    assert (launch.access_mode, launch.env) == ("api", {"CODEX_API_KEY": "sk-openai"})
    assert not [part for part in launch.argv if "sk-openai" in part]


def test_a_key_for_openai_does_not_replace_a_subscription(home: Path) -> None:
    file = logged_in(home, tokens={"access_token": "scripted"})
    env = {"OPENAI_API_KEY": "sk-openai"}
    assert CODEX.login(env, home) == str(file)
    launch = launched(home, env)
    assert (launch.access_mode, launch.env) == ("subscription", {})


def test_another_model_provider_is_a_login_of_its_own(home: Path) -> None:
    logged_in(home, tokens={"access_token": "scripted"})
    env = {"SHOPFLOOR_CODEX_CONFIG": 'model_provider = "acme"', "OPENAI_API_KEY": "sk-openai"}
    assert CODEX.login(env, home) == "SHOPFLOOR_CODEX_CONFIG"
    launch = launched(home, env)
    assert (launch.access_mode, launch.env) == ("api", {})


def test_its_description_and_capabilities() -> None:
    assert (CODEX.name, CODEX.program, CODEX.install) == ("codex", "codex", "npm install -g @openai/codex")
    able = CODEX.capabilities
    assert (able.resume, able.read_only, able.thinking, able.usage, able.sub_agents) == (True,) * 5
    assert (able.tool_limits, able.max_turns, able.max_budget, able.deltas, able.cost) == (False,) * 5
