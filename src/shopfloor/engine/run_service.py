"""The requests of callers: new runs, answers, cancels, resumes. Each is stored before it is executed."""

from __future__ import annotations

from typing import Any

import anyio
import msgspec

from shopfloor.engine.agents.request import AgentRuntime
from shopfloor.engine.approvals import ApprovalRules, parse_approval
from shopfloor.engine.definitions import Definitions, definition_of
from shopfloor.engine.earlier_runs import (
    check_replyable,
    check_reusable,
    check_same_worker,
    reply_request,
    rerun_request,
)
from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.fork import plan_fork
from shopfloor.engine.registry import Claim, RunRegistry
from shopfloor.engine.replay_state import AGENT, ReplayState, read_replay_state
from shopfloor.engine.resumption import Resumption
from shopfloor.engine.workers.catalog import BUILTIN, EXAMPLE_WORKERS, PLUGIN, Worker, WorkerCatalog
from shopfloor.engine.workers.definition_changes import DefinitionChange
from shopfloor.engine.workers.inputs import input_schema, validate_input
from shopfloor.engine.workers.plugin_workers import DESCRIPTION, job_description
from shopfloor.engine.workers.provider_workers import PROMPT
from shopfloor.errors import (
    ConflictError,
    DefinitionChanged,
    RunEnded,
    RunNotFound,
    RunRunning,
    StorageFull,
    TranscriptBroken,
    UnknownCall,
    WorkerNotFound,
)
from shopfloor.limits import OPEN_BRANCHES, PREVIEW_CHARS
from shopfloor.log import MASK, BasedOn, Requirements, RunStarted, ToolResult, decode, new_run_id, now
from shopfloor.ports import (
    ANSWER_ID_PREFIX,
    ApprovalRule,
    CallResult,
    ControlMessage,
    Offers,
    QueuedRun,
    RunItem,
    RunOrigin,
    RunRequest,
    WorkerInfo,
    child_on_path_to,
    merge_requirements,
    one_shot_job,
    require_enabled,
    unoffered_providers,
)
from shopfloor.views import as_text, input_from_task, join_call_id, split_call_id


