"""Requests of Claude Code for the permission to call a tool: when it asks, and how it is answered.

With `--permission-prompt-tool=stdio`, Claude Code writes a `control_request` to its standard output and reads the
`control_response` from its standard input, as Anthropic's SDKs do. A rule `ask` in the settings makes it ask for a tool
whatever other rules allow; a request that gets no answer blocks the call, so nothing is called unasked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, cast

from shopfloor.ports import AgentRequest, PermissionRequest

_MCP_PREFIX: Final = "mcp__"
_WILDCARDS: Final = frozenset("*?[")
FILE_TOOLS: Final = frozenset({"Read", "Glob", "Grep", "LS", "Edit", "MultiEdit", "Write", "NotebookEdit"})
KNOWN_TOOLS: Final = (*sorted(FILE_TOOLS), "Bash", "WebFetch", "WebSearch", "Agent", "Task", "Skill", "TodoWrite")
"""The tools that a pattern with a wildcard is compared to."""
_PATH_FIELDS: Final = ("file_path", "notebook_path", "path")
_PROTECTED: Final = frozenset({".git", ".claude"})
"""Folders whose files an agent changes only if a person allows it."""


def prompted_tools(patterns: Iterable[str]) -> list[str]:
    """Return the tools that Claude Code has to ask for, because a pattern of calls to approve names them."""
    names = [pattern.partition("(")[0] for pattern in patterns]
    found: dict[str, None] = {}
    for name in names:
        if name.startswith(_MCP_PREFIX) or not _WILDCARDS & set(name):
            found[name] = None
        found.update(dict.fromkeys(tool for tool in KNOWN_TOOLS if fnmatchcase(tool, name)))
    return list(found)


def approval_flags(request: AgentRequest) -> list[str]:
    """Return the flags that make Claude Code ask for tools over its standard streams."""
    settings = {"permissions": {"ask": prompted_tools(request.approve)}}
    return ["--input-format=stream-json", "--permission-prompt-tool=stdio", f"--settings={json.dumps(settings)}"]


def encode_prompt(prompt: str) -> bytes:
    """Return a prompt as a line of `--input-format=stream-json`."""
    return _encode_line({"type": "user", "message": {"role": "user", "content": prompt}})


def answer_permission(request: PermissionRequest, denial: str | None) -> bytes:
    """Return the answer to a request: the reason of a denial, or None to allow the call."""
    decision = (
        {"behavior": "allow", "updatedInput": request.tool_input}
        if denial is None
        else {"behavior": "deny", "message": denial}
    )
    response = {"subtype": "success", "request_id": request.request_id, "response": decision}
    return _encode_line({"type": "control_response", "response": response})


def is_preapproved(request: PermissionRequest, allowed: Iterable[str], cwd: str) -> bool:
    """Return whether a call may be made that Claude Code asks for only because of a pattern that it does not match.

    `allowed` are the tools that the run may use. The file tools may be used inside the folder of the run.
    """
    if request.tool not in FILE_TOOLS:
        return request.tool in allowed
    tool_input: Any = request.tool_input
    fields = cast("dict[str, Any]", tool_input) if isinstance(tool_input, dict) else {}
    path = next((str(fields[name]) for name in _PATH_FIELDS if fields.get(name)), cwd)
    folder = Path(cwd).resolve()
    target = (folder / path).resolve()
    return target.is_relative_to(folder) and not _PROTECTED & set(target.relative_to(folder).parts)


def _encode_line(value: Any) -> bytes:
    # A lone surrogate, which JSON cannot hold, becomes a question mark.
    return json.dumps(value, ensure_ascii=False).encode(errors="replace") + b"\n"
