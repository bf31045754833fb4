"""The handle that the interpreter of workers in YAML works with: steps inside each other, and lasting threads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from shopfloor.engine.attempt import StepResult, Trying
from shopfloor.engine.journal import Place
from shopfloor.engine.run import Run
from shopfloor.engine.steps.model import say
from shopfloor.engine.steps.threads import Thread
from shopfloor.engine.workers.definition import Retry
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import TextBlock


class BlockRun(Run):
    """A run as one of its blocks sees it: what the handle does is done at a place inside of that block."""

    def branch(self, segment: str) -> BlockRun:
        """The handle for the steps of a branch of this block."""
        return self._at(Place(f"{self._outer.path}.{segment}", self._outer.iteration))

    def round(self, number: int) -> BlockRun:
        """The handle for the steps of one round of this block, which is a loop."""
        return self._at(Place(f"{self._outer.path}.{number}", number))

    def _at(self, place: Place, given: Mapping[str, Any] | None = None) -> BlockRun:
        given = self.input if given is None else given
        return BlockRun(self._attempt, self._workshop, given=given, tools=self._tools, place=place)

    async def block(
        self, name: str, kind: str, work: Callable[[BlockRun], Awaitable[Any]], *, branches: Sequence[str] = ()
    ) -> Any:
        """Do a step that has no effects but those of the steps inside it, so that it can be resumed at any time.

        One that is done is walked again, for what its steps set: the results of all of them are known.
        """
        place = self._place(name, kind)
        known = self._attempt.journal.steps.get(place)
        if known is not None and known.done is not None and known.done.error is None:
            return await work(self._at(place))

        async def walked(trying: Trying) -> StepResult:
            return StepResult(await work(self._at(place)))

        begun = [*branches[:OPEN_BRANCHES]] or None
        return await self._attempt.step(place, walked, name=name, kind=kind, repeatable=True, branches=begun)

    async def custom(
        self,
        name: str,
        kind: str,
        work: Callable[..., Awaitable[Any]],
        given: Mapping[str, Any],
        *,
        retry: Retry | None = None,
    ) -> Any:
        """Do a step of a kind that the worker defines: `work` gets a handle for steps inside it, and `given`."""
        place = self._place(name, kind)

        async def called(trying: Trying) -> StepResult:
            # The handle is made anew for each try: it counts its steps from the first again.
            return StepResult(await work(self._at(place, given), **given))

        return await self._attempt.step(place, called, name=name, kind=kind, retry=retry, repeatable=True)

    def results(self, kind: str) -> Iterator[Any]:
        """The results of the steps of this kind that are done, anywhere in the run."""
        for step in self._attempt.journal.steps.values():
            if step.kind == kind and step.done is not None and step.done.error is None:
                yield step.done.result

    async def say(self, thread: Thread, text: str, *, role: str) -> None:
        """Add a message to a thread, on record at the place of this block."""
        await say(self._attempt, thread, self._outer, [TextBlock(fidelity="router", text=text)], role=role)

    async def reply(
        self, thread: Thread, *, name: str, schema: dict[str, Any] | None, prompt: str | None, retry: Retry | None
    ) -> Any:
        """Have the model answer in a thread; `prompt` is said first. Return its text, or with `schema` its value."""
        return await self._reply(thread, name=name, schema=schema, prompt=prompt, retry=retry)
