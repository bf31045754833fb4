"""Definitions of running workers. A run whose Python worker has changed waits until the original worker is back."""

from __future__ import annotations

import uuid
from operator import is_
from pathlib import Path

import msgspec

from shopfloor.decoding import convert
from shopfloor.engine.workers.catalog import Worker, WorkerCatalog
from shopfloor.engine.workers.definition import Definition
from shopfloor.engine.workers.definition_changes import DefinitionChange, find_definition_change
from shopfloor.engine.workers.problems import Problem
from shopfloor.errors import ShopfloorError
from shopfloor.log import Awaits, RunStarted, ToolCall, ToolResult
from shopfloor.views import DEFINITION_CHANGED


class Definitions:
    """The definitions of runs, compared with the current workers, and the runs that wait for their definition."""

    def __init__(self, catalog: WorkerCatalog) -> None:
        self._catalog = catalog
        self._waiting: dict[str, Definition] = {}
        """The runs that wait for their definition, as far as this process knows."""
        self._last_compared: dict[str, list[Worker]] = {}
        """The workers of each slug at the last comparison. Only a change of them can restore a definition."""

    def read(self, first: RunStarted) -> Definition | None:
        """Return the definition of a run: from the catalog if it still has the dispatched worker, else from the log."""
        known = self._catalog.get_cached(first.name, first.definition_hash) if first.definition_hash else None
        return definition_of(first) if known is None else known.definition

    def look_up(
        self, definition: Definition, *, dispatched_hash: str | None = None
    ) -> Worker | DefinitionChange | None:
        """Return the Python worker that continues a run, or how that worker has changed. None for a YAML worker.

        `dispatched_hash` is the hash of the definition, for a run that was just dispatched and has no log yet.
        """
        if definition.function is None:
            return None
        worker = self._catalog.get_cached(definition.slug, dispatched_hash) if dispatched_hash else None
        if worker is not None:
            return worker
        found = self._find_all(definition.slug)
        worker = _find_unchanged(definition, found) or next(iter(found), None)
        return find_definition_change(definition, worker) or worker

    def add_waiting(self, run_id: str, definition: Definition) -> None:
        """Remember a run that waits for this definition, according to its log."""
        self._waiting[run_id] = definition
        self._last_compared.pop(definition.slug, None)

    def is_waiting_for_definition(self, run_id: str) -> bool:
        """Return whether this run is known to wait for its definition."""
        return run_id in self._waiting

    def pop_restored(self) -> list[str]:
        """Forget and return the runs whose original workers are back."""
        workers = {slug: self._find_all(slug) for slug in {definition.slug for definition in self._waiting.values()}}
        changed = {slug for slug, found in workers.items() if not _are_same(found, self._last_compared.get(slug))}
        self._last_compared = workers
        restored = [
            run_id
            for run_id, definition in (self._waiting.items() if changed else ())
            if definition.slug in changed and _find_unchanged(definition, workers[definition.slug])
        ]
        for run_id in restored:
            self.forget(run_id)
        return restored

    def forget(self, run_id: str) -> None:
        """Forget that a run waits."""
        self._waiting.pop(run_id, None)

    def _find_all(self, slug: str) -> list[Worker]:
        try:
            return self._catalog.find_everywhere(slug)
        except ShopfloorError as error:
            problem = Problem(Path(slug), 1, error.message)
            return [Worker(definition=Definition(slug=slug), origin=slug, problems=(problem,))]


def _find_unchanged(definition: Definition, found: list[Worker]) -> Worker | None:
    """Return the worker that still has the definition the run started with, if there is one."""
    return next((worker for worker in found if find_definition_change(definition, worker) is None), None)


def _are_same(found: list[Worker], before: list[Worker] | None) -> bool:
    return before is not None and len(found) == len(before) and all(map(is_, found, before))


def definition_of(first: RunStarted) -> Definition | None:
    """Return the definition in the first event of a run; None if there is none that this version understands."""
    try:
        return convert(first.definition, Definition) if first.definition is not None else None
    except msgspec.ValidationError:
        return None


def definition_wait_call(change: DefinitionChange) -> ToolCall:
    """Build the call that records that a run waits for its definition."""
    return ToolCall(
        name=DEFINITION_CHANGED,
        call_id=f"{DEFINITION_CHANGED}_{uuid.uuid4().hex}",
        input=msgspec.to_builtins(change),
        output=None,
        fidelity="router",
        awaits=Awaits(kind=DEFINITION_CHANGED),
    )


def definition_wait_result(call_id: str) -> ToolResult:
    """Build the result that ends the wait of a run for its definition."""
    return ToolResult(name=DEFINITION_CHANGED, call_id=call_id, input=None, output=None, fidelity="router")
