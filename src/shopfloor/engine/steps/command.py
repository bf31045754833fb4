"""Command steps: a shell command of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.lowlevel
import msgspec

from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.command_output import OutputBuffer
from shopfloor.engine.error_mapping import Cancellation, command_failed
from shopfloor.engine.replay_state import COMMAND, StepKey
from shopfloor.engine.steps.shell_process import (
    Echo,
    ShellProcess,
    StepCommand,
    exit_result,
    failure_reason,
    graceful_stop,
)
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


class CommandStepRunner:
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
        self._output = OutputBuffer()

    async def run(self, step_key: StepKey, *, name: str, retry: Retry | None = None) -> CommandResult:
        ended = await self._attempt.step(step_key, self._work, name=name, kind=COMMAND, retry=retry, starts_itself=True)
        stdout = self._attempt.replay_state.steps[step_key].stdout
        return CommandResult(stdout.text(), int(ended["exit_code"]), truncated=stdout.is_truncated)

    def output_tail(self) -> str:
        """The end of what the newest try printed, on both streams."""
        return self._output.tail()

    async def _work(self, step_try: StepTry) -> StepResult:
        cancellation = Cancellation()
        self._output = OutputBuffer(self._attempt.mask)
        serving = ShellProcess(
            self._command, self._attempt, step_try, cancellation=cancellation, output=self._output, echo=self._echo
        )
        timeout_message = f"the command took longer than {self._timeout:g} s" if self._timeout is not None else ""
        async with self._attempt.hold_slot():
            async with graceful_stop(
                self._attempt, cancellation, seconds=self._timeout, timeout_message=timeout_message
            ):
                ended = await serving.run(self._processes)
                step_try.result = self._result_of(step_try.step_key, ended)
            await anyio.lowlevel.checkpoint()
        if serving.failure is not None:
            raise serving.failure
        if cancellation.reason is not None:
            raise StepFailed(cancellation.reason)
        wrong = failure_reason(ended)
        if wrong is not None and not self._allow_failure:
            step_try.result = msgspec.structs.replace(step_try.result, failure_reason=wrong)
            raise command_failed(wrong)
        return step_try.result

    def _result_of(self, step_key: StepKey, ended: Exit | None) -> StepResult:
        result = exit_result(ended)
        step = self._attempt.replay_state.steps.get(step_key)
        if result is not None and step is not None and step.stdout.is_truncated:
            result["stdout_truncated"] = True
        return StepResult(result, ended_processes=ended.ended_processes if ended else None)
