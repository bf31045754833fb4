"""Start Claude Code: `claude -p --output-format=stream-json …`, with the prompt on stdin.

No user is present to grant permissions, and Claude Code denies whatever it would have to ask for. So a run gets its
permissions in advance:

- By default it may edit files in its folder (`acceptEdits`), run any command (nothing can be tested without), and
  read the web. The other rules stay: file tools stay inside the folder and away from `.git`, hooks and settings, tools
  of MCP servers need a rule in the user's settings, and what these settings deny stays denied. This guards against
  slips and is no sandbox: a command can do all that the user can.
- All permission checks are off only where the whole machine is a sandbox (`IS_SANDBOX=1`), or by request
  (`SHOPFLOOR_AGENT_UNRESTRICTED=1`). As root, Claude Code requires the former.
- A read-only run has only tools that read. `plan` mode is not used for it: it makes the model write a plan instead of
  an answer, and judges commands by their text. A tool that does not exist cannot be called, not by sub-agents either.
  `--tools` does not remove the tools of MCP servers, so a read-only run has no servers.

- With calls to approve, Claude Code asks over its standard streams: see `permissions.py`.

The permission mode is always passed, because the user's settings may have a looser default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from shopfloor.adapters.providers.claude.normalizer import ClaudeNormalizer
from shopfloor.adapters.providers.claude.permissions import (
    FILE_TOOLS,
    approval_flags,
    encode_prompt,
    is_preapproved,
)
from shopfloor.adapters.providers.permission_records import answer_permission
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

UNRESTRICTED_VARIABLES = ("IS_SANDBOX", "SHOPFLOOR_AGENT_UNRESTRICTED")

_READ_TOOLS = ("Read", "Glob", "Grep")
_WEB_TOOLS = ("WebFetch", "WebSearch")
_DEFAULT_TOOLS = ("Bash", *_WEB_TOOLS)
"""Tools that are allowed in advance if the request names no tools."""
_MCP_PREFIX = "mcp__"
_TOOL_NAME = re.compile(r"[\w.:-]+")
OAUTH_TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105  (the name of a variable)
_LOGIN_VARIABLES = (
    # These select a cloud that serves the models; Claude Code then uses the login of that cloud.
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_API_KEY",
    OAUTH_TOKEN,
)
_MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""The longest argument that Linux accepts."""
_OUTPUT_FLAGS = ("-p", "--output-format=stream-json", "--verbose", "--include-partial-messages")
_ENV = {
    "DISABLE_AUTOUPDATER": "1",  # a run must not replace the program under the next run
    # Prints the messages of sub-agents. A variable instead of the flag, because older versions reject unknown flags.
    "CLAUDE_CODE_FORWARD_SUBAGENT_TEXT": "1",
}


def permission_flags(request: AgentRequest, env: Mapping[str, str]) -> list[str]:
    """Return the flags that set the permissions of a run. Raises UnsupportedOption for an invalid tool name.

    The flags have the form `--flag=value`: a flag that takes a list would swallow the arguments after it.
    """
    for tool in request.tools or []:
        if not _TOOL_NAME.fullmatch(tool):
            raise UnsupportedOption(f"invalid tool name {tool!r}", hint="use Claude Code's tool names, such as Bash")
    if request.read_only:
        return _read_only_flags(request.tools)
    tools = request.tools
    flags = [] if tools is None else _tool_flags(tools)
    mcp_tools = [tool for tool in tools or [] if tool.startswith(_MCP_PREFIX)]
    # With approvals, Claude Code has to check permissions.
    if not mcp_tools and not request.approve and any(env.get(name) == "1" for name in UNRESTRICTED_VARIABLES):
        return [*flags, "--dangerously-skip-permissions"]
    # Naming one tool of an MCP server makes all its tools available. The others are denied, as no rule allows them.
    return [*flags, "--permission-mode=acceptEdits", *_allow_flags(_allowed_tools(request))]


