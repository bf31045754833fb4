"""The internal tools of the agent. They run in the plugin's process and are its only way to write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from claude_agent_sdk import SdkMcpTool, create_sdk_mcp_server
from claude_agent_sdk.types import McpSdkServerConfig

from plugin.jobs import Decision, Job, JobError, JobStore
from plugin.memory import InvalidMemory, Memory

SERVER_NAME = "worker"
Handler = Callable[[dict[str, Any]], Awaitable[str]]
_TEXT = {"type": "string"}


class InternalTools:
    """The tools of one job. `output` is what the agent submitted."""

    def __init__(self, jobs: JobStore, job: Job, memory: Memory) -> None:
        self._jobs, self._job, self._memory = jobs, job, memory
        self.output: str | None = None

    def server(self) -> McpSdkServerConfig:
        """Return the tools as an MCP server in this process."""
        artifact = _schema({"name": _TEXT, "content": _TEXT}, ["name", "content"])
        server = create_sdk_mcp_server(
            SERVER_NAME,
            tools=[
                _tool(
                    "update_summary",
                    "Report your progress in one or two sentences. Replaces the summary before.",
                    _schema({"summary": _TEXT}, ["summary"]),
                    self._update_summary,
                ),
                _tool(
                    "record_decision",
                    "Record a decision that you made yourself because the task left it open.",
                    _schema(
                        {"question": _TEXT, "decision": _TEXT, "reasoning": _TEXT},
                        ["question", "decision", "reasoning"],
                    ),
                    self._record_decision,
                ),
                _tool(
                    "log_question",
                    "Record a question that only a person can answer. There is no reply; continue without it.",
                    _schema({"question": _TEXT}, ["question"]),
                    self._log_question,
                ),
                _tool(
                    "store_memory",
                    "Keep knowledge for later jobs under a short key. An existing key is overwritten.",
                    _schema({"key": _TEXT, "content": _TEXT}, ["key", "content"]),
                    self._store_memory,
                ),
                _tool(
                    "submit_result",
                    "Submit the whole result, as Markdown. Call it once, at the end. Artifacts are files beside it.",
                    _schema({"text": _TEXT, "artifacts": {"type": "array", "items": artifact}}, ["text"]),
                    self._submit_result,
                ),
            ],
        )
        # Without it the model would have to search for these tools first. The SDK passes it on.
        return cast("McpSdkServerConfig", {**server, "alwaysLoad": True})

    async def _update_summary(self, arguments: dict[str, Any]) -> str:
        self._jobs.update_summary(self._job, _text(arguments, "summary"))
        return "The summary is updated."

    async def _record_decision(self, arguments: dict[str, Any]) -> str:
        question, decision, reasoning = (_text(arguments, name) for name in ("question", "decision", "reasoning"))
        self._jobs.add_decision(self._job, Decision(question, decision, reasoning))
        return "The decision is recorded."

    async def _log_question(self, arguments: dict[str, Any]) -> str:
        self._jobs.add_question(self._job, _text(arguments, "question"))
        return "The question is recorded. Continue without an answer."

    async def _store_memory(self, arguments: dict[str, Any]) -> str:
        self._memory.store(_text(arguments, "key"), _text(arguments, "content"))
        return "The memory is stored."

    async def _submit_result(self, arguments: dict[str, Any]) -> str:
        text = _text(arguments, "text")
        artifacts: list[Any] = arguments.get("artifacts") or []
        for artifact in artifacts:
            self._jobs.write_artifact(self._job, _text(artifact, "name"), _text(artifact, "content"))
        self.output = text
        return "The result is submitted. You are done."


def _tool(name: str, description: str, schema: dict[str, Any], handler: Handler) -> SdkMcpTool[Any]:
    async def handle(arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            return _result(await handler(arguments), is_error=False)
        except (JobError, InvalidMemory) as error:
            return _result(str(error), is_error=True)
        except OSError as error:
            return _result(f"cannot write: {error.strerror or error}", is_error=True)

    return SdkMcpTool(name=name, description=description, input_schema=schema, handler=handle)


def _result(text: str, *, is_error: bool) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "is_error": is_error}


def _schema(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _text(arguments: Any, name: str) -> str:
    value = cast("dict[str, Any]", arguments).get(name) if isinstance(arguments, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise JobError(f"{name} must be a text that is not empty")
    return value
