"""A shell command on its way: started behind a gate, heard and recorded, stopped when that is asked for."""

from __future__ import annotations

import math
import shlex
from collections.abc import Awaitable, Callable

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt, Trying
from shopfloor.engine.cancel import Cancellation
from shopfloor.engine.output import Output
from shopfloor.errors import ProcessError, ShopfloorError, StorageError
from shopfloor.limits import ECHO_GRACE_SECONDS, OUTPUT_JOIN_SECONDS, STOP_GRACE_SECONDS
from shopfloor.log import AssistantMessage, CommandBlock, Process, UserMessage
from shopfloor.ports import Child, Command, Exit, Piece, Processes

SHELL = "/bin/sh"

Echo = Callable[[list[Piece]], Awaitable[None]]
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


class Serving:
    """One command from its start to its exit. Nothing is raised across the tasks: a failure is noted and ends it."""

    def __init__(
        self,
        command: StepCommand,
        attempt: Attempt,
        trying: Trying,
        *,
        cancellation: Cancellation,
        output: Output,
        echo: Echo | None = None,
    ) -> None:
        self._command = command
        self._attempt = attempt
        self._trying = trying
        self._cancellation = cancellation
        self._output = output
        self._echo = echo
        self._echoing = anyio.CancelScope()
        self._muted = False
        self.failure: ShopfloorError | None = None
        """The first thing that went wrong on our side."""

    async def serve(self, processes: Processes) -> Exit | None:
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
        await self._attempt.append(UserMessage(blocks=[block]), self._trying.place)
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
        await self._attempt.append(AssistantMessage(blocks=[*blocks]), self._trying.place)
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
        await anyio.sleep(ECHO_GRACE_SECONDS)
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


def complaint(ended: Exit | None) -> str | None:
    """What is wrong with how a command ended; None where nothing is."""
    if ended is None or ended.shell_code == 0:
        return None
    return f"exit code {ended.code}" if ended.signal is None else f"killed by {ended.signal}"
