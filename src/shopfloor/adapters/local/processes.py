"""Commands as children of ours: started behind a gate, heard on both pipes, ended with all they started."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import uuid
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import anyio
import anyio.to_thread
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from shopfloor.adapters.local import reaper
from shopfloor.adapters.local.hosts import LocalHost
from shopfloor.errors import CommandNotFound, ProcessError
from shopfloor.limits import (
    ENDED_PROCESSES,
    KILL_GRACE_SECONDS,
    LEFTOVER_GRACE_SECONDS,
    OUTPUT_JOIN_BYTES,
    PROCESS_POLL_SECONDS,
)
from shopfloor.log import EndedProcess
from shopfloor.ports import Command, Exit, OutputChunk, StreamName, child_environment

# The gate: a shell that waits for a word on a pipe of ours and then becomes the program. So the pid is known, and on
# record, before the program does anything; and should we die before the word, it never runs.
_GATE = ("/bin/sh", "-c", 'gate=$1; shift; read -r go <"$gate" && exec "$@"', "shopfloor-gate")
_OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The limit that we were started with. A server raises its own; children get this one back."""
_STDIN = 0
_PENDING_PIECES = 16


class LocalChild:
    def __init__(self, host: LocalHost, popen: subprocess.Popen[bytes], mark: str, gate: int) -> None:
        """`gate` is the pipe on which the program waits for its release; the child closes it."""
        self._host = host
        self._popen = popen
        self._gate: int | None = gate
        self._marker = f"{reaper.CHILD_MARKER}={mark}"
        self._exit: Exit | None = None
        self._over = anyio.Event()
        self._silent = anyio.Event()
        self._open_pipes = 2
        self._send: MemoryObjectSendStream[OutputChunk]
        self._receive: MemoryObjectReceiveStream[OutputChunk]
        self._send, self._receive = anyio.create_memory_object_stream[OutputChunk](_PENDING_PIECES)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def release(self) -> None:
        if self._gate is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._gate, b"go\n")
            self._close_gate()

    def _close_gate(self) -> None:
        if self._gate is not None:
            gate, self._gate = self._gate, None
            os.close(gate)

    async def read(self) -> OutputChunk | None:
        try:
            return await self._receive.receive()
        except anyio.EndOfStream:
            return None

    async def wait(self) -> Exit:
        await self._over.wait()
        if self._exit is None:
            raise ProcessError(f"process {self.pid} could not be ended")
        return self._exit

    async def stop(self, grace: float) -> None:
        await self._end(grace)

    async def _end(self, grace: float, signaled: dict[int, reaper.SignaledProcess] | None = None) -> None:
        is_gone = await anyio.to_thread.run_sync(
            partial(
                reaper.terminate,
                {self.pid},
                self._marker,
                grace=grace,
                kill_timeout=KILL_GRACE_SECONDS,
                pause=PROCESS_POLL_SECONDS,
                signaled=signaled,
            ),
            abandon_on_cancel=True,
        )
        if not is_gone:
            self._host.reap_marked(self._marker)

    async def kill(self) -> None:
        await self.stop(grace=0)

    async def watch(self) -> None:
        """From the start to the end: both pipes, the exit, and what is left after it."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listen, "stdout", _descriptor(self._popen.stdout))
            tasks.start_soon(self._listen, "stderr", _descriptor(self._popen.stderr))
            self._exit = await _exited(self._popen)
            # Whoever holds the pipes still may have something to say; then the family is over.
            with anyio.move_on_after(LEFTOVER_GRACE_SECONDS):
                await self._silent.wait()
            outlived: dict[int, reaper.SignaledProcess] = {}
            await self._end(LEFTOVER_GRACE_SECONDS, outlived)
            self._exit = msgspec.structs.replace(self._exit, ended_processes=_ended_processes(outlived))
            with anyio.move_on_after(LEFTOVER_GRACE_SECONDS):
                await self._silent.wait()
            if not self._silent.is_set():
                # Whoever still holds our pipes hides from us: another session, another environment.
                self._exit = msgspec.structs.replace(self._exit, outlived=True)
            tasks.cancel_scope.cancel()
        self._send.close()
        self._over.set()

    async def _listen(self, stream: StreamName, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        while True:
            try:
                data = os.read(descriptor, OUTPUT_JOIN_BYTES)
            except BlockingIOError:
                await anyio.wait_readable(descriptor)
                continue
            if not data:
                break
            await self._send.send(OutputChunk(stream, data))
        self._open_pipes -= 1
        if not self._open_pipes:
            self._send.close()
            self._silent.set()

    def dispose(self) -> None:
        self._close_gate()
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._send.close()
        self._receive.close()
        # Killed by now; a zombie otherwise.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(KILL_GRACE_SECONDS)


class LocalProcesses:
    def __init__(self, host: LocalHost) -> None:
        self._host = host

    @asynccontextmanager
    async def start(self, command: Command, *, run_id: str) -> AsyncGenerator[LocalChild]:
        # Of its own: a run may have several children at once, and one that ends must not take the others with it.
        mark = uuid.uuid4().hex
        popen, gate = self._spawn(command, run_id, mark)
        child = LocalChild(self._host, popen, mark, gate)
        self._host.register_group(popen.pid)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child.watch)
                try:
                    yield child
                finally:
                    with anyio.CancelScope(shield=True):
                        await child.kill()
                    tasks.cancel_scope.cancel()
        finally:
            child.dispose()
            self._host.release(popen.pid)

    def _spawn(self, command: Command, run_id: str, mark: str) -> tuple[subprocess.Popen[bytes], int]:
        """The process, waiting at its gate, and our end of the gate."""
        marks = dict(zip(reaper.MARKERS, (self._host.id, run_id, mark), strict=True))
        env = {**child_environment(os.environ), **command.env, **marks}
        if not Path(command.cwd).is_dir():
            raise CommandNotFound(f"there is no folder {command.cwd}", hint="name one that exists with --cwd")
        if shutil.which(command.argv[0], path=env.get("PATH")) is None:
            raise CommandNotFound(f"there is no program {command.argv[0]!r}", hint="install it, or check PATH")
        try:
            with _gate() as (theirs, ours), _stdin_of(command) as stdin:
                popen = subprocess.Popen(
                    [*_GATE, f"/dev/fd/{theirs}", *command.argv],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(theirs,),
                    bufsize=0,
                    cwd=command.cwd,
                    env=env,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise ProcessError(f"cannot start {command.argv[0]!r}: {error}") from error
        _restore_open_files(popen.pid)
        return popen, ours


def _restore_open_files(pid: int) -> None:
    """Give a child that waits at its gate the limit of open files that our own user set, where the system can."""
    if hasattr(resource, "prlimit") and resource.getrlimit(resource.RLIMIT_NOFILE) != _OPEN_FILES:
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _OPEN_FILES)


@contextmanager
def _gate() -> Generator[tuple[int, int]]:
    """Both ends of a pipe: the child's, which is closed here afterwards, and ours, which is closed on failure only."""
    theirs, ours = os.pipe()
    try:
        yield theirs, ours
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)