class RunService:
    """The requests that callers can make. Each is stored, then the scheduler is woken up."""

    def __init__(
        self,
        registry: RunRegistry,
        ports: StoragePorts,
        catalog: WorkerCatalog,
        resumption: Resumption,
        *,
        agents: AgentRuntime,
        definitions: Definitions,
        offers: Offers = tuple,
    ) -> None:
        self._offers = offers
        self._registry = registry
        self._ports = ports
        self._catalog = catalog
        self._resumption = resumption
        self._agents = agents
        self._definitions = definitions

    def find_worker(self, name: str, /, *, folder: str | None = None) -> WorkerInfo:
        """Return the worker that a request with this name and folder would run."""
        return _worker_info(self._catalog.get(name, preferred_folder=folder))

    def workers(self) -> list[WorkerInfo]:
        """Return the workers of the catalog that have no problems."""
        return [_worker_info(worker) for worker in self._catalog.all() if not worker.problems]

    def provider_workers(self) -> list[WorkerInfo]:
        """Return the workers that hand their prompt to one provider."""
        return [_worker_info(worker) for worker in self._catalog.provider_workers()]

    async def dispatch(self, request: RunRequest, origin: RunOrigin | None = None) -> str:
        """Validate and store a new run; return its id. Raises `ProviderDisabled` if it needs a disabled provider."""
        worker = self._find_worker(request)
        queued = self._build_queued_run(worker, request, origin)
        await require_enabled(self._ports.provider_health, worker.providers)
        return await self.enqueue(queued)

    async def enqueue(self, queued: QueuedRun) -> str:
        """Store a run, for any host or, in the process of the caller, for this host only. Return its id."""
        host = self._registry.host_id if self._registry.is_caller_process else None
        if host is not None:
            started = msgspec.structs.replace(queued.started, executor="caller", masked=self._ports.logs.masks)
            queued = msgspec.structs.replace(queued, started=started)
        if host is None:
            run_id = await self._ports.queue.dispatch(queued)
            self._registry.wake_up.set()
            return run_id
        # For the type checker, which assumes that the scope below may suppress exceptions.
        run_id = queued.run_id
        # A run that is stored as claimed by this process must be added to its claims.
        with anyio.CancelScope(shield=True):
            run_id = await self._ports.queue.dispatch(queued, host=host)
            if run_id == queued.run_id:
                self._registry.add(Claim(run_id, queued))
        return run_id

    async def enqueue_if_missing(self, queued: QueuedRun) -> None:
        """Store a sub-run that an earlier attempt of its parent may have stored already."""
        try:
            await self.enqueue(queued)
        except ConflictError:
            if self._registry.is_caller_process:
                await self._resumption.claim_abandoned(queued.run_id)

    def build_queued_run(self, request: RunRequest, origin: RunOrigin | None = None) -> QueuedRun:
        """Build the run to be queued. Raises if the worker is unknown or the input is invalid."""
        return self._build_queued_run(self._find_worker(request), request, origin)

    def _find_worker(self, request: RunRequest) -> Worker:
        return self._catalog.get(request.worker, preferred_folder=request.cwd)

    def _build_queued_run(self, worker: Worker, request: RunRequest, origin: RunOrigin | None) -> QueuedRun:
        worker_input = validate_input(worker.definition, _complete_input(worker, request))
        is_provider_worker = worker.worker_type != BUILTIN and not worker.is_plugin
        if is_provider_worker:
            self._agents.check(worker.worker_type, worker_input, approve=request.approve)
        else:
            self._agents.check_approvals(worker.definition, request.approve)
        self._check_disk()
        origin = origin or RunOrigin()
        run_id, parent = origin.run_id or new_run_id(), origin.parent_run_id
        started = RunStarted(
            name=worker.definition.slug,
            kind="agent" if is_provider_worker else "worker",
            attempt=0,
            host="",
            task=request.task or _describe_task(worker, worker_input),
            input=worker_input,
            worker_type=worker.worker_type,
            agent_id=request.owner or worker.definition.slug,
            channel_id=request.channel_id or "api",
            channel_name=request.channel_name or request.channel_id or "api",
            client=request.client,
            root_run_id=origin.root_run_id or run_id,
            queued_at=now(),
            parent={"run_id": parent, "depth": origin.depth} if parent else None,
            definition=worker.as_data,
            definition_hash=worker.hash,
            idempotency_key=request.idempotency_key,
            origin=worker.absolute_origin,
            cwd=request.cwd or (worker.project.folder if worker.project else None),
            client_wait_seconds=origin.client_wait_seconds,
            based_on=origin.based_on,
            approve=request.approve or None,
            approve_timeout=request.approve_timeout,
            priority=request.priority,
            requires=self._requirements(worker, request),
            labels=request.labels or None,
        )
        return QueuedRun(run_id=run_id, started=started, is_only_reply=origin.is_only_reply)

    def _requirements(self, worker: Worker, request: RunRequest) -> Requirements | None:
        """Return what the host of the run must have.

        A provider that the worker uses and no live host has is left out: the run then starts and fails with the error
        that says how to install it, instead of waiting. What the worker declares in `requires` is never left out.
        """
        used = set(worker.providers) - unoffered_providers(worker.providers, self._offers())
        declared = worker.definition.requires
        return merge_requirements(
            Requirements(providers=list(used)),
            declared and Requirements(labels=declared.labels, providers=declared.providers),
            Requirements(labels=request.labels),
        )

    async def rerun(
        self, run_id: str, changed_input: dict[str, Any] | None = None, *, idempotency_key: str | None = None
    ) -> str:
        """Store a new run of the same worker, as it is now, with the same input except `changed_input`."""
        _, first = await self._read_earlier_run(run_id)
        request = rerun_request(run_id, first, changed_input or {}, idempotency_key)
        return await self._dispatch_again(request, first, RunOrigin(based_on=BasedOn(run_id=run_id, kind="rerun")))

    async def reply(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> str:
        """Store a new run that continues the session of an agent with a new prompt."""
        run, first = await self._read_earlier_run(run_id)
        request = reply_request(run_id, first, text, idempotency_key)
        capabilities = self._agents.provider(run.row.worker_type).capabilities
        replay_state = await read_replay_state(self._ports.reader, run_id)
        is_active = run_id in self._registry.claims or await self._ports.reader.has_active_host(run_id, run.row.host)
        check_replyable(run, replay_state, capabilities, is_active=is_active)
        origin = RunOrigin(based_on=BasedOn(run_id=run_id, kind="reply"), is_only_reply=not capabilities.fork_session)
        return await self._dispatch_again(request, first, origin)

    async def fork(self, run_id: str, seq: int, *, idempotency_key: str | None = None) -> str:
        """Store a new run that starts with the events of a run up to `seq`, and continues from there.

        Raises `ProviderDisabled` if the run needs a disabled provider.
        """
        _, first = await self._read_earlier_run(run_id)
        based_on = await plan_fork(self._ports.reader, run_id, seq)
        if MASK in as_text([first.input, first.definition]):
            raise ConflictError(
                f"the run {run_id} cannot be forked: parts of its record are masked", hint="use `shopfloor rerun`"
            )
        definition = definition_of(first)
        if definition is not None:
            change = self._definitions.look_up(definition)
            if isinstance(change, DefinitionChange):
                raise DefinitionChanged(change.message, hint="restore the worker, or use `shopfloor rerun`")
            worker = Worker(definition=definition, origin="", worker_type=first.worker_type or BUILTIN)
            await require_enabled(self._ports.provider_health, worker.providers)
        self._check_disk()
        new_id = new_run_id()
        started = msgspec.structs.replace(
            first,
            attempt=0,
            host="",
            client=None,
            root_run_id=new_id,
            queued_at=now(),
            parent=None,
            idempotency_key=idempotency_key,
            client_wait_seconds=None,
            based_on=based_on,
            executor=None,
            import_source=None,
            format=None,
        )
        return await self.enqueue(QueuedRun(run_id=new_id, started=started))

    async def _read_earlier_run(self, run_id: str) -> tuple[RunItem, RunStarted]:
        """Return a run that a new one can be made from, and its first event. Raises the reason if there is none."""
        run, starts = await self._ports.store.get_run(run_id), await self._resumption.read_starts(run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id}", hint="`shopfloor list` lists the runs")
        if not starts or (not starts[0].attempt and run.row.attempt):
            raise TranscriptBroken(
                f"the beginning of the log of the run {run_id} cannot be read",
                hint=f"`shopfloor verify {run_id[:8]}` names the line",
            )
        parent, masks = run.row.parent_run_id, self._ports.logs.masks
        return run, check_reusable(run_id, starts, parent=parent, masks=masks)

    async def _dispatch_again(self, request: RunRequest, first: RunStarted, origin: RunOrigin) -> str:
        try:
            worker = self._catalog.get(request.worker, preferred_folder=request.cwd)
        except WorkerNotFound as error:
            hint = f"the run had it from {first.origin}; --workers names a folder of workers" if first.origin else None
            raise WorkerNotFound(error.message, hint=hint or error.hint) from error
        based_on = origin.based_on
        if based_on is not None:
            check_same_worker(based_on.run_id, first, worker)
        if first.task is not None and based_on is not None and based_on.kind == "rerun":
            # A task that was made from the input is made again: the input may have changed.
            is_generated = first.task == _describe_task(worker, first.input or {})
            request = msgspec.structs.replace(request, task=None if is_generated else first.task)
        return await self.dispatch(request, origin)

    def _check_disk(self) -> None:
        if self._ports.logs.headroom_bytes() < 0:
            raise StorageFull("the disk is nearly full: new runs are refused", hint="free some space, then try again")

    async def answer(self, run_id: str, results: list[CallResult]) -> None:
        """Store the results of calls of a run or of its descendants.

        Raises if a call is unknown or has another result already. Repeating the same result is fine.
        """
        by_run: dict[str, list[CallResult]] = {}
        for result in results:
            descendant, call_id = split_call_id(result.call_id)
            if descendant is not None and await child_on_path_to(self._ports.reader, run_id, descendant) is not None:
                by_run.setdefault(descendant, []).append(msgspec.structs.replace(result, call_id=call_id))
            else:
                by_run.setdefault(run_id, []).append(result)
        messages = [message for target, group in by_run.items() for message in await self._build_answers(target, group)]
        for message in messages:
            if await self._ports.queue.put_control_message(message):
                continue
            stored = [
                other
                for _, other in await self._ports.queue.control_messages()
                if (other.run_id, other.id) == (message.run_id, message.id)
            ]
            if any(other.body != message.body for other in stored):
                raise _already_answered(message.run_id, str(message.body["call_id"]))
        self._registry.wake_up.set()

    async def _build_answers(self, run_id: str, results: list[CallResult]) -> list[ControlMessage]:
        """Return the control messages for these results, without those that the log of the run already has."""
        replay_state = await read_replay_state(self._ports.reader, run_id)
        if replay_state.first is None and replay_state.calls:
            raise TranscriptBroken(
                f"the beginning of the log of the run {run_id} cannot be read: the run cannot continue",
                hint=f"`shopfloor verify {run_id}` names the line; `shopfloor cancel {run_id}` ends the run",
            )
        if replay_state.first is None:
            raise RunNotFound(f"there is no run {run_id} that waits for an answer")
        if replay_state.first.worker_type == PLUGIN:
            raise one_shot_job(run_id)
        results = [parse_approval(result) if result.call_id in replay_state.approvals else result for result in results]
        for result in results:
            call_id = result.call_id
            if call_id in replay_state.definition_wait_calls:
                raise ConflictError(
                    f"the run {run_id} waits until its worker is restored, not for an answer",
                    hint="restore the worker, or cancel the run",
                )
            if call_id not in replay_state.pending_call_ids and call_id not in replay_state.results:
                known = ", ".join(await self._list_pending_calls(replay_state)) or "none"
                raise UnknownCall(f"the run {run_id} has no call {call_id!r}", hint=f"the pending calls are: {known}")
            if call_id in replay_state.results and _is_different(replay_state.results[call_id], result):
                raise _already_answered(run_id, call_id)
        new = [result for result in results if result.call_id in replay_state.pending_call_ids]
        if replay_state.outcome is not None and new:
            raise RunEnded(f"the run {run_id} has ended and takes no more answers")
        return [
            ControlMessage(
                id=f"{ANSWER_ID_PREFIX}{result.call_id}",
                run_id=run_id,
                kind="answer",
                body={"call_id": result.call_id, "result": result.result, "error": result.error},
                created_at=now(),
            )
            for result in new
        ]

    async def approval_rules(self) -> list[ApprovalRule]:
        """Return the calls that workers may make without asking, newest first."""
        return await ApprovalRules(self._ports.blobs).list()

    async def revoke_approval(self, rule_id: str) -> ApprovalRule:
        """Delete a rule: the calls are asked for again."""
        return await ApprovalRules(self._ports.blobs).revoke(rule_id)

    async def _list_pending_calls(self, replay_state: ReplayState) -> list[str]:
        """Return the ids of the pending calls of a run and the runs below it, as `answer` of that run takes them."""
        found = sorted(replay_state.pending_call_ids)
        descendants = _open_children(replay_state)
        for child in descendants:
            if len(found) >= OPEN_BRANCHES:
                break
            replay_state = await read_replay_state(self._ports.reader, child)
            found += [join_call_id(child, call_id) for call_id in sorted(replay_state.pending_call_ids)]
            descendants += _open_children(replay_state)
        return found

    async def _reject_sub_agent(self, run_id: str, parent: str) -> None:
        """Raise if the run is a sub-agent: it is part of the session of its agent, and only the agent can end it."""
        entries = await self._ports.reader.page(run_id, limit=1)
        first = decode(entries[0].raw).payload if entries else None
        if isinstance(first, RunStarted) and first.definition is None:
            raise ConflictError(
                f"the run {run_id} is a sub-agent and ends with its agent", hint=f"cancel {parent} instead"
            )

    async def cancel(self, run_id: str, *, reason: str) -> None:
        """Store a cancel of a run. Raises `RunNotFound`, `RunEnded`, or `ConflictError` for a sub-agent."""
        run = await self._ports.store.get_run(run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id}", hint="`shopfloor list` lists the runs")
        if run.row.is_ended:
            raise RunEnded(f"the run {run_id} has ended already ({run.row.status})")
        if run.row.kind == AGENT and run.row.parent_run_id is not None:
            await self._reject_sub_agent(run_id, run.row.parent_run_id)
        await self.request_cancel(run_id, reason)

    async def request_cancel(self, run_id: str, reason: str) -> None:
        """Store a cancel without checking whether the run exists."""
        await self._ports.queue.put_control_message(
            ControlMessage(id="cancel", run_id=run_id, kind="cancel", body={"reason": reason}, created_at=now())
        )
        self._registry.wake_up.set()

    async def resume(self, run_id: str) -> None:
        """Resume a run that has no host. Raises if the run has ended, has a host, or must not be resumed here."""
        run = await self._ports.store.get_run(run_id)
        if run is None:
            raise RunNotFound(f"there is no run {run_id}", hint="`shopfloor list` lists the runs")
        if run.row.is_ended:
            raise RunEnded(f"the run {run_id} has ended already ({run.row.status})", hint="start a new run")
        if self._registry.is_caller_process:
            await self._resumption.resume_here(run_id)
            return
        # The row may lag behind the log, for example after a restart.
        if run.row.status == "queued" and not await self._ports.reader.page(run_id, limit=1):
            raise RunRunning(f"the run {run_id} is queued", hint="it starts as soon as a slot is free")
        if run_id in self._registry.claims or await self._ports.reader.has_active_host(run_id, None):
            raise RunRunning(
                f"the run {run_id} is already being executed", hint="it continues by itself, or waits for an answer"
            )
        reason = await self._resumption.refusal_reason(run_id)
        if reason is not None:
            raise ConflictError(
                f"the server cannot resume the run {run_id}: {reason}",
                hint=f"`shopfloor resume {run_id}` resumes the run in your shell",
            )
        await self._ports.queue.put_control_message(
            ControlMessage(id="resume", run_id=run_id, kind="resume", body={}, created_at=now())
        )
        self._registry.wake_up.set()

    async def resume_refusal(self, run_id: str) -> str | None:
        """Return why a server must not resume this run; None if it may."""
        return await self._resumption.refusal_reason(run_id)


def _open_children(replay_state: ReplayState) -> list[str]:
    """Return the sub-runs that have not ended."""
    return [step.child_run_id for _, step in replay_state.open_steps() if step.child_run_id is not None]


def _is_different(recorded: ToolResult, result: CallResult) -> bool:
    """Return whether a call has another result than this one. A masked result cannot be compared: then False."""
    same = (recorded.output, recorded.error) == (result.result, result.error)
    return not same and MASK not in as_text([recorded.output, recorded.error])


def _already_answered(run_id: str, call_id: str) -> ConflictError:
    return ConflictError(
        f"the call {call_id!r} of run {run_id} has been answered already, with another result",
        hint="the first answer counts",
    )


def _complete_input(worker: Worker, request: RunRequest) -> dict[str, Any]:
    """Return the input of the request, with its text in the text input that is left."""
    if request.text is None:
        return request.input
    schema = input_schema(worker.definition)
    open_inputs = {name: field for name, field in schema["properties"].items() if name not in request.input}
    from_text = input_from_task(request.text, worker.definition.slug, {**schema, "properties": open_inputs})
    # The list shows `task` as the title of the run; a plugin gets it as the description of its job.
    label = {DESCRIPTION: request.task} if worker.is_plugin and request.task is not None else {}
    return {**label, **request.input, **from_text}


def _describe_task(worker: Worker, worker_input: dict[str, Any]) -> str:
    """Return a title for the run: the worker and the values of its input, such as `Hello · Jon`."""
    if worker.is_plugin:
        return job_description(worker_input)
    if worker.worker_type != BUILTIN:
        return str(worker_input.get(PROMPT))
    # A text speaks for itself; a number or a flag needs its name; a value that is left at its default says nothing.
    inputs = ", ".join(
        value if isinstance(value, str) else f"{name}={as_text(value)}"
        for name, value in worker_input.items()
        if value not in (None, "") and (len(worker_input) == 1 or value != worker.definition.input[name].default)
    )
    line = (
        f"{worker.definition.name or worker.definition.slug} · {inputs}"
        if inputs
        else (worker.definition.description or worker.definition.name or worker.definition.slug)
    )
    return line if len(line) <= PREVIEW_CHARS else f"{line[: PREVIEW_CHARS - 1]}…"


def _worker_info(worker: Worker) -> WorkerInfo:
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
        example=worker.folder is not None and worker.folder.parent == EXAMPLE_WORKERS,
    )
