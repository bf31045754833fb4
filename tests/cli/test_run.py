"""`shopfloor run --command`: any command as a worker, recorded."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from tests.timeouts import TIMEOUT_SECONDS, wait_until

GOLDEN = Path(__file__).parents[1] / "golden"


def events_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def only_path(paths: list[Path]) -> Path:
    assert len(paths) == 1
    return paths[0]


def output_of(events: list[dict], stream: str) -> str:
    return "".join(
        block["text"]
        for event in events
        if event["type"] == "message.assistant"
        for block in event["payload"]["blocks"]
        if block["stream"] == stream
    )


def processes_with(word: str) -> list[str]:
    """The command lines of live processes whose environment holds `word`."""
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                state = (folder / "stat").read_bytes().rpartition(b")")[2].split()[0]
                if state != b"Z" and word.encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


@pytest.mark.req("TR-51", "TR-52")
def test_output_and_exit_code_are_those_of_the_command(shopfloor):
    done = shopfloor("run", "--command", "printf 'hello\\n'; echo oops >&2; exit 3")
    assert done.stdout == "hello\n"
    assert done.stderr.startswith("oops\nshopfloor: failed (exit code 3)")
    assert done.returncode == 3


@pytest.mark.req("TR-1", "TR-2", "TR-6", "TR-7", "TR-8", "TR-10", "TR-11", "TR-22", "TR-25")
def test_the_transcript_has_the_shape_of_the_worked_example(shopfloor, transcripts):
    command = "printf 'hello\\n'; echo oops >&2; exit 3"
    shopfloor("run", "--command", command)
    path = only_path(transcripts())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    made, example = events_of(path), events_of(GOLDEN / "command.jsonl")
    assert {event["run_id"] for event in made} == {path.stem}

    def stable(value):
        """The event without the fields that differ between runs, and without the decision, which the example is older than."""
        if isinstance(value, dict):
            changing = {"run_id", "root_run_id", "timestamp", "queued_at", "host", "pid", "cwd", "duration_ms"}
            known = {key: item for key, item in value.items() if key != "decision"}
            return {key: "*" if key in changing else stable(item) for key, item in known.items()}
        return [stable(item) for item in value] if isinstance(value, list) else value

    assert [stable(event) for event in made] == [stable(event) for event in example]
    assert made[4]["payload"]["decision"] == {"action": "abort"}


def test_quiet_prints_only_the_output_of_the_command(shopfloor):
    done = shopfloor("run", "-q", "--command", "echo out; echo err >&2")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 0)


def test_the_command_runs_in_the_folder_of_the_option_cwd(shopfloor, tmp_path):
    folder = tmp_path / "a folder"
    folder.mkdir()
    assert shopfloor("run", "-q", "--command", "pwd", "--cwd", str(folder)).stdout.strip() == str(folder)


def test_owner_and_channel_are_recorded(shopfloor, transcripts):
    shopfloor("run", "--command", "true", "--owner", "ada", "--channel", "discord:1:2", "--channel-name", "#general")
    payload = events_of(only_path(transcripts()))[0]["payload"]
    assert (payload["agent_id"], payload["channel_id"], payload["channel_name"]) == ("ada", "discord:1:2", "#general")


def test_both_pipes_full_at_once_do_not_deadlock_and_nothing_is_lost(shopfloor, transcripts):
    script = "head -c 5000000 /dev/zero | tr '\\0' e >&2 & head -c 5000000 /dev/zero | tr '\\0' o; wait"
    done = shopfloor("run", "-q", "--command", script)
    assert (len(done.stdout), len(done.stderr)) == (5_000_000, 5_000_000)
    events = events_of(only_path(transcripts()))
    assert (output_of(events, "stdout"), output_of(events, "stderr")) == ("o" * 5_000_000, "e" * 5_000_000)
    pieces = [event for event in events if event["type"] == "message.assistant"]
    assert all(sum(len(block["text"]) for block in event["payload"]["blocks"]) <= 16384 for event in pieces)
    assert len(events[-1]["payload"]["result"]) == 8192


def test_output_appears_in_the_log_while_the_command_runs(start, transcripts):
    process = start("run", "--command", "echo first; sleep 60")
    assert process.stdout.readline() == b"first\n"
    assert output_of(events_of(only_path(transcripts())), "stdout") == "first\n"


@pytest.mark.req("TR-4")
def test_unusual_bytes_are_recorded_unchanged(shopfloor, transcripts):
    nasty = (
        "nul \0 separator \u2028 bom \ufeff escape \x1b[31m emoji \U0001f600 html <script>".encode() + b" bad \xff\xc3("
    )
    octal = "".join(f"\\{byte:03o}" for byte in nasty)
    done = shopfloor("run", "-q", "--command", f"printf '{octal}'", text=False)
    assert done.stdout == nasty
    events = events_of(only_path(transcripts()))
    blocks = [b for e in events if e["type"] == "message.assistant" for b in e["payload"]["blocks"]]
    assert "".join(block["text"] for block in blocks) == nasty.decode("utf-8", "replace")
    kept = b"".join(base64.b64decode(b["raw"]) if "raw" in b else b["text"].encode() for b in blocks)
    assert kept == nasty


def test_a_character_split_between_two_chunks_is_complete_in_the_log(shopfloor, transcripts):
    done = shopfloor("run", "-q", "--command", "printf '\\342\\202'; sleep 0.2; printf '\\254 done'")
    assert done.stdout == "€ done"
    assert output_of(events_of(only_path(transcripts())), "stdout") == "€ done"


def test_a_command_killed_by_a_signal_says_so(shopfloor, transcripts):
    done = shopfloor("run", "--command", "kill -SEGV $$")
    assert done.returncode == 128 + signal.SIGSEGV
    events = events_of(only_path(transcripts()))
    assert events[-2]["payload"]["result"] == {"exit_code": 139, "signal": "SIGSEGV"}
    assert events[-1]["payload"]["error"]["message"] == "killed by SIGSEGV"


def test_a_missing_program_has_the_shells_exit_code_127(shopfloor):
    done = shopfloor("run", "--command", "no-such-program-here")
    assert done.returncode == 127
    assert "not found" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_the_run_and_the_transcript_is_complete(start, shopfloor, transcripts, env, number):
    env["SF_TEST"] = f"cancel-{os.getpid()}-{number}"
    script = "sleep 300 & setsid sleep 301 & (setsid sh -c 'sleep 302; true' &) ; echo ready; sleep 303"
    process = start("run", "--command", script)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(number)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 128 + number
    assert processes_with(env["SF_TEST"]) == []
    last = events_of(only_path(transcripts()))[-1]
    assert last["payload"]["status"] == "cancelled"
    assert last["payload"]["error"] == {
        "code": "cancelled",
        "message": f"cancelled by {number.name}",
        "retryable": False,
    }
    assert last["payload"]["result"].startswith("ready\n")
    assert shopfloor("verify", "last").returncode == 0


def test_the_output_of_a_command_that_is_being_stopped_is_recorded(start, transcripts):
    process = start(
        "run", "--command", "trap 'echo cleaning up; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    )
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT_SECONDS)[0] == b"cleaning up\n"
    assert "cleaning up" in events_of(only_path(transcripts()))[-1]["payload"]["result"]


def test_a_second_ctrl_c_does_not_wait_for_the_grace(start, transcripts, env):
    env["SF_TEST"] = f"force-{os.getpid()}"
    command = "trap 'echo not yet' TERM; echo ready; while :; do sleep 0.05; done"
    process = start("run", "--grace", "600", "--command", command)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"not yet\n"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 130
    assert processes_with(env["SF_TEST"]) == []
    assert events_of(only_path(transcripts()))[-1]["payload"]["status"] == "cancelled"


def test_a_command_that_ignores_term_is_killed_after_the_grace(start, transcripts):
    process = start("run", "--grace", "0.2", "--command", "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_SECONDS)
    events = events_of(only_path(transcripts()))
    assert events[-2]["payload"]["result"] == {"exit_code": 137, "signal": "SIGKILL"}
    assert events[-1]["payload"]["status"] == "cancelled"


def test_a_reader_that_stopped_reading_cannot_keep_a_cancelled_run_alive(start, transcripts):
    process = start("run", "--command", "yes")
    wait_until(lambda: transcripts() and transcripts()[0].stat().st_size > 50_000, "output on record")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=TIMEOUT_SECONDS) == 130
    assert events_of(only_path(transcripts()))[-1]["payload"]["status"] == "cancelled"


def test_a_broken_pipe_ends_the_command_as_in_a_shell(env, transcripts):
    from tests.cli.conftest import SHOPFLOOR

    done = subprocess.run(
        ["bash", "-c", f"{SHOPFLOOR} run -q --command yes | head -1; echo ${{PIPESTATUS[0]}}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "y\n141\n"
    assert events_of(only_path(transcripts()))[-1]["payload"]["status"] == "cancelled"


def test_remaining_processes_of_a_command_are_ended_with_the_run(shopfloor, env, transcripts):
    env["SF_TEST"] = f"leftover-{os.getpid()}"
    done = shopfloor("run", "--command", "sleep 300 & setsid sleep 301 & echo main is done")
    assert done.returncode == 0
    assert done.stdout == "main is done\n"
    assert processes_with(env["SF_TEST"]) == []
    assert events_of(only_path(transcripts()))[-1]["payload"]["status"] == "completed"


def test_late_output_of_a_background_process_is_recorded(shopfloor):
    assert shopfloor("run", "-q", "--command", "(sleep 0.2; echo late) & echo now").stdout == "now\nlate\n"


@pytest.mark.req("TR-54")
def test_nothing_is_masked_by_default(shopfloor, env, transcripts):
    env["SECRET_WORD"] = "correct-horse-battery"
    shopfloor("run", "--command", "echo $SECRET_WORD")
    assert "correct-horse-battery" in only_path(transcripts()).read_text()


@pytest.mark.req("TR-55")
def test_a_masked_variable_is_nowhere_in_the_transcript(shopfloor, env, transcripts):
    env["SECRET_WORD"] = "correct-horse-battery"
    key = "sk-ant-" + "a1" * 20
    done = shopfloor(
        "run", "--mask-env", "SECRET_WORD", "--mask-keys", "--command", f"echo correct-horse-battery {key}"
    )
    assert done.stdout == f"correct-horse-battery {key}\n"
    text = only_path(transcripts()).read_text()
    assert "correct-horse" not in text
    assert key not in text
    assert "[masked] [masked]" in text


def test_a_masked_value_printed_in_two_chunks_is_masked(shopfloor, env, transcripts):
    env["SECRET_WORD"] = "correct-horse-battery"
    script = "printf 'it is correct-ho'; sleep 0.3; printf 'rse-battery.'"
    done = shopfloor(
        "run", "-q", "--mask-env", "SECRET_WORD", "--command", script.replace("correct-ho", "correct-''ho")
    )
    assert done.stdout == "it is correct-horse-battery."
    assert output_of(events_of(only_path(transcripts())), "stdout") == "it is [masked]."


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["run"], "usage", 2),
        (["run", "--command", "  "], "usage", 2),
        (["run", "--command", "true", "--cwd", "/no/such/folder"], "usage", 2),
        (["run", "--command", "true", "--grace", "-1"], "usage", 2),
        (["run", "--command", "true", "--grace", "soon"], "usage", 2),
        (["run", "--command", "true", "--durability", "wish"], "usage", 2),
        (["run", "--command", "true", "--mask-env", "NOT_SET_ANYWHERE"], "usage", 2),
        (["run", "--command", "true", "--storage", "/dev/null/x"], "storage_failed", 6),
        (["frobnicate"], "usage", 2),
        (["show", "last"], "run_not_found", 4),
        (["show", "not-a-run!"], "run_not_found", 4),
        (["show", "/no/such.jsonl"], "file_not_found", 4),
        (["tail", "abc"], "run_not_found", 4),
        (["tree", "../../etc/passwd.jsonl"], "file_not_found", 4),
        (["verify"], "usage", 2),
        (["verify", "/no/such.jsonl"], "file_not_found", 4),
        (["verify", "/"], "file_not_found", 4),
        (["show", "/"], "file_not_found", 4),
        (["tree", "/"], "file_not_found", 4),
        (["show", "last", "--limit", "-1"], "usage", 2),
    ],
)
def test_bad_input_gets_a_clear_error_and_no_traceback(shopfloor, words, code, exit_code):
    done = shopfloor(*words)
    assert done.stderr.startswith(f"error[{code}]: ")
    assert "Traceback" not in done.stderr
    assert done.returncode == exit_code


def test_debug_shows_the_traceback(shopfloor):
    done = shopfloor("show", "last", "--debug")
    assert "Traceback" in done.stderr
    assert done.returncode == 1


def test_a_low_disk_refuses_new_runs(shopfloor, env, transcripts):
    env["SHOPFLOOR_DISK_LOW_WATER"] = str(10**18)
    done = shopfloor("run", "--command", "echo never")
    assert done.stderr.startswith("error[storage_full]: the disk is nearly full")
    assert (done.returncode, done.stdout, transcripts()) == (6, "", [])
