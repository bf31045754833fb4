"""How Codex is started: `codex exec --json … -`, the prompt by stdin."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from shopfloor.adapters.providers.codex.normalizer import CodexNormalizer
from shopfloor.adapters.providers.codex.usage import parse_usage
from shopfloor.adapters.providers.json_access import Record, record_at, text_at
from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.adapters.providers.usage import NO_USAGE
from shopfloor.errors import UnsupportedOption
from shopfloor.limits import THREAD_TAIL_BYTES
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

CONFIG_VARIABLE = "SHOPFLOOR_CODEX_CONFIG"


def settings(env: Mapping[str, str]) -> list[str]:
    lines = [line.strip() for line in env.get(CONFIG_VARIABLE, "").split("\n")]
    return [line for line in lines if line and not line.startswith("#")]


CODEX_KEY = "CODEX_API_KEY"
OPENAI_KEY = "OPENAI_API_KEY"


def login(env: Mapping[str, str], home: Path) -> str | None:
    """The variable or file that is used; None where there is nothing.

    Codex does not look at `OPENAI_API_KEY`. We hand it over where there is no other way, and not before: who has logged
    in with a subscription shall not pay by the token because of a variable that is meant for other programs.
    """
    if any(setting.partition("=")[0].strip() == "model_provider" for setting in settings(env)):
        return CONFIG_VARIABLE
    if env.get(CODEX_KEY, "").strip():
        return CODEX_KEY
    file = _file(env, home)
    if file.is_file():
        return str(file)
    return OPENAI_KEY if env.get(OPENAI_KEY, "").strip() else None


def access_mode(env: Mapping[str, str], home: Path) -> Literal["subscription", "api"]:
    file = _file(env, home)
    if login(env, home) != str(file):
        return "api"
    try:
        kept = json_object(file.read_bytes()) or {}
    except OSError:
        kept = {}
    # `codex login --with-api-key` writes a key to the same file.
    by_key = text_at(kept, OPENAI_KEY) is not None and not kept.get("tokens")
    return "api" if by_key else "subscription"


def codex_home(env: Mapping[str, str], home: Path) -> Path:
    """Where Codex keeps what is its own."""
    return Path(env.get("CODEX_HOME") or home / ".codex")


def _file(env: Mapping[str, str], home: Path) -> Path:
    return codex_home(env, home) / "auth.json"


def thread_usage(thread: str, codex_home: Path) -> Usage | None:
    """None where that is not known: there is no such file, or no total near its end."""
    lines, whole = _end_of(thread, codex_home)
    for record in _newest_first(lines, b'"token_count"'):
        total = record_at(record_at(record_at(record, "payload"), "info"), "total_token_usage")
        if total:
            return parse_usage(total)
    return NO_USAGE if whole else None


def thread_model(thread: str, codex_home: Path) -> str | None:
    """The model of the thread's newest turn; None where there is no such file, or nothing of it near its end."""
    lines, _ = _end_of(thread, codex_home)
    turns = _newest_first(lines, b'"turn_context"')
    return next((model for turn in turns if (model := text_at(record_at(turn, "payload"), "model"))), None)


def _newest_first(lines: list[bytes], mark: bytes) -> Iterator[Record]:
    """The records with this in their line. Most lines are what was said, and long; only these few are read."""
    for line in reversed(lines):
        record = json_object(line) if mark in line else None
        if record is not None:
            yield record


def _end_of(thread: str, codex_home: Path) -> tuple[list[bytes], bool]:
    """The last lines of the thread's file, and whether they are all."""
    files = sorted((codex_home / "sessions").glob(f"*/*/*/rollout-*-{thread}.jsonl"))
    if not files:
        return [], False
    try:
        with files[-1].open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - THREAD_TAIL_BYTES))
            return opened.read().split(b"\n"), size <= THREAD_TAIL_BYTES
    except OSError:
        return [], False


UNRESTRICTED = "SHOPFLOOR_AGENT_UNRESTRICTED"

_ARGUMENT_BYTES = 128 * 1024 - 1
"""The longest argument that Linux takes."""
_OURS = (
    "features.plugins=false",  # else it asks a server for plugins at each start, and waits where there is none
    "features.unbounded_connection_retries=false",  # else it waits for a network for ever
)


class Codex:
    name = "codex"
    program = "codex"
    install = "npm install -g @openai/codex"
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
        _check(request)
        argv = [self.program, "exec", "--json", "--skip-git-repo-check", *_sandbox(request, env)]
        for setting in (*_OURS, *_further(env), *_instructions(request)):
            argv += ["-c", setting]
        if request.model is not None:
            argv += ["-m", request.model]
        if request.resume is not None:
            # The subcommand takes no `-s`: all options stand before it.
            argv += ["resume", request.resume]
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
        prior_usage = _spent_before(request, codex_home(env, home))
        return Launch(
            argv=[*argv, "-"],
            # Codex itself looks at its own variable alone.
            env={CODEX_KEY: env[OPENAI_KEY]} if login(env, home) == OPENAI_KEY else {},
            stdin=request.prompt.encode(errors="replace"),
            session_id=request.resume,
            access_mode=access_mode(env, home),
            prior_usage=prior_usage,
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> CodexNormalizer:
        return CodexNormalizer(resumed=resumed, prior_usage=prior_usage)

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
        return thread_model(session_id, codex_home(env, home))


def _check(request: AgentRequest) -> None:
    if request.max_turns is not None:
        raise UnsupportedOption("codex cannot be held to a number of turns", hint="leave out the limit of turns")
    if request.tools is not None:
        raise UnsupportedOption(
            "codex cannot be held to a list of tools", hint="ask for --read-only, and it may look and not touch"
        )
    if request.resume is not None and not _is_uuid(request.resume):
        # For a name that it does not know Codex begins a new thread, and says nothing of it.
        raise UnsupportedOption(f"codex cannot resume {request.resume!r}", hint="its sessions have UUIDs as ids")


def _spent_before(request: AgentRequest, home: Path) -> Usage | None:
    """Codex tells what a thread has spent in all: without this nobody knows what is this process's own."""
    if request.resume is None:
        return None
    known = request.prior_usage or thread_usage(request.resume, home)
    if known is None and request.max_budget_usd is not None:
        raise UnsupportedOption(
            f"what the session {request.resume} has spent before is not known, so no budget can be held in it",
            hint="leave out the budget, or begin a new session",
        )
    return known


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _sandbox(request: AgentRequest, env: Mapping[str, str]) -> list[str]:
    if request.read_only:
        return ["-s", "read-only"]
    if env.get(UNRESTRICTED) == "1":
        return ["--dangerously-bypass-approvals-and-sandbox"]
    return ["-s", "workspace-write"]


def _further(env: Mapping[str, str]) -> list[str]:
    found = settings(env)
    for setting in found:
        key, is_setting, _ = setting.partition("=")
        if not key or not is_setting:
            raise UnsupportedOption(
                f"{CONFIG_VARIABLE} has a line that is no setting: {key!r}", hint="write it as key=value"
            )
    return found


def _instructions(request: AgentRequest) -> list[str]:
    """Told to the model as the developer's, beside Codex's own."""
    if request.system_prompt is None:
        return []
    # A string of JSON is one of TOML too, but for this character.
    quoted = json.dumps(request.system_prompt, ensure_ascii=False).replace("\x7f", "\\u007f")
    setting = f"developer_instructions={quoted}"
    if len(setting.encode(errors="replace")) > _ARGUMENT_BYTES:
        raise UnsupportedOption("the system prompt is too long for codex", hint="put it at the head of the prompt")
    return [setting]
