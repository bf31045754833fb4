"""The templates: what `plugins new` copies, how the short ones fail, and the rules that the engine shares."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.model_server.server import ModelServer
from tests.plugins.plugin_process import PluginProcess, RpcFailure

from shopfloor.adapters.memory import MemoryBlobs
from shopfloor.engine.worker_memory import WorkerMemory
from shopfloor.errors import ShopfloorError
from shopfloor.limits import CHARS_PER_TOKEN, MEMORY_KEYS, MEMORY_PROMPT_TOKENS
from shopfloor.wiring import create_plugin, plugin_templates

PROMPT_CHARS = MEMORY_PROMPT_TOKENS * CHARS_PER_TOKEN


@pytest.mark.parametrize("template", ["node-example", "researcher", "word-count"])
def test_a_copy_ignores_what_its_use_leaves(tmp_path: Path, template: str) -> None:
    source = tmp_path / template
    shutil.copytree(plugin_templates()[template], source)
    (source / "jobs" / "left").mkdir(parents=True)
    created = create_plugin(tmp_path / "plugins", "my-worker", source)
    assert not (created / "jobs").exists()
    for name in ("jobs", "memory"):
        (created / name).mkdir()
        (created / name / "file").write_text("x")
    subprocess.run(["git", "init", "-q"], cwd=created, check=True)
    subprocess.run(["git", "add", "-A"], cwd=created, check=True)
    added = subprocess.run(["git", "ls-files"], cwd=created, check=True, capture_output=True, text=True).stdout.split()
    assert ".gitignore" in added
    assert not [name for name in added if name.startswith(("jobs/", "memory/"))]


@pytest.mark.req("REQ-WD-40")
def test_a_copy_of_the_researcher_has_tests_that_pass(tmp_path: Path) -> None:
    created = create_plugin(tmp_path / "plugins", "my-worker", plugin_templates()["researcher"])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=created, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    assert not (created / "jobs").exists()


@pytest.fixture(params=["word-count", "node-example"])
def short_plugin(request: pytest.FixtureRequest, model_server: ModelServer, tmp_path: Path) -> Iterator[PluginProcess]:
    """A short template whose work fails for the task "break"."""
    plugin = PluginProcess.copy_of(request.param, tmp_path, model_server)
    for name, before, after in [
        ("server.py", 'return f"{len', 'if task == "break":\n        raise ValueError("broken")\n    return f"{len'),
        ("server.mjs", "return task.replace", 'if (task === "break") throw "broken";\n  return task.replace'),
        ("server.mjs", "async function work", "function work"),
    ]:
        if (path := plugin.folder / name).exists():
            text = path.read_text()
            assert text.count(before) == 1
            path.write_text(text.replace(before, after))
    yield plugin.start()
    plugin.stop()


def test_an_exception_in_the_work_ends_the_job_as_failed(short_plugin: PluginProcess) -> None:
    status = short_plugin.wait_for(short_plugin.dispatch("break"))
    assert (status["status"], status["error"]) == ("failed", "broken")
    assert status["completedAt"] is not None
    assert short_plugin.wait_for(short_plugin.dispatch("two words"))["status"] == "completed"


def test_only_a_request_that_is_not_json_is_a_parse_error(short_plugin: PluginProcess) -> None:
    codes = [short_plugin.post(body).json()["error"]["code"] for body in (b"{", b"\xff", b"[]", b'"text"')]
    assert codes == [-32700, -32700, -32600, -32600]
    short_plugin.wait_for(short_plugin.dispatch())
    with pytest.raises(RpcFailure) as failure:
        short_plugin.call("worker/list", filter=["no text"])
    assert failure.value.code == -32603
    assert len(short_plugin.call("worker/list")["jobs"]) == 1


@pytest.mark.req("REQ-WD-29")
@pytest.mark.parametrize(
    ("known", "key", "length", "is_allowed"),
    [
        (0, "key", PROMPT_CHARS, True),
        (0, "key", PROMPT_CHARS + 1, False),
        (0, "k" * 100, 1, True),
        (0, "k" * 101, 1, False),
        (0, "a.b_c-1", 1, True),
        (0, ".hidden", 1, False),
        (0, "a/b", 1, False),
        (0, "", 1, False),
        (0, "compacted", 1, False),
        (MEMORY_KEYS - 1, "key", 1, True),
        (MEMORY_KEYS, "key", 1, False),
        (MEMORY_KEYS, "known-0", 1, True),
    ],
)
@pytest.mark.anyio
async def test_the_researcher_and_the_engine_accept_the_same_memories(
    tmp_path: Path, known: int, key: str, length: int, is_allowed: bool
) -> None:
    plugin_memory = importlib.import_module("plugin.memory")
    blobs = MemoryBlobs()
    for number in range(known):
        (tmp_path / f"known-{number}.md").write_text("x")
        await blobs.put(f"memory/w/known-{number}", b"x")
    results: list[bool] = []
    try:
        await WorkerMemory(blobs, "memory/w").store(key, "ä" * length)
        results.append(True)
    except ShopfloorError:
        results.append(False)
    try:
        plugin_memory.Memory(tmp_path).store(key, "ä" * length)
        results.append(True)
    except plugin_memory.InvalidMemory:
        results.append(False)
    assert results == [is_allowed, is_allowed]
