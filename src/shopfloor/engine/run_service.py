"""What callers may request: a new run, the answer to a call, a cancel, a resume. Stored first, then done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.registry import Claim, RunRegistry
from shopfloor.engine.replay_state import AGENT, ReplayState, read_replay_state
from shopfloor.engine.resumption import Resumption
from shopfloor.engine.workers.catalog import BUILTIN, Worker, WorkerCatalog
from shopfloor.engine.workers.inputs import input_schema, validate_input
from shopfloor.engine.workers.provider_workers import PROMPT
from shopfloor.errors import (
    ConflictError,
    RunEnded,
    RunNotFound,
    RunRunning,
    StorageFull,
    TranscriptBroken,
    UnknownCall,
)
from shopfloor.limits import OPEN_BRANCHES, PREVIEW_CHARS
from shopfloor.log import MASK, RunStarted, ToolResult, decode, new_run_id, now
from shopfloor.ports import (
    ANSWER_ID_PREFIX,
    CallResult,
    ControlMessage,
    QueuedRun,
    RunOrigin,
    RunRequest,
    WorkerInfo,
    child_on_path_to,
)
from shopfloor.views import as_text, join_call_id, split_call_id


class RunService:
    """Store requests and control messages, then signal the scheduler."""

    def __init__(
        self,
        registry: RunRegistry,
        ports: StoragePorts,
        catalogue: WorkerCatalog,
        resumption: Resumption,
        check_agent: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """`check_agent` raises where an agent that needs no worker does not support the input."""
        self._registry = registry
        self._ports = ports
        self._catalogue = catalogue
        self._resumption = resumption
        self._check_agent = check_agent

    def workers(self) -> list[WorkerInfo]:
        return [_info(worker) for worker in self._catalogue.all() if not worker.problems]

    def provider_workers(self) -> list[WorkerInfo]:
        return [_info(worker) for worker in self._catalogue.provider_workers()]

    async def dispatch(self, request: RunRequest, origin: RunOrigin | None = None) -> str:
        return await self.enqueue(self.build_queued_run(request, origin))

    async def enqueue(self, queued: QueuedRun) -> str:
        """Store a run for any host, or in the caller's process for this one alone. Return its id."""
        host = self._registry.host_id if self._registry.is_caller_process else None
        if host is not None:
            started = msgspec.structs.replace(queued.started, executor="caller", masked=self._ports.logs.masks)
            queued = msgspec.structs.replace(queued, started=started)
        if host is None:
            run_id = await self._ports.queue.dispatch(queued)
            self._registry.wake_up.set()
            return run_id
        run_id = queued.run_id
        # A run that is stored as claimed by this process must be added to its claims.
        with anyio.CancelScope(shield=True):
            run_id = await self._ports.queue.dispatch(queued, host=host)
            if run_id == queued.run_id:
                self._registry.add(Claim(run_id, queued))
        return run_id

    async def enqueue_if_missing(self, queued: QueuedRun) -> None:
        """Store a run that an earlier attempt of its parent may have stored, and that may still be queued."""
        try:
            await self.enqueue(queued)
        except ConflictError:
            if self._registry.is_caller_process:
                await self._resumption.claim_abandoned(queued.run_id)

    def build_queued_run(self, request: RunRequest, origin: RunOrigin | None = None) -> QueuedRun:
        """Make the run to be queued. Raises where there is no such worker or it cannot take that input."""
        worker = self._catalogue.get(request.worker, preferred_folder=request.cwd)
        given = validate_input(worker.definition, request.input)
        is_bare = worker.worker_type != BUILTIN
        if is_bare:
            self._check_agent(worker.worker_type, given)
        if self._ports.logs.headroom_bytes() < 0:
            raise StorageFull("the disk is nearly full: no new runs", hint="free some space, then try again")
        origin = origin or RunOrigin()
        run_id, parent = origin.run_id or new_run_id(), origin.parent_run_id
        started = RunStarted(
            name=worker.definition.slug,
            kind="agent" if is_bare else "worker",
            attempt=0,
            host="",
            task=request.task or _task(worker, given),
            input=given,
            worker_type=worker.worker_type,
            agent_id=request.owner or worker.definition.slug,
            channel_id=request.channel_id or "api",
            channel_name=request.channel_name or request.channel_id or "api",
            root_run_id=origin.root_run_id or run_id,
            queued_at=now(),
            parent={"run_id": parent, "depth": origin.depth} if parent else None,
            definition=worker.as_data,
            definition_hash=worker.hash,
            idempotency_key=request.idempotency_key,
            cwd=request.cwd or (worker.project.folder if worker.project else None),
            client_wait_seconds=origin.client_wait_seconds,
        )
        return QueuedRun(run_id=run_id, started=started)

    async def answer(self, run_id: str, results: list[CallResult]) -> None:
        by_run: dict[str, list[CallResult]] = {}
        for one in results:
            below, call_id = split_call_id(one.call_id)
            if below is not None and await child_on_path_to(self._ports.reader, run_id, below) is not None:
                by_run.setdefault(below, []).append(msgspec.structs.replace(one, call_id=call_id))
            else:
                by_run.setdefault(run_id, []).append(one)
        orders = [order for whose, some in by_run.items() for order in await self._answers(whose, some)]
        for order in orders:
            if await self._ports.queue.put(order):
                continue
            kept = [
                one for _, one in await self._ports.queue.orders() if (one.run_id, one.id) == (order.run_id, order.id)
            ]
            if any(one.body != order.body for one in kept):
                raise _answered(order.run_id, str(order.body["call_id"]))
        self._registry.wake_up.set()

    async def _answers(self, run_id: str, results: list[CallResult]) -> list[ControlMessage]:
        """The orders that hand these results to the run which made the calls; none for those it has already."""
        replay_state = await read_replay_state(self._ports.reader, run_id)
        if replay_state.first is None and replay_state.calls:
            raise TranscriptBroken(
                f"the log of the run {run_id} has no readable beginning: it cannot be gone on with",
                hint=f"`shopfloor verify {run_id}` names the line; `shopfloor cancel {run_id}` ends the run",
            )
        if replay_state.first is None:
            raise RunNotFound(f"there is no run {run_id} that waits for anything")
        for one in results:
            if one.call_id in replay_state.definition_wait_calls:
                raise ConflictError(
                    f"the run {run_id} waits for its definition, which no answer can give",
                    hint="put the worker back as it was, or cancel the run",
                )
            if one.call_id not in replay_state.pending_call_ids and one.call_id not in replay_state.results:
                known = ", ".join(await self._waiting_calls(replay_state)) or "none"
                raise UnknownCall(
                    f"the run {run_id} made no call {one.call_id!r}", hint=f"the calls that wait are: {known}"
                )
            if one.call_id in replay_state.results and _differs(replay_state.results[one.call_id], one):
                raise _answered(run_id, one.call_id)
        fresh = [one for one in results if one.call_id in replay_state.pending_call_ids]
        if replay_state.outcome is not None and fresh:
            raise RunEnded(f"the run {run_id} has ended: nothing waits for an answer any more")
        return [
            ControlMessage(
                id=f"{ANSWER_ID_PREFIX}{one.call_id}",
                run_id=run_id,
                kind="answer",
                body={"call_id": one.call_id, "result": one.result, "error": one.error},
                created_at=now(),
            )
            for one in fresh
        ]

    async def _waiting_calls(self, replay_state: ReplayState) -> list[str]:
        """The calls that a run and the runs below it wait for, by the ids under which that run takes their results."""
        found = sorted(replay_state.pending_call_ids)
        below = _children(replay_state)
        for child in below:
            if len(found) >= OPEN_BRANCHES:
                break
            replay_state = await read_replay_state(self._ports.reader, child)
            found += [join_call_id(child, call_id) for call_id in sorted(replay_state.pending_call_ids)]
            below += _children(replay_state)
        return found

    async def _refuse_sub_agent(self, run_id: str, parent: str) -> None:
        """A sub-agent is a part of its agent's own session, which nobody but the agent can end."""
        entries = await self._ports.reader.page(run_id, limit=1)
        first = decode(entries[0].raw).payload if entries else None
        if isinstance(first, RunStarted) and first.definition is None:
            raise ConflictError(
                f"the run {run_id} is of a sub-agent, which ends with its agent", hint=f"cancel {parent} instead"
            )

    async def cancel(self, run_id: str, *, reason: str) -> None:
        run = await self._ports.store.get_run(run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id}")
        if run.row.is_ended:
            raise RunEnded(f"the run {run_id} has ended already ({run.row.status})")
        if run.row.kind == AGENT and run.row.parent_run_id is not None:
            await self._refuse_sub_agent(run_id, run.row.parent_run_id)
        await self.request_cancel(run_id, reason)

    async def request_cancel(self, run_id: str, reason: str) -> None:
        """Store a cancel without looking whether there is such a run."""
        await self._ports.queue.put(
            ControlMessage(id="cancel", run_id=run_id, kind="cancel", body={"reason": reason}, created_at=now())
        )
        self._registry.wake_up.set()

    async def resume(self, run_id: str) -> None:
        run = await self._ports.store.get_run(run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id}")
        if run.row.is_ended:
            raise RunEnded(f"the run {run_id} has ended already ({run.row.status})", hint="make a new one")
        if self._registry.is_caller_process:
            await self._resumption.resume_here(run_id)
            return
        # The row may lag behind the log, for example after a restart.
        if run.row.status == "queued" and not await self._ports.reader.page(run_id, limit=1):
            raise RunRunning(f"the run {run_id} is queued", hint="it begins by itself, as soon as there is a slot")
        if run_id in self._registry.claims or await self._ports.reader.has_active_host(run_id, None):
            raise RunRunning(f"somebody is at the run {run_id}", hint="it goes on by itself, or waits for an answer")
        reason = await self._resumption.refusal_reason(run_id)
        if reason is not None:
            raise ConflictError(
                f"a server must not resume the run {run_id}: {reason}",
                hint=f"`shopfloor resume {run_id}` resumes the run in your shell",
            )
        await self._ports.queue.put(
            ControlMessage(id="resume", run_id=run_id, kind="resume", body={}, created_at=now())
        )
        self._registry.wake_up.set()


