"""Resumption of runs without a host: who may resume them (any server, or only `shopfloor resume` in a shell).

The steps that earlier attempts completed are skipped by `Attempt.step`, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import msgspec

from shopfloor.engine.definitions import Definitions, definition_of
from shopfloor.engine.engine_ports import StoragePorts
from shopfloor.engine.registry import Claim, ClaimPolicy, RunRegistry
from shopfloor.engine.replay_state import last_event
from shopfloor.engine.workers.catalog import Worker, WorkerCatalog
from shopfloor.engine.workers.definition_changes import DefinitionChange
from shopfloor.errors import ConflictError, DefinitionChanged, RunNotFound, RunRunning, ShopfloorError
from shopfloor.limits import STARTS_CACHED
from shopfloor.log import MASK, RunCompleted, RunStarted, decode
from shopfloor.ports import HostOffer, Offers, may_take_over
from shopfloor.views import as_text


def decide_refusal_reason(starts: Sequence[RunStarted], folders: Iterable[str], hashes: Collection[str]) -> str | None:
    """Return why a server must not resume a run; None if it may.

    `starts` are the first events of the attempts of the root run, oldest first; `folders` are the projects of the
    server; `hashes` are those of the workers that the server finds under the name of the worker of the root run.
    """
    if not starts:
        return None
    first, newest = starts[0], starts[-1]
    if any(start.masked for start in starts):
        return "its record is masked, and a server does not know what to mask"
    if newest.executor is None:
        return None
    if not any(_is_in_folder(first.cwd, folder) for folder in folders):
        return f"its folder is not in a project of the server: {first.cwd or 'no folder is recorded'}"
    if first.definition_hash not in hashes:
        return "the server does not have the worker as it was when the run started"
    return None


class Resumption:
    """The rules for resuming runs without a host, and the resumption of runs in this process."""

    def __init__(
        self,
        registry: RunRegistry,
        ports: StoragePorts,
        catalog: WorkerCatalog,
        definitions: Definitions,
        *,
        offer: Callable[[], HostOffer] = HostOffer,
        offers: Offers = tuple,
    ) -> None:
        """Create the rules for a host with this `offer`; `offers` are those of all live hosts."""
        self._offer = offer
        self._offers = offers
        self._registry = registry
        self._ports = ports
        self._catalog = catalog
        self._definitions = definitions
        self._ended_parent: str | None = None
        """The parent that was last found ended. Thousands of runs of a cancelled tree may share one parent."""
        self._starts_cache: dict[str, tuple[int, tuple[RunStarted, ...]]] = {}
        """The first events of the attempts of a run, and the last `seq` that was read. Open runs are checked often."""

    async def refusal_reason(self, run_id: str) -> str | None:
        """Return why a server must not resume this run; None if it may. The same for all runs of a tree."""
        starts = await self._read_root_starts(run_id)
        if not starts:
            return None
        folders: list[str] = []
        hashes: set[str] = set()
        if starts[-1].executor is not None:
            starts = [_resolve_folder(start) for start in starts]
            try:
                folders = [project.folder for project in self._catalog.projects()]
                hashes = {worker.hash for worker in self._find_workers(starts[0]) if not worker.problems}
            except ShopfloorError as error:
                # Not raised: the error would delay other runs too.
                return error.message
        return decide_refusal_reason(starts, folders, hashes)

    async def is_resumed_here(self, run_id: str) -> bool:
        """Return whether this host resumes a run without a host: it may, and it has what the root run requires."""
        starts = await self._read_root_starts(run_id)
        required = starts[0].requires if starts else None
        if required is not None and not may_take_over(required, self._offer(), self._offers()):
            return False
        return await self.refusal_reason(run_id) is None

    async def _read_root_starts(self, run_id: str) -> Sequence[RunStarted]:
        """Return the first events of the attempts of the root run."""
        starts = await self.read_starts(run_id)
        root = starts[0].root_run_id if starts else None
        return starts if root in (None, run_id) else await self.read_starts(root) or starts

    def _find_workers(self, first: RunStarted) -> list[Worker]:
        """Return the workers with the name of this run: from the project of its folder, else from no project."""
        found = self._catalog.find_everywhere(first.name)
        in_project = [
            worker for worker in found if worker.project is not None and _is_in_folder(first.cwd, worker.project.folder)
        ]
        return in_project or [worker for worker in found if worker.project is None]

    async def resume_if_allowed(self, run_id: str) -> bool:
        """Resume a run without a host. Return False if this process has claimed the run or must not resume it."""
        is_waiting = self._definitions.is_waiting_for_definition(run_id)
        if run_id in self._registry.claims or is_waiting or self._registry.is_draining:
            return False
        is_allowed = await self.is_resumed_here(run_id)
        if is_allowed:
            self.resume(run_id)
        return is_allowed

    def resume(self, run_id: str) -> None:
        """Resume a run that may be resumed here."""
        _, starts = self._starts_cache.pop(run_id, (0, ()))
        if starts:
            self._starts_cache.pop(starts[0].root_run_id or run_id, None)
        self._registry.resume(run_id)

    async def notify_parent_of(self, run_id: str) -> None:
        """Notify the parent of a run that ended without an attempt."""
        last = await last_event(self._ports.reader, run_id)
        await self.notify_parent(run_id, last and last.parent_run_id)

    async def notify_parent(self, run_id: str, parent: str | None) -> None:
        """Notify the parent of a run that has ended. A parent that is not live is resumed, if that is allowed."""
        if parent is None or parent == self._ended_parent:
            return
        attempt = self._registry.live_attempts.get(parent)
        if attempt is not None and attempt.interruption in ("cancelled", "failed"):
            # The parent is about to have its outcome.
            return
        if attempt is not None and attempt.notify(run_id) and attempt.interruption is None:
            return
        last = await last_event(self._ports.reader, parent)
        if last is not None and isinstance(last.payload, RunCompleted):
            self._ended_parent = parent
        elif parent in self._registry.claims:
            self._registry.resume(parent)
        elif (
            last is not None
            and self._registry.policy is ClaimPolicy.QUEUED
            # If another process executes the parent, that process reads the log of its sub-run.
            and not await self._ports.reader.has_writer(parent)
        ):
            await self.resume_if_allowed(parent)

    async def claim_abandoned(self, run_id: str, cancel_reason: str | None = None) -> bool:
        """Claim a queued run that is unclaimed, or claimed by a lost host, to execute it or to cancel it.

        Return False if there is no such run.
        """
        claimer = dict(await self._ports.queue.claimed()).get(run_id)
        if claimer is not None and await self._ports.hosts.is_alive(claimer):
            return False
        queued = await self._ports.queue.claim_one(run_id, self._registry.host_id, previous_host=claimer)
        if queued is not None:
            self._registry.add(Claim(run_id, queued, cancel_reason=cancel_reason))
        return queued is not None

    async def resume_here(self, run_id: str) -> None:
        """Resume a run in this process. Raises if that is not possible."""
        starts = await self.read_starts(run_id)
        if not starts:
            raise RunNotFound(f"the run {run_id} cannot be resumed: the beginning of its log is missing or unreadable")
        first, newest = starts[0], starts[-1]
        if first.root_run_id not in (None, run_id):
            raise ConflictError(
                f"the run {run_id} is a sub-run and cannot be resumed alone",
                hint=f"resume its root run: `shopfloor resume {first.root_run_id}`",
            )
        self._check_masking(run_id, starts)
        if first.attempt:
            if run_id in self._registry.claims or await self._ports.reader.has_active_host(run_id, newest.host):
                raise _already_running(run_id)
            self._check_definition(run_id, first)
            self._registry.resume(run_id)
        elif run_id not in dict(await self._ports.queue.claimed()):
            raise RunRunning(
                f"the run {run_id} is queued", hint="a server starts it: `shopfloor up --detach` starts a server"
            )
        elif not await self.claim_abandoned(run_id):
            raise _already_running(run_id)

    def _check_definition(self, run_id: str, first: RunStarted) -> None:
        definition = definition_of(first)
        if definition is None:
            raise ConflictError(f"the run {run_id} has no worker and cannot be resumed", hint="run the command again")
        change = self._definitions.look_up(definition)
        if isinstance(change, DefinitionChange):
            raise DefinitionChanged(change.message, hint="restore the worker, or cancel the run")

    def _check_masking(self, run_id: str, starts: Sequence[RunStarted]) -> None:
        if not any(start.masked for start in starts):
            return
        if not self._ports.logs.masks:
            raise ConflictError(
                f"the record of the run {run_id} is masked",
                hint="set what to mask, as for `shopfloor run`: --mask-env NAME or --mask-keys",
            )
        if MASK in as_text([starts[0].input, starts[0].definition]):
            raise ConflictError(
                f"the run {run_id} cannot be resumed: its recorded input or worker is masked",
                hint="run the worker again; pass secrets in environment variables",
            )

    async def read_starts(self, run_id: str) -> Sequence[RunStarted]:
        """Return the first events of the attempts of a run; for a queued run, its queued event."""
        last = await last_event(self._ports.reader, run_id)
        seq = last.seq if last is not None else 0
        known = self._starts_cache.get(run_id)
        if known is None or known[0] != seq:
            known = (seq, await self._read_log(run_id) if seq else ())
            self._starts_cache[run_id] = known
            if len(self._starts_cache) > STARTS_CACHED:
                del self._starts_cache[next(iter(self._starts_cache))]
        if known[1]:
            return known[1]
        self._starts_cache.pop(run_id, None)
        queued = await self._ports.queue.find(run_id)
        return () if queued is None else (queued.started,)

    async def _read_log(self, run_id: str) -> tuple[RunStarted, ...]:
        starts: list[RunStarted] = []
        async for batch in self._ports.reader.batches(run_id):
            for entry in batch:
                if entry.type == RunStarted.event_type:
                    payload = decode(entry.raw).payload
                    starts += [payload] if isinstance(payload, RunStarted) else []
        return tuple(starts)


def _is_in_folder(cwd: str | None, folder: str) -> bool:
    return cwd is not None and Path(cwd).is_relative_to(folder)


def _already_running(run_id: str) -> RunRunning:
    return RunRunning(
        f"another process executes the run {run_id}", hint=f"follow it with `shopfloor tail {run_id[:8]}`"
    )


def _resolve_folder(start: RunStarted) -> RunStarted:
    """Resolve symbolic links in the folder, as in the folders of projects."""
    return start if start.cwd is None else msgspec.structs.replace(start, cwd=str(Path(start.cwd).resolve()))
