"""Start Codex: `codex exec --json … -`, with the prompt on stdin.

`SHOPFLOOR_CODEX_CONFIG` adds config overrides from the environment: one `key=value` per line as `codex -c` takes them
(the value is TOML). Blank lines and lines that start with `#` are ignored. A company can point Codex to its own model
provider this way:

    model_provider="acme"
    model_providers.acme.name="Acme"
    model_providers.acme.base_url="https://models.example.com/v1"
    model_providers.acme.env_key="ACME_KEY"
    model_providers.acme.wire_api="responses"
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from shopfloor.adapters.limits import THREAD_TAIL_BYTES
from shopfloor.adapters.providers.codex.normalizer import CodexNormalizer
from shopfloor.adapters.providers.codex.usage import parse_usage
from shopfloor.adapters.providers.json_access import Record, record_at, text_at
from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.adapters.providers.usage import NO_USAGE
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

CONFIG_VARIABLE = "SHOPFLOOR_CODEX_CONFIG"
CODEX_KEY_VARIABLE = "CODEX_API_KEY"
OPENAI_KEY_VARIABLE = "OPENAI_API_KEY"
UNRESTRICTED_VARIABLE = "SHOPFLOOR_AGENT_UNRESTRICTED"
_MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""The longest argument that Linux accepts."""
_FIXED_OVERRIDES = (
    "features.plugins=false",  # otherwise each start asks a server for plugins, and waits if there is no network
    "features.unbounded_connection_retries=false",  # otherwise it waits for a network forever
)


def config_overrides(env: Mapping[str, str]) -> list[str]:
    """Return the config overrides of the environment, unchecked."""
    lines = [line.strip() for line in env.get(CONFIG_VARIABLE, "").split("\n")]
    return [line for line in lines if line and not line.startswith("#")]


def login(env: Mapping[str, str], home: Path) -> str | None:
    """Return the variable or file that Codex logs in with; None without a login.

    Codex ignores `OPENAI_API_KEY`. Shopfloor passes it on only if there is no other login: a user with a subscription
    must not pay by token because of a variable that is meant for other programs.
    """
    if any(setting.partition("=")[0].strip() == "model_provider" for setting in config_overrides(env)):
        return CONFIG_VARIABLE
    if env.get(CODEX_KEY_VARIABLE, "").strip():
        return CODEX_KEY_VARIABLE
    file = _auth_file(env, home)
    if file.is_file():
        return str(file)
    return OPENAI_KEY_VARIABLE if env.get(OPENAI_KEY_VARIABLE, "").strip() else None


def access_mode(env: Mapping[str, str], home: Path) -> Literal["subscription", "api"]:
    """Return how the run is paid: by a ChatGPT subscription, or by token."""
    file = _auth_file(env, home)
    if login(env, home) != str(file):
        return "api"
    try:
        auth = json_object(file.read_bytes()) or {}
    except OSError:
        auth = {}
    # `codex login --with-api-key` writes a key to the same file.
    is_api_key = text_at(auth, OPENAI_KEY_VARIABLE) is not None and not auth.get("tokens")
    return "api" if is_api_key else "subscription"


def codex_home(env: Mapping[str, str], home: Path) -> Path:
    """Return the folder of Codex's own files."""
    return Path(env.get("CODEX_HOME") or home / ".codex")


def _auth_file(env: Mapping[str, str], home: Path) -> Path:
    return codex_home(env, home) / "auth.json"


def thread_usage(thread: str, codex_home: Path) -> Usage | None:
    """Return the tokens of a thread so far, by the rollout file that Codex keeps of it.

    The stream only has totals of the thread, without the share of earlier processes. The file has the total after each
    answer of the model, also of a process that was killed, and of anything else that worked in the thread. Returns
    None if there is no such file, or no total near its end; zero if the whole file has no total.
    """
    lines, is_complete = _read_tail(thread, codex_home)
    for record in _records_newest_first(lines, b'"token_count"'):
        total = record_at(record_at(record_at(record, "payload"), "info"), "total_token_usage")
        if total:
            return parse_usage(total)
    return NO_USAGE if is_complete else None


def thread_model(thread: str, codex_home: Path) -> str | None:
    """Return the model of a thread's newest turn; None if there is no rollout file, or no turn near its end."""
    lines, _ = _read_tail(thread, codex_home)
    turns = _records_newest_first(lines, b'"turn_context"')
    return next((model for turn in turns if (model := text_at(record_at(turn, "payload"), "model"))), None)


def _records_newest_first(lines: list[bytes], marker: bytes) -> Iterator[Record]:
    """Yield the records whose line contains `marker`, newest first. Other lines, most of them long, are not decoded."""
    for line in reversed(lines):
        record = json_object(line) if marker in line else None
        if record is not None:
            yield record


