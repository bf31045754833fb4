"""Commands as child processes: started behind a gate, read on both pipes, terminated with all their descendants."""

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

from shopfloor.adapters.limits import ENDED_PROCESSES, KILL_GRACE_SECONDS, LEFTOVER_GRACE_SECONDS, PROCESS_POLL_SECONDS
from shopfloor.adapters.local import reaper
from shopfloor.adapters.local.hosts import LocalHost
from shopfloor.errors import CommandNotFound, ProcessError
from shopfloor.limits import OUTPUT_JOIN_BYTES
from shopfloor.log import EndedProcess
from shopfloor.ports import Command, Exit, OutputChunk, StreamName, child_environment

# The gate: a shell that waits for a line on a pipe from this process and then executes the program. So the pid is known
# and in the log before the program does anything; and if this process dies before that, the program never runs.
_GATE = ("/bin/sh", "-c", 'gate=$1; shift; read -r go <"$gate" && exec "$@"', "shopfloor-gate")
_OPEN_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
"""The limit that this process was started with. A server raises its own; children get this one back."""
_STDIN = 0
_PENDING_CHUNKS = 16


class LocalChild:
    """Implements `Child` with a process of this machine."""

    def __init__(self, host: LocalHost, popen: subprocess.Popen[bytes], marker_id: str, gate: int) -> None:
        """Take ownership of `popen` and of `gate`, the pipe on which the program waits for its release."""
        self._host = host
        self._popen = popen
        self._gate: int | None = gate
        self._marker = f"{reaper.CHILD_MARKER}={marker_id}"
        self._exit: Exit | None = None
        self._ended = anyio.Event()
        self._pipes_closed = anyio.Event()
        self._open_pipes = 2
        self._send: MemoryObjectSendStream[OutputChunk]
        self._receive: MemoryObjectReceiveStream[OutputChunk]
        self._stdin_lock = anyio.Lock()
        self._send, self._receive = anyio.create_memory_object_stream[OutputChunk](_PENDING_CHUNKS)

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

    async def write(self, data: bytes) -> None:
        pipe = self._popen.stdin
        async with self._stdin_lock:
            # A program that has ended, or has closed its standard input, gets nothing more.
            while data and pipe is not None and not pipe.closed:
                try:
                    data = data[os.write(pipe.fileno(), data) :]
                except BlockingIOError:
                    await anyio.wait_writable(pipe.fileno())
                except OSError:
                    return

    def close_stdin(self) -> None:
        if self._popen.stdin is not None:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()

    async def wait(self) -> Exit:
        await self._ended.wait()
        if self._exit is None:
            raise ProcessError(f"process {self.pid} could not be terminated")
        return self._exit

    async def stop(self, grace: float) -> None:
        await self._terminate(grace)

    async def _terminate(self, grace: float, signaled: dict[int, reaper.SignaledProcess] | None = None) -> None:
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
        """Read both pipes, wait for the exit, then terminate the descendants that are still running."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_pipe, "stdout", _descriptor(self._popen.stdout))
            tasks.start_soon(self._read_pipe, "stderr", _descriptor(self._popen.stderr))
            self._exit = await _wait_for_exit(self._popen)
            # Descendants that hold the pipes may still print output; after that they are terminated.
            with anyio.move_on_after(LEFTOVER_GRACE_SECONDS):
                await self._pipes_closed.wait()
            outlived: dict[int, reaper.SignaledProcess] = {}
            await self._terminate(LEFTOVER_GRACE_SECONDS, outlived)
            self._exit = msgspec.structs.replace(self._exit, ended_processes=_ended_processes(outlived))
            with anyio.move_on_after(LEFTOVER_GRACE_SECONDS):
                await self._pipes_closed.wait()
            if not self._pipes_closed.is_set():
                # A process still holds the pipes but cannot be found: it has another session and environment.
                self._exit = msgspec.structs.replace(self._exit, outlived=True)
            tasks.cancel_scope.cancel()
        self._send.close()
        self._ended.set()

    async def _read_pipe(self, stream: StreamName, descriptor: int) -> None:
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
            self._pipes_closed.set()

    def dispose(self) -> None:
        """Close the pipes and reap the process, which has been killed."""
        self._close_gate()
        for pipe in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._send.close()
        self._receive.close()
        # Without `wait` the killed process would remain as a zombie.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(KILL_GRACE_SECONDS)


class LocalProcesses:
    """Implements `Processes` with child processes of this host."""

    def __init__(self, host: LocalHost) -> None:
        self._host = host

    @asynccontextmanager
    async def start(self, command: Command, *, run_id: str | None) -> AsyncGenerator[LocalChild]:
        # One marker per child: a run may have several, and terminating one must not affect the others.
        marker_id = uuid.uuid4().hex
        popen, gate = self._spawn(command, run_id, marker_id)
        child = LocalChild(self._host, popen, marker_id, gate)
        self._host.register_group(popen.pid)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child.watch)
                if command.keeps_stdin_open:
                    # In a task: the program may read it late.
                    tasks.start_soon(child.write, command.stdin)
                try:
                    yield child
                finally:
                    with anyio.CancelScope(shield=True):
                        await child.kill()
                    tasks.cancel_scope.cancel()
        finally:
            child.dispose()
            self._host.unregister_group(popen.pid)

    def _spawn(self, command: Command, run_id: str | None, marker_id: str) -> tuple[subprocess.Popen[bytes], int]:
        """Start the process behind its gate. Return the process and the writing end of the gate."""
        values = zip(reaper.MARKERS, (self._host.id, run_id, marker_id), strict=True)
        markers = {name: value for name, value in values if value is not None}
        env = {**child_environment(os.environ), **command.env, **markers}
        if not Path(command.cwd).is_dir():
            raise CommandNotFound(f"there is no folder {command.cwd}", hint="use an existing folder with --cwd")
        if shutil.which(command.argv[0], path=env.get("PATH")) is None:
            raise CommandNotFound(f"there is no program {command.argv[0]!r}", hint="install it, or check PATH")
        try:
            with _gate_pipe() as (child_end, parent_end), _open_stdin(command) as stdin:
                popen = subprocess.Popen(
                    [*_GATE, f"/dev/fd/{child_end}", *command.argv],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(child_end,),
                    bufsize=0,
                    cwd=command.cwd,
                    env=env,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise ProcessError(f"cannot start {command.argv[0]!r}: {error}") from error
        if popen.stdin is not None:
            os.set_blocking(popen.stdin.fileno(), False)
        _restore_open_files(popen.pid)
        return popen, parent_end


def _restore_open_files(pid: int) -> None:
    """Reset the open files limit of a child behind its gate to the one this process started with, if possible."""
    if hasattr(resource, "prlimit") and resource.getrlimit(resource.RLIMIT_NOFILE) != _OPEN_FILES:
        with contextlib.suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, _OPEN_FILES)


@contextmanager
def _gate_pipe() -> Generator[tuple[int, int]]:
    """Open the pipe of a gate: closes the child's end on exit, and the parent's end on failure only."""
    child_end, parent_end = os.pipe()
    try:
        yield child_end, parent_end
    except BaseException:
        os.close(parent_end)
        raise
    finally:
        os.close(child_end)


@contextmanager
def _open_stdin(command: Command) -> Generator[int]:
    """Open the descriptor that the program reads as its standard input."""
    if command.inherits_stdin:
        yield _STDIN
    elif command.keeps_stdin_open:
        yield subprocess.PIPE
    elif not command.stdin:
        yield subprocess.DEVNULL
    else:
        import tempfile

        # An unnamed file, not a pipe: the program may read it at any time, and nothing blocks until then.
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
        raise ProcessError("a child process was started without pipes")
    return pipe.fileno()


def _process_descriptor(pid: int) -> int | None:
    """Return a descriptor that is readable once the process has ended, or None if the system cannot provide one."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


async def _wait_for_exit(popen: subprocess.Popen[bytes]) -> Exit:
    """Wait for the process, without a thread if the system supports it (Linux), else in a thread."""
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
        # A real-time signal between SIGRTMIN and SIGRTMAX, which has no name.
        return Exit(-code, f"signal {-code}")
