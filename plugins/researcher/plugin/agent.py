"""One Agent SDK session per job, restricted to read-only tools and the internal ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKError,
    HookMatcher,
    ResultMessage,
    TextBlock,
    query,
)
from claude_agent_sdk.types import HookContext, HookInput, HookJSONOutput

from plugin.jobs import Job, JobStore
from plugin.memory import Memory
from plugin.settings import COMPACT_SECONDS, MAX_BUDGET_USD, MAX_TURNS, PROMPT, READ_ONLY_TOOLS
from plugin.tools import SERVER_NAME, InternalTools

_PATH_TOOLS = {"Read": ("file_path",), "Grep": ("path",), "Glob": ("path", "pattern")}
"""The tools that reach files, and where their input names paths."""
_COMPACT_PROMPT = (
    "Condense these notes to at most half of their length. Keep every fact that may help with later tasks, merge "
    "repetitions and drop what is outdated. Answer with the condensed notes only."
)
_BUDGET_EXCEEDED = "the budget was exceeded"


class JobFailed(Exception):
    """The session ended without a result: the message says why."""


class Session:
    """The agent of one job."""

    def __init__(self, jobs: JobStore, job: Job, memory: Memory, config: dict[str, Any]) -> None:
        self._config = config
        self._folder = jobs.folder_of(job)
        self._memory = memory
        self._tools = InternalTools(jobs, job, memory)
        self._budget_usd: float = config.get("max_budget_usd") or MAX_BUDGET_USD
        self.cost_usd: float | None = None

    async def run(self, task: str) -> str:
        """Work on the task and return the result: what was submitted, or else the final text. Raises `JobFailed`."""
        await self._memory.compact(self._condense)
        final = await self._query(task, self._options())
        return self._tools.output or final

    async def _query(self, prompt: str, options: ClaudeAgentOptions) -> str:
        """Run a session within what is left of the budget, and return its final text. Raises `JobFailed`."""
        spent_usd = self.cost_usd or 0.0
        options.max_budget_usd = self._budget_usd - spent_usd
        if options.max_budget_usd <= 0:
            raise JobFailed(_BUDGET_EXCEEDED)
        final, failure = "", None
        try:
            async for message in query(prompt=prompt, options=options):
                if isinstance(message, AssistantMessage):
                    final = "".join(block.text for block in message.content if isinstance(block, TextBlock)) or final
                elif isinstance(message, ResultMessage):
                    if message.total_cost_usd is not None:
                        self.cost_usd = spent_usd + message.total_cost_usd
                    final = message.result or final
                    failure = _failure(message)
        except ClaudeSDKError as error:
            # After a result that reports an error the SDK raises as well; the result has the better message.
            failure = failure or str(error)
        if failure is not None:
            raise JobFailed(failure)
        return final

    async def _condense(self, notes: str) -> str:
        options = self._restricted(_COMPACT_PROMPT)
        options.max_turns = 1
        try:
            async with asyncio.timeout(COMPACT_SECONDS):
                return await self._query(notes, options)
        except (JobFailed, TimeoutError):
            return ""  # the memories stay as they are, and the next job tries again

    def _options(self) -> ClaudeAgentOptions:
        memories = self._memory.render()
        prompt = PROMPT.read_text(encoding="utf-8")
        options = self._restricted(f"{prompt}\n\n# Memories of earlier jobs\n\n{memories}" if memories else prompt)
        options.add_dirs = list(self._config.get("folders") or [])
        options.max_turns = self._config.get("max_turns") or MAX_TURNS
        options.tools = list(READ_ONLY_TOOLS)
        options.mcp_servers = {SERVER_NAME: self._tools.server()}
        # Hooks run under bypassPermissions, `can_use_tool` does not.
        options.hooks = {"PreToolUse": [HookMatcher(hooks=[self._check_tool], on_failure="block")]}
        return options

    def _restricted(self, system_prompt: str) -> ClaudeAgentOptions:
        """Return the options of a session without any tool and without the user's settings."""
        return ClaudeAgentOptions(
            system_prompt=system_prompt,
            cwd=self._folder,
            model=self._config.get("model"),
            # `allowed_tools` restricts nothing under bypassPermissions; `tools` does.
            tools=[],
            strict_mcp_config=True,
            setting_sources=[],
            permission_mode="bypassPermissions",
            extra_args={"allow-dangerously-skip-permissions": None},
            env=_environment(),
        )

    async def _check_tool(self, call: HookInput, _: str | None, __: HookContext) -> HookJSONOutput:
        if call["hook_event_name"] != "PreToolUse":
            return {}
        allowed = [self._folder, *map(Path, self._config.get("folders") or [])]
        reason = refusal_reason(call["tool_name"], call["tool_input"], self._folder, allowed)
        if reason is None:
            return {}
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            }
        }


def refusal_reason(tool: str, arguments: dict[str, Any], folder: Path, allowed: Sequence[Path]) -> str | None:
    """Return why a tool call is refused, or None. Paths must be inside the allowed folders, links resolved."""
    if tool.startswith(f"mcp__{SERVER_NAME}__"):
        return None
    if tool not in READ_ONLY_TOOLS:
        return f"{tool} is not available to this worker"
    for name in _PATH_TOOLS.get(tool, ()):
        value = arguments.get(name)
        if not isinstance(value, str) or not value:
            continue
        if name == "pattern":
            # The part of a glob before its first wildcard decides where it can reach, unless it climbs up later.
            if ".." in Path(value).parts:
                return f"{tool}: a pattern must not contain '..'"
            base = arguments.get("path") if isinstance(arguments.get("path"), str) else ""
            value = str(Path(base or ".", *_literal_parts(value)))
        path = (folder / Path(value).expanduser()).resolve()
        if not any(path.is_relative_to(each.resolve()) for each in allowed):
            return f"{tool}: {value} is outside of this job's folders"
    return None


def _literal_parts(pattern: str) -> list[str]:
    parts: list[str] = []
    for part in Path(pattern).parts:
        if any(character in part for character in "*?[{"):
            break
        parts.append(part)
    return parts


def _failure(message: ResultMessage) -> str | None:
    if not message.is_error and message.subtype == "success":
        return None
    reasons = {
        "error_max_turns": "the limit of turns was reached",
        "error_max_budget_usd": _BUDGET_EXCEEDED,
    }
    return reasons.get(message.subtype) or message.result or message.subtype


def _environment() -> dict[str, str]:
    # As root, Claude Code accepts bypassPermissions only in a declared sandbox. The tools above are read-only.
    return {"IS_SANDBOX": "1"} if os.geteuid() == 0 else {}
