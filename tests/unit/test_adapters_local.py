"""Child processes: the gate, the pipes, termination; hosts; announcements and deletion of logs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from tests.cli.test_run import processes_with
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.local import LocalHost, LocalLogs, LocalProcesses
from shopfloor.errors import CommandNotFound, ProcessError, StorageError
from shopfloor.log import RunStarted, new_run_id
from shopfloor.ports import Command, Exit
from shopfloor.record import Recorder, Storage, is_locked


@pytest.fixture
def host(storage: Storage):
    with LocalHost(storage) as host:
        yield host


def sh(script: str, **env: str) -> Command:
    return Command(argv=["/bin/sh", "-c", script], cwd="/", env=env)


def test_a_child_does_nothing_until_it_is_released(host: LocalHost, tmp_path: Path):
    async def main() -> None:
        async with LocalProcesses(host).start(sh(f"touch {tmp_path}/ran"), run_id=new_run_id()) as child:
            await anyio.sleep(0.1)
            assert not (tmp_path / "ran").exists()
            child.release()
            assert await child.wait() == Exit(0)
        assert (tmp_path / "ran").exists()

    anyio.run(main)


def test_a_child_that_is_never_released_never_runs(host: LocalHost, tmp_path: Path):
    async def main() -> int:
        async with LocalProcesses(host).start(sh(f"touch {tmp_path}/ran"), run_id=new_run_id()) as child:
            return child.pid

    pid = anyio.run(main)
    assert not (tmp_path / "ran").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_the_pid_is_that_of_the_program(host: LocalHost):
    async def main() -> None:
        async with LocalProcesses(host).start(sh("echo $$"), run_id=new_run_id()) as child:
            child.release()
            piece = await child.read()
            assert piece is not None
            assert int(piece.data) == child.pid
            assert await child.read() is None

    anyio.run(main)


def test_a_child_has_its_own_session_and_the_markers(host: LocalHost):
    run_id = new_run_id()

    async def main() -> bytes:
        script = "echo $SHOPFLOOR_HOST $SHOPFLOOR_RUN $EXTRA; ps -o sid= -p $$"
        async with LocalProcesses(host).start(sh(script, EXTRA="more"), run_id=run_id) as child:
            child.release()
            output = b""
            while piece := await child.read():
                output += piece.data
            assert os.getsid(0) != child.pid
            assert int(output.split()[-1]) == child.pid
            return output

    assert anyio.run(main).decode().split()[:3] == [host.id, run_id, "more"]


def test_exiting_the_context_terminates_all_descendants(host: LocalHost):
    mark = f"family-{os.getpid()}"

    async def main() -> None:
        script = "sleep 300 & setsid sleep 301 & echo ready; wait"
        async with LocalProcesses(host).start(sh(script, SF_TEST=mark), run_id=new_run_id()) as child:
            child.release()
            await child.read()
            # The environment of a process can be read only after its program has started.
            with anyio.fail_after(TIMEOUT_SECONDS):
                while len(processes_with(mark)) < 3:
                    await anyio.sleep(0.02)

    anyio.run(main)
    assert processes_with(mark) == []


def test_signals_are_reported_by_name(host: LocalHost):
    async def main() -> Exit:
        async with LocalProcesses(host).start(sh("kill -USR1 $$"), run_id=new_run_id()) as child:
            child.release()
            return await child.wait()

    ended = anyio.run(main)
    assert ended == Exit(signal.SIGUSR1, "SIGUSR1")
    assert ended.shell_code == 128 + signal.SIGUSR1


@pytest.mark.parametrize(
    "command", [Command(argv=["no-such-program"], cwd="/"), Command(argv=["true"], cwd="/nowhere")]
)
def test_a_missing_folder_or_program_is_an_error_before_anything_runs(host: LocalHost, command: Command):
    async def main() -> None:
        async with LocalProcesses(host).start(command, run_id=new_run_id()):
            pass

    with pytest.raises(CommandNotFound):
        anyio.run(main)


def test_an_invalid_environment_is_a_clear_error(host: LocalHost):
    async def main() -> None:
        async with LocalProcesses(host).start(sh("true", BAD="nul \0"), run_id=new_run_id()):
            pass

    with pytest.raises(ProcessError, match="cannot start"):
        anyio.run(main)


def test_many_children_at_once(host: LocalHost):
    async def echo(number: int, output: dict[int, bytes]) -> None:
        async with LocalProcesses(host).start(sh(f"echo {number}"), run_id=new_run_id()) as child:
            child.release()
            while piece := await child.read():
                output[number] = output.get(number, b"") + piece.data
            assert await child.wait() == Exit(0)

    async def main() -> dict[int, bytes]:
        output: dict[int, bytes] = {}
        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(echo, number, output)
        return output

    assert anyio.run(main) == {number: b"%d\n" % number for number in range(30)}


def test_a_host_is_identified_by_its_lock_and_leaves_no_file(storage: Storage):
    with LocalHost(storage) as host:
        (path,) = storage.hosts.iterdir()
        assert path.stem == host.id
        assert is_locked(path)
        reaper = host.reaper_pid
        host.close()
    assert list(storage.hosts.iterdir()) == []
    assert not Path(f"/proc/{reaper}").exists()


def test_a_log_is_announced_at_each_opening_after_it_exists(storage: Storage):
    logs = LocalLogs(storage)
    run_id = new_run_id()

    async def main() -> None:
        for times in (1, 2):
            async with logs.open(run_id) as log:
                assert storage.announced_since(0)[0] == [run_id] * times
                assert storage.log_path(run_id).exists()
                if not log.recorder.seq:
                    await log.append(RunStarted(name="w", kind="command", attempt=1, host="h"))
        # A reader that continues from an offset gets only later announcements.
        place = storage.announced_since(0)[1]
        async with logs.open(other := new_run_id()):
            assert storage.announced_since(place)[0] == [other]

    anyio.run(main)


def test_a_log_is_deleted_with_its_torn_files_and_announced_on_request(storage: Storage):
    run_id = new_run_id()
    with Recorder(storage.log_path(run_id), run_id) as recorder:
        recorder.append(RunStarted(name="w", kind="command", attempt=1, host="h"))
    for suffix in (".torn", ".torn-2"):
        storage.log_path(run_id).with_suffix(suffix).write_bytes(b"half a line")
    anyio.run(LocalLogs(storage).delete, run_id)
    assert list(storage.transcripts.iterdir()) == []
    assert storage.announced_since(0)[0] == []
    anyio.run(LocalLogs(storage).announce_deletion, run_id)
    assert storage.announced_since(0)[0] == [run_id]


def test_a_log_is_deleted_even_if_that_cannot_be_announced(storage: Storage):
    run_id = new_run_id()
    with Recorder(storage.log_path(run_id), run_id) as recorder:
        recorder.append(RunStarted(name="w", kind="command", attempt=1, host="h"))
    storage.announcements.mkdir()
    anyio.run(LocalLogs(storage).delete, run_id)
    anyio.run(LocalLogs(storage).announce_deletion, run_id)
    assert list(storage.transcripts.iterdir()) == []


def test_a_log_that_cannot_be_deleted_is_a_storage_error(storage: Storage):
    run_id = new_run_id()
    storage.log_path(run_id).mkdir(parents=True)
    with pytest.raises(StorageError, match="cannot delete"):
        anyio.run(LocalLogs(storage).delete, run_id)


def test_a_child_whose_input_stays_open_gets_more_of_it_until_it_is_closed(host: LocalHost):
    large = b"x" * 200_000 + b"\n"

    async def main() -> tuple[bytes, Exit]:
        command = Command(argv=["cat"], cwd="/", stdin=b"first\n", keeps_stdin_open=True)
        async with LocalProcesses(host).start(command, run_id=new_run_id()) as child:
            child.release()
            read = b""
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child.write, large)
                while not read.endswith(large):
                    piece = await child.read()
                    assert piece is not None
                    read += piece.data
            child.close_stdin()
            assert await child.read() is None
            await child.write(b"too late\n")
            return read, await child.wait()

    assert anyio.run(main) == (b"first\n" + large, Exit(0))
