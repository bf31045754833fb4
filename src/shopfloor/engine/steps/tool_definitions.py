"""Definitions of tools: what a model sees of a tool, and the function that executes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.workers.definition import Definition, ToolDefinition
from shopfloor.engine.workers.imports import load_object
from shopfloor.engine.workers.python import PythonTool
from shopfloor.ports import Blobs, ToolSpec

Handler = Callable[..., Any]
"""A function that takes the arguments as a dict; may be async."""


class ToolContext(msgspec.Struct, frozen=True):
    """What a tool of the engine needs from the run that calls it."""

    attempt: Attempt
    blobs: Blobs


class Tool(msgspec.Struct, frozen=True):
    """A tool. Without a handler the client executes it, and the run waits for the result."""

    spec: ToolSpec
    handler: Handler | None = None
    read_only: bool = False
    needs_context: bool = False
    """Whether the handler gets a `ToolContext` before the arguments."""


def build_tool(name: str, definition: ToolDefinition, handler: Any = None) -> Tool:
    """Build a tool from its definition. A plain function gets the arguments as one dict."""
    if handler is None and definition.handler:
        handler = load_object(definition.handler)
    if isinstance(handler, PythonTool):
        handler = cast("PythonTool[Any, Any]", handler).handle
    return Tool(ToolSpec(name, definition.description, definition.parameters), handler, definition.read_only)


def build_tools(definition: Definition) -> dict[str, Tool]:
    """Build the tools of a worker."""
    return {name: build_tool(name, tool) for name, tool in definition.tools.items()}
