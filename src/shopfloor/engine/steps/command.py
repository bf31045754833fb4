"""Command steps: a shell command of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.lowlevel
import msgspec

from shopfloor.engine.attempt import Attempt, StepResult, Trying
from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.journal import COMMAND, Place
from shopfloor.engine.output import Output
from shopfloor.engine.results import command_failed
from shopfloor.engine.steps.serving import Echo, Serving, StepCommand, complaint, exit_result
from shopfloor.engine.steps.stopping import stopped_when_left
from shopfloor.errors import StepFailed
from shopfloor.ports import Exit, Processes

if TYPE_CHECKING:
    from shopfloor.engine.workers.definition import Retry


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
        echo: Echo | None = None,
    ) -> None:
        """`echo` gets the output once the log has it. The command waits for `echo`, and so for whoever reads there."""
        self._attempt = attempt
        self._processes = processes
        self._command = command
        self._timeout = timeout
        self._allow_failure = allow_failure
        self._echo = echo
        self._output = Output()

    async def run(self, place: Place, *, name: str, retry: Retry | None = None) -> CommandResult:
        ended = await self._attempt.step(place, self._work, name=name, kind=COMMAND, retry=retry, starts_itself=True)
        stdout = self._attempt.journal.steps[place].stdout
        return CommandResult(stdout.text(), int(ended["exit_code"]), truncated=stdout.is_truncated)

    def output_tail(self) -> str:
        """The end of what the newest try printed, on both streams."""
        return self._output.tail()

    async def _work(self, trying: Trying) -> StepResult:
        cancellation = Cancellation()
        self._output = Output(self._attempt.mask)
        serving = Serving(
            self._command, self._attempt, trying, cancellation=cancellation, output=self._output, echo=self._echo
        )
        late = f"the command took longer than {self._timeout:g} s" if self._timeout is not None else ""
        async with self._attempt.working():
            async with stopped_when_left(self._attempt, cancellation, seconds=self._timeout, late=late):
                ended = await serving.serve(self._processes)
                trying.result = self._result_of(trying.place, ended)
            await anyio.lowlevel.checkpoint()
        if serving.failure is not None:
            raise serving.failure
        if cancellation.reason is not None:
            raise StepFailed(cancellation.reason)
        wrong = complaint(ended)
        if wrong is not None and not self._allow_failure:
            trying.result = msgspec.structs.replace(trying.result, complaint=wrong)
            raise command_failed(wrong)
        return trying.result

    def _result_of(self, place: Place, ended: Exit | None) -> StepResult:
        result = exit_result(ended)
        step = self._attempt.journal.steps.get(place)
        if result is not None and step is not None and step.stdout.is_truncated:
            result["stdout_truncated"] = True
        return StepResult(result, ended_processes=ended.ended_processes if ended else None)
