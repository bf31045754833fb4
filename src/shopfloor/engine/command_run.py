"""Runs of a plain command: one command step without a worker, executed and recorded like the steps of workers."""

from __future__ import annotations

import math

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.cancellation import Cancellation
from shopfloor.engine.lifecycle import end_if_disk_is_low, run_to_outcome
from shopfloor.engine.replay_state import COMMAND, ReplayState, StepKey
from shopfloor.engine.steps.command import CommandStepRunner
from shopfloor.engine.steps.shell_process import Echo, StepCommand
from shopfloor.errors import ShopfloorError, StorageFull, UnexpectedError
from shopfloor.limits import DISK_CHECK_SECONDS
from shopfloor.log import FORMAT, CallCompleted, ClientInfo, RunCompleted, RunError, RunStarted, StepCompleted, now
from shopfloor.ports import Logs, Processes

_STEP_KEY = StepKey(COMMAND)


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run, and its owner."""

    run_id: str
    command: StepCommand
    timeout_seconds: float | None = None
    host: str
    owner: str = COMMAND
    channel_id: str = "cli"
    channel_name: str = "cli"
    client: ClientInfo | None = None


class CommandOutcome(msgspec.Struct, frozen=True):
    """The end of a command run, as recorded in its log."""

    run: RunCompleted
    step: StepCompleted | CallCompleted | None
    """The end of the only step; None if the command could not be started."""
    events: int
    """The number of events in the log."""

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command if the exit code made the run fail, else None."""
        return int(self.step.result["exit_code"]) if self.step is not None and _is_bad_exit(self.step) else None


async def run_command(
    request: CommandRequest, *, logs: Logs, processes: Processes, cancellation: Cancellation, echo: Echo | None = None
) -> CommandOutcome:
    """Execute a command as a run and record it. Raises only if no outcome could be recorded."""
    if logs.headroom_bytes() < 0:
        raise StorageFull("the disk is nearly full: new runs are refused", hint="free some space, then try again")
    async with logs.open(request.run_id) as log:
        # The step stops its command itself, after the grace period of the request: never abandon the step.
        attempt = Attempt(ReplayState(request.run_id), log, cancellation=cancellation, interrupt_grace_seconds=math.inf)
        step = CommandStepRunner(
            attempt, processes, request.command, timeout_seconds=request.timeout_seconds, echo=echo
        )
        # Errors are raised after the task group, which would wrap them in an exception group.
        ended: RunCompleted | ShopfloorError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_interrupt_when_cancelled, attempt)
            tasks.start_soon(_watch_disk, attempt, logs)
            try:
                await attempt.append(_run_started(request))
                ended = await run_to_outcome(
                    attempt,
                    lambda: step.run(_STEP_KEY, name=COMMAND),
                    finish=lambda outcome: _finish(outcome, attempt.replay_state, step.output_tail()),
                )
            except ShopfloorError as error:
                ended = error
            tasks.cancel_scope.cancel()
    if not isinstance(ended, RunCompleted):
        raise ended or UnexpectedError("the run stopped without an outcome")
    return CommandOutcome(ended, _end_of_step(attempt.replay_state), attempt.replay_state.last_seq)


def _run_started(request: CommandRequest) -> RunStarted:
    line = request.command.line
    return RunStarted(
        name=COMMAND,
        kind=COMMAND,
        attempt=1,
        host=request.host,
        task=line,
        input={"command": line},
        worker_type=COMMAND,
        agent_id=request.owner,
        channel_id=request.channel_id,
        channel_name=request.channel_name,
        client=request.client,
        root_run_id=request.run_id,
        queued_at=now(),
        format=FORMAT,
    )


def _finish(outcome: RunCompleted, replay_state: ReplayState, output_tail: str) -> RunCompleted:
    """Give the run the end of the output as its result, and a failed exit of the command as its own error."""
    step = _end_of_step(replay_state)
    error = outcome.error
    if outcome.status == "failed" and step is not None and _is_bad_exit(step):
        error = RunError(code="command_failed", message=step.error or "")
    return msgspec.structs.replace(outcome, result=output_tail, error=error)


def _is_bad_exit(step: StepCompleted | CallCompleted) -> bool:
    """Return whether the command itself failed: every other error of a step has a code."""
    return step.error is not None and step.error_code is None


def _end_of_step(replay_state: ReplayState) -> StepCompleted | CallCompleted | None:
    step = replay_state.steps.get(_STEP_KEY)
    return step.done if step is not None else None


async def _interrupt_when_cancelled(attempt: Attempt) -> None:
    await attempt.cancellation.requested.wait()
    attempt.interrupt("cancelled")


async def _watch_disk(attempt: Attempt, logs: Logs) -> None:
    while True:
        end_if_disk_is_low(logs, [attempt])
        await anyio.sleep(DISK_CHECK_SECONDS)
