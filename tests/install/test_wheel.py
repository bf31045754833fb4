"""The wheel, installed with pipx as documented, for a user with an empty home folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 600


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # What a plugin leaves in its folder when it is used. Git ignores the folder.
    left = ROOT / "plugins" / "researcher" / "jobs" / "left-by-a-test"
    left.mkdir(parents=True, exist_ok=True)
    (left / "task.md").write_text("a task")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT]
    try:
        subprocess.run(command, check=True, timeout=SECONDS)
    finally:
        shutil.rmtree(left)
        with suppress(OSError):
            left.parent.rmdir()
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_contains_the_page_and_needs_no_node(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "shopfloor/server/page/index.html" in names
    assert any(re.fullmatch(r"shopfloor/server/page/assets/index-[\w-]+\.js", name) for name in names)
    assert not any("node_modules" in name for name in names)


def test_the_wheel_contains_the_templates_of_plugins_and_nothing_that_their_use_left(wheel: Path) -> None:
    folder = "shopfloor/plugin_templates/"
    names = {name.removeprefix(folder) for name in zipfile.ZipFile(wheel).namelist() if name.startswith(folder)}
    for template in ("researcher", "word-count", "node-example"):
        assert {f"{template}/guild-member.json", f"{template}/README.md"} <= names
    assert "researcher/prompt.md" in names
    assert not any(re.search(r"/(jobs|memory|__pycache__)/", name) for name in names)


@pytest.mark.req("SF-41")
def test_the_wheel_installs_with_pipx_into_an_empty_home_and_runs(wheel: Path, tmp_path: Path) -> None:
    env = _environment(tmp_path)
    _run([sys.executable, "-m", "pipx", "install", "--quiet", str(wheel)], env)
    shopfloor = tmp_path / ".local" / "bin" / "shopfloor"
    assert re.fullmatch(r"shopfloor \d+\.\d+\.\d+\n", _run([str(shopfloor), "--version"], env))
    assert _run([str(shopfloor), "run", "--command", "echo hello"], env) == "hello\n"
    assert "echo hello" in _run([str(shopfloor), "list"], env)
    assert (tmp_path / ".local" / "share" / "shopfloor" / "storage" / "transcripts").is_dir()
    _run([str(shopfloor), "plugins", "new", "counter", "--template", "word-count"], env)
    assert _run([str(shopfloor), "run", "counter", "one two three"], env) == "3 words\n"


def _environment(home: Path) -> dict[str, str]:
    """A home of its own and nothing of this virtual environment; pip keeps its settings and its download cache."""
    kept = ("LANG", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    env = {name: value for name, value in os.environ.items() if name in kept or name.startswith("PIP_")}
    cache = subprocess.run([sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True)
    return {
        **env,
        "HOME": str(home),
        "PATH": os.defpath,
        "PIP_CACHE_DIR": cache.stdout.strip(),
        "PIPX_DEFAULT_BACKEND": "pip",
        "PIPX_DEFAULT_PYTHON": sys.executable,
    }


def _run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, cwd=env["HOME"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
