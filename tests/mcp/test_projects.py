"""A worker that several projects have, over MCP and JSON-RPC: the folder of the request decides, by one rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.mcp.installation import Installation, call

pytestmark = pytest.mark.anyio

_WORKER = """
input: {{NAME: {{type: string}}}}
steps:
  Say it: {{block: terminal, output: "{project} greets {{{{NAME}}}}"}}
"""


def add_project(installation: Installation, name: str) -> Path:
    """Create a project with the worker `twin`, and add it to the server's projects."""
    folder = installation.folder / name
    (folder / "workers" / "twin").mkdir(parents=True)
    (folder / "workers" / "twin" / "worker.yaml").write_text(_WORKER.format(project=name))
    added = installation.shopfloor("projects", "add", str(folder))
    assert added.returncode == 0, added.stderr
    return folder


async def test_a_worker_of_two_projects_is_that_of_the_requests_folder(installation: Installation) -> None:
    folders = {name: str(add_project(installation, name)) for name in ("one", "two")}
    address = installation.up()

    def dispatch(**fields: Any) -> dict[str, Any]:
        params = {"worker": "twin", "task": "Ada", "description": "greet", **fields}
        body = {"jsonrpc": "2.0", "id": 1, "method": "worker/dispatch", "params": params}
        headers = {"Authorization": f"Bearer {address.token}"}
        return httpx.post(f"{address.url}/rpc", json=body, headers=headers).json()

    async with installation.client("stdio") as client:
        for name, folder in folders.items():
            ran = await call(client, "worker_run", {"worker": "twin", "task": "Ada", "cwd": folder})
            assert (ran.is_error, ran.text) == (False, f"{name} greets Ada")
            job_id = dispatch(cwd=folder)["result"]["jobId"]
            while (await call(client, "worker_wait", {"run_ids": [job_id]})).facts["runs"][0]["status"] in (
                "queued",
                "running",
            ):
                pass
            assert (await call(client, "worker_result", {"run_id": job_id})).text == f"{name} greets Ada"
        named = await call(client, "worker_run", {"worker": "two/twin", "task": "Ada"})
        assert named.text == "two greets Ada"
        refused = await call(client, "worker_dispatch", {"worker": "twin", "task": "Ada"})
        assert (refused.is_error, refused.facts["error"]) == (True, "several projects have a worker `twin`")
    assert dispatch()["error"]["message"].startswith("several projects have a worker `twin`")
