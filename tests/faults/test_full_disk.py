"""A disk that fills up while a run is recorded: a small tmpfs in a mount namespace of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.test_run import events_of, output_of, processes_with

BIN = Path(sys.executable).parent


def on_small_disk(tmp_path: Path, size: str, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a script with $DISK, a disk of that size, as the storage; what it copies to $OUT stays."""
    disk, out = tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    out.mkdir()
    return subprocess.run(
        ["unshare", "-rm", "bash", "-c", f'mount -t tmpfs -o mode=700,size={size} tmpfs "$DISK" || exit 99; {script}'],
        env={
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "DISK": str(disk),
            "OUT": str(out),
            "SHOPFLOOR_STORAGE": str(disk),
            **env,
        },
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_writing_goes_on_when_there_is_room_again_and_nothing_is_lost(tmp_path: Path):
    script = """
        head -c 400k /dev/zero > $DISK/ballast
        (
            until [ $(df --output=avail -B1 $DISK | tail -1) -lt 20000 ]; do sleep 0.05; done
            cp $DISK/transcripts/*.jsonl $OUT/full
            sleep 0.5
            rm $DISK/ballast
        ) &
        shopfloor run -q --command 'seq 1 60000'; code=$?
        wait; cp $DISK/transcripts/*.jsonl $OUT/; exit $code
    """
    done = on_small_disk(tmp_path, "800k", script, SHOPFLOOR_DISK_LOW_WATER="0")
    assert done.returncode == 0, done.stderr
    expected = "".join(f"{number}\n" for number in range(1, 60001))
    assert done.stdout == expected
    (path,) = (tmp_path / "out").glob("*.jsonl")
    events = events_of(path)
    assert output_of(events, "stdout") == expected
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["payload"]["status"] == "completed"
    full = (tmp_path / "out" / "full").read_bytes()
    assert full.endswith(b"\n")
    assert path.read_bytes().startswith(full)


def test_a_disk_that_stays_full_ends_the_run_with_a_clear_error_and_a_valid_file(tmp_path: Path):
    script = """
        shopfloor run --command 'seq 1 100000000'; code=$?
        cp $DISK/transcripts/*.jsonl $OUT/; exit $code
    """
    mark = f"full-{os.getpid()}"
    done = on_small_disk(tmp_path, "300k", script, SHOPFLOOR_DISK_LOW_WATER="0", SF_TEST=mark)
    assert done.returncode == 6, done.stderr
    assert "error[storage_full]: cannot write to" in done.stderr
    assert "hint: free some space" in done.stderr
    assert "Traceback" not in done.stderr
    assert processes_with(mark) == []
    (path,) = (tmp_path / "out").glob("*.jsonl")
    events = events_of(path)
    assert output_of(events, "stdout") == done.stdout
    verified = subprocess.run([BIN / "shopfloor", "verify", path], capture_output=True, text=True)
    assert "valid, without an outcome" in verified.stdout


def test_below_the_low_water_mark_a_running_run_ends_while_it_can_be_recorded(tmp_path: Path):
    script = """
        shopfloor run --command 'while :; do seq 1 1000; sleep 0.02; done' >/dev/null; code=$?
        cp $DISK/transcripts/*.jsonl $OUT/; exit $code
    """
    done = on_small_disk(tmp_path, "1500k", script, SHOPFLOOR_DISK_LOW_WATER="1000000")
    assert done.returncode == 6, done.stderr
    (path,) = (tmp_path / "out").glob("*.jsonl")
    outcome = events_of(path)[-1]["payload"]
    assert outcome["status"] == "failed"
    assert outcome["error"]["code"] == "storage_full"
    assert outcome["error"]["retryable"] is True


def test_a_storage_that_cannot_be_written_is_a_clear_error(tmp_path: Path):
    script = 'mount -o remount,ro "$DISK"; shopfloor run --command true'
    done = on_small_disk(tmp_path, "300k", script)
    assert done.returncode == 6
    assert done.stderr.startswith("error[storage_unwritable]: cannot make the folder")