def _children(replay_state: ReplayState) -> list[str]:
    """The sub-runs that have not ended."""
    return [step.child_run_id for _, step in replay_state.open_steps() if step.child_run_id is not None]


def _differs(kept: ToolResult, given: CallResult) -> bool:
    """Whether a call got another result than this one. Secrets are masked in the log, so no such text tells."""
    same = (kept.output, kept.error) == (given.result, given.error)
    return not same and MASK not in as_text([kept.output, kept.error])


def _answered(run_id: str, call_id: str) -> ConflictError:
    return ConflictError(
        f"the call {call_id!r} of run {run_id} has been answered already, with another result",
        hint="the first answer counts",
    )


def _task(worker: Worker, given: dict[str, Any]) -> str:
    """What is to be done, for lists: the worker, and what it was given."""
    if worker.worker_type != BUILTIN:
        return str(given[PROMPT])
    said = ", ".join(f"{name}={as_text(value)}" for name, value in given.items() if value is not None)
    line = (
        f"{worker.definition.name or worker.definition.slug}: {said}"
        if said
        else (worker.definition.description or worker.definition.slug)
    )
    return line if len(line) <= PREVIEW_CHARS else f"{line[: PREVIEW_CHARS - 1]}…"


def _info(worker: Worker) -> WorkerInfo:
    definition = worker.definition
    return WorkerInfo(
        slug=worker.reference,
        project=worker.project.name if worker.project else None,
        name=definition.name,
        description=definition.description,
        worker_type=worker.worker_type,
        input_schema=input_schema(definition),
        tools=list(definition.tools),
        client_tools=[name for name, tool in definition.tools.items() if tool.handler is None],
    )
