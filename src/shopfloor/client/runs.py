"""Operations on runs: list, get, events, wait, cancel, answer, rerun, reply, fork, export, dismiss, and statistics."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict, Unpack

import anyio
import msgspec

from shopfloor.client.api import Api, require_run_id
from shopfloor.client.workers import WorkersApi
from shopfloor.decoding import decode_json
from shopfloor.limits import OUTCOME_POLL_SECONDS
from shopfloor.log import BasedOn, Usage
from shopfloor.views import Stats, StreamEvent

RunStatus = Literal["all", "queued", "running", "interrupted", "waiting", "done", "failed", "cancelled"]
SortOrder = Literal["newest", "oldest", "cost", "duration"]


class RunFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed."""

    code: str | None = None
    message: str | None = None
    hint: str | None = None


class PendingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A question or call that a run waits for."""

    run_id: str
    """The run that waits: the run itself or one of its sub-runs."""
    call_id: str
    """Pass it to `answer`."""
    kind: str
    """`client_tool`, `question`, `approval`, or another."""
    name: str
    input: Any
    until: str | None = None
    """When the run stops waiting."""
    answered: bool = False
    """True if there is an answer that the run has not processed yet."""


class WaitingItem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits for a person."""

    run_id: str
    root_run_id: str
    title: str
    worker: str
    kind: str
    """`question`, `approval`, `client_tool`, `failure`, `definition_changed` or `interrupted`."""
    call_id: str | None
    """Pass it to `answer`; None if there is no call to answer."""
    text: str
    """The question, the tool and its input, or the reason."""
    error_code: str | None = None
    """For a failure, the code of the error."""
    hint: str | None = None
    actions: list[str]
    """What can be done here, the most useful first: `answer`, `rerun`, `cancel`, `dismiss`."""
    options: list[str] | None = None
    since: str
    until: str | None = None


class LaterRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that repeats, continues or forks another run."""

    run_id: str
    kind: Literal["rerun", "reply", "fork"]


class Run(msgspec.Struct, frozen=True, kw_only=True, rename={"worker": "name", "owner": "agent_id"}):
    """A run. `result`, `awaits` and `continued_by` are only known from `get` and `wait`, not in lists."""

    id: str
    worker: str
    status: str
    """`queued`, `running`, `waiting`, `done`, `failed` or `cancelled`."""
    task: str
    owner: str | None
    started_at: str
    completed_at: str | None
    """None until the run has ended."""
    duration_ms: int | None
    usage: Usage
    """Tokens of the run itself."""
    cost_usd: float | None
    """Cost of the run itself; None if unknown."""
    tree_usage: Usage
    """Tokens of the run and its sub-runs."""
    tree_cost_usd: float | None
    """Cost of the run and its sub-runs, as far as it is known."""
    tool_calls: int
    model: str | None
    provider: str | None
    worker_type: str
    channel_id: str | None
    channel_name: str | None
    parent_run_id: str | None
    root_run_id: str | None
    children: int
    error: RunFailure | None
    interrupted: bool
    """True if the status is `running` and no process executes the run."""
    pinned: bool
    based_on: BasedOn | None = None
    """The earlier run that the run repeats, continues or forks."""
    queue_reason: str | None = None
    """While the run is queued or interrupted: why no host executes it, if known."""
    asks: list[str] | None = None
    """While the run waits, its questions and calls in one line each."""
    result: str | None = None
    awaits: list[PendingCall] = []
    continued_by: list[LaterRun] = []
    """The runs based on this run, newest first."""

    @property
    def is_ended(self) -> bool:
        """True if the run has an outcome."""
        return self.completed_at is not None


class _WaitingList(msgspec.Struct, frozen=True):
    items: list[WaitingItem]


class RunList(msgspec.Struct, frozen=True, kw_only=True, rename={"runs": "workers"}):
    """A page of runs."""

    runs: list[Run]
    total: int
    """The number of matching runs on all pages."""
    next: str | None = None
    """The cursor of the next page; None on the last page."""


class RunFilters(TypedDict, total=False):
    """The filters of `list` and `stats`."""

    owner: str
    worker: str
    model: str
    provider: str
    worker_type: str
    channel_id: str
    parent: str
    roots: bool
    error: str
    """An error code."""
    error_group: str
    """A message without times, ids and long numbers: the `group` of a failure in statistics."""
    min_cost: float
    """In US dollars, with sub-runs."""
    max_cost: float
    min_duration_ms: int
    max_duration_ms: int
    since: str | datetime
    until: str | datetime
    ended_since: str | datetime
    ended_until: str | datetime
    search: str


class RunsApi:
    """Reads runs, and acts on them."""

    def __init__(self, api: Api, workers: WorkersApi) -> None:
        self._api = api
        self._workers = workers

    async def list(
        self,
        *,
        status: RunStatus = "all",
        sort: SortOrder = "newest",
        limit: int = 50,
        cursor: str | None = None,
        **filters: Unpack[RunFilters],
    ) -> RunList:
        """Return a page of runs. `cursor` is `next` of the page before, with the same `sort`."""
        content = await self._api.content(
            "/api/agents/workers", status=status, sort=sort, limit=limit, cursor=cursor, **_parameters(filters)
        )
        return decode_json(content, RunList)

    async def get(self, run_id: str) -> Run:
        """Return a run with its result and the calls that it waits for. Raises `RunNotFound`."""
        content = await self._api.content(
            "/api/agents/workers/detail", worker_id=require_run_id(run_id), transcript=False
        )
        return decode_json(content, Run)

    def events(self, run_id: str, *, after: int = 0) -> AsyncGenerator[StreamEvent]:
        """Iterate over the events of a run, after the `seq` `after`, until its outcome.

        Closing the iterator does not cancel the run.
        """
        return self._workers.stream(run_id, after=after)

    async def wait(self, run_id: str, *, timeout_seconds: float | None = None) -> Run:
        """Wait until the run has its outcome, and return the run. Raises `TimeoutError` after the timeout."""
        with anyio.fail_after(timeout_seconds):
            while True:
                run = await self.get(run_id)
                if run.is_ended:
                    return run
                await anyio.sleep(OUTCOME_POLL_SECONDS)

    async def cancel(self, run_id: str, *, reason: str | None = None) -> None:
        """Cancel a run. Returns when the request is stored; the run ends soon after."""
        await self._workers.cancel(run_id, reason=reason)

    async def answer(self, run_id: str, call_id: str, answer: Any) -> None:
        """Answer a question that a run waits for."""
        await self._workers.answer(run_id, call_id, answer)

    async def waiting(self) -> list[WaitingItem]:
        """Return what waits for a person, the longest wait first."""
        return decode_json(await self._api.content("/api/waiting"), _WaitingList).items

    async def dismiss(self, run_id: str) -> None:
        """Let a failed run no longer wait for a person. Raises `ConflictError` for a run that is no such failure."""
        await self._api.dismiss(run_id)

    async def rerun(
        self,
        run_id: str,
        input: dict[str, Any] | None = None,  # noqa: A002 - the worker's own word
        *,
        idempotency_key: str | None = None,
    ) -> str:
        """Run the worker of a run again, with these inputs changed; None leaves one out. Return the new run's id.

        With an `idempotency_key`, here and in `reply` and `fork`, a repeated request returns the same run.
        """
        return await self._api.rerun(run_id, input, idempotency_key=idempotency_key)

    async def reply(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> str:
        """Continue the session of an agent with a new prompt. Return the new run's id."""
        return await self._api.reply(run_id, text, idempotency_key=idempotency_key)

    async def fork(self, run_id: str, at: int, *, idempotency_key: str | None = None) -> str:
        """Start a run with what a run had done up to the event `at`. Return the new run's id."""
        return await self._api.fork(run_id, at, idempotency_key=idempotency_key)

    async def export(self, run_id: str, format: Literal["md", "html"] = "md") -> str:  # noqa: A002 - the API's word
        """Return a run as a document to share: Markdown, or one HTML file that needs no network."""
        return (await self._api.export(require_run_id(run_id), format)).decode()

    async def stats(
        self,
        *,
        status: Literal["all", "queued", "running", "waiting", "done", "failed", "cancelled"] = "all",
        tz: str = "UTC",
        **filters: Unpack[RunFilters],
    ) -> Stats:
        """Return statistics of the days from `since` to `until`, in the time zone `tz`; by default of 14 days."""
        content = await self._api.content("/api/stats", status=status, tz=tz, **_parameters(filters))
        return decode_json(content, Stats)


_NAMES = {"owner": "agent_id", "search": "q"}
"""The names of filters that the API spells differently."""


def _parameters(filters: RunFilters) -> dict[str, Any]:
    return {
        _NAMES.get(name, name): value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
        for name, value in filters.items()
    }
