"""The tools of each agent: names and inputs for the actions of a scenario."""

from __future__ import annotations

from typing import Any, Protocol

from tests.model_server.script import ReplyPart, Text, Tokens, ToolUse

OPENAI_TOKENS = Tokens(input=1200, cache_read=800, output=45, reasoning=12)
"""Usage of one call: 800 of the 1200 tokens come from a cache, 12 of the 45 are thinking."""


class AgentTools(Protocol):
    """The tools of one agent."""

    tokens: Tokens
    overloaded: int
    """The HTTP status of an overloaded provider."""

    def shell(self, command: str) -> ToolUse: ...

    def write(self, path: str, text: str) -> ToolUse:
        """Write a file. The path is relative to the agent's folder."""
        ...

    def edit(self, path: str, old: str, new: str) -> ToolUse: ...

    def delegate(self, task: str) -> list[ToolUse]:
        """Start another agent and wait for it, one call after the other."""
        ...

    def report(self, text: str) -> ReplyPart:
        """Return the final answer of a sub-agent."""
        ...


class _BaseTools:
    tokens = OPENAI_TOKENS
    overloaded = 503

    def report(self, text: str) -> ReplyPart:
        return Text(text=text)


class Claude(_BaseTools):
    # Anthropic's `input_tokens` excludes both caches: it is 1200.
    tokens = Tokens(input=2100, cache_read=800, cache_write=100, output=45)
    overloaded = 529

    def shell(self, command: str) -> ToolUse:
        return _use("Bash", command=command, description="Run a command")

    def write(self, path: str, text: str) -> ToolUse:
        return _use("Write", file_path=path, content=text)

    def edit(self, path: str, old: str, new: str) -> ToolUse:
        return _use("Edit", file_path=path, old_string=old, new_string=new)

    def delegate(self, task: str) -> list[ToolUse]:
        kind = {"subagent_type": "general-purpose", "run_in_background": False}
        return [_use("Agent", description="Look around", prompt=task, **kind)]


class Codex(_BaseTools):
    def shell(self, command: str) -> ToolUse:
        return _use("exec_command", cmd=command)

    def write(self, path: str, text: str) -> ToolUse:
        return _patch(f"*** Add File: {path}", [f"+{line}" for line in text.splitlines()])

    def edit(self, path: str, old: str, new: str) -> ToolUse:
        return _patch(f"*** Update File: {path}", ["@@", f"-{old}", f"+{new}"])

    def delegate(self, task: str) -> list[ToolUse]:
        spawn, wait = {"message": task}, {"targets": ["{agent_id}"], "timeout_ms": 20_000}
        group = "multi_agent_v1"
        return [
            ToolUse(name="spawn_agent", input=spawn, namespace=group),
            ToolUse(name="wait_agent", input=wait, namespace=group),
        ]


class Gemini(_BaseTools):
    # Gemini's `candidatesTokenCount` excludes thinking.
    tokens = Tokens(input=1200, cache_read=800, output=57, reasoning=12)

    def shell(self, command: str) -> ToolUse:
        return _use("run_shell_command", command=command, description="Run a command")

    def write(self, path: str, text: str) -> ToolUse:
        return _use("write_file", file_path=path, content=text)

    def edit(self, path: str, old: str, new: str) -> ToolUse:
        return _use("replace", file_path=path, old_string=old, new_string=new, instruction="Change a line")

    def delegate(self, task: str) -> list[ToolUse]:
        return [_use("invoke_agent", agent_name="generalist", prompt=task)]

    def report(self, text: str) -> ReplyPart:
        return _use("complete_task", result={"response": text})


class Copilot(_BaseTools):
    def shell(self, command: str) -> ToolUse:
        return _use("bash", command=command, description="Run a command", mode="sync", initial_wait=60)

    def write(self, path: str, text: str) -> ToolUse:
        return _use("create", path=path, file_text=text)

    def edit(self, path: str, old: str, new: str) -> ToolUse:
        return _use("edit", path=path, old_str=old, new_str=new)

    def delegate(self, task: str) -> list[ToolUse]:
        kind = {"agent_type": "general-purpose", "mode": "sync"}
        return [_use("task", name="look", description="Look around", prompt=task, **kind)]


class OpenCode(_BaseTools):
    def shell(self, command: str) -> ToolUse:
        return _use("bash", command=command, description="Run a command")

    def write(self, path: str, text: str) -> ToolUse:
        return _use("write", filePath=path, content=text)

    def edit(self, path: str, old: str, new: str) -> ToolUse:
        return _use("edit", filePath=path, oldString=old, newString=new)

    def delegate(self, task: str) -> list[ToolUse]:
        return [_use("task", description="Look around", prompt=task, subagent_type="general")]


AGENT_TOOLS: dict[str, AgentTools] = {
    "claude": Claude(),
    "codex": Codex(),
    "gemini": Gemini(),
    "copilot": Copilot(),
    "opencode": OpenCode(),
}


def _use(name: str, /, **tool_input: Any) -> ToolUse:
    return ToolUse(name=name, input=tool_input)


def _patch(head: str, lines: list[str]) -> ToolUse:
    return ToolUse(name="apply_patch", text="\n".join(["*** Begin Patch", head, *lines, "*** End Patch"]))
