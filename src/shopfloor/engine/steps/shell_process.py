"""Ending what a step has started when the step is left: not by a cancellation, which it does not see, but in stages."""

from __future__ import annotations

import math
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt, StepTry
from shopfloor.engine.command_output import OutputBuffer
from shopfloor.engine.error_mapping import Cancellation
from shopfloor.errors import ProcessError, ShopfloorError, StorageError
from shopfloor.limits import OUTPUT_DRAIN_SECONDS, OUTPUT_JOIN_SECONDS, STOP_GRACE_SECONDS
from shopfloor.log import AssistantMessage, CommandBlock, Process, UserMessage
from shopfloor.ports import Child, Command, Exit, OutputChunk, Processes

STEP_ABANDONED = "left"


@asynccontextmanager
async def graceful_stop(
    attempt: Attempt, cancellation: Cancellation, *, seconds: float | None = None, timeout_message: str = ""
) -> AsyncGenerator[None]:
    """What is inside goes on to its end; that it is to end soon it hears by `cancellation`, also after `seconds`."""
    over = anyio.Event()
    async with anyio.create_task_group() as outside:
        # Not only the run as a whole may be left: another branch may fail, or a time limit pass.
        outside.start_soon(_stop_when_cancelled, cancellation, over)
        with anyio.CancelScope(shield=True):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_stop_when_left, attempt, cancellation)
                tasks.start_soon(_kill_when_forced, attempt, cancellation)
                if seconds is not None:
                    tasks.start_soon(_stop_after, cancellation, seconds, timeout_message)
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
        over.set()
        outside.cancel_scope.cancel()


def stop_once(cancellation: Cancellation, reason: str) -> None:
    """Asked twice it would be killed at once; several of us may ask for the same reason."""
    if cancellation.reason is None:
        cancellation.request(reason)


async def _stop_when_left(attempt: Attempt, cancellation: Cancellation) -> None:
    await attempt.interrupted.wait()
    stop_once(cancellation, STEP_ABANDONED)


async def _kill_when_forced(attempt: Attempt, cancellation: Cancellation) -> None:
    """Pass on a second request to cancel the run: the step is not waited for any longer."""
    await attempt.cancellation.forced.wait()
    stop_once(cancellation, STEP_ABANDONED)
    cancellation.request(STEP_ABANDONED)


async def _stop_when_cancelled(cancellation: Cancellation, over: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        if not over.is_set():
            stop_once(cancellation, STEP_ABANDONED)


async def _stop_after(cancellation: Cancellation, seconds: float, timeout_message: str) -> None:
    await anyio.sleep(seconds)
    stop_once(cancellation, timeout_message)


SHELL = "/bin/sh"

Echo = Callable[[list[OutputChunk]], Awaitable[None]]
"""Where the output goes once the log has it."""


def shell_argv(script: str) -> list[str]:
    """The program and arguments that execute a shell script."""
    return [SHELL, "-c", script]


class StepCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A program to execute, with its arguments."""

    argv: list[str]
    cwd: str
    env: dict[str, str] = {}
    variables: dict[str, str] = {}
    """Values that a shell script refers to by name. They are on record with it."""
    stop_grace: float = STOP_GRACE_SECONDS
    inherits_stdin: bool = False
    """It reads our own standard input; by default it reads nothing."""

    @property
    def line(self) -> str:
        """The command as people would type it."""
        return self.argv[2] if self.argv[:2] == [SHELL, "-c"] else shlex.join(self.argv)


class ShellProcess:
    """One command from its start to its exit. Nothing is raised across the tasks: a failure is noted and ends it."""

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
        self._trying = step_try
        self._cancellation = cancellation
        self._output = output
        self._echo = echo
        self._echoing = anyio.CancelScope()
        self._muted = False
        self.failure: ShopfloorError | None = None
        """The first thing that went wrong on our side."""

    async def run(self, processes: Processes) -> Exit | None:
        """How it ended; None where it did not even start, or could not be ended."""
        command = self._command
        asked = Command(
            argv=command.argv,
            cwd=command.cwd,
            env={**command.env, **command.variables},
            inherits_stdin=command.inherits_stdin,
        )
        try:
            async with processes.start(asked, run_id=self._attempt.run_id) as child:
                return await self._serve(child)
        except ProcessError as error:
            self.fail(error)
            return None

    async def _serve(self, child: Child) -> Exit | None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._obey, child)
            try:
                await self._begin(child)
                await self._listen(child)
            except StorageError as error:
                self.fail(error)
                await child.kill()
            try:
                return await child.wait()
            except ProcessError as error:
                self.fail(error)
                return None
            finally:
                tasks.cancel_scope.cancel()

    async def _begin(self, child: Child) -> None:
        """Intent before effect: the step and the command are on record before the command does anything."""
        # The command itself stands in the message that follows; once is enough.
        command = self._command
        args = ["-c", "…"] if command.argv[:2] == [SHELL, "-c"] else ["…"]
        process = Process(pid=child.pid, command=command.argv[0], args=args, cwd=command.cwd)
        await self._attempt.begin(self._trying, process)
        block = CommandBlock(fidelity="router", command=command.line, variables=command.variables or None)
        await self._attempt.append(UserMessage(blocks=[block]), self._trying.step_key)
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
            if self._output.is_full or waiting.cancelled_caught:
                await self._flush()
                deadline = math.inf
        self._output.finish()
        await self._flush()

    async def _flush(self) -> None:
        blocks, pieces = self._output.drain()
        if not blocks:
            return
        await self._attempt.append(AssistantMessage(blocks=[*blocks]), self._trying.step_key)
        if self._echo is not None and not self._muted:
            with anyio.CancelScope() as self._echoing:
                await self._echo(pieces)

    async def _obey(self, child: Child) -> None:
        """Cancel, in stages: ask, wait a grace, make it; asked twice, make it now."""
        await self._cancellation.requested.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._kill_when_forced, child)
            await child.stop(self._command.stop_grace)
            tasks.cancel_scope.cancel()
        # The last words have had their chance; whoever does not read them shall not hold up the outcome.
        await anyio.sleep(OUTPUT_DRAIN_SECONDS)
        self._muted = True
        self._echoing.cancel()

    async def _kill_when_forced(self, child: Child) -> None:
        await self._cancellation.forced.wait()
        await child.kill()

    def fail(self, error: ShopfloorError) -> None:
        if self.failure is None:
            self.failure = error


def exit_result(ended: Exit | None) -> dict[str, int | str | bool] | None:
    """How a command ended, as its step says it."""
    if ended is None:
        return None
    result: dict[str, int | str | bool] = {"exit_code": ended.shell_code}
    if ended.signal is not None:
        result["signal"] = ended.signal
    if ended.outlived:
        result["outlived"] = True
    return result


def failure_reason(ended: Exit | None) -> str | None:
    """What is wrong with how a command ended; None where nothing is."""
    if ended is None or ended.shell_code == 0:
        return None
    return f"exit code {ended.code}" if ended.signal is None else f"killed by {ended.signal}"
