"""JSON-RPC to a started plugin, over HTTP."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import anyio
import httpx
import msgspec

from shopfloor.adapters.limits import PLUGIN_ANSWER_BYTES, PLUGIN_CALL_SECONDS, PLUGIN_READY_SECONDS
from shopfloor.decoding import convert
from shopfloor.errors import PluginFailed, PluginUnavailable
from shopfloor.limits import PLUGIN_NOTE_CHARS
from shopfloor.ports import JobItem, JobResult, JobState, JobStatus, PluginTool, ToolCallResult
from shopfloor.rpc import ProtocolError, RpcError, decode_response, encode_request
from shopfloor.version import __version__

PROTOCOL_VERSION = "2025-06-18"
T = TypeVar("T")
_OK = 200
_NOT_SENT = (httpx.ConnectError, httpx.PoolTimeout)
_JOB_ID = re.compile(r"[^/\\\0]{1,200}")


def is_job_id(job_id: str) -> bool:
    """Return whether a job id is safe as a file name, as the protocol requires."""
    return _JOB_ID.fullmatch(job_id) is not None and job_id not in {".", ".."}


class _Initialized(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: str


class _Tools(msgspec.Struct, frozen=True):
    tools: tuple[PluginTool, ...]


class _ToolAnswer(msgspec.Struct, frozen=True, rename="camel"):
    content: list[dict[str, Any]]
    is_error: bool = False


class _Dispatched(msgspec.Struct, frozen=True, rename="camel"):
    job_id: str


class _Jobs(msgspec.Struct, frozen=True):
    jobs: tuple[JobItem, ...]


class _Cancelled(msgspec.Struct, frozen=True, rename="camel"):
    status: JobStatus


class _Deleted(msgspec.Struct, frozen=True):
    deleted: bool


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a plugin may take, and how much it may answer."""

    ready_seconds: float = PLUGIN_READY_SECONDS
    call_seconds: float = PLUGIN_CALL_SECONDS
    answer_bytes: int = PLUGIN_ANSWER_BYTES


DEFAULT_LIMITS = CallLimits()


class JsonRpcClient:
    """Calls the methods of one plugin.

    Raises `PluginUnavailable` if the plugin does not answer, `PluginFailed` for an error or a malformed answer.
    """

    def __init__(
        self, http: httpx.AsyncClient, name: str, url: str, secret: str, limits: CallLimits = DEFAULT_LIMITS
    ) -> None:
        self._http = http
        self._limits = limits
        self._name = name
        self.url = url
        self.secret = secret
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "MCP-Protocol-Version": PROTOCOL_VERSION,
            "Authorization": f"Bearer {secret}",
        }
        self._ids = itertools.count(1)

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """Call any method and return its result as plain values."""
        return await self._call(method, params, dict[str, Any])

    async def initialize(self) -> None:
        """Do the handshake."""
        client = {"name": "shopfloor", "version": __version__}
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}
        await self._call("initialize", params, _Initialized, self._limits.ready_seconds)

    async def list_tools(self) -> Sequence[PluginTool]:
        """List the tools of the plugin."""
        return (await self._call("tools/list", {}, _Tools)).tools

    async def invoke_tool(self, name: str, arguments: dict[str, Any]) -> ToolCallResult:
        """Call a tool. Its own failure is a result with `is_error`."""
        answer = await self._call("tools/call", {"name": name, "arguments": arguments}, _ToolAnswer)
        return ToolCallResult(content=answer.content, is_error=answer.is_error)

    async def dispatch_worker(self, description: str, task: str, config: dict[str, Any]) -> str:
        """Start a job and return its id."""
        params = {"description": description, "task": task, "config": config}
        job_id = (await self._call("worker/dispatch", params, _Dispatched)).job_id
        if not is_job_id(job_id):
            raise PluginFailed(f"plugin {self._name}: worker/dispatch returned an unusable jobId: {job_id[:100]!r}")
        return job_id

    async def list_workers(self, pattern: str | None = None) -> Sequence[JobItem]:
        """List jobs with their details. `pattern` is a glob on descriptions."""
        params = {"detail": "detailed", **({} if pattern is None else {"filter": pattern})}
        return (await self._call("worker/list", params, _Jobs)).jobs

    async def worker_status(self, job_id: str) -> JobState:
        """Return the state of a job."""
        return await self._call("worker/status", {"jobId": job_id}, JobState)

    async def worker_result(self, job_id: str) -> JobResult:
        """Return the output of a completed job."""
        return await self._call("worker/result", {"jobId": job_id}, JobResult)

    async def cancel_worker(self, job_id: str) -> JobStatus:
        """Cancel a job and return its status."""
        return (await self._call("worker/cancel", {"jobId": job_id}, _Cancelled)).status

    async def delete_worker(self, job_id: str) -> None:
        """Delete a completed or cancelled job."""
        await self._call("worker/delete", {"jobId": job_id}, _Deleted)

    async def _call(
        self, method: str, params: dict[str, Any], shape: type[T], timeout_seconds: float | None = None
    ) -> T:
        request_id = next(self._ids)
        timeout_seconds = timeout_seconds or self._limits.call_seconds
        status, body = await self._post(method, encode_request(request_id, method, params), timeout_seconds)
        try:
            result = decode_response(body, request_id)
            if status != _OK:
                raise ProtocolError(f"HTTP status {status}")
            return convert(result, shape)
        except RpcError as error:
            message = f"plugin {self._name}: {method}: {error.message[:PLUGIN_NOTE_CHARS]}"
            raise PluginFailed(message, rpc_code=error.code) from error
        except (ProtocolError, msgspec.ValidationError) as error:
            reason = str(error)[:PLUGIN_NOTE_CHARS] if status == _OK else f"HTTP status {status}"
            raise PluginFailed(f"plugin {self._name}: {method}: {reason}") from error

    async def _post(self, method: str, content: bytes, timeout_seconds: float) -> tuple[int, bytes]:
        body = bytearray()
        try:
            # One deadline for the whole answer: the timeouts of httpx are per read, and a plugin may send byte by byte.
            with anyio.fail_after(timeout_seconds):
                # A request that waits for a connection is not sent yet: that wait has its own, shorter limit.
                timeout = httpx.Timeout(None, pool=timeout_seconds / 2)
                request = self._http.stream("POST", self.url, content=content, headers=self.headers, timeout=timeout)
                async with request as response:
                    async for part in response.aiter_bytes():
                        body += part
                        if len(body) > self._limits.answer_bytes:
                            size = f"{self._limits.answer_bytes:,} bytes"
                            raise PluginFailed(f"plugin {self._name}: {method}: the answer is larger than {size}")
        except TimeoutError as error:
            message = f"plugin {self._name}: {method}: no answer within {timeout_seconds:g} s"
            raise PluginUnavailable(message, is_sent=True) from error
        except httpx.HTTPError as error:
            message = f"plugin {self._name}: {method}: {str(error) or type(error).__name__}"
            raise PluginUnavailable(message, is_sent=not isinstance(error, _NOT_SENT)) from error
        return response.status_code, bytes(body)
