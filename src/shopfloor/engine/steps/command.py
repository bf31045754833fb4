"""Command steps: a shell command of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio.lowlevel
import msgspec

from shopfloor.engine.approvals import ApprovalGate, step_call_key
from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.cancellation import Cancellation
from shopfloor.engine.command_output import OutputBuffer
from shopfloor.engine.error_mapping import command_failed
from shopfloor.engine.replay_state import COMMAND, StepKey
from shopfloor.engine.steps.shell_process import (
    Echo,
    ShellProcess,
    StepCommand,
    exit_result,
    failure_reason,
    graceful_stop,
)
from shopfloor.errors import ApprovalDenied, StepFailed
from shopfloor.ports import Exit, Processes
from shopfloor.views import COMMAND_TOOL

if TYPE_CHECKING:
    from shopfloor.engine.workers.definition import Retry


class CommandResult(msgspec.Struct, frozen=True):
    """The standard output of a command, and its exit code."""

    stdout: str
    exit_code: int
    truncated: bool = False
    """Whether `stdout` is only the end of the output. The log has all of it."""


class CommandStepRunner:
    """Runner of one command step. The running step does not see a cancellation: it is stopped in stages."""

    def __init__(
        self,
        attempt: Attempt,
        processes: Processes,
        command: StepCommand,
        *,
        timeout_seconds: float | None = None,
        allow_failure: bool = False,
        echo: Echo | None = None,
        gate: ApprovalGate | None = None,
    ) -> None:
        """Create the runner.

        `gate` asks a person before the command starts, if the command matches one of its patterns. `echo` gets the
        output once the log has it; the command waits for `echo`, and so for its reader.
        """
        self._attempt = attempt
        self._processes = processes
        self._command = command
        self._timeout_seconds = timeout_seconds
        self._allow_failure = allow_failure
        self._echo = echo
        self._gate = gate
        self._output = OutputBuffer()

    async def run(self, step_key: StepKey, *, name: str, retry: Retry | None = None) -> CommandResult:
        ended = await self._attempt.step(
            step_key,
            self._execute,
            name=name,
            kind=COMMAND,
            retry=retry,
            timeout_seconds=self._timeout_seconds,
            starts_itself=True,
        )
        stdout = self._attempt.replay_state.steps[step_key].stdout
        return CommandResult(stdout.text(), int(ended["exit_code"]), truncated=stdout.is_truncated)

    def output_tail(self) -> str:
        """Return the end of the output of the newest try, both streams."""
        return self._output.tail()

    async def _check_approval(self, step_try: StepTry) -> None:
        """Wait until a person has approved the command, if it needs that. Raises `ApprovalDenied`."""
        if self._gate is None:
            return
        described: dict[str, Any] = {"command": self._command.line, "cwd": self._command.cwd}
        if self._command.variables:
            described["variables"] = self._command.variables
        key = step_call_key(step_try.step_key, step_try.try_)
        denial = await self._gate.check(step_try.step_key, key, COMMAND_TOOL, described)
        if denial is not None:
            await self._attempt.begin(step_try)
            raise ApprovalDenied(f"the command was {denial}", hint="change the worker, or run it again and approve it")

    async def _execute(self, step_try: StepTry) -> StepResult:
        await self._check_approval(step_try)
        cancellation = Cancellation()
        self._output = OutputBuffer(self._attempt.mask)
        process = ShellProcess(
            self._command, self._attempt, step_try, cancellation=cancellation, output=self._output, echo=self._echo
        )
        async with self._attempt.hold_slot():
            async with graceful_stop(self._attempt, cancellation):
                ended = await process.run(self._processes)
                step_try.result = self._step_result(step_try.step_key, ended)
            await anyio.lowlevel.checkpoint()
        if process.failure is not None:
            raise process.failure
        if cancellation.reason is not None:
            raise StepFailed(cancellation.reason)
        reason = failure_reason(ended)
        if reason is not None and not self._allow_failure:
            step_try.result = msgspec.structs.replace(step_try.result, failure_reason=reason)
            raise command_failed(step_try.name, self._command.line, reason)
        return step_try.result

    def _step_result(self, step_key: StepKey, ended: Exit | None) -> StepResult:
        result = exit_result(ended)
        step = self._attempt.replay_state.steps.get(step_key)
        if result is not None and step is not None and step.stdout.is_truncated:
            result["stdout_truncated"] = True
        return StepResult(result, ended_processes=ended.ended_processes if ended else None)
