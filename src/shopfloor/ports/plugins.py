"""Plugins: processes that accept work (`worker/*`) or offer tools (`tools/*`) over JSON-RPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from shopfloor.errors import ConflictError

PluginStatus = Literal["stopped", "starting", "ready", "error", "not_allowed"]
JobStatus = Literal["running", "completed", "failed", "cancelled"]

WORKER = "worker"
"""The capability of accepting jobs."""


class PluginTool(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tool that a plugin offers."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin as lists show it."""

    name: str
    folder: str
    status: PluginStatus
    display_name: str = ""
    description: str = ""
    version: str = ""
    capabilities: tuple[str, ...] = ()
    error: str | None = None
    """Why its status is `error` or `not_allowed`."""
    tools: tuple[PluginTool, ...] = ()

    @property
    def is_worker(self) -> bool:
        """Whether it accepts jobs."""
        return WORKER in self.capabilities


class JobDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A judgment call that a job made by itself."""

    question: str
    decision: str
    reasoning: str


class JobState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of `worker/status`."""

    job_id: str
    status: JobStatus
    description: str
    started_at: str
    summary: str | None = None
    questions: tuple[str, ...] | None = None
    decisions: tuple[JobDecision, ...] | None = None
    error: str | None = None
    completed_at: str | None = None
    cost_usd: float | None = None
    progress: Any = None
    """How far the job is, from 0 to 1. Plugins may add it; other values are ignored."""


class JobItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A job as `worker/list` shows it."""

    job_id: str
    status: JobStatus
    description: str | None = None
    summary: str | None = None


class JobResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of `worker/result`."""

    job_id: str
    output: str
    artifacts: tuple[str, ...] | None = None


class ToolCallResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `tools/call`. `is_error` is the tool's own failure, not one of the protocol."""

    content: list[dict[str, Any]]
    is_error: bool = False


def one_shot_job(run_id: str) -> ConflictError:
    """Return the error for an answer to a run that is a job of a plugin."""
    return ConflictError(
        f"the run {run_id} is a job of a plugin, which takes no answers: a job is one-shot",
        hint="start a new run whose task has the answer",
    )


class WorkerHandle(Protocol):
    """The six methods of a plugin that accepts jobs. Each raises `PluginFailed` or `PluginUnavailable`."""

    async def dispatch(self, description: str, task: str, config: dict[str, Any]) -> str:
        """Start a job and return its id."""
        ...

    async def list(self, *, pattern: str | None = None) -> Sequence[JobItem]:
        """List the jobs whose descriptions match a glob, with details."""
        ...

    async def status(self, job_id: str) -> JobState:
        """Return the state of a job."""
        ...

    async def result(self, job_id: str) -> JobResult:
        """Return the output of a completed job."""
        ...

    async def cancel(self, job_id: str) -> JobStatus:
        """Cancel a job and return its status. Does nothing if the job has ended."""
        ...

    async def delete(self, job_id: str) -> None:
        """Delete a completed or cancelled job."""
        ...


class ToolServerHandle(Protocol):
    """The tools of a plugin. Each method raises `PluginFailed` or `PluginUnavailable`."""

    async def list_tools(self) -> Sequence[PluginTool]:
        """List the tools."""
        ...

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> ToolCallResult:
        """Call a tool and return its result, which may be its own error."""
        ...


class Plugins(Protocol):
    """The plugins of this machine. They are started on first use, or in the background by a server."""

    def all(self) -> Sequence[PluginInfo]:
        """List the plugins, also those that cannot be used."""
        ...

    def start_all(self) -> None:
        """Start every usable plugin in the background."""
        ...

    async def worker(self, name: str) -> WorkerHandle:
        """Return the worker handle of a plugin; start the plugin if needed.

        Raises `PluginNotFound`, `PluginUnavailable`, or `PluginFailed` for a plugin without the capability: nothing is
        sent to it.
        """
        ...

    async def tool_server(self, name: str) -> ToolServerHandle:
        """Return the tools of a plugin; start the plugin if needed. Raises like `worker`."""
        ...
