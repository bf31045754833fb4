"""How a session is started: a Python process of its own, which is told everything by stdin.

In a process of its own a session can be stopped like any other agent, and a tool that crashes takes nothing with it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import msgspec

from shopfloor.adapters.providers.claude.launcher import ClaudeCode, login, permissions
from shopfloor.adapters.providers.claude.normalizer import ClaudeNormalizer
from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.jsonl import final_report
from shopfloor.errors import AgentMissing, UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentExit, AgentReport, AgentRequest, Capabilities, Launch

MCP_SERVER_NAME = "shopfloor"
"""Under this name Claude sees a worker's own tools: `mcp__shopfloor__<name>`."""
SDK_MISSING_EXIT_CODE = 69
"""The exit code of a session without the package: EX_UNAVAILABLE."""


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    request: AgentRequest
    permissions: dict[str, str | None]
    """What it may do, as flags of Claude Code without their dashes; None for one that takes no value."""
    path: list[str]
    """Where whoever asks finds Python modules: a worker's own tools may be in any of these."""


class ClaudeSdkNormalizer(ClaudeNormalizer):
    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        reports = super()._end(ended)
        if ended is None or ended.cancelled or ended.code != SDK_MISSING_EXIT_CODE:
            return reports
        said = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        error = run_error(AgentMissing, said[-1] if said else "claude-agent-sdk is not installed")
        return [*reports[:-1], msgspec.structs.replace(final_report(reports), error=error)]


# `-P`: without it Python would look for modules in the agent's folder first, and run what lies there.
_SESSION = ("-P", "-m", "shopfloor.adapters.providers.claude_sdk.session")
_OWN_TOOL = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""What the API takes as a name, with the server's before it."""
_PACKAGE = "claude_agent_sdk"
_CLI = ClaudeCode()


class ClaudeSdk:
    name = "claude-sdk"
    install = "install Shopfloor with its extra `claude`"
    capabilities: Capabilities = msgspec.structs.replace(_CLI.capabilities, own_tools=True, sandbox=True)

    @property
    def program(self) -> str:
        """The Claude Code that comes with the package: what is looked for where somebody asks whether it is there."""
        found = find_spec(_PACKAGE)
        folder = Path(found.origin).parent if found is not None and found.origin else None
        return str(folder / "_bundled" / "claude") if folder is not None else _PACKAGE

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        return login(env, home)

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        # The package starts Claude Code too: what can be asked of it, its login and its sessions are the same.
        cli = _CLI.launch(request, env)
        asked = SessionRequest(
            request=request,
            permissions=_permissions(request, env),
            path=[entry for entry in sys.path if entry],
        )
        return Launch(
            argv=[sys.executable, *_SESSION],
            env=cli.env,
            stdin=_encoded(asked),
            session_id=cli.session_id,
            access_mode=cli.access_mode,
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> ClaudeSdkNormalizer:
        return ClaudeSdkNormalizer(resumed=resumed is True)

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Its stream tells it."""
        return None


def _permissions(request: AgentRequest, env: Mapping[str, str]) -> dict[str, str | None]:
    """Those of Claude Code, and leave for a worker's own tools: who gives them wants them to be called.

    In a sandbox it is never let off its rules: they are what keeps its file tools in the folder.
    """
    flags: dict[str, str | None] = {}
    for flag in permissions(request, {} if request.sandbox else env):
        name, equals, value = flag.removeprefix("--").partition("=")
        flags[name] = value if equals else None
    own = [_own_name(tool.name) for tool in request.own_tools]
    if own:
        flags["allowedTools"] = ",".join([*filter(None, [flags.get("allowedTools")]), *own])
    return flags


def _own_name(name: str) -> str:
    if not _OWN_TOOL.fullmatch(name):
        raise UnsupportedOption(
            f"Claude cannot call a tool {name!r}", hint="its name may have up to 48 letters, digits, `_` and `-`"
        )
    return f"mcp__{MCP_SERVER_NAME}__{name}"


def _encoded(asked: SessionRequest) -> bytes:
    # Half a surrogate, which no JSON can hold, becomes a question mark.
    return json.dumps(msgspec.to_builtins(asked), ensure_ascii=False).encode(errors="replace")
