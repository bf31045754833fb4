"""A bare command as a run: one step, its output as it comes, and exactly one outcome."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Final

import anyio
import msgspec

from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.output import Output
from shopfloor.errors import ProcessError, ShopfloorError, StorageError, StorageFull
from shopfloor.limits import (
    DISK_CHECK_SECONDS,
    ECHO_GRACE_SECONDS,
    OUTPUT_JOIN_SECONDS,
    STOP_GRACE_SECONDS,
    STORAGE_PATIENCE_SECONDS,
    STORAGE_RETRY_SECONDS,
)
from shopfloor.log import (
    FORMAT,
    AssistantMessage,
    CommandBlock,
    Payload,
    Process,
    RunCompleted,
    RunError,
    RunStarted,
    Status,
    StepCompleted,
    StepStarted,
    UserMessage,
    now,
)
from shopfloor.ports import Child, Command, Exit, Log, Logs, Piece, Processes
from shopfloor.record import Masking

PATH: Final = "command"
SHELL: Final = "/bin/sh"

Echo = Callable[[list[Piece]], Awaitable[None]]
"""Where the output goes once the log has it."""


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
    """One command from its start to its outcome. Nothing is raised across the tasks: a failure is noted and ends it."""

    def __init__(
        self, run: CommandRun, logs: Logs, log: Log, *, echo: Echo, cancellation: Cancellation, output: Output
    ) -> None:
        self._run = run
        self._logs = logs
        self._log = log
        self._echo = echo
        self._cancellation = cancellation
        self._output = output
        self._echoing = anyio.CancelScope()
        self._muted = False
        self._began = time.monotonic()
        self._step_began: float | None = None
        self._failure: RunError | None = None
        self._events = 0

    async def execute(self, processes: Processes) -> Outcome:
        await self._append(self._run_started())
        command = Command(argv=[SHELL, "-c", self._run.command], cwd=self._run.cwd)
        ended: Exit | None = None
        try:
            async with processes.start(command, run_id=self._run.run_id) as child:
                ended = await self._serve(child)
        except ProcessError as error:
            self._fail(error)
        return await self._end(ended)

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

    async def _serve(self, child: Child) -> Exit | None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._obey, child)
            tasks.start_soon(self._mind_the_disk, child)
            try:
                await self._begin(child)
                await self._listen(child)
            except StorageError as error:
                self._fail(error)
                await child.kill()
            try:
                return await child.wait()
            except ProcessError as error:
                self._fail(error)
                return None
            finally:
                tasks.cancel_scope.cancel()

    async def _begin(self, child: Child) -> None:
        """Intent before effect: the step and the command are on record before the command does anything."""
        run = self._run
        # The command itself stands in the message that follows; once is enough.
        process = Process(pid=child.pid, command=SHELL, args=["-c", "…"], cwd=run.cwd)
        self._step_began = time.monotonic()
        await self._append(StepStarted(name="command", kind="command", try_=1, process=process), path=PATH)
        block = CommandBlock(fidelity="router", command=run.command)
        await self._append(UserMessage(blocks=[block]), path=PATH)
        child.release()

    async def _listen(self, child: Child) -> None:
        """Output into the log, joined for at most 50 ms or 8 KB, and from there to whoever watches."""
        deadline = math.inf
        while True:
            with anyio.CancelScope(deadline=deadline) as waiting:
                piece = await child.read()
                if piece is None:
                    break
                if not self._output.size:
                    deadline = anyio.current_time() + OUTPUT_JOIN_SECONDS
                self._output.add(piece)
            if self._output.full or waiting.cancelled_caught:
                await self._flush()
                deadline = math.inf
        self._output.finish()
        await self._flush()

    async def _flush(self) -> None:
        blocks, pieces = self._output.take()
        if not blocks:
            return
        await self._append(AssistantMessage(blocks=[*blocks]), path=PATH)
        if not self._muted:
            with anyio.CancelScope() as self._echoing:
                await self._echo(pieces)

    async def _obey(self, child: Child) -> None:
        """Cancel, in stages: ask, wait a grace, make it; asked twice, make it now."""
        await self._cancellation.requested.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._kill_when_forced, child)
            await child.stop(self._run.stop_grace)
            tasks.cancel_scope.cancel()
        # The last words have had their chance; whoever does not read them shall not hold up the outcome.
        await anyio.sleep(ECHO_GRACE_SECONDS)
        self._muted = True
        self._echoing.cancel()

    async def _kill_when_forced(self, child: Child) -> None:
        await self._cancellation.forced.wait()
        await child.kill()

    async def _mind_the_disk(self, child: Child) -> None:
        while True:
            if self._logs.room() < 0:
                break
            await anyio.sleep(DISK_CHECK_SECONDS)
        self._fail(StorageFull("the disk is nearly full: the run was ended while it can still be recorded"))
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

    def _fail(self, error: ShopfloorError) -> None:
        if self._failure is None:
            retryable = isinstance(error, StorageError)
            self._failure = RunError(code=error.code, message=error.message, retryable=retryable)

    async def _end(self, ended: Exit | None) -> Outcome:
        status, error = self._verdict(ended)
        if self._step_began is not None:
            step = StepCompleted(
                name="command",
                kind="command",
                try_=1,
                error=error and error.message,
                result=_exit_result(ended),
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
        if self._failure is not None:
            return "failed", self._failure
        if self._cancellation.reason is not None:
            return "cancelled", RunError(code="cancelled", message=self._cancellation.reason)
        if ended is None or ended.shell_code == 0:
            return "completed", None
        message = f"exit code {ended.code}" if ended.signal is None else f"killed by {ended.signal}"
        return "failed", RunError(code="command_failed", message=message)


def _exit_result(ended: Exit | None) -> dict[str, int | str | bool] | None:
    if ended is None:
        return None
    result: dict[str, int | str | bool] = {"exit_code": ended.shell_code}
    if ended.signal is not None:
        result["signal"] = ended.signal
    if ended.outlived:
        result["outlived"] = True
    if ended.outlived:
        result["outlived"] = True
    return result


def _ms_since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
