"""Completion in real shells: bash and zsh on a terminal with the Tab key, fish by its own `complete -C`."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.test_server import server
from tests.timeouts import TIMEOUT_SECONDS, wait_until

__all__ = ["server"]
pytestmark = pytest.mark.req("SF-64")
SHELLS = ("bash", "zsh", "fish")
RC = {
    "bash": 'PS1="> "\n{script}\nbind -x \'"\\C-g": printf "%s\\n" "$READLINE_LINE" >> {lines}\'\n',
    "zsh": 'PS1="> "\nautoload -Uz compinit; compinit -D -u\n{script}\nsetopt no_beep\n'
    "show-line() {{ print -r -- $BUFFER >> {lines} }}\nzle -N show-line\nbindkey '^G' show-line\n",
}
"""What a shell reads at its start. Ctrl-G then writes the line that is being edited to a file."""
COMMANDS = {"bash": ["--noprofile", "--rcfile", "{rc}", "-i"], "zsh": ["-d", "-i"]}
Complete = Callable[[str], set[str]]


class ShellOnTerminal:
    """A shell that a person types into."""

    def __init__(self, shell: str, script: str, folder: Path, env: dict[str, str], cwd: Path) -> None:
        self._lines, rc = folder / "lines", folder / ".zshrc"
        rc.write_text(RC[shell].format(script=script, lines=self._lines) + f": > {self._lines}\n")
        words = [word.format(rc=rc) for word in COMMANDS[shell]]
        self._side, inside = pty.openpty()
        self._process = subprocess.Popen(
            [shutil.which(shell) or shell, *words],
            stdin=inside,
            stdout=inside,
            stderr=inside,
            env={**env, "ZDOTDIR": str(folder), "TERM": "xterm"},
            start_new_session=True,
            cwd=cwd,
        )
        os.close(inside)
        self.shown = b""
        self._wait(self._lines.exists)

    def complete(self, line: str) -> set[str]:
        """Type a line and Tab, and return the completed last word; empty if nothing was added."""
        known = self._lines.read_text()
        os.write(self._side, f"{line}\t\x07".encode())
        self._wait(lambda: self._lines.read_text() != known)
        os.write(self._side, b"\x15")
        found = self._lines.read_text().removeprefix(known).rstrip("\n")
        return {found.split()[-1]} if found != line else set()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._side)

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Read what the shell shows until it has done something. A shell that nobody reads from would block."""

        def look() -> bool:
            while select.select([self._side], [], [], 0)[0]:
                self.shown += os.read(self._side, 65536)
            return is_done()

        wait_until(look, "the shell")


@pytest.fixture(params=SHELLS)
def completing(request: pytest.FixtureRequest, shopfloor, tmp_path: Path) -> Iterator[Callable[..., Complete]]:
    """Return a function that starts a shell with the script, and returns what completes a line in it."""
    shell: str = request.param
    started: list[ShellOnTerminal] = []

    def fish(env: dict[str, str], script: str, cwd: Path) -> Complete:
        (tmp_path / "shopfloor.fish").write_text(script)

        def complete(line: str) -> set[str]:
            ask = f"source {tmp_path / 'shopfloor.fish'}; complete -C $argv[1]"
            words = [shutil.which("fish") or "fish", "--no-config", "-c", ask, line]
            done = subprocess.run(words, env=env, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
            assert (done.returncode, done.stderr) == (0, "")
            return {line.split("\t")[0] for line in done.stdout.splitlines()}

        return complete

    def start(storage: Path, cwd: Path) -> Complete:
        script = shopfloor("completion", shell).stdout
        # Without a PATH no program can be started.
        env = {"SHOPFLOOR_STORAGE": str(storage), "PATH": "/nonexistent", "HOME": str(tmp_path)}
        if shell == "fish":
            return fish(env, script, cwd)
        folder = tmp_path / f"rc-{len(started)}"
        folder.mkdir()
        started.append(ShellOnTerminal(shell, script, folder, env, cwd))
        return started[-1].complete

    yield start
    for terminal in started:
        terminal.close()
        # No shell complained about the script or a program that it could not start.
        assert b"not found" not in terminal.shown, terminal.shown
        assert b"_shopfloor" not in terminal.shown, terminal.shown


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project's folder"
    (folder / "workers" / "my-own").mkdir(parents=True)
    (folder / "workers" / "my-own" / "worker.yaml").write_text("steps: {}\n")
    (folder / "notes.jsonl").touch()
    return folder


def test_a_shell_completes_commands_options_workers_and_runs_without_starting_a_program(
    completing, server, shopfloor, env, project: Path
):
    storage = Path(env["SHOPFLOOR_STORAGE"])
    up = server()
    shopfloor("run", "-q", "--command", "true")
    (run,) = json.loads(shopfloor("list", "--json").stdout)["workers"]
    (storage / "workers" / "shared").mkdir(parents=True)
    (storage / "workers" / "shared" / "worker.py").touch()
    # The server is down, and what it left behind names it.
    up.process.kill()
    up.process.communicate()

    complete = completing(storage, project)
    expected = {
        "shopfloor disp": "dispatch",
        "shopfloor appr": "approvals",
        "shopfloor list --stat": "--status",
        "shopfloor ps --stat": "--status",
        "shopfloor list --status comp": "completed",
        "shopfloor run --provider claude-c": "claude-code",
        "shopfloor hooks ad": "add",
        "shopfloor hooks add --o": "--on",
        f"shopfloor show {run['id'][:4]}": run["id"],
        f"shopfloor answer {run['id'][:4]}": run["id"],
        # So few characters may be those of very many runs.
        f"shopfloor show {run['id'][:3]}": None,
        "shopfloor tail la": "last",
        "shopfloor run my-": "my-own",
        "shopfloor run shar": "shared",
        "shopfloor dispatch hel": "hello",
        "shopfloor workers show my-": "my-own",
        "shopfloor export last --format ht": "html",
        "shopfloor export last --output not": "notes.jsonl",
        "shopfloor verify not": "notes.jsonl",
        "shopfloor unknown-": None,
    }
    found = {line: complete(line) for line in expected}
    assert found == {line: set() if word is None else {word} for line, word in expected.items()}


def test_a_shell_completes_without_a_storage(completing, tmp_path: Path, project: Path):
    complete = completing(tmp_path / "no storage", project)
    assert complete("shopfloor show la") == {"last"}
    assert complete("shopfloor run my-") == {"my-own"}
    assert complete("shopfloor show abc") == set()
    assert not (tmp_path / "no storage").exists()


def test_a_shell_executes_nothing_that_the_name_of_a_folder_says(completing, tmp_path: Path, project: Path):
    for name in ("pw$(echo>executed)", "pw`echo>executed`", "my-'$(echo>executed)"):
        (project / "workers" / name).mkdir()
        (project / "workers" / name / "worker.yaml").touch()
    complete = completing(tmp_path / "no storage", project)
    assert complete("shopfloor run my-o") == {"my-own"}
    complete("shopfloor run pw")
    complete("shopfloor run ")
    assert not (project / "executed").exists()
