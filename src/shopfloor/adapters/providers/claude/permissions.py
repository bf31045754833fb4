"""What Claude Code may do when nobody is there to ask.

Whatever it would ask for is denied without a person. So a run that is to fix something needs its leave in advance:

- By default it may edit files in its folder (`acceptEdits`) and, since nothing can be tested without that, run any
  command, and read the web. It is not let off its other rules: its file tools stay inside the folder and away from
  `.git`, hooks and settings, tools of MCP servers need a rule of the user's, and what the user's settings deny stays
  denied. This guards against slips. A command can do all that the user can, so it is no sandbox.
- Only where somebody says that the whole machine is one (`IS_SANDBOX=1`), or wants it so all the same
  (`SHOPFLOOR_AGENT_UNRESTRICTED=1`), is nothing asked at all. As root, Claude Code wants to see the former.
- A run that may only look has no tools but those that look. That is not left to `plan` mode, which asks the model for
  a plan and not for an answer, and judges commands by their text; a tool that is not there cannot be called, nor by
  sub-agents. The tools of MCP servers are not among those that `--tools` takes away, so there are no servers either.

The mode is always named: the user's own settings may have a looser one as their default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shopfloor.errors import UnsupportedOption
from shopfloor.ports import AgentRequest

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
