"""Start a session of `claude-agent-sdk`: a Python process that reads its request from stdin.

A session in a process of its own can be stopped like any other agent, and a tool that crashes harms nothing else.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path

import msgspec

from shopfloor.adapters.providers.claude.launcher import ClaudeCode, login, permission_flags
from shopfloor.adapters.providers.claude.normalizer import ClaudeNormalizer
from shopfloor.adapters.providers.claude.permissions import prompted_tools
from shopfloor.adapters.providers.errors import run_error
from shopfloor.adapters.providers.json_access import Record
from shopfloor.adapters.providers.jsonl import final_report
from shopfloor.adapters.providers.permission_records import encode_line
from shopfloor.errors import AgentMissing, UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentExit, AgentReport, AgentRequest, Capabilities, Launch, PermissionRequest

MCP_SERVER_NAME = "shopfloor"
"""The MCP server of a worker's own tools. Claude sees these tools as `mcp__shopfloor__<name>`."""
_OWN_TOOL_PREFIX = f"mcp__{MCP_SERVER_NAME}__"
SDK_MISSING_EXIT_CODE = 69
"""The exit code (EX_UNAVAILABLE) of a session without the SDK."""
# Without `-P` Python would import modules from the agent's folder first, and run whatever is there.
_SESSION_ARGUMENTS = ("-P", "-m", "shopfloor.adapters.providers.claude_sdk.session")
_OWN_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
"""Tool names that the API accepts once the prefix of the server is added."""
_PACKAGE = "claude_agent_sdk"
_CLI = ClaudeCode()


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request that the session process reads from stdin."""

    request: AgentRequest
    permissions: dict[str, str | None]
    """Permission flags of Claude Code without their dashes; None for a flag without a value."""
    path: list[str]
    """The caller's `sys.path`, because own tools may be in any of its folders."""
    prompted_tools: list[str] = []
    """The tools that the session asks for before it calls them."""


class ClaudeSdkNormalizer(ClaudeNormalizer):
    """Normalizer of a session: the lines of Claude Code, plus the error of a missing SDK."""

    def _read(self, record: Record) -> list[AgentReport] | None:
        reports = super()._read(record)
        return reports if reports is None else [_with_own_name(report) for report in reports]

    def _end(self, ended: AgentExit | None) -> list[AgentReport]:
        reports = super()._end(ended)
        if ended is None or ended.cancelled or ended.code != SDK_MISSING_EXIT_CODE:
            return reports
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        error = run_error(AgentMissing, lines[-1] if lines else "claude-agent-sdk is not installed")
        return [*reports[:-1], msgspec.structs.replace(final_report(reports), error=error)]


def _with_own_name(report: AgentReport) -> AgentReport:
    """Add the name that the worker gives to an own tool, if the report asks for that tool."""
    if not isinstance(report, PermissionRequest) or not report.tool.startswith(_OWN_TOOL_PREFIX):
        return report
    return msgspec.structs.replace(report, other_names=(report.tool.removeprefix(_OWN_TOOL_PREFIX),))


class ClaudeSdk:
    """Launcher of Claude through `claude-agent-sdk`."""

    name = "claude-sdk"
    install = "install Shopfloor with its extra `claude`"
    no_approvals_reason = None
    capabilities: Capabilities = msgspec.structs.replace(
        _CLI.capabilities, own_tools=True, sandbox=True, fork_session=False
    )

    @property
    def program(self) -> str:
        """The Claude Code inside the SDK, which discovery looks for."""
        spec = find_spec(_PACKAGE)
        folder = Path(spec.origin).parent if spec is not None and spec.origin else None
        return str(folder / "_bundled" / "claude") if folder is not None else _PACKAGE

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        return login(env, home)

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        # The SDK starts Claude Code too: options, login and sessions are the same.
        cli = _CLI.launch(request, env)
        session = SessionRequest(
            request=request,
            permissions=_session_permissions(request, env),
            path=[entry for entry in sys.path if entry],
            prompted_tools=_prompted_tools(request),
        )
        own_tools = {_qualified_name(tool.name) for tool in request.own_tools}
        return Launch(
            argv=[sys.executable, *_SESSION_ARGUMENTS],
            env=cli.env,
            stdin=encode_line(msgspec.to_builtins(session)),
            session_id=cli.session_id,
            access_mode=cli.access_mode,
            answer_permission=cli.answer_permission,
            is_preapproved=lambda call: call.tool in own_tools or bool(cli.is_preapproved and cli.is_preapproved(call)),
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> ClaudeSdkNormalizer:
        return ClaudeSdkNormalizer(resumed=resumed is True)

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Return None: the stream names the model."""
        return None


def _session_permissions(request: AgentRequest, env: Mapping[str, str]) -> dict[str, str | None]:
    """Return the flags of Claude Code, plus the permission to call the worker's own tools.

    In a sandbox the permission rules always apply: they keep the file tools inside the folder.
    """
    flags: dict[str, str | None] = {}
    for flag in permission_flags(request, {} if request.sandbox else env):
        name, equals, value = flag.removeprefix("--").partition("=")
        flags[name] = value if equals else None
    own = [_qualified_name(tool.name) for tool in request.own_tools]
    if own:
        flags["allowedTools"] = ",".join([*filter(None, [flags.get("allowedTools")]), *own])
    return flags


def _prompted_tools(request: AgentRequest) -> list[str]:
    """Return the tools to ask for. A pattern can name an own tool by the name that the worker gives it."""
    names = [pattern.partition("(")[0] for pattern in request.approve]
    own = [tool.name for tool in request.own_tools if any(fnmatchcase(tool.name, name) for name in names)]
    return [*prompted_tools(request.approve), *map(_qualified_name, own)]


def _qualified_name(name: str) -> str:
    if not _OWN_TOOL_NAME.fullmatch(name):
        raise UnsupportedOption(
            f"invalid name of an own tool: {name!r}", hint="use up to 48 letters, digits, `_` and `-`"
        )
    return f"{_OWN_TOOL_PREFIX}{name}"
