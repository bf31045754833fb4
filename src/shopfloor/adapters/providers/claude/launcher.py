"""How Claude Code is started: `claude -p --output-format=stream-json …`, the prompt by stdin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from shopfloor.adapters.providers.claude.normalizer import ClaudeNormalizer
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

UNRESTRICTED = ("IS_SANDBOX", "SHOPFLOOR_AGENT_UNRESTRICTED")

_LOOKING = ("Read", "Glob", "Grep")
_WEB = ("WebFetch", "WebSearch")
_FREE = ("Bash", *_WEB)
"""What is allowed in advance where no tools are named."""
_FILES = frozenset({*_LOOKING, "LS", "Edit", "MultiEdit", "Write", "NotebookEdit"})
"""Allowed in the folder by the mode. To allow them by name would be to allow them everywhere."""
_MCP = "mcp__"
_NAME = re.compile(r"[\w.:-]+")


def permissions(request: AgentRequest, env: Mapping[str, str]) -> list[str]:
    """The flags. They are written `--flag=value`: those that take lists would swallow what follows."""
    for tool in request.tools or []:
        if not _NAME.fullmatch(tool):
            raise UnsupportedOption(f"{tool!r} is not the name of a tool", hint="name tools as Claude Code does: Bash")
    if request.read_only:
        return _read_only(request.tools)
    named = request.tools
    flags = [] if named is None else _only(named)
    served = [tool for tool in named or [] if tool.startswith(_MCP)]
    if not served and any(env.get(name) == "1" for name in UNRESTRICTED):
        return [*flags, "--dangerously-skip-permissions"]
    # Of a server's tools all are there when one is named; those that are not named are denied, as nobody allows them.
    allowed = _FREE if named is None else [tool for tool in named if tool not in _FILES]
    return [*flags, "--permission-mode=acceptEdits", *_allowed(allowed)]


def _read_only(named: list[str] | None) -> list[str]:
    tools = _LOOKING if named is None else [tool for tool in named if tool in (*_LOOKING, *_WEB)]
    return [*_only(tools), "--permission-mode=default", *_allowed([tool for tool in tools if tool in _WEB])]


def _only(tools: list[str] | tuple[str, ...]) -> list[str]:
    """With an empty list it has no tools."""
    flags = [f"--tools={','.join(tool for tool in tools if not tool.startswith(_MCP))}"]
    if not any(tool.startswith(_MCP) for tool in tools):
        # It names no file of servers, so there are none.
        flags.append("--strict-mcp-config")
    return flags


def _allowed(tools: list[str] | tuple[str, ...]) -> list[str]:
    return [f"--allowedTools={','.join(tools)}"] if tools else []


OAUTH_TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105  (the name of a variable)
_VARIABLES = (
    # These say that a cloud serves the models, and that its own login is used.
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_API_KEY",
    OAUTH_TOKEN,
)


def login(env: Mapping[str, str], home: Path) -> str | None:
    """The variable or file that is used; None where there is nothing."""
    for name in _VARIABLES:
        if env.get(name, "").strip():
            return name
    file = _file(env, home)
    return str(file) if file.is_file() else None


def access_mode(env: Mapping[str, str], home: Path) -> Literal["subscription", "api"]:
    """A key is paid by the token, and goes before a subscription where there are both."""
    return "subscription" if login(env, home) in (OAUTH_TOKEN, str(_file(env, home))) else "api"


def _file(env: Mapping[str, str], home: Path) -> Path:
    return Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / ".credentials.json"


_ARGUMENT_BYTES = 128 * 1024 - 1
"""The longest argument that Linux takes."""
_PRINT = ("-p", "--output-format=stream-json", "--verbose", "--include-partial-messages")
_ENV = {
    "DISABLE_AUTOUPDATER": "1",  # a run shall not change the program under the next one
    # What sub-agents say. By a variable and not by its flag: versions that do not know it would refuse the flag.
    "CLAUDE_CODE_FORWARD_SUBAGENT_TEXT": "1",
}


class ClaudeCode:
    name = "claude-code"
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    capabilities = Capabilities(
        resume=True,
        tool_limits=True,
        read_only=True,
        max_turns=True,
        max_budget=True,
        deltas=True,
        thinking=True,
        cost=True,
        usage=True,
        sub_agents=True,
        web_search=True,
    )

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        return login(env, home)

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        # A session that is resumed keeps its id; a new one gets ours, so that it is known before anything happens.
        which, session = "--resume", request.resume
        if session is None:
            which, session = "--session-id", request.session_id
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
        return Launch(
            argv=[self.program, *_PRINT, f"{which}={session}", *permissions(request, env), *_options(request)],
            env=dict(_ENV),
            stdin=request.prompt.encode(errors="replace"),
            session_id=session,
            access_mode=access_mode(env, home),
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> ClaudeNormalizer:
        return ClaudeNormalizer(resumed=resumed is True)

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Its stream tells it."""
        return None


def _options(request: AgentRequest) -> list[str]:
    given = {
        "--model": request.model,
        "--max-turns": request.max_turns,
        "--max-budget-usd": request.max_budget_usd,
        "--append-system-prompt": request.system_prompt,
    }
    # As one word each: a value may begin with a dash.
    options = [f"{flag}={value}" for flag, value in given.items() if value is not None]
    if any(len(option.encode(errors="replace")) > _ARGUMENT_BYTES for option in options):
        raise UnsupportedOption("the system prompt is too long for claude", hint="put it at the head of the prompt")
    return options
