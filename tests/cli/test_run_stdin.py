"""`shopfloor run --command` passes its standard input on, unless that is a terminal."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
from tests.cli.conftest import SHOPFLOOR, Cli
from tests.cli.terminal import Terminal
from tests.cli.test_run import events_of, only_path

LARGE = 100 * 1024 * 1024
RUN = ("run", "-q", "--command")


@pytest.mark.req("TR-68")
def test_a_pipe_is_passed_on_with_its_end(shopfloor: Cli) -> None:
    done = shopfloor(*RUN, "cat; echo end", input="one\ntwo\n")
    assert (done.stdout, done.returncode) == ("one\ntwo\nend\n", 0)


@pytest.mark.req("TR-68")
def test_a_file_on_stdin_is_passed_on_from_its_current_offset(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("one\ntwo\nthree\n")
    line = f"{{ read -r first; {SHOPFLOOR} run -q --command 'read -r x; echo got $x'; read -r last; echo $last; }} < {file}"
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout == "got two\nthree\n", done.stderr


@pytest.mark.req("TR-68")
def test_a_socket_is_passed_on(env: dict[str, str]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"hello\n")
        ours.shutdown(socket.SHUT_WR)
        done = subprocess.run([SHOPFLOOR, *RUN, "cat"], env=env, stdin=theirs.fileno(), capture_output=True, timeout=60)
    assert done.stdout == b"hello\n", done.stderr


@pytest.mark.req("TR-68")
@pytest.mark.parametrize("stdin", ["</dev/null", "<&-"])
def test_without_input_the_command_reads_the_end_at_once(env: dict[str, str], stdin: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{SHOPFLOOR} run -q --command 'cat; echo end' {stdin}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("end\n", 0), done.stderr


@pytest.mark.req("TR-68")
def test_a_terminal_is_not_passed_on(env: dict[str, str]) -> None:
    terminal = Terminal(*RUN, "cat; echo end", env=env)
    assert terminal.end() == 0
    assert "end" in terminal.shown


@pytest.mark.req("TR-68")
def test_large_input_is_passed_on_in_flat_memory(env: dict[str, str]) -> None:
    command = "wc -c; grep VmHWM /proc/$PPID/status"
    line = f"head -c {LARGE} /dev/zero | {SHOPFLOOR} run -q --command '{command}'"
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=120)
    size, _, peak_kb, _ = done.stdout.split()
    assert int(size) == LARGE
    assert int(peak_kb) * 1024 < LARGE


@pytest.mark.req("TR-68")
def test_unread_input_does_not_block_the_run(env: dict[str, str], transcripts) -> None:
    line = f"head -c {LARGE} /dev/zero | {SHOPFLOOR} run -q --command 'echo done'; echo ${{PIPESTATUS[@]}}"
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    # 141: the writer of the pipe got SIGPIPE.
    assert done.stdout == "done\n141 0\n", done.stderr
    assert events_of(only_path(transcripts()))[-1]["payload"]["status"] == "completed"


def test_the_command_of_a_worker_has_empty_stdin(env: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "workers" / "reads"
    folder.mkdir(parents=True)
    (folder / "worker.yaml").write_text(
        "steps:\n  Read:\n    block: command\n    command: cat; echo end\n    output: SEEN\noutput: SEEN\n"
    )
    words = [SHOPFLOOR, "run", "-q", "reads", "--workers", str(folder.parent)]
    done = subprocess.run(words, env=env, input=b"not for it\n", capture_output=True, timeout=60)
    assert done.stdout.strip() == b"end", done.stderr