def _allowed_tools(request: AgentRequest) -> list[str]:
    """Return the tools that are allowed by name.

    The permission mode allows file tools inside the folder. Allowing them by name would allow them everywhere.
    """
    tools = _DEFAULT_TOOLS if request.tools is None else request.tools
    return [tool for tool in tools if tool not in FILE_TOOLS]


def _read_only_flags(requested: list[str] | None) -> list[str]:
    readers = (*_READ_TOOLS, *_WEB_TOOLS)
    tools = _READ_TOOLS if requested is None else [tool for tool in requested if tool in readers]
    return [
        *_tool_flags(tools),
        "--permission-mode=default",
        *_allow_flags([tool for tool in tools if tool in _WEB_TOOLS]),
    ]


def _tool_flags(tools: list[str] | tuple[str, ...]) -> list[str]:
    """Return the flags that make only these tools available. An empty list means no tools."""
    flags = [f"--tools={','.join(tool for tool in tools if not tool.startswith(_MCP_PREFIX))}"]
    if not any(tool.startswith(_MCP_PREFIX) for tool in tools):
        # Without a config file of servers this flag means that there are no servers.
        flags.append("--strict-mcp-config")
    return flags


def _allow_flags(tools: list[str] | tuple[str, ...]) -> list[str]:
    return [f"--allowedTools={','.join(tools)}"] if tools else []


def login(env: Mapping[str, str], home: Path) -> str | None:
    """Return the variable or file that Claude Code logs in with, by its own precedence; None without a login."""
    for name in _LOGIN_VARIABLES:
        if env.get(name, "").strip():
            return name
    file = _credentials_file(env, home)
    return str(file) if file.is_file() else None


def access_mode(env: Mapping[str, str], home: Path) -> Literal["subscription", "api"]:
    """Return how the run is paid. An API key is paid by token and takes precedence over a subscription."""
    return "subscription" if login(env, home) in (OAUTH_TOKEN, str(_credentials_file(env, home))) else "api"


def _credentials_file(env: Mapping[str, str], home: Path) -> Path:
    return Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / ".credentials.json"


class ClaudeCode:
    """Launcher of Claude Code."""

    name = "claude-code"
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    no_approvals_reason = None
    capabilities = Capabilities(
        resume=True,
        fork_session=True,
        tool_limits=True,
        read_only=True,
        max_turns=True,
        max_budget=True,
        deltas=True,
        thinking=True,
        cost=True,
        usage=True,
        sub_agents=True,
        approvals=True,
        web_search=True,
    )

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        return login(env, home)

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        # A new session gets our id, so that the id is known before anything happens.
        session = request.resume
        session_flags = [f"--resume={session}"]
        if session is None or request.fork_session:
            session_flags = [*([] if session is None else [*session_flags, "--fork-session"])]
            session = request.session_id
            session_flags.append(f"--session-id={session}")
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
        return Launch(
            argv=[
                self.program,
                *_OUTPUT_FLAGS,
                *session_flags,
                *permission_flags(request, env),
                *(approval_flags(request) if request.approve else []),
                *_options(request),
            ],
            env=dict(_ENV),
            stdin=encode_prompt(request.prompt) if request.approve else request.prompt.encode(errors="replace"),
            session_id=session,
            access_mode=access_mode(env, home),
            answer_permission=answer_permission if request.approve else None,
            is_preapproved=lambda call: is_preapproved(call, _allowed_tools(request), request.cwd),
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> ClaudeNormalizer:
        return ClaudeNormalizer(resumed=resumed is True)

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Return None: the stream names the model."""
        return None


def _options(request: AgentRequest) -> list[str]:
    values = {
        "--model": request.model,
        "--max-turns": request.max_turns,
        "--max-budget-usd": request.max_budget_usd,
        "--append-system-prompt": request.system_prompt,
    }
    # One argument each, because a value may start with a dash.
    options = [f"{flag}={value}" for flag, value in values.items() if value is not None]
    if any(len(option.encode(errors="replace")) > _MAX_ARGUMENT_BYTES for option in options):
        raise UnsupportedOption("the system prompt is too long for claude", hint="put it at the start of the prompt")
    return options
