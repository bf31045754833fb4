"""A bare command as a run: one step, its output as it comes, and exactly one outcome."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

import anyio
import msgspec

from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.outcome import error_of
from shopfloor.engine.output import Output
from shopfloor.engine.steps.serving import Echo, Serving, StepCommand, complaint, exit_result, shell_argv
from shopfloor.errors import StorageError, StorageFull
from shopfloor.limits import (
    DISK_CHECK_SECONDS,
    STOP_GRACE_SECONDS,
    STORAGE_PATIENCE_SECONDS,
    STORAGE_RETRY_SECONDS,
)
from shopfloor.log import (
    FORMAT,
    Payload,
    Process,
    RunCompleted,
    RunError,
    RunStarted,
    Status,
    StepCompleted,
    StepStarted,
    now,
)
from shopfloor.ports import Child, Exit, Log, Logs, Processes
from shopfloor.record import Masking

PATH: Final = "command"


class CommandRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    run_id: str
    command: str
    cwd: str
    host: str
    owner: str = "command"
    channel_id: str = "cli"
    channel_name: str = "cli"
    stop_grace: float = STOP_GRACE_SECONDS
    inherits_stdin: bool = False
    """The command reads our own standard input; by default it reads nothing."""


class Outcome(msgspec.Struct, frozen=True):
    """How the run ended, as its log says."""

    status: Status
    exit: Exit | None
    error: RunError | None
    events: int
    duration_ms: int


async def run_command(
    run: CommandRun,
    *,
    logs: Logs,
    processes: Processes,
    echo: Echo,
    cancellation: Cancellation,
    mask: Masking | None = None,
) -> Outcome:
    """Runs a shell command and records it. Raises only where no outcome could be written."""
    if logs.room() < 0:
        raise StorageFull("the disk is nearly full: no new runs", hint="free some space, then try again")
    async with logs.open(run.run_id) as log:
        step = _CommandStep(run, logs, log, echo=echo, cancellation=cancellation, output=Output(mask))
        return await step.execute(processes)


class _CommandStep:
    """One command from its start to its outcome."""

    def __init__(
        self, run: CommandRun, logs: Logs, log: Log, *, echo: Echo, cancellation: Cancellation, output: Output
    ) -> None:
        self._run = run
        self._logs = logs
        self._log = log
        self._cancellation = cancellation
        self._output = output
        self._began = time.monotonic()
        self._step_began: float | None = None
        self._events = 0
        self._serving = Serving(
            StepCommand(
                argv=shell_argv(run.command),
                cwd=run.cwd,
                stop_grace=run.stop_grace,
                inherits_stdin=run.inherits_stdin,
            ),
            run_id=run.run_id,
            begin=self._begin,
            append=partial(self._append, path=PATH),
            cancellation=cancellation,
            output=output,
            echo=echo,
        )

    async def execute(self, processes: Processes) -> Outcome:
        await self._append(self._run_started())
        return await self._end(await self._serving.serve(processes, self._mind_the_disk))

    def _run_started(self) -> RunStarted:
        run = self._run
        return RunStarted(
            name="command",
            kind="command",
            attempt=1,
            host=run.host,
            task=run.command,
            input={"command": run.command},
            worker_type="command",
            agent_id=run.owner,
            channel_id=run.channel_id,
            channel_name=run.channel_name,
            root_run_id=run.run_id,
            queued_at=now(),
            format=FORMAT,
        )

    async def _begin(self, process: Process) -> None:
        self._step_began = time.monotonic()
        await self._append(StepStarted(name="command", kind="command", try_=1, process=process), path=PATH)

    async def _mind_the_disk(self, child: Child) -> None:
        while True:
            if self._logs.room() < 0:
                break
            await anyio.sleep(DISK_CHECK_SECONDS)
        self._serving.fail(StorageFull("the disk is nearly full: the run was ended while it can still be recorded"))
        await child.stop(self._run.stop_grace)

    async def _append(self, payload: Payload, *, path: str = "") -> None:
        """Waits for room where there is none; the command waits with us, on its full pipe."""
        deadline = time.monotonic() + STORAGE_PATIENCE_SECONDS
        while True:
            try:
                await self._log.append(payload, path=path)
            except StorageError:
                if time.monotonic() > deadline or self._cancellation.forced.is_set():
                    raise
                await anyio.sleep(STORAGE_RETRY_SECONDS)
            else:
                self._events += 1
                return

    async def _end(self, ended: Exit | None) -> Outcome:
        status, error = self._verdict(ended)
        if self._step_began is not None:
            step = StepCompleted(
                name="command",
                kind="command",
                try_=1,
                error=error and error.message,
                result=exit_result(ended),
                ended_processes=(ended and ended.ended_processes) or None,
                duration_ms=_ms_since(self._step_began),
            )
            await self._append(step, path=PATH)
        duration_ms = _ms_since(self._began)
        outcome = RunCompleted(
            name="command",
            kind="command",
            status=status,
            error=error,
            result=self._output.tail(),
            duration_ms=duration_ms,
        )
        await self._append(outcome)
        return Outcome(status, ended, error, self._events, duration_ms)

    def _verdict(self, ended: Exit | None) -> tuple[Status, RunError | None]:
        failure = self._serving.failure
        if failure is not None:
            return "failed", error_of(failure)
        if self._cancellation.reason is not None:
            return "cancelled", RunError(code="cancelled", message=self._cancellation.reason)
        message = complaint(ended)
        if message is None:
            return "completed", None
        return "failed", RunError(code="command_failed", message=message)


def _ms_since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
