"""A bare command as a run: its body is one command step, executed like those of workers."""

from __future__ import annotations

import math

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt
from shopfloor.engine.error_mapping import Cancellation
from shopfloor.engine.lifecycle import conduct, end_if_disk_is_low
from shopfloor.engine.replay_state import COMMAND, ReplayState, StepKey
from shopfloor.engine.steps.command import CommandStepRunner
from shopfloor.engine.steps.shell_process import Echo, StepCommand
from shopfloor.errors import ShopfloorError, StorageFull, UnexpectedError
from shopfloor.limits import DISK_CHECK_SECONDS
from shopfloor.log import FORMAT, CallCompleted, RunCompleted, RunError, RunStarted, StepCompleted, now
from shopfloor.ports import Logs, Processes

_PLACE = StepKey(COMMAND)


class CommandRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The command of a run, and on whose behalf it is executed."""

    run_id: str
    command: StepCommand
    host: str
    owner: str = COMMAND
    channel_id: str = "cli"
    channel_name: str = "cli"


class CommandOutcome(msgspec.Struct, frozen=True):
    """How the run ended, as its log says."""

    run: RunCompleted
    step: StepCompleted | CallCompleted | None
    """The end of its one step; None where the command could not be started."""
    events: int

    @property
    def exit_code(self) -> int | None:
        """The exit code of the command where that decided the outcome."""
        return int(self.step.result["exit_code"]) if self.step is not None and _is_bad_exit(self.step) else None


async def run_command(
    request: CommandRequest, *, logs: Logs, processes: Processes, cancellation: Cancellation, echo: Echo | None = None
) -> CommandOutcome:
    """Execute a command and record it. Raises only where no outcome could be written."""
    if logs.headroom_bytes() < 0:
        raise StorageFull("the disk is nearly full: no new runs", hint="free some space, then try again")
    async with logs.open(request.run_id) as log:
        # The step itself ends its command, after the grace that the request asks for.
        attempt = Attempt(ReplayState(request.run_id), log, cancellation=cancellation, interrupt_grace_seconds=math.inf)
        work = CommandStepRunner(attempt, processes, request.command, echo=echo)
        # An error leaves the task group as what it is, not wrapped in a group of one.
        ended: RunCompleted | ShopfloorError | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_leave_when_cancelled, attempt)
            tasks.start_soon(_watch_disk, attempt, logs)
            try:
                await attempt.append(_run_started(request))
                ended = await conduct(
                    attempt,
                    lambda: work.run(_PLACE, name=COMMAND),
                    finish=lambda outcome: _finish(outcome, attempt.replay_state, work.output_tail()),
                )
            except ShopfloorError as error:
                ended = error
            tasks.cancel_scope.cancel()
    if not isinstance(ended, RunCompleted):
        raise ended or UnexpectedError("the run was left before it had ended")
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
        root_run_id=request.run_id,
        queued_at=now(),
        format=FORMAT,
    )


def _finish(outcome: RunCompleted, replay_state: ReplayState, output_tail: str) -> RunCompleted:
    """The run is its command: the result is the end of the output, and a bad exit is the run's own failure."""
    step = _end_of_step(replay_state)
    error = outcome.error
    if outcome.status == "failed" and step is not None and _is_bad_exit(step):
        error = RunError(code="command_failed", message=step.error or "")
    return msgspec.structs.replace(outcome, result=output_tail, error=error)


def _is_bad_exit(step: StepCompleted | CallCompleted) -> bool:
    """Whether the command failed by itself: any other error of a step has a code."""
    return step.error is not None and step.error_code is None


def _end_of_step(replay_state: ReplayState) -> StepCompleted | CallCompleted | None:
    step = replay_state.steps.get(_PLACE)
    return step.done if step is not None else None


async def _leave_when_cancelled(attempt: Attempt) -> None:
    await attempt.cancellation.requested.wait()
    attempt.interrupt("cancelled")


async def _watch_disk(attempt: Attempt, logs: Logs) -> None:
    while True:
        end_if_disk_is_low(logs, [attempt])
        await anyio.sleep(DISK_CHECK_SECONDS)
