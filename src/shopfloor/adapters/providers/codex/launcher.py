"""How Codex is started: `codex exec --json … -`, the prompt by stdin."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from shopfloor.adapters.providers.codex.login import CODEX_KEY, OPENAI_KEY, access_mode, codex_home, login
from shopfloor.adapters.providers.codex.normaliser import CodexNormaliser
from shopfloor.adapters.providers.codex.rollout import model_of, spent_in
from shopfloor.adapters.providers.codex.settings import CONFIG, settings
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

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
        spent_before = _spent_before(request, codex_home(env, home))
        return Launch(
            argv=[*argv, "-"],
            # Codex itself looks at its own variable alone.
            env={CODEX_KEY: env[OPENAI_KEY]} if login(env, home) == OPENAI_KEY else {},
            stdin=request.prompt.encode(errors="replace"),
            session_id=request.resume,
            access_mode=access_mode(env, home),
            spent_before=spent_before,
        )

    def normaliser(self, *, resumed: bool | None = None, spent_before: Usage | None = None) -> CodexNormaliser:
        return CodexNormaliser(resumed=resumed, spent_before=spent_before)

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
        return model_of(session_id, codex_home(env, home))


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
    known = request.spent_before or spent_in(request.resume, home)
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
            raise UnsupportedOption(f"{CONFIG} has a line that is no setting: {key!r}", hint="write it as key=value")
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
