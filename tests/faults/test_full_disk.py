"""A disk that fills up while a run is recorded: a small tmpfs in a private mount namespace."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_run import events_of, output_of, processes_with
from tests.sample_events import ROOT
from tests.shorter_limits import shopfloor_with

BIN = Path(sys.executable).parent


def on_small_disk(tmp_path: Path, size: str, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script with $DISK, a disk of that size, as the storage; files that it copies to $OUT are kept."""
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


def test_writing_continues_when_there_is_space_again_and_nothing_is_lost(tmp_path: Path):
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
    script = f"""
        {shlex.join(shopfloor_with({"STORAGE_FULL_TIMEOUT_SECONDS": 1.0}))} run --command 'seq 1 100000000'; code=$?
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
    assert done.stderr.startswith("error[storage_unwritable]: cannot create the folder")


REQUESTS = """
import json, subprocess, sys, time
from pathlib import Path
import httpx
from shopfloor.record import Storage
from tests.login import token_of, url_of

disk, out, folder = map(Path, sys.argv[1:])
worker = folder / "workers" / "question" / "worker.yaml"
worker.parent.mkdir(parents=True)
worker.write_text(
    "tools: {measure: {description: Measures., parameters: {what: {type: string}}}}\\n"
    "steps: {Measure: {block: tool-call, tool: measure, input: {what: fence}}}"
)
worker = folder / "workers" / "quick" / "worker.yaml"
worker.parent.mkdir(parents=True)
worker.write_text("steps: {Say: {block: command, command: echo quick}}")
up = subprocess.Popen(["shopfloor", "up", "--port", "0", "--workers", str(folder / "workers")], stdout=subprocess.PIPE)
url = url_of(up.stdout.readline().decode())
headers = {"Authorization": f"Bearer {token_of(Storage(disk))}"}
with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
    made = {name: http.post("/api/runs", json={"worker": name}).json()["run_id"] for name in ("question", "quick")}
    def status(name):
        asked = {"worker_id": made[name], "transcript": False}
        return http.get("/api/agents/workers/detail", params=asked).json()
    while status("question")["status"] != "waiting" or status("quick")["status"] != "done":
        time.sleep(0.1)
    call_id = status("question")["awaits"][0]["call_id"]
    ballast = (disk / "ballast").open("wb", buffering=0)
    try:
        while True:
            ballast.write(bytes(512))
    except OSError:
        pass
    asking, ended = (f"/api/runs/{made[name]}" for name in ("question", "quick"))
    answers = {
        "dispatch": http.post("/api/runs", json={"worker": "quick"}),
        "execute": http.post("/api/agents/quick/execute", json={"type": "start"}),
        "answer": http.post(f"{asking}/answer", json={"call_id": call_id, "answer": "yes"}),
        "cancel": http.post(f"{asking}/cancel"),
        "pin": http.post(f"{ended}/pin", json={"pinned": True}),
        "login": http.get("/login", params={"token": token_of(Storage(disk))}),
        "delete": http.delete(ended),
    }
    said = {name: [got.status_code, got.json()] for name, got in answers.items()}
    (out / "answers.json").write_text(json.dumps(said))
    reads = http.get("/api/agents/workers").status_code
    ballast.close()
    (disk / "ballast").unlink()
    again = http.post("/api/runs", json={"worker": "quick"}).status_code
    (out / "after.json").write_text(json.dumps([reads, again]))
up.terminate()
up.wait(60)
"""


@pytest.mark.req("SF-23")
def test_a_full_disk_refuses_requests_that_store_something_and_no_others(tmp_path: Path):
    program = tmp_path / "requests.py"
    program.write_text(REQUESTS)
    script = f'"{sys.executable}" "{program}" "$DISK" "$OUT" "{tmp_path}"'
    done = on_small_disk(tmp_path, "2m", script, SHOPFLOOR_DISK_LOW_WATER="0", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    answers = json.loads((tmp_path / "out" / "answers.json").read_text())
    assert {name: status for name, (status, _) in answers.items()} == dict.fromkeys(answers, 507)
    for name, (_, body) in answers.items():
        error = body if name == "execute" else body["error"]
        assert error["code"] == "storage_full"
        assert "free some space" in error["hint"]
    assert json.loads((tmp_path / "out" / "after.json").read_text()) == [200, 200]
