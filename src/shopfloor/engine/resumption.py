"""Who may resume a run that has no host: any server, or only a shell in which somebody calls `shopfloor resume`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from shopfloor.engine.definitions import Definitions, definition_of
from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.registry import Claim, ClaimPolicy, RunRegistry
from shopfloor.engine.replay_state import last_event
from shopfloor.engine.workers.catalog import Worker, WorkerCatalog
from shopfloor.engine.workers.definition_changes import DefinitionChange
from shopfloor.errors import ConflictError, DefinitionChanged, RunNotFound, RunRunning, ShopfloorError
from shopfloor.log import MASK, RunCompleted, RunStarted, decode
from shopfloor.views import as_text


def refusal_reason(starts: Sequence[RunStarted], folders: Iterable[str], hashes: Collection[str]) -> str | None:
    """Say why a server must not resume a run; None where it may.

    `starts` are the beginnings of the attempts of the run at the top of the tree, oldest first, `folders` those of the
    server's projects, and `hashes` those of the workers that the server finds under the name of that run's worker.
    """
    if not starts:
        return None
    first, newest = starts[0], starts[-1]
    if any(start.masked for start in starts):
        return "its record is masked, and a server cannot be told what to mask"
    if newest.executor is None:
        return None
    if not any(_is_in(first.cwd, folder) for folder in folders):
        return f"its folder is not in a project of the server: {first.cwd or 'none is recorded'}"
    if first.definition_hash not in hashes:
        return "the server does not find its worker as it was when the run began"
    return None


class Resumption:
    def __init__(
        self, registry: RunRegistry, ports: StoragePorts, catalogue: WorkerCatalog, definitions: Definitions
    ) -> None:
        self._registry = registry
        self._ports = ports
        self._catalogue = catalogue
        self._definitions = definitions
        self._ended_parent: str | None = None
        """The parent found ended last: of a cancelled tree, thousands of runs have the same one."""
        self._known: dict[str, tuple[int, tuple[RunStarted, ...]]] = {}
        """The beginnings of attempts, with the `seq` up to which the log was read: an open run is asked for often."""

    async def refusal_reason(self, run_id: str) -> str | None:
        """Say why a server must not resume this run, which is decided for its whole tree; None where it may."""
        starts = await self._starts(run_id)
        root = starts[0].root_run_id if starts else None
        if root is not None and root != run_id:
            starts = await self._starts(root) or starts
        if not starts:
            return None
        folders: list[str] = []
        hashes: set[str] = set()
        if starts[-1].executor is not None:
            starts = [_resolved(start) for start in starts]
            try:
                folders = [project.folder for project in self._catalogue.projects()]
                hashes = {worker.hash for worker in self._workers_of(starts[0]) if not worker.problems}
            except ShopfloorError as error:
                # Raised, it would hold up other runs, too.
                return error.message
        reason = refusal_reason(starts, folders, hashes)
        if reason is None:
            # Resumed at once: only a run that has to wait is asked for again and again.
            self._known.pop(run_id, None)
            self._known.pop(root or run_id, None)
        return reason

    def _workers_of(self, first: RunStarted) -> list[Worker]:
        """Find what the server has under the name of the run's worker: in the project of its folder, or else at all."""
        found = self._catalogue.find_everywhere(first.name)
        beside = [one for one in found if one.project is not None and _is_in(first.cwd, one.project.folder)]
        return beside or [one for one in found if one.project is None]

    async def resume_if_allowed(self, run_id: str) -> bool:
        """Resume a run that has a log and no host; False where this process has it already, or must not resume it."""
        if run_id in self._registry.claims or self._definitions.is_waiting_for_definition(run_id):
            return False
        is_allowed = await self.refusal_reason(run_id) is None
        if is_allowed:
            self._registry.resume(run_id)
        return is_allowed

    async def notify_parent_of(self, run_id: str) -> None:
        """Let the parent of a run go on that was ended without an attempt."""
        last = await last_event(self._ports.reader, run_id)
        await self.notify_parent(run_id, last and last.parent_run_id)

    async def notify_parent(self, run_id: str, parent: str | None) -> None:
        """Let the parent of a run that has its outcome go on; resume a parent that is not live, if that is allowed."""
        if parent is None or parent == self._ended_parent:
            return
        waiting = self._registry.live_attempts.get(parent)
        if waiting is not None and waiting.interruption in ("cancelled", "failed"):
            # The parent is about to have its outcome.
            return
        if waiting is not None and waiting.notify(run_id) and waiting.interruption is None:
            return
        last = await last_event(self._ports.reader, parent)
        if last is not None and isinstance(last.payload, RunCompleted):
            self._ended_parent = parent
        elif parent in self._registry.claims:
            self._registry.resume(parent)
        elif last is not None and self._registry.policy is ClaimPolicy.QUEUED:
            await self.resume_if_allowed(parent)

    async def claim_abandoned(self, run_id: str, cancel_reason: str | None = None) -> bool:
        """Execute or cancel a run that has not started and that nobody has claimed, or only a host that is gone.

        Return False where there is no such run.
        """
        claimer = dict(await self._ports.queue.claimed()).get(run_id)
        if claimer is not None and await self._ports.hosts.is_alive(claimer):
            return False
        queued = await self._ports.queue.claim_one(run_id, self._registry.host_id, previous_host=claimer)
        if queued is not None:
            self._registry.add(Claim(run_id, queued, cancel_reason=cancel_reason))
        return queued is not None

    async def resume_here(self, run_id: str) -> None:
        """Resume a run in this process. Raises where that cannot be."""
        starts = await self._starts(run_id)
        if not starts:
            raise RunNotFound(f"the run {run_id} has no readable beginning: it cannot be resumed")
        first, newest = starts[0], starts[-1]
        if first.root_run_id not in (None, run_id):
            raise ConflictError(
                f"the run {run_id} was called by another run",
                hint=f"resume that: `shopfloor resume {first.root_run_id}`",
            )
        self._refuse_masked(run_id, starts)
        if first.attempt:
            if run_id in self._registry.claims or await self._ports.reader.has_active_host(run_id, newest.host):
                raise _running(run_id)
            self._refuse_changed(run_id, first)
            self._registry.resume(run_id)
        elif run_id not in dict(await self._ports.queue.claimed()):
            raise RunRunning(
                f"the run {run_id} is queued", hint="a server starts it: `shopfloor up --detach` starts a server"
            )
        elif not await self.claim_abandoned(run_id):
            raise _running(run_id)

    def _refuse_changed(self, run_id: str, first: RunStarted) -> None:
        definition = definition_of(first)
        if definition is None:
            raise ConflictError(
                f"the run {run_id} is no run of a worker: it cannot be resumed", hint="run the command again"
            )
        change = self._definitions.look_up(definition)
        if isinstance(change, DefinitionChange):
            raise DefinitionChanged(change.message, hint="put the worker back as it was, or cancel the run")

    def _refuse_masked(self, run_id: str, starts: Sequence[RunStarted]) -> None:
        if not any(start.masked for start in starts):
            return
        if not self._ports.logs.masks:
            raise ConflictError(
                f"the record of the run {run_id} is masked",
                hint="say what to mask, as for `shopfloor run`: --mask-env NAME or --mask-keys",
            )
        if MASK in as_text([starts[0].input, starts[0].definition]):
            raise ConflictError(
                f"the record of the run {run_id} has its input or its worker only masked: it cannot be resumed",
                hint="run the worker again; give it secrets by environment variables",
            )

    async def _starts(self, run_id: str) -> Sequence[RunStarted]:
        last = await last_event(self._ports.reader, run_id)
        seq = last.seq if last is not None else 0
        known = self._known.get(run_id)
        if known is None or known[0] != seq:
            known = (seq, await self._read(run_id) if seq else ())
            self._known[run_id] = known
        if known[1]:
            return known[1]
        self._known.pop(run_id, None)
        queued = await self._ports.queue.find(run_id)
        return () if queued is None else (queued.started,)

    async def _read(self, run_id: str) -> tuple[RunStarted, ...]:
        starts: list[RunStarted] = []
        async for batch in self._ports.reader.batches(run_id):
            for entry in batch:
                if entry.type == RunStarted.event_type:
                    payload = decode(entry.raw).payload
                    starts += [payload] if isinstance(payload, RunStarted) else []
        return tuple(starts)


def _is_in(cwd: str | None, folder: str) -> bool:
    return cwd is not None and Path(cwd).is_relative_to(folder)


def _running(run_id: str) -> RunRunning:
    return RunRunning(f"another process executes the run {run_id}", hint=f"`shopfloor tail {run_id[:8]}` follows it")


def _resolved(start: RunStarted) -> RunStarted:
    """The same with its folder as projects name theirs: without links."""
    return start if start.cwd is None else msgspec.structs.replace(start, cwd=str(Path(start.cwd).resolve()))
