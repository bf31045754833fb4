"""A conformance test for authors of plugins: the whole protocol against a started plugin, in any language."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import msgspec

from shopfloor.adapters.limits import PLUGIN_CALL_SECONDS, PLUGIN_CHECK_SECONDS, PLUGIN_POLL_SECONDS
from shopfloor.adapters.plugins.client import PROTOCOL_VERSION, JsonRpcClient
from shopfloor.adapters.plugins.lease import PluginLease
from shopfloor.adapters.plugins.manifest import Manifest
from shopfloor.adapters.plugins.supervisor import Supervisor
from shopfloor.errors import PluginFailed, ShopfloorError
from shopfloor.ports import JobState, Processes
from shopfloor.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """One check of the protocol."""

    name: str
    passed: bool
    detail: str = ""
    """What was wrong."""


class _Violation(Exception):
    """The plugin does not do what the protocol says."""


class Conformance:
    """Drives a started plugin through the protocol. Use `open_conformance`."""

    def __init__(self, http: httpx.AsyncClient, supervisor: Supervisor, *, task: str) -> None:
        self._http = http
        self._supervisor = supervisor
        self._client: JsonRpcClient
        self._is_worker = supervisor.info.is_worker
        self._task = task
        self._description = f"Conformance check {uuid.uuid4()}"
        self._job_id = ""

    async def start(self) -> None:
        """Wait until the plugin is ready. Raises `PluginUnavailable`."""
        self._client = await self._supervisor.client()

    async def run(self) -> AsyncGenerator[CheckResult]:
        """Yield the result of each check. Later checks of jobs are left out if none could be dispatched."""
        for name, check in self._checks():
            yield await _result(name, check)
        if not self._is_worker:
            return
        dispatched = await _result("worker/dispatch starts a job and returns its id", self._check_dispatch)
        yield dispatched
        if dispatched.passed:
            for name, check in self._job_checks():
                yield await _result(name, check)

    def _checks(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        checks: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("tools/list returns the tools", self._check_tools),
            ("a request without the secret is refused", self._check_secret),
            ("a body that is not JSON is error -32700", self._check_garbage),
            ("an unknown method is error -32601", self._check_unknown_method),
        ]
        if self._is_worker:
            checks.append(("unknown jobs and missing parameters are error -32602", self._check_bad_params))
        return checks

    def _job_checks(self) -> list[tuple[str, Callable[[], Awaitable[None]]]]:
        return [
            ("worker/list finds the job by a glob on its description", self._check_list),
            ("worker/status has the fields of the protocol", self._check_status),
            ("the job ends, or can be cancelled", self._check_end),
            ("worker/cancel of an ended job changes nothing", self._check_second_cancel),
            ("worker/result fits the status of the job", self._check_result),
            ("worker/delete removes completed and cancelled jobs only", self._check_delete),
        ]

    async def _check_tools(self) -> None:
        await self._client.list_tools()

    async def _check_secret(self) -> None:
        response = await self._post(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
        if response.status_code == httpx.codes.OK.value and "result" in _object(response.content):
            raise _Violation("other users of this machine can call the plugin: require SHOPFLOOR_PLUGIN_SECRET")

    async def _check_garbage(self) -> None:
        response = await self._post(b"{", self._client.headers)
        _expect_error(_object(response.content), PARSE_ERROR)

    async def _check_unknown_method(self) -> None:
        await self._expect_failure("shopfloor/no-such-method", {}, METHOD_NOT_FOUND)

    async def _check_bad_params(self) -> None:
        for method in ("worker/status", "worker/result", "worker/cancel", "worker/delete"):
            await self._expect_failure(method, {"jobId": "no-such-job"}, INVALID_PARAMS)
        await self._expect_failure("worker/dispatch", {"description": "without a task"}, INVALID_PARAMS)

    async def _check_dispatch(self) -> None:
        run_id = str(uuid.uuid4())
        self._job_id = await self._client.dispatch_worker(self._description, self._task, {"run_id": run_id})

    async def _check_list(self) -> None:
        pattern = f"*{self._description.rsplit('-', 1)[1]}"
        found = [job.job_id for job in await self._client.list_workers(pattern)]
        if found != [self._job_id]:
            raise _Violation(f"the filter {pattern!r} returned {found}, expected [{self._job_id!r}]")
        simple = (await self._client.call("worker/list", {"filter": pattern})).get("jobs")
        jobs = cast("list[Any]", simple) if isinstance(simple, list) else []
        fields = [set(cast("dict[str, Any]", job)) if isinstance(job, dict) else None for job in jobs]
        if fields != [{"jobId", "status"}]:
            raise _Violation(f"simple entries must have jobId and status only, got {simple!r}")

    async def _check_status(self) -> None:
        state = await self._client.worker_status(self._job_id)
        if (state.job_id, state.description) != (self._job_id, self._description):
            raise _Violation("jobId and description are not those of the job")
        if not state.started_at:
            raise _Violation("startedAt is empty")

    async def _check_end(self) -> None:
        for _ in range(round(PLUGIN_CHECK_SECONDS / PLUGIN_POLL_SECONDS)):
            if (await self._state()).status != "running":
                break
            await anyio.sleep(PLUGIN_POLL_SECONDS)
        if (await self._state()).status == "running":
            status = await self._client.cancel_worker(self._job_id)
            # The job may have ended just before.
            if status == "running":
                raise _Violation("cancelling a running job returned the status 'running', expected 'cancelled'")
        state = await self._state()
        if state.completed_at is None:
            raise _Violation(f"a job with the status {state.status!r} has no completedAt")

    async def _check_second_cancel(self) -> None:
        before = (await self._state()).status
        after = await self._client.cancel_worker(self._job_id)
        if after != before:
            raise _Violation(f"the status was {before!r} and is {after!r} now")

    async def _check_result(self) -> None:
        if (await self._state()).status == "completed":
            await self._client.worker_result(self._job_id)
        else:
            await self._expect_failure("worker/result", {"jobId": self._job_id}, None)

    async def _check_delete(self) -> None:
        if (await self._state()).status == "failed":
            await self._expect_failure("worker/delete", {"jobId": self._job_id}, INVALID_PARAMS)
            return
        await self._client.delete_worker(self._job_id)
        await self._expect_failure("worker/status", {"jobId": self._job_id}, INVALID_PARAMS)

    async def _state(self) -> JobState:
        return await self._client.worker_status(self._job_id)

    async def _expect_failure(self, method: str, params: dict[str, Any], code: int | None) -> None:
        try:
            await self._client.call(method, params)
        except PluginFailed as error:
            if error.rpc_code is None:
                raise
            if code is not None and error.rpc_code != code:
                raise _Violation(f"{method}: the error code is {error.rpc_code}, expected {code}") from error
        else:
            raise _Violation(f"{method} with {params} succeeded, expected error {code or 'of any code'}")

    async def _post(self, body: bytes, headers: dict[str, str] | None = None) -> httpx.Response:
        sent = headers or {"Content-Type": "application/json", "MCP-Protocol-Version": PROTOCOL_VERSION}
        return await self._http.post(self._client.url, content=body, headers=sent, timeout=PLUGIN_CALL_SECONDS)


@asynccontextmanager
async def open_conformance(
    processes: Processes, folder: Path, manifest: Manifest, lease: PluginLease, *, task: str
) -> AsyncGenerator[Conformance]:
    """Start the plugin of a folder for a conformance test. Leaving the context ends its process."""
    async with httpx.AsyncClient(trust_env=False) as http, anyio.create_task_group() as tasks:
        supervisor = Supervisor(folder, manifest, processes, http, lease)
        tasks.start_soon(supervisor.run)
        yield Conformance(http, supervisor, task=task)
        tasks.cancel_scope.cancel()


async def _result(name: str, check: Callable[[], Awaitable[None]]) -> CheckResult:
    try:
        await check()
    except (_Violation, ShopfloorError, httpx.HTTPError) as error:
        return CheckResult(name=name, passed=False, detail=str(error) or type(error).__name__)
    return CheckResult(name=name, passed=True)


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(content)
    except msgspec.DecodeError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _expect_error(response: dict[str, Any], code: int) -> None:
    error = response.get("error")
    found = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
    if found != code:
        raise _Violation(f"the error code is {found}, expected {code}")