@contextmanager
def _stdin_of(command: Command) -> Generator[int]:
    """The descriptor that the program reads as its standard input."""
    if command.inherits_stdin:
        yield _STDIN
    elif not command.stdin:
        yield subprocess.DEVNULL
    else:
        import tempfile

        # A file without a name: a program may take its time to read it.
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(command.stdin)
            file.seek(0)
            yield file.fileno()


def _ended_processes(signaled: dict[int, reaper.SignaledProcess]) -> list[EndedProcess]:
    return [
        EndedProcess(
            pid=pid,
            command=argv[0] if argv else "",
            args=argv[1:],
            signal="SIGKILL" if number == signal.SIGKILL else "SIGTERM",
        )
        for pid, (argv, number) in [*signaled.items()][:ENDED_PROCESSES]
    ]


def _descriptor(pipe: IO[bytes] | None) -> int:
    if pipe is None:
        raise ProcessError("a child was started without its pipes")
    return pipe.fileno()


def _process_descriptor(pid: int) -> int | None:
    """A descriptor that is readable once the process has ended; None where the system has none, or none is left."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


async def _exited(popen: subprocess.Popen[bytes]) -> Exit:
    """Waits for the process without a thread where the system can (Linux), else with one."""
    descriptor = _process_descriptor(popen.pid)
    if descriptor is not None:
        try:
            await anyio.wait_readable(descriptor)
        finally:
            os.close(descriptor)
        code = popen.wait()
    else:
        code = await anyio.to_thread.run_sync(popen.wait, abandon_on_cancel=True)
    if code >= 0:
        return Exit(code)
    try:
        return Exit(-code, signal.Signals(-code).name)
    except ValueError:
        # A real-time signal between the two that have names.
        return Exit(-code, f"signal {-code}")
