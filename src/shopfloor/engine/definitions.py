"""Runs whose worker in Python changed: they wait, and go on when the worker is again the one that they began with."""

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
    """Compare the workers of runs with those that there are now, and remember the runs that wait."""

    def __init__(self, catalogue: WorkerCatalog) -> None:
        self._catalogue = catalogue
        self._held: dict[str, Definition] = {}
        """The runs that wait for their definition, as far as this process has looked at them."""
        self._compared: dict[str, list[Worker]] = {}
        """The workers that these were last compared with: one that is still the same has not come back."""

    def read(self, first: RunStarted) -> Definition | None:
        """Read the definition of a run: that of the worker which it was dispatched for, where that is still at hand."""
        known = self._catalogue.get_cached(first.name, first.definition_hash) if first.definition_hash else None
        return definition_of(first) if known is None else known.definition

    def look_up(self, definition: Definition, *, ordered: str | None = None) -> Worker | DefinitionChange | None:
        """Give the worker in Python that a run goes on with, or why it cannot; None for a worker in YAML.

        `ordered` is the hash of the definition, for a run that was dispatched a moment ago and has no log yet.
        """
        if definition.function is None:
            return None
        worker = self._catalogue.get_cached(definition.slug, ordered) if ordered else None
        if worker is not None:
            return worker
        found = self._find_all(definition.slug)
        worker = _unchanged(definition, found) or next(iter(found), None)
        return find_definition_change(definition, worker) or worker

    def add_waiting(self, run_id: str, definition: Definition) -> None:
        """Remember a run whose log says that it waits."""
        self._held[run_id] = definition
        self._compared.pop(definition.slug, None)

    def is_waiting_for_definition(self, run_id: str) -> bool:
        return run_id in self._held

    def pop_restored(self) -> list[str]:
        """Forget the runs whose workers are back, and give them."""
        workers = {slug: self._find_all(slug) for slug in {one.slug for one in self._held.values()}}
        fresh = {slug for slug, found in workers.items() if not _are_same(found, self._compared.get(slug))}
        self._compared = workers
        held = [(run_id, one) for run_id, one in self._held.items() if one.slug in fresh] if fresh else []
        released = [run_id for run_id, one in held if _unchanged(one, workers[one.slug])]
        for run_id in released:
            self.forget(run_id)
        return released

    def forget(self, run_id: str) -> None:
        self._held.pop(run_id, None)

    def _find_all(self, slug: str) -> list[Worker]:
        try:
            return self._catalogue.find_everywhere(slug)
        except ShopfloorError as error:
            problem = Problem(Path(slug), 1, error.message)
            return [Worker(definition=Definition(slug=slug), origin=slug, problems=(problem,))]


def _unchanged(definition: Definition, found: list[Worker]) -> Worker | None:
    """The worker that still is what the run began with, among those that have its slug."""
    return next((worker for worker in found if find_definition_change(definition, worker) is None), None)


def _are_same(found: list[Worker], before: list[Worker] | None) -> bool:
    return before is not None and len(found) == len(before) and all(map(is_, found, before))


def definition_of(first: RunStarted) -> Definition | None:
    """Read the definition in a log. None where there is none that this version understands."""
    try:
        return convert(first.definition, Definition) if first.definition is not None else None
    except msgspec.ValidationError:
        return None


def definition_wait_call(change: DefinitionChange) -> ToolCall:
    """The wait of a whole run for its definition, as the log has it."""
    return ToolCall(
        name=DEFINITION_CHANGED,
        call_id=f"{DEFINITION_CHANGED}_{uuid.uuid4().hex}",
        input=msgspec.to_builtins(change),
        output=None,
        fidelity="router",
        awaits=Awaits(kind=DEFINITION_CHANGED),
    )


def definition_wait_result(call_id: str) -> ToolResult:
    """The end of that wait: the definition is back."""
    return ToolResult(name=DEFINITION_CHANGED, call_id=call_id, input=None, output=None, fidelity="router")
