"""Plugins as workers of a main agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.mcp.installation import Installation, call

pytestmark = pytest.mark.anyio


def make_plugin(installation: Installation, name: str) -> Path:
    """Create a plugin that appends each request to the file `requests`."""
    created = installation.shopfloor("plugins", "new", name, "--template", "word-count")
    assert created.returncode == 0, created.stderr
    folder = installation.project / "plugins" / name
    code, read = (folder / "server.py").read_text(), 'self.rfile.read(int(self.headers.get("content-length") or 0))\n'
    assert read in code
    record = f"        with open({str(folder / 'requests')!r}, 'ab') as requests: requests.write(body)\n"
    (folder / "server.py").write_text(code.replace(read, read + record, 1))
    return folder


def worker_requests(folder: Path) -> int:
    path = folder / "requests"
    return path.read_text().count('"worker/') if path.exists() else 0


async def test_a_plugin_that_accepts_work_is_listed_and_does_it(installation: Installation) -> None:
    folder = make_plugin(installation, "counter")
    async with installation.client("stdio") as client:
        assert "\n- counter: " in (client.instructions or "")
        listed = (await call(client, "worker_list", {"query": "counter"})).facts["workers"]
        assert [worker["worker"] for worker in listed] == ["counter"]
        task = {"worker": "counter", "task": "one two three", "description": "Count three words"}
        ran = await call(client, "worker_run", task)
        assert (ran.is_error, ran.facts["status"], "3" in (ran.text or "")) == (False, "completed", True)
    assert "Count three words" in (folder / "requests").read_text()


@pytest.mark.req("REQ-WD-45")
async def test_a_plugin_that_only_has_tools_is_not_listed_and_gets_no_request(installation: Installation) -> None:
    folder = make_plugin(installation, "toolbox")
    manifest = json.loads((folder / "guild-member.json").read_text())
    del manifest["capabilities"]
    (folder / "guild-member.json").write_text(json.dumps(manifest))
    async with installation.client("stdio") as client:
        assert "toolbox" not in (client.instructions or "")
        assert (await call(client, "worker_list", {"query": "toolbox"})).facts == {"workers": [], "total": 0}
        refused = await call(client, "worker_dispatch", {"worker": "toolbox", "task": "count this"})
        assert (refused.is_error, refused.facts["code"]) == (True, "not_found_error")
        assert (await call(client, "run_search")).facts["runs"] == []
    assert worker_requests(folder) == 0
