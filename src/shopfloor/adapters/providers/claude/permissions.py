"""Requests of Claude Code for the permission to call a tool: when it asks, and what needs no approval.

With `--permission-prompt-tool=stdio`, Claude Code writes a `control_request` to its standard output and reads the
`control_response` from its standard input, as Anthropic's SDKs do. A rule `ask` in the settings makes it ask for a tool
whatever other rules allow; a request that gets no answer blocks the call, so nothing is called unasked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, cast

from shopfloor.adapters.providers.permission_records import encode_line
from shopfloor.ports import AgentRequest, PermissionRequest
from shopfloor.views import FILE_TOOLS, PATH_FIELDS

_MCP_PREFIX: Final = "mcp__"
_NOT_IN_RULES: Final = re.compile(r"[?\[].*", re.DOTALL)
"""The wildcards of our patterns that the rules of Claude Code do not have, and what follows the first of them."""
KNOWN_TOOLS: Final = (*sorted(FILE_TOOLS), "Bash", "WebFetch", "WebSearch", "Agent", "Task", "Skill", "TodoWrite")
"""The tools that a pattern with a wildcard is compared to, for a Claude Code whose rules know no wildcards in names."""
_PROTECTED: Final = frozenset({".git", ".claude"})
"""Folders whose files an agent changes only if a person allows it."""


def prompted_tools(patterns: Iterable[str]) -> list[str]:
    """Return the tools that Claude Code has to ask for, because a pattern of calls to approve names them.

    In its rules `*` is any text, also in the name of a tool. A name with another wildcard becomes a rule for more
    tools: what a pattern does not match is not asked for (`is_preapproved`).
    """
    found: dict[str, None] = {}
    for name in (pattern.partition("(")[0] for pattern in patterns):
        found[_rule(name)] = None
        found.update(dict.fromkeys(tool for tool in KNOWN_TOOLS if fnmatchcase(tool, name)))
    return list(found)


def _rule(name: str) -> str:
    rule = _NOT_IN_RULES.sub("*", name)
    fixed, wildcard, _ = rule.partition("*")
    # Claude Code 2.1.325 ignores a rule such as `m*`: one for tools of MCP servers begins with `mcp__` or `*`.
    is_cut = wildcard and fixed and fixed != _MCP_PREFIX and _MCP_PREFIX.startswith(fixed)
    return f"{_MCP_PREFIX}*" if is_cut else rule


def approval_settings(tools: Iterable[str]) -> str:
    """Return the settings that make Claude Code ask for these tools, whatever its other settings allow."""
    return json.dumps({"permissions": {"ask": list(tools)}})


def approval_flags(request: AgentRequest) -> list[str]:
    """Return the flags that make Claude Code ask for tools over its standard streams."""
    settings = approval_settings(prompted_tools(request.approve))
    return ["--input-format=stream-json", "--permission-prompt-tool=stdio", f"--settings={settings}"]


def encode_prompt(prompt: str) -> bytes:
    """Return a prompt as a line of `--input-format=stream-json`."""
    return encode_line({"type": "user", "message": {"role": "user", "content": prompt}})


def is_preapproved(request: PermissionRequest, allowed: Iterable[str], cwd: str) -> bool:
    """Return whether a call may be made that Claude Code asks for only because of a pattern that it does not match.

    `allowed` are the tools that the run may use. The file tools may be used inside the folder of the run.
    """
    if request.tool not in FILE_TOOLS:
        return request.tool in allowed
    tool_input: Any = request.tool_input
    fields = cast("dict[str, Any]", tool_input) if isinstance(tool_input, dict) else {}
    path = next((str(fields[name]) for name in PATH_FIELDS if fields.get(name)), cwd)
    folder = Path(cwd).resolve()
    target = (folder / path).resolve()
    return target.is_relative_to(folder) and not _PROTECTED & set(target.relative_to(folder).parts)
