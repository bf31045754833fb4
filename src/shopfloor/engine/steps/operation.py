"""Operation steps: a call of a tool that a plugin offers, recorded by the router."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shopfloor.engine.approvals import ApprovalGate
from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.replay_state import StepKey
from shopfloor.engine.steps.arguments import check_arguments
from shopfloor.engine.steps.tool_definitions import Tool
from shopfloor.engine.steps.tools import Tools
from shopfloor.engine.workers.definition import Retry
from shopfloor.errors import OutcomeUnknown, PluginFailed, PluginUnavailable, RunFailed, ToolFailed
from shopfloor.limits import ARCHIVE_ARGS_BYTES
from shopfloor.log import ToolCall
from shopfloor.ports import Blobs, Plugins, ToolSpec
from shopfloor.views import truncate_bytes

OPERATION = "operation"
"""The kind of these steps."""


class OperationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a plugin, and its arguments or a function that returns them."""

    plugin: str
    tool: str
    arguments: Mapping[str, Any] | Callable[[], Any]

    @property
    def name(self) -> str:
        """The name of the tool in the log. No tool of a worker has a `/` in its name."""
        return f"{self.plugin}/{self.tool}"


class OperationStepRunner:
    """Runner of one operation step.

    The log has the call before the plugin gets it, and the result before the step ends. A call that a crash interrupted
    is made again only by a further try, if the retry policy allows one.
    """

    def __init__(
        self,
        attempt: Attempt,
        plugins: Plugins,
        blobs: Blobs,
        request: OperationRequest,
        *,
        gate: ApprovalGate | None = None,
    ) -> None:
        self._attempt = attempt
        self._plugins = plugins
        self._blobs = blobs
        self._request = request
        self._gate = gate
        self._failure: RunFailed | None = None
        """The failure of the protocol in this try. The tool's own failure is in the result of the call."""

    async def run(self, step_key: StepKey, *, name: str, retry: Retry | None = None) -> Any:
        """Call the tool and return its text, or its content if that is not only text."""
        return await self._attempt.step(
            step_key, self._execute, name=name, kind=OPERATION, retry=retry, repeatable=True
        )

    async def _execute(self, step_try: StepTry) -> StepResult:
        request, self._failure = self._request, None
        arguments = request.arguments() if callable(request.arguments) else dict(request.arguments)
        calls = [event for event in self._attempt.conversation(step_try.step_key) if isinstance(event, ToolCall)]
        if len(calls) < step_try.try_:
            async with self._attempt.hold_slot():
                await self._check(arguments)
        tool = Tool(ToolSpec(request.name, "", {}), self._call)
        result = await Tools({request.name: tool}, self._blobs, self._gate).call(
            self._attempt, step_try.step_key, request.name, arguments, try_=step_try.try_
        )
        if self._failure is not None:
            raise self._failure
        if result.error is not None:
            raise ToolFailed(f"the tool {request.name!r} failed: {result.error}")
        return StepResult(result.output)

    async def _check(self, arguments: Any) -> None:
        """Raise if the plugin cannot be started, has no such tool, or if the arguments do not match its schema."""
        request = self._request
        server = await self._plugins.tool_server(request.plugin)
        tools = {tool.name: tool for tool in await server.list_tools()}
        if request.tool not in tools:
            known = f"its tools are {', '.join(sorted(tools))}" if tools else "it offers no tools"
            raise PluginFailed(f"plugin {request.plugin} has no tool {request.tool!r}", hint=known)
        check_arguments(request.name, tools[request.tool].input_schema, arguments)

    async def _call(self, arguments: dict[str, Any]) -> Any:
        try:
            server = await self._plugins.tool_server(self._request.plugin)
            answer = await server.call_tool(self._request.tool, arguments)
        except PluginUnavailable as error:
            self._failure = error
            if error.is_sent:
                hint = "check what the tool did; `retry: {always: true}` repeats such a step"
                self._failure = OutcomeUnknown(f"{error.message}: whether the tool was executed is unknown", hint=hint)
            raise self._failure from error
        except PluginFailed as error:
            self._failure = error
            raise
        if answer.is_error:
            texts = [str(block.get("text")) for block in answer.content if block.get("type") == "text"]
            reason = "\n".join(texts).strip() or "it reported an error without a text"
            raise ToolFailed(truncate_bytes(reason, ARCHIVE_ARGS_BYTES))
        return _as_value(answer.content)


def _as_value(content: list[dict[str, Any]]) -> Any:
    """Return the text of a content that is only text, else the content."""
    texts = [block.get("text") for block in content if block.get("type") == "text"]
    if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
        return "\n".join(map(str, texts))
    return content
