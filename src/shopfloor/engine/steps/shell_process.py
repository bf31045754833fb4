"""Processes of command steps: started once their start is recorded, logged with their output, stopped in stages."""

from __future__ import annotations

import math
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt, StepTry
from shopfloor.engine.cancellation import Cancellation
from shopfloor.engine.command_output import OutputBuffer
from shopfloor.errors import ProcessError, ShopfloorError, StorageError
from shopfloor.limits import OUTPUT_DRAIN_SECONDS, OUTPUT_JOIN_SECONDS, STOP_GRACE_SECONDS
from shopfloor.log import AssistantMessage, CommandBlock, Process, UserMessage
from shopfloor.ports import Child, Command, Exit, OutputChunk, Processes

STEP_ABANDONED = "abandoned"


@asynccontextmanager
async def graceful_stop(attempt: Attempt, cancellation: Cancellation) -> AsyncGenerator[None]:
    """Shield the body from cancellation. Request a stop through `cancellation` instead.

    The body must end soon after the request; the context waits for it.
    """
    is_over = anyio.Event()
    async with anyio.create_task_group() as outside:
        # The step alone may be cancelled too: another branch has failed, or a time limit has passed.
        outside.start_soon(_stop_when_cancelled, cancellation, is_over)
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stop_when_abandoned, attempt, cancellation)
                tasks.start_soon(_kill_when_forced, attempt, cancellation)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        is_over.set()
        outside.cancel_scope.cancel()


def stop_once(cancellation: Cancellation, reason: str) -> None:
    """Request a stop unless one was requested.

    A second request would kill the process at once, and several tasks request it.
    """
    if cancellation.reason is None:
        cancellation.request(reason)


async def _stop_when_abandoned(attempt: Attempt, cancellation: Cancellation) -> None:
    await attempt.interrupted.wait()
    stop_once(cancellation, STEP_ABANDONED)


async def _kill_when_forced(attempt: Attempt, cancellation: Cancellation) -> None:
    """Kill the process after a second request to cancel the run."""
    await attempt.cancellation.forced.wait()
    stop_once(cancellation, STEP_ABANDONED)
    cancellation.request(STEP_ABANDONED)


async def _stop_when_cancelled(cancellation: Cancellation, is_over: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        if not is_over.is_set():
            stop_once(cancellation, STEP_ABANDONED)


SHELL = "/bin/sh"

Echo = Callable[[list[OutputChunk]], Awaitable[None]]
"""Receives the output once the log has it."""


def shell_argv(script: str) -> list[str]:
    """Return the program and arguments that execute a shell script."""
    return [SHELL, "-c", script]


class StepCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A program to execute, with its arguments."""

    argv: list[str]
    cwd: str
    env: dict[str, str] = {}
    variables: dict[str, str] = {}
    """Values that a shell script refers to by name. They are recorded with the command."""
    stop_grace: float = STOP_GRACE_SECONDS
    inherits_stdin: bool = False
    """Whether the command reads our standard input; by default its standard input is empty."""

    @property
    def line(self) -> str:
        """The command as typed in a shell."""
        return self.argv[2] if self.argv[:2] == [SHELL, "-c"] else shlex.join(self.argv)


class ShellProcess:
    """One process of a command, from its start to its exit.

    Errors are not raised across tasks: the first is kept in `failure`.
    """

    def __init__(
        self,
        command: StepCommand,
        attempt: Attempt,
        step_try: StepTry,
        *,
        cancellation: Cancellation,
        output: OutputBuffer,
        echo: Echo | None = None,
    ) -> None:
        self._command = command
        self._attempt = attempt
        self._step_try = step_try
        self._cancellation = cancellation
        self._output = output
        self._echo = echo
        self._echo_scope = anyio.CancelScope()
        self._is_muted = False
        self.failure: ShopfloorError | None = None
        """The first error on our side."""

    async def run(self, processes: Processes) -> Exit | None:
        """Run the process and return its exit, or None if it did not start or could not be ended."""
        command = self._command
        process_command = Command(
            argv=command.argv,
            cwd=command.cwd,
            env={**command.env, **command.variables},
            inherits_stdin=command.inherits_stdin,
        )
        try:
            async with processes.start(process_command, run_id=self._attempt.run_id) as child:
                return await self._record_process(child)
        except ProcessError as error:
            self._fail(error)
            return None

    async def _record_process(self, child: Child) -> Exit | None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_when_requested, child)
            try:
                await self._start(child)
                await self._record_output(child)
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

    async def _start(self, child: Child) -> None:
        """Record the step and the command, then start the command.

        The start is recorded first, so that a crash cannot hide it.
        """
        # The message below has the command, so the process does not repeat it.
        command = self._command
        args = ["-c", "…"] if command.argv[:2] == [SHELL, "-c"] else ["…"]
        process = Process(pid=child.pid, command=command.argv[0], args=args, cwd=command.cwd)
        await self._attempt.begin(self._step_try, process)
        block = CommandBlock(fidelity="router", command=command.line, variables=command.variables or None)
        await self._attempt.append(UserMessage(blocks=[block]), self._step_try.step_key)
        child.release()

    async def _record_output(self, child: Child) -> None:
        """Append output to the log, joined for at most 50 ms or 8 KB, and then pass it to `echo`."""
        deadline = math.inf
        while True:
            with anyio.CancelScope(deadline=deadline) as read_scope:
                chunk = await child.read()
                if chunk is None:
                    break
                if not self._output.size:
                    deadline = anyio.current_time() + OUTPUT_JOIN_SECONDS
                self._output.add(chunk)
            if self._output.is_full or read_scope.cancelled_caught:
                await self._flush()
                deadline = math.inf
        self._output.finish()
        await self._flush()

    async def _flush(self) -> None:
        blocks, chunks = self._output.drain()
        if not blocks:
            return
        await self._attempt.append(AssistantMessage(blocks=[*blocks]), self._step_try.step_key)
        if self._echo is not None and not self._is_muted:
            with anyio.CancelScope() as self._echo_scope:
                await self._echo(chunks)

    async def _stop_when_requested(self, child: Child) -> None:
        """Stop in stages: terminate, wait, kill; kill at once on a second request."""
        await self._cancellation.requested.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._kill_when_forced, child)
            await child.stop(self._command.stop_grace)
            tasks.cancel_scope.cancel()
        # Stop the echo: a reader that does not read must not delay the outcome.
        await anyio.sleep(OUTPUT_DRAIN_SECONDS)
        self._is_muted = True
        self._echo_scope.cancel()

    async def _kill_when_forced(self, child: Child) -> None:
        await self._cancellation.forced.wait()
        await child.kill()

    def _fail(self, error: ShopfloorError) -> None:
        if self.failure is None:
            self.failure = error


def exit_result(ended: Exit | None) -> dict[str, int | str | bool] | None:
    """Return the exit as the result of a step."""
    if ended is None:
        return None
    result: dict[str, int | str | bool] = {"exit_code": ended.shell_code}
    if ended.signal is not None:
        result["signal"] = ended.signal
    if ended.outlived:
        result["outlived"] = True
    return result


def failure_reason(ended: Exit | None) -> str | None:
    """Return why a command counts as failed, or None if it succeeded."""
    if ended is None or ended.shell_code == 0:
        return None
    return f"exit code {ended.code}" if ended.signal is None else f"killed by {ended.signal}"