def _read_tail(thread: str, codex_home: Path) -> tuple[list[bytes], bool]:
    """Return the last lines of a thread's rollout file, and whether they are the whole file."""
    files = sorted((codex_home / "sessions").glob(f"*/*/*/rollout-*-{thread}.jsonl"))
    if not files:
        return [], False
    try:
        with files[-1].open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - THREAD_TAIL_BYTES))
            return file.read().split(b"\n"), size <= THREAD_TAIL_BYTES
    except OSError:
        return [], False


class Codex:
    """Launcher of Codex."""

    name = "codex"
    program = "codex"
    install = "npm install -g @openai/codex"
    # The reasons, and what was tried, are in ADR 30.
    no_approvals_reason = "`codex exec` never asks, and runs a hook only after the user has reviewed it"
    capabilities = Capabilities(
        resume=True,
        read_only=True,
        thinking=True,
        usage=True,
        sub_agents=True,
        web_search=True,
    )

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        return login(env, home)

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        _check_options(request)
        argv = [self.program, "exec", "--json", "--skip-git-repo-check", *_sandbox_flags(request, env)]
        for setting in (*_FIXED_OVERRIDES, *_user_overrides(env), *_instructions(request)):
            argv += ["-c", setting]
        if request.model is not None:
            argv += ["-m", request.model]
        if request.resume is not None:
            # The subcommand does not accept `-s`, so all options come before it.
            argv += ["resume", request.resume]
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
        prior_usage = _prior_usage(request, codex_home(env, home))
        return Launch(
            argv=[*argv, "-"],
            # Codex itself only reads its own variable.
            env={CODEX_KEY_VARIABLE: env[OPENAI_KEY_VARIABLE]} if login(env, home) == OPENAI_KEY_VARIABLE else {},
            stdin=request.prompt.encode(errors="replace"),
            session_id=request.resume,
            access_mode=access_mode(env, home),
            prior_usage=prior_usage,
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> CodexNormalizer:
        return CodexNormalizer(resumed=resumed, prior_usage=prior_usage)

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Return the model by Codex's rollout file: the stream does not name it."""
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
        return thread_model(session_id, codex_home(env, home))


def _check_options(request: AgentRequest) -> None:
    if request.max_turns is not None:
        raise UnsupportedOption("codex does not support a limit on turns", hint="remove the limit on turns")
    if request.tools is not None:
        raise UnsupportedOption(
            "codex does not support a list of allowed tools", hint="use --read-only to prevent changes"
        )
    if request.resume is not None and not _is_uuid(request.resume):
        # For an unknown name Codex silently starts a new thread.
        raise UnsupportedOption(f"codex cannot resume {request.resume!r}", hint="pass the id of a session, a UUID")


def _prior_usage(request: AgentRequest, home: Path) -> Usage | None:
    """Return the tokens of a resumed thread so far.

    Codex only reports totals of the thread, so they are needed to find what this process uses.
    """
    if request.resume is None:
        return None
    usage = request.prior_usage or thread_usage(request.resume, home)
    if usage is None and request.max_budget_usd is not None:
        raise UnsupportedOption(
            f"cannot enforce a budget: what session {request.resume} has spent before is not known",
            hint="remove the budget, or start a new session",
        )
    return usage


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _sandbox_flags(request: AgentRequest, env: Mapping[str, str]) -> list[str]:
    if request.read_only:
        return ["-s", "read-only"]
    if env.get(UNRESTRICTED_VARIABLE) == "1":
        return ["--dangerously-bypass-approvals-and-sandbox"]
    return ["-s", "workspace-write"]


def _user_overrides(env: Mapping[str, str]) -> list[str]:
    overrides = config_overrides(env)
    for setting in overrides:
        key, separator, _ = setting.partition("=")
        if not key or not separator:
            raise UnsupportedOption(
                f"invalid line in {CONFIG_VARIABLE}: {key!r} is not a setting", hint="write it as key=value"
            )
    return overrides


def _instructions(request: AgentRequest) -> list[str]:
    """Return the override that adds the system prompt as developer instructions, beside Codex's own prompt."""
    if request.system_prompt is None:
        return []
    # A JSON string is also a TOML string, except for this character.
    quoted = json.dumps(request.system_prompt, ensure_ascii=False).replace("\x7f", "\\u007f")
    setting = f"developer_instructions={quoted}"
    if len(setting.encode(errors="replace")) > _MAX_ARGUMENT_BYTES:
        raise UnsupportedOption("the system prompt is too long for codex", hint="put it at the start of the prompt")
    return [setting]
