"""Command steps: a shell command of a worker."""

from __future__ import annotations

from functools import partial

import anyio.lowlevel
import msgspec

from shopfloor.engine.attempt import Attempt, EndedBadly, StepResult, Trying
from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.journal import COMMAND, Place
from shopfloor.engine.output import Output
from shopfloor.engine.steps.serving import Serving, StepCommand, complaint, exit_result
from shopfloor.engine.steps.stopping import stopped_when_left
from shopfloor.engine.workers.definition import Retry
from shopfloor.errors import StepFailed, StorageError
from shopfloor.ports import Exit, Processes


class CommandResult(msgspec.Struct, frozen=True):
    """What a command printed on stdout, and how it ended."""

    stdout: str
    exit_code: int
    truncated: bool = False
    """Whether `stdout` is only the end of what the command printed. The log has all of it."""


class CommandWork:
    """The work of one command step. While it goes on it does not see a cancellation: it is stopped in stages."""

    def __init__(
        self,
        attempt: Attempt,
        processes: Processes,
        command: StepCommand,
        *,
        timeout: float | None = None,
        allow_failure: bool = False,
    ) -> None:
        self._attempt = attempt
        self._processes = processes
        self._command = command
        self._timeout = timeout
        self._allow_failure = allow_failure

    async def run(self, place: Place, *, name: str, retry: Retry | None = None, kind: str = COMMAND) -> CommandResult:
        ended = await self._attempt.step(place, self._work, name=name, kind=kind, retry=retry, starts_itself=True)
        stdout = self._attempt.journal.steps[place].stdout
        return CommandResult(stdout.text(), int(ended["exit_code"]), truncated=stdout.is_truncated)

    async def _work(self, trying: Trying) -> StepResult:
        cancellation = Cancellation()
        serving = Serving(
            self._command,
            run_id=self._attempt.run_id,
            begin=partial(self._attempt.begin, trying),
            append=partial(self._attempt.append, place=trying.place),
            cancellation=cancellation,
            output=Output(self._attempt.mask),
        )
        late = f"the command took longer than {self._timeout:g} s" if self._timeout is not None else ""
        async with self._attempt.working():
            async with stopped_when_left(self._attempt, cancellation, seconds=self._timeout, late=late):
                ended = await serving.serve(self._processes)
            await anyio.lowlevel.checkpoint()
        if serving.failure is not None:
            if isinstance(serving.failure, StorageError):
                raise serving.failure
            raise StepFailed(serving.failure.message, hint=serving.failure.hint)
        if cancellation.reason is not None:
            raise StepFailed(cancellation.reason)
        result = StepResult(
            self._result_of(trying.place, ended), ended_processes=ended.ended_processes if ended else None
        )
        wrong = complaint(ended)
        if wrong is not None and not self._allow_failure:
            raise EndedBadly(StepFailed(f"the command failed: {wrong}"), result)
        return result

    def _result_of(self, place: Place, ended: Exit | None) -> dict[str, int | str | bool] | None:
        result = exit_result(ended)
        if result is not None and self._attempt.journal.steps[place].stdout.is_truncated:
            result["stdout_truncated"] = True
        return result
