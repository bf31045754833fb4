"""What people do to a command: close its output, fill the disk under it, kill it with odd signals, feed it odd files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cli.conftest import SHOPFLOOR
from tests.cli.test_run import events_of, only_path
from tests.timeouts import TIMEOUT_SECONDS

GOLDEN = Path(__file__).parents[1] / "golden"


def bash(line: str, env: dict[str, str], **options) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", line.replace("shopfloor", SHOPFLOOR)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize("closing", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_run_whose_own_streams_are_closed_is_recorded_to_its_end(env, transcripts, closing):
    done = bash(f"shopfloor run --command 'echo hi; echo er >&2; exit 4' {closing}", env)
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    events = events_of(only_path(transcripts()))
    assert events[-1]["payload"]["error"]["message"] == "exit code 4"
    assert events[-1]["payload"]["result"] == "hi\ner\n"


@pytest.mark.parametrize("words", ["show last", "tail last", "tree last", "verify last", "list", "nosuch"])
def test_no_command_prints_a_traceback_when_its_output_is_closed(env, shopfloor, words):
    shopfloor("run", "--command", "echo hi")
    for closing in (">&-", ">&- 2>&-", ">/dev/full"):
        done = bash(f"shopfloor {words} {closing}", env)
        assert "Traceback" not in done.stderr
        assert "defect" not in done.stderr


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("shopfloor run --command 'exit 5' 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}", 5),
        ("shopfloor run --command 'echo hi' 2>/dev/full", 0),
        ("shopfloor run --command 'exit 6' 2>/dev/full", 6),
    ],
)
def test_the_exit_code_is_the_commands_even_where_our_closing_line_cannot_be_written(env, line, code):
    assert bash(line, env).returncode == code


def test_a_signal_without_a_name_is_reported_by_its_number(shopfloor, transcripts):
    done = shopfloor("run", "--command", "echo hi; kill -40 $$")
    assert done.returncode == 168
    assert events_of(only_path(transcripts()))[-1]["payload"]["error"]["message"] == "killed by signal 40"


def test_an_ignored_signal_stays_ignored(env, transcripts):
    done = bash("nohup shopfloor run -q --command 'echo hi; sleep 1' & sleep 0.7; kill -HUP $!; wait $!", env)
    assert done.returncode == 0, done.stderr
    assert events_of(only_path(transcripts()))[-1]["payload"]["status"] == "completed"


def test_quitting_from_the_keyboard_cancels_too(start, transcripts):
    run = start("run", "--command", "echo first; sleep 60")
    assert run.stdout.readline() == b"first\n"
    run.send_signal(signal.SIGQUIT)
    run.communicate(timeout=TIMEOUT_SECONDS)
    assert events_of(only_path(transcripts()))[-1]["payload"]["status"] == "cancelled"


def test_tail_from_the_end_of_a_finished_run_prints_no_warning(shopfloor):
    shopfloor("run", "--command", "echo hi")
    for after in ("6", "99"):
        done = shopfloor("tail", "last", "--after", after)
        assert done.returncode == 0
        assert "no outcome" not in done.stderr


def test_a_long_line_in_many_chunks_is_shown_quickly_and_truncated(shopfloor, env):
    shopfloor(
        "run",
        "-q",
        "--command",
        "head -c 40000000 /dev/zero | tr '\\0' x",
        stdout=subprocess.DEVNULL,
        capture_output=False,
    )
    assert "(39,998,000 characters cut; --full shows them)" in shopfloor("show", "last").stdout


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"child_run_id":"0b7e55d2-91c4-4a34-8f0e-7d2a6c1e9b33"', '"child_run_id":"\\u001b[2J"'),
        ('"run_id":"5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10"', '"run_id":"\\u001b[2J"'),
        ('"timestamp":"2026-11-15T10:30:00', '"timestamp":"2026-11-15T\\u001b[2J12'),
        ('"kind":"command"', '"kind":"a\\nb\\u001b[2J"'),
        ('"error":"exit code 1"', '"error":"a\\nb\\u001b[2J"'),
    ],
)
def test_control_characters_in_a_file_are_escaped(shopfloor, tmp_path, old, new):
    text = (GOLDEN / "parent.jsonl").read_text()
    assert old in text
    file = tmp_path / "hostile.jsonl"
    file.write_text(text.replace(old, new))
    for command in ("show", "tail", "tree", "verify"):
        done = shopfloor(command, str(file))
        assert "\x1b" not in done.stdout + done.stderr
        assert "\nb" not in done.stdout


def test_an_unreadable_line_does_not_hide_the_others(shopfloor, tmp_path):
    lines = (GOLDEN / "command.jsonl").read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"hello", b"hel\xff")
    lines[3] = lines[3].replace(b'"path":"command"', b'"path":null')
    file = tmp_path / "damaged.jsonl"
    file.write_bytes(b"".join(lines))
    for command, outcome in (("show", "✗ failed"), ("tail", "✗ failed"), ("tree", "✗ failed")):
        done = shopfloor(command, str(file))
        assert outcome in done.stdout
        assert "warning: event 4 cannot be shown" in done.stderr
        assert done.returncode == 0


def test_a_pipe_or_device_is_not_read_as_a_transcript(shopfloor, tmp_path, env):
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    link = tmp_path / "zero.jsonl"
    link.symlink_to("/dev/zero")
    for file in (pipe, link):
        for command in ("show", "tail", "tree", "verify"):
            done = shopfloor(command, str(file))
            assert "is a device, not a transcript" in done.stderr
            assert done.returncode == 4
    shopfloor("run", "--command", "echo hi")
    os.mkfifo(Path(env["SHOPFLOOR_STORAGE"], "transcripts", "5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10.jsonl"))
    assert shopfloor("show", "last").returncode == 0
    assert "1 of 1 runs" in shopfloor("list").stdout


def test_verifying_a_file_without_line_ends_takes_no_more_memory_than_a_line(tmp_path, env):
    file = tmp_path / "endless.jsonl"
    with file.open("wb") as made:
        made.truncate(600_000_000)
    # Not getrusage: its maximum includes the process before `exec`.
    script = (
        "import re, sys; from pathlib import Path; from shopfloor.cli.main import main;"
        " code = main(['verify', sys.argv[1]]);"
        " print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(file)], env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"{file}:1: line-size" in done.stdout
    assert int(done.stdout.split()[-1]) < 300_000


def test_verify_continues_after_an_unreadable_file(shopfloor, tmp_path):
    done = shopfloor("verify", str(tmp_path / "none.jsonl"), str(GOLDEN / "command.jsonl"))
    assert "6 events, complete" in done.stdout
    assert done.returncode == 4
    assert "no transcripts in" in shopfloor("verify", "--all").stdout


def test_many_bad_lines_are_not_reported_one_by_one(shopfloor, tmp_path):
    file = tmp_path / "junk.jsonl"
    file.write_bytes((GOLDEN / "command.jsonl").read_bytes() + b"junk\n" * 5000)
    done = shopfloor("show", str(file))
    assert len(done.stderr.splitlines()) == 21


def test_a_command_that_destroys_its_own_record_is_not_called_completed(start):
    destroys = [
        start(
            "run",
            "--command",
            f"{what} $SHOPFLOOR_STORAGE/transcripts/$SHOPFLOOR_RUN.jsonl; echo hi",
            limits={"STORAGE_FULL_TIMEOUT_SECONDS": 1.0},
        )
        for what in ("rm", ": >")
    ]
    for process in destroys:
        _, stderr = process.communicate(timeout=2 * TIMEOUT_SECONDS)
        assert process.returncode == 6
        assert b"another process deleted or truncated" in stderr or b"another process truncated" in stderr


def test_a_process_that_cannot_be_stopped_is_reported(shopfloor, transcripts):
    mark = f"hiding-{os.getpid()}-{time.time_ns()}"
    done = shopfloor("run", "--command", f"env -i setsid sh -c 'sleep 30; : {mark}' & echo hi")
    assert "a process that it started still runs and cannot be stopped" in done.stderr
    assert events_of(only_path(transcripts()))[-2]["payload"]["result"] == {"exit_code": 0, "outlived": True}
    subprocess.run(["pkill", "-f", mark], check=True)


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["run", "--command", "true", "--cwd", "~nosuchuser/x"], {}),
        (["list", "--storage", "~nosuchuser/x"], {}),
        (["run", "--command", "true", "--grace", "nan"], {}),
        (["run", "--command", "true", "--grace", "inf"], {}),
    ],
)
def test_invalid_option_values_are_a_usage_error(shopfloor, env, words, extra):
    env.update(extra)
    done = shopfloor(*words)
    assert done.stderr.startswith("error[usage]: ")


def test_a_deleted_working_folder_is_a_clear_error(env, tmp_path):
    done = bash(f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone; shopfloor run --command true", env)
    assert done.stderr.splitlines()[-2] == "error[usage]: the current folder does not exist any more"


def test_a_terminal_without_unicode_gets_question_marks(shopfloor, env):
    shopfloor("run", "--command", "echo ✓")
    env["PYTHONIOENCODING"] = "ascii"
    for command in ("show", "tail", "tree", "status"):
        assert shopfloor(command, "last").returncode == 0


def test_an_unreadable_storage_is_a_clear_error(shopfloor, env):
    Path(env["SHOPFLOOR_STORAGE"]).mkdir()
    Path(env["SHOPFLOOR_STORAGE"], "transcripts").write_text("in the way")
    for words in (["show", "last"], ["show", "abcd"], ["verify", "--all"]):
        done = shopfloor(*words)
        assert done.stderr.startswith("error[storage_failed]: cannot read ")
        assert done.returncode == 6


def test_last_is_accepted_in_any_case(shopfloor):
    shopfloor("run", "--command", "echo hi")
    assert json.loads(shopfloor("show", "LAST", "--json", "--limit", "1").stdout)["seq"] == 1
