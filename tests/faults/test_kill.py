"""SIGKILL at any moment: no acknowledged event is lost, no line is torn, no process is left."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.test_run import events_of, output_of, processes_with
from tests.faults.appender import append_until_killed
from tests.faults.engine_process import fork_context
from tests.timeouts import wait_until

from shopfloor.log import Verifier, decode, new_run_id
from shopfloor.record import Durability, Recorder, Storage, read

SHOPFLOOR = str(Path(sys.executable).parent / "shopfloor")
LONG = os.environ.get("SHOPFLOOR_TEST_LONG") == "1"
KILLS = 10_000 if LONG else 210
AT_ONCE = 3
LIVES = 10
"""How often a log is reopened after a kill before a new log is used."""


def kill_once(path: Path, level: Durability, rng: random.Random) -> int:
    """Start an appender, kill it, and return the last event that it had acknowledged."""
    reading, writing = fork_context.Pipe(duplex=False)
    appender = fork_context.Process(target=append_until_killed, args=(path, level, rng.randrange(2**32), writing))
    appender.start()
    writing.close()
    with open(os.dup(reading.fileno()), "rb", buffering=0) as acknowledgements:
        reading.close()
        acknowledged = acknowledgements.read(8)
        assert acknowledged, "the appender died by itself"
        time.sleep(rng.random() * 0.03)
        appender.kill()
        acknowledged += acknowledgements.readall()
    appender.join()
    appender.close()
    return int.from_bytes(acknowledged[len(acknowledged) // 8 * 8 - 8 :][:8], "big")


@pytest.mark.req("TR-3", "TR-5")
@pytest.mark.parametrize("part", range(7))
def test_every_acknowledged_event_survives_a_kill_and_the_log_continues(storage: Storage, part: int):
    rng = random.Random(part)
    path, acknowledged_lines, torn = storage.log_path(new_run_id()), list[bytes](), 0
    for plan in range(KILLS // 7):
        level = rng.choice(list(Durability))
        acknowledged = kill_once(path, level, rng)
        with Recorder(path, path.stem) as recorder:
            torn += recorder.repaired is not None
        after = [entry.raw for entry in read(path)]
        known = len(acknowledged_lines)
        assert after[:known] == acknowledged_lines
        # The lines before were decoded in their turn.
        assert [decode(raw).seq for raw in after[known:]] == list(range(known + 1, len(after) + 1))
        assert len(after) >= acknowledged
        acknowledged_lines = after
        if plan % LIVES == LIVES - 1:
            verifier = Verifier(path.stem)
            with path.open("rb") as file:
                assert [problem for line in file for problem in verifier.line(line)] == []
            path.unlink()
            path, acknowledged_lines = storage.log_path(new_run_id()), []
    print(f"{torn} torn tails were repaired")


@pytest.mark.parametrize("part", range(4))
def test_a_killed_recorder_leaves_no_process_behind_and_a_log_of_all_that_was_seen(tmp_path: Path, part: int):
    """Most of the time goes by while the processes of a killed recorder are ended, so several are killed at once."""
    rng = random.Random(part)
    pauses = [rng.random() * 0.05 for _ in range(250 if LONG else 6)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        checks = [
            pool.submit(kill_recorder, tmp_path / str(number), f"killed-{os.getpid()}-{part}-{number}", pause)
            for number, pause in enumerate(pauses)
        ]
        for check in checks:
            check.result()


def kill_recorder(storage: Path, mark: str, pause: float) -> None:
    env = {**os.environ, "SHOPFLOOR_STORAGE": str(storage), "SF_TEST": mark}
    script = (
        "sleep 300 & setsid sleep 301 & (setsid sh -c 'trap \"\" TERM; sleep 302; true' &) ;"
        " i=0; while :; do i=$((i+1)); echo line $i; done"
    )
    process = subprocess.Popen([SHOPFLOOR, "run", "--command", script], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    seen = os.read(process.stdout.fileno(), 100)
    time.sleep(pause)
    process.kill()
    seen += process.stdout.read()
    process.wait()
    process.stdout.close()
    wait_until(lambda: processes_with(mark) == [], "every process to be gone")
    (path,) = (storage / "transcripts").glob("*.jsonl")
    with Recorder(path, path.stem):
        pass
    events = events_of(path)
    assert output_of(events, "stdout").startswith(seen.decode())
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_children_of_a_host_that_died_with_its_reaper_are_ended_by_the_next_host(tmp_path: Path):
    mark = f"both-{os.getpid()}"
    env = {**os.environ, "SHOPFLOOR_STORAGE": str(tmp_path), "SF_TEST": mark}
    process = subprocess.Popen(
        [SHOPFLOOR, "run", "--command", "setsid sleep 300 & echo ready; sleep 301"], env=env, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    reapers = [pid for pid in children_of(process.pid) if b"reaper.py" in cmdline(pid)]
    assert len(reapers) == 1
    os.kill(reapers[0], signal.SIGKILL)
    process.kill()
    process.communicate()
    wait_until(lambda: len(processes_with(mark)) >= 2, "the children to be there, without their host")
    subprocess.run([SHOPFLOOR, "run", "-q", "--command", "true"], env={**env, "SF_TEST": "other"}, check=True)
    assert processes_with(mark) == []
    assert list((tmp_path / "hosts").iterdir()) == []


def test_a_reaper_that_was_killed_is_replaced_before_the_next_child(tmp_path: Path):
    script = f"""
import anyio, os, signal, sys
from pathlib import Path
from shopfloor.adapters.local import LocalHost, LocalProcesses
from shopfloor.ports import Command
from shopfloor.record import Storage

async def main(host):
    os.kill(host.reaper_pid, signal.SIGKILL)
    os.waitid(os.P_PID, host.reaper_pid, os.WEXITED | os.WNOWAIT)
    async with LocalProcesses(host).start(Command(argv=["sleep", "300"], cwd="/"), run_id="r") as child:
        child.release()
        print("started", flush=True)
        await child.wait()

with LocalHost(Storage(Path({str(tmp_path)!r}))) as host:
    anyio.run(main, host)
"""
    mark = f"reaper-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, "SF_TEST": mark}, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    process.kill()
    process.communicate()
    wait_until(lambda: processes_with(mark) == [], "the child to be ended by the second reaper")


def children_of(parent: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()
